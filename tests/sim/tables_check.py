"""The tables against each other, against the engine's memory, and against what was promised."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from conveyor_actors.engine.engine import Engine
from conveyor_actors.model import ACTIVE, COMPLETED, DELAYED, FAILED, STATE_NAMES, WAITING
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import GONE, HAS_HISTORY, HAS_NAME, HAS_PAYLOAD, HAS_RESULT, JobRecord, number_key

from .expectations import Expectations, Life

Rows = dict[bytes, bytes]


def rows_of(table: Any) -> Rows:
    return dict(table.cursor().iternext())


class Snapshot(NamedTuple):
    """Every row there is."""

    jobs: dict[int, JobRecord]
    leases: dict[int, tuple[int, str]]  # token -> (job, worker)
    queues: dict[str, t.QueueRecord]
    totals: t.Totals
    raw: dict[str, Rows]


def read(tables: Any) -> Snapshot:
    raw = {name: rows_of(getattr(tables, name)) for name in t.TABLES}
    raw["meta"].pop(t.LIFE_KEY)  # drawn by the store itself at each opening
    leases: dict[int, tuple[int, str]] = {}
    for sealed in raw["leases"].values():
        record = t.read_lease(sealed)
        assert record.members, "an empty lease was kept"
        for token, number in record.members:
            assert token not in leases, f"token {token} is in two leases"
            leases[token] = (number, record.worker)
    totals = raw["counters"].get(t.TOTALS_KEY)
    return Snapshot(
        {t.read_number(key): t.read_job(sealed) for key, sealed in raw["jobs"].items()},
        leases,
        {key.decode(): t.read_queue(sealed) for key, sealed in raw["queues"].items()},
        t.Totals() if totals is None else t.read_totals(totals),
        raw,
    )


def check(tables: Any, engine: Engine, expected: Expectations) -> None:
    """All of it."""
    snapshot = read(tables)
    leased = _check_leases(snapshot, engine, expected)
    _check_lives(snapshot, expected, leased)
    _check_indexes(snapshot, leased)
    _check_counts(snapshot, engine, leased)
    _check_events(snapshot, engine, expected)
    _check_totals(snapshot, expected)
    _check_requests(snapshot)


def _check_leases(snapshot: Snapshot, engine: Engine, expected: Expectations) -> dict[int, int]:
    leased = {number: token for token, (number, _) in snapshot.leases.items()}
    assert len(leased) == len(snapshot.leases), "a job has two live leases"
    assert leased == {life.number: life.token for life in expected.lives.values() if life.state == ACTIVE}
    memory = engine.memory
    assert {token: lease.number for token, lease in memory.leases.items()} == {
        token: number for token, (number, _) in snapshot.leases.items()
    }
    assert set(memory.active) == set(leased)
    waits = {(route, number) for number, routes in memory.waits.items() for route in routes}
    assert waits == expected.owed, "who waits is forgotten, or remembered for nothing"
    for worker in memory.workers.values():
        of_worker = {token for token, (_, holder) in snapshot.leases.items() if holder == worker.id}
        assert set(worker.leases) == of_worker
        assert worker.load_us == sum(lease.estimate_us for lease in worker.leases.values())
        for token, lease in worker.leases.items():
            assert lease.held_bytes >= len(expected.by_token[token].new.payload)
        assert worker.held_bytes == sum(lease.held_bytes for lease in worker.leases.values())
    return leased


def _check_lives(snapshot: Snapshot, expected: Expectations, leased: dict[int, int]) -> None:
    """Nothing that was accepted is lost, and nothing else is there."""
    assert set(snapshot.jobs) <= set(expected.lives)
    for number, life in expected.lives.items():
        record = snapshot.jobs.get(number)
        if record is None:
            assert life.removed_ms is not None, f"job {number} ({life.state}) is lost"
            continue
        _check_life(life, record, leased)
        payload = record.payload
        if record.flags & HAS_PAYLOAD:
            assert payload == b""
            payload = t.unseal(snapshot.raw["payloads"][number_key(number)])
        assert payload == life.new.payload


def _check_life(life: Life, record: JobRecord, leased: dict[int, int]) -> None:
    number = life.number
    state = ACTIVE if number in leased else record.state
    assert state == life.state, f"job {number} is {STATE_NAMES[state]}, its events say {life.state}"
    assert record.state != ACTIVE
    assert (record.name, record.id, record.priority) == (life.new.name, life.id, life.new.priority)
    assert record.attempts_made == life.attempts_made <= life.attempts
    assert record.stalled_count == life.stalls
    assert record.stalled_count + record.interruptions <= life.deaths, f"job {number} was charged without a cause"
    assert bool(record.flags & GONE) == (life.removed_ms is not None)
    if record.state in (COMPLETED, FAILED):
        assert record.finished_ms == life.finished_ms
        assert (record.failure is None) == (record.state == COMPLETED)


def check_ends(tables: Any, ended: list[Life], expected: Expectations) -> None:
    """The result of a job is what its last lease produced."""
    for life in ended:
        sealed = tables.jobs.get(number_key(life.number))
        assert sealed is not None
        record = t.read_job(sealed)
        if life.state == COMPLETED:
            result = record.result
            if record.flags & HAS_RESULT:
                assert result is None
                result = t.unseal(tables.results.get(number_key(life.number)))
            assert result == expected.outcomes[life.tokens[-1]].value
        else:
            assert record.failure is not None and record.failure.kind == life.failure_kind


def _check_indexes(snapshot: Snapshot, leased: dict[int, int]) -> None:
    """waiting, by_state, timers, names, results and history hold exactly what the records say."""
    waiting, by_state, promotions, forgets, names = {}, set(), set(), set(), {}
    payloads, results, with_history = set(), set(), set()
    raw = snapshot.raw
    for number, record in snapshot.jobs.items():
        key = number_key(number)
        if record.state == WAITING and number not in leased:
            waiting[t.waiting_key(record.queue, record.priority, record.order)] = key
        if record.state == DELAYED:
            assert record.due_ms is not None
            by_state.add(t.by_state_key(record.queue, DELAYED, record.due_ms, number))
            promotions.add(t.timer_key(record.due_ms, t.PROMOTE, number))
        if record.flags & GONE:
            forgets.add(number)
        elif record.state in (COMPLETED, FAILED):
            assert record.finished_ms is not None
            by_state.add(t.by_state_key(record.queue, record.state, record.filed_ms or record.finished_ms, number))
        if record.id is not None:
            assert record.flags & HAS_NAME
            name = t.name_key(record.queue, record.id)
            if not record.flags & GONE:
                names[name] = key
        if record.flags & HAS_PAYLOAD:
            payloads.add(key)
        if record.flags & HAS_RESULT:
            results.add(key)
        if record.flags & HAS_HISTORY:
            with_history.add(number)
    assert raw["waiting"] == waiting, "a waiting row exists exactly if its job is waiting and has no lease"
    assert set(raw["by_state"]) == by_state
    assert raw["names"].items() >= names.items()
    assert set(raw["names"].values()) <= set(raw["jobs"]), "a name of a job that is forgotten"
    assert set(raw["results"]) == results
    assert set(raw["payloads"]) == payloads
    timers = [t.read_timer(key) for key in raw["timers"]]
    assert {t.timer_key(*timer) for timer in timers if timer[1] == t.PROMOTE} == promotions
    assert sorted(ref for _, kind, ref in timers if kind == t.FORGET) == sorted(forgets)
    lines = Counter(t.read_number(key[: t.NUMBER_BYTES]) for key in raw["history"])
    assert set(lines) == with_history
    for number, record in snapshot.jobs.items():
        failed = record.attempts_made - (record.state == COMPLETED)
        assert lines[number] == failed + record.stalled_count + record.interruptions


def _check_counts(snapshot: Snapshot, engine: Engine, leased: dict[int, int]) -> None:
    counted: dict[int, list[int]] = {record.number: [0] * 6 for record in snapshot.queues.values()}
    for number, record in snapshot.jobs.items():
        if not record.flags & GONE:
            counted[record.queue][ACTIVE if number in leased else record.state] += 1
    memory = engine.memory
    assert set(memory.queues) == set(snapshot.queues)
    for name, record in snapshot.queues.items():
        stored = t.read_counts(snapshot.raw["counters"][t.queue_key(record.number)])
        assert stored == counted[record.number], f"the counts of {name}"
        queue = memory.queues[name]
        assert (queue.number, queue.paused, queue.counts) == (record.number, record.paused, stored)


def _check_events(snapshot: Snapshot, engine: Engine, expected: Expectations) -> None:
    """The log is the newest part of all that ever happened, without a hole."""
    batches = [t.read_events(sealed) for sealed in snapshot.raw["events"].values()]
    first = batches[0].first if batches else 1
    logged = [row for batch in batches for row in batch.rows]
    assert [t.read_number(key) for key in snapshot.raw["events"]] == [batch.first for batch in batches]
    assert [tuple(row) for row in logged] == expected.rows[first - 1 :]
    assert snapshot.totals.next_event == len(expected.rows) + 1
    assert engine.memory.events_from == first


def _check_totals(snapshot: Snapshot, expected: Expectations) -> None:
    totals, seen, lives = snapshot.totals, expected.seen, expected.lives.values()
    assert totals.added == len(lives), "a request was carried out twice, or lost"
    assert totals.completed == seen["completed"] == sum(life.state == COMPLETED for life in lives)
    assert totals.failed == seen["failed"] == sum(life.state == FAILED for life in lives)
    assert totals.removed == seen["removed"]
    assert totals.retried == seen["retrying"]
    assert totals.stalled == seen["stalled"]
    assert totals.stalled + totals.interrupted <= sum(life.deaths for life in lives)


def _check_requests(snapshot: Snapshot) -> None:
    clients = {t.read_number(key) for key in snapshot.raw["requests"]}
    for sealed in snapshot.raw["requests"].values():
        record = t.read_requests(sealed)
        assert all(no >= record.low for no in record.replies), "replies are kept that nobody can ask for"
    timers = [t.read_timer(key) for key in snapshot.raw["timers"]]
    assert sorted(ref for _, kind, ref in timers if kind == t.FORGET_CLIENT) == sorted(clients)
