"""One row that cannot be read costs its own job, and no other."""

from __future__ import annotations

import msgspec
import pytest

from conveyor_actors.client.session import Session
from conveyor_actors.engine.inputs import WorkerReady
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import KeepRule, RunOptions
from conveyor_actors.store import tables as t
from conveyor_actors.wire import AddJobs, GetJobs, ListJobs, ReadEvents, Refused, WaitJobs, decode_request, encode

from .harness import Host, new, success


def damage(host: Host, id: str, table: str = "jobs") -> None:
    """Turns over a bit of what is stored of a job, or of whatever has that number."""
    rows, key = getattr(host.store.begin(), table), t.number_key(int(id))
    sealed = rows.get(key)
    rows.put(key, sealed[:-1] + bytes((sealed[-1] ^ 1,)))
    host.store.commit()


def told(host: Host) -> list[tuple[str | None, int]]:
    """Queue and job of all errors in the log."""
    page = host.ask(ReadEvents(0))
    errors = [row for batch in page.batches for row in batch.rows if row[0] == 22]  # type: ignore[union-attr]
    assert all("does not match its checksum" in msgspec.msgpack.decode(row[4])["message"] for row in errors)
    return [(row[1], row[2]) for row in errors]


@pytest.mark.parametrize("table", ["jobs", "payloads"])
def test_a_waiting_job_that_cannot_be_read_is_passed_by(empty: Host, table: str) -> None:
    first, bad, last = empty.add("work", new(payload=bytes(500)), "work")
    damage(empty, bad, table)
    empty.pool("work")
    empty.worker()
    empty.complete(first)
    assert empty.dispatched() == {"w1": [last]}
    empty.complete(last)
    assert empty.counts() == {"completed": 2}
    assert empty.rows("waiting") == 0
    assert told(empty) == [("q", int(bad))]
    refused = empty.ask(GetJobs([("q", bad)]))
    assert isinstance(refused, Refused) and refused.error == "CorruptRecord"


def test_nor_is_it_met_again_after_a_restart(empty: Host) -> None:
    (bad,) = empty.add("work")
    damage(empty, bad)
    for _ in range(2):
        empty.start()
        empty.pool("work")
        empty.worker()
    assert empty.counts() == {}
    assert told(empty) == [("q", int(bad))]
    (good,) = empty.add("work")
    assert empty.dispatched() == {"w1": [good]}


def test_a_waiting_row_without_a_record_is_dropped(empty: Host) -> None:
    bad, good = empty.add("work", "work")
    empty.store.begin().jobs.delete(t.number_key(int(bad)))
    empty.store.commit()
    empty.pool("work")
    empty.worker()
    assert empty.dispatched() == {"w1": [good]}
    assert empty.counts() == {"active": 1}


def test_very_many_that_cannot_be_read_take_several_ticks(empty: Host) -> None:
    ids = empty.add(*["work"] * 700)
    for id in ids[:-1]:
        damage(empty, id)
    empty.pool("work")
    empty.worker()
    assert empty.counts() == {"waiting": 200}
    assert empty.engine.wake_us == empty.now_us
    empty.tick()
    assert empty.dispatched() == {"w1": ids[-1:]}


def test_a_delayed_job_that_cannot_be_read_holds_up_no_other(host: Host) -> None:
    host.add("work", queue="another")
    bad, good = host.add(new(delay_ms=10), new(delay_ms=10))
    damage(host, bad)
    host.later(11)
    assert host.counts() == {"waiting": 1}
    assert host.rows("by_state") == 0
    assert host.waiting() == [good]
    assert told(host) == [("q", int(bad))]


def test_a_removed_job_that_cannot_be_read_is_left_where_it_is(host: Host) -> None:
    bad, good = host.add(*[new(options=RunOptions(remove_on_complete=KeepRule(0)))] * 2)
    host.complete(bad)
    host.complete(good)
    damage(host, bad)
    host.later(60_001)
    assert host.rows("jobs") == 1
    assert told(host) == [(None, int(bad))]


def test_a_client_whose_requests_cannot_be_read_is_forgotten(host: Host) -> None:
    host.add("work")
    damage(host, "1", "requests")
    host.start()
    host.later(24 * 3600 * 1000 + 1)
    assert host.rows("requests") == host.rows("timers") == 0


def test_an_ended_job_that_cannot_be_read_does_not_keep_others_from_ending(host: Host) -> None:
    keep = RunOptions(remove_on_complete=KeepRule(1))
    bad, good = host.add(*[new(options=keep)] * 2)
    host.complete(bad)
    damage(host, bad)
    host.complete(good)
    assert host.counts() == {"completed": 1}
    assert host.rows("by_state") == 1
    assert told(host) == [("q", int(bad))]


def test_a_leased_job_that_cannot_be_read_does_not_keep_the_next_supervisor_from_starting(host: Host) -> None:
    (bad,) = host.add("work")
    host.worker("w2")
    (good,) = host.add("work", queue="another")
    damage(host, bad)
    for _ in range(2):
        host.start()
        assert (host.counts(), host.counts("another")) == ({}, {"waiting": 1})
        assert host.rows("leases") == 0
    assert told(host) == [(None, int(bad))]
    host.pool("work")
    host.worker()
    assert host.dispatched() == {"w1": [good]}


def test_an_aborted_tick_finds_a_leased_job_that_cannot_be_read(host: Host) -> None:
    (bad,) = host.add("work")
    damage(host, bad)
    host.decide(WorkerReady("w2", "pool", 2))
    host.store.abort()
    host.engine.reload(host.store.begin())
    (good,) = host.add("work")
    assert host.dispatched() == {"w1": [good]}
    assert host.complete(bad).ended == {}  # too late
    host.complete(good)
    host.start()
    assert host.counts() == {"completed": 1}
    assert told(host) == [(None, int(bad))]


def test_whoever_waits_for_it_is_told_the_cause(empty: Host) -> None:
    (bad,) = empty.add("work")
    session = Session()
    wait = session.watch([("q", bad)])
    (request,) = [decode_request(frame) for frame in session.outgoing()]
    session.received(empty.tick(empty.says(request.body, no=request.no)).replies[0][1])
    damage(empty, bad)
    empty.pool("work")
    effects = empty.worker()
    assert empty.engine.memory.waits == {}
    ((_, reset),) = effects.replies
    (_, frame), _ = session.received(reset)
    again = decode_request(frame)
    assert again.body == WaitJobs([("q", bad)])
    said = empty.says(again.body, no=again.no)
    assert session.received(empty.tick(said).replies[0][1])[1] == [wait]
    with pytest.raises(CorruptRecord, match=f"job {bad}: .* does not match its checksum"):
        wait.check()


def test_a_job_whose_payload_was_damaged_while_it_ran_ends_all_the_same(host: Host) -> None:
    (id,) = host.add(new(payload=bytes(500)))
    host.ask(WaitJobs([("q", id)]), route=b"waits")
    damage(host, id, "payloads")
    effects = host.report(success(host.token(id), encode("done")))
    assert [route for route, _ in effects.replies] == [b"waits"]
    assert host.counts() == {"completed": 1}
    assert host.engine.memory.waits == {}


# -- rows that belong to no job -----------------------------------------------------------------------------------


def turn_over(host: Host, table: str, key: bytes, *, missing: bool = False) -> None:
    """Damages a row, or takes it away."""
    rows = getattr(host.store.begin(), table)
    sealed = rows.get(key)
    if missing:
        rows.delete(key)
    else:
        rows.put(key, sealed[:-1] + bytes((sealed[-1] ^ 1,)))
    host.store.commit()


@pytest.mark.parametrize("missing", [False, True])
def test_counts_that_are_lost_are_counted_again(host: Host, missing: bool) -> None:
    done, *_ = host.add("work", "work", "work", new("work", delay_ms=5_000))
    host.complete(done)
    turn_over(host, "counters", t.queue_key(1), missing=missing)
    alarms = host.start().alarms
    assert host.counts() == {"waiting": 2, "delayed": 1, "completed": 1}
    assert len(alarms) == 1 and "counted again" in alarms[0]
    assert host.start().alarms == []
    assert host.counts() == {"waiting": 2, "delayed": 1, "completed": 1}


@pytest.mark.parametrize("missing", [False, True])
def test_numbers_are_never_handed_out_twice_although_nobody_knows_them(empty: Host, missing: bool) -> None:
    before = empty.add("work", "work")
    turn_over(empty, "counters", t.TOTALS_KEY, missing=missing)
    assert len(empty.start().alarms) == 1
    (id,) = empty.add("work")
    assert int(id) > 1 << 32 and id not in before
    assert empty.record(id).name == "work"
    assert empty.start().alarms == []
    assert empty.waiting() == [*before, id]


def test_a_catalogue_that_cannot_be_read_is_told_anew(host: Host) -> None:
    turn_over(host, "handlers", b"pool")
    assert "its handlers are known when it is ready" in host.start().alarms[0]
    host.pool("work")
    assert host.start().alarms == []


def test_a_store_without_its_own_record_is_not_taken_for_a_new_one(host: Host) -> None:
    host.add("work")
    turn_over(host, "meta", t.META_KEY, missing=True)
    with pytest.raises(CorruptRecord, match="the store's own record is missing"):
        host.start()


def test_a_listing_leaves_out_what_cannot_be_read_and_says_so(empty: Host) -> None:
    first, bad, last = empty.add("work", "work", "work")
    damage(empty, bad)
    effects = empty.tick(empty.says(ListJobs("q", [0], None, 10)))
    assert [job.id for job in empty.reply(effects).jobs] == [first, last]  # type: ignore[union-attr]
    assert f"job {bad} of the queue q is left out" in effects.alarms[0]


def test_a_reader_of_events_gets_past_those_that_cannot_be_read(empty: Host) -> None:
    empty.add("work")
    empty.add("work")
    empty.add("work")
    turn_over(empty, "events", t.number_key(2))
    effects = empty.tick(empty.says(ReadEvents(0)))
    page = empty.reply(effects)
    assert [batch.first for batch in page.batches] == [1, 3]  # type: ignore[union-attr]
    assert "events from 2 on are left out" in effects.alarms[0]


def test_an_add_that_meets_damage_is_not_kept_by_halves(empty: Host) -> None:
    (bad,) = empty.add(new("work", id="mine"))
    damage(empty, "1")
    with pytest.raises(CorruptRecord):
        empty.decide(empty.says(AddJobs("q", [new("work"), new("work", id="mine")])))
    assert bad == "mine"
