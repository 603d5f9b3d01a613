"""From the tables to memory: after a start, and after an aborted tick.

Invariant: what is loaded is bounded by the workers and queues there are, never by the number of jobs.
"""

from __future__ import annotations

from conveyor_actors.engine.credits import UNKNOWN_US
from conveyor_actors.engine.damage import set_aside
from conveyor_actors.engine.ending import interrupt, take_outcomes, unrecorded
from conveyor_actors.engine.inputs import Survivor
from conveyor_actors.engine.leasing import put_back, release
from conveyor_actors.engine.memory import Batch, Lease, Memory, Queue, Settings
from conveyor_actors.engine.tick import Tick
from conveyor_actors.engine.transitions import CLAIM, RECALL, move
from conveyor_actors.errors import CorruptRecord, StoreError
from conveyor_actors.model import ACTIVE, STATE_NAMES, WAITING
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import (
    HAS_PAYLOAD,
    META_KEY,
    SCHEMA_VERSION,
    TOTALS_KEY,
    JobRecord,
    Meta,
    Tables,
    Totals,
)

_TOKENS_PER_INCARNATION = 1 << 40
#: More than were handed out for jobs and events that are not there any more, where nobody knows how many those were.
_NUMBERS_SKIPPED = 1 << 32
_SEAL_BYTES = len(t.seal(b""))


def begin_incarnation(tables: Tables, now_ms: int) -> Meta:
    """Counts this supervisor, so that no token of an earlier one is ever given out again."""
    sealed = tables.meta.get(META_KEY)
    if sealed is None and tables.queues.cursor().first():
        raise CorruptRecord("the store's own record is missing: the store is damaged, restore a backup")
    meta = Meta(SCHEMA_VERSION, 0, now_ms) if sealed is None else t.read_meta(sealed)
    if meta.schema != SCHEMA_VERSION:
        raise StoreError(f"the store has schema {meta.schema}; this program works with {SCHEMA_VERSION}")
    meta.incarnation += 1
    tables.meta.put(META_KEY, t.write(meta))
    return meta


def load(tables: Tables, memory: Memory, settings: Settings) -> None:
    """Sets everything in memory that is derived from the tables, and undoes what an aborted tick did to the rest."""
    meta = tables.meta.get(META_KEY)
    assert meta is not None, "begin_incarnation comes first"
    memory.incarnation = t.read_meta(meta).incarnation
    memory.next_token = max(memory.next_token, memory.incarnation * _TOKENS_PER_INCARNATION + 1)
    memory.totals = _totals(tables, memory)
    oldest = tables.events.cursor()
    memory.events_from = t.read_number(oldest.key()) if oldest.first() else memory.totals.next_event
    memory.clients = {}
    memory.damaged, memory.recounted = [], False
    _undo_tick(memory)
    _load_queues(tables, memory, settings)
    _load_leases(tables, memory)


def _undo_tick(memory: Memory) -> None:
    for worker in memory.just_died:
        memory.workers[worker.id] = worker.pool.workers[worker.id] = worker
    for number, route in memory.just_registered:
        routes = memory.waits.get(number, set())
        routes.discard(route)
        if not routes:
            memory.waits.pop(number, None)
    memory.just_died, memory.just_registered = [], []


def load_handlers(tables: Tables, memory: Memory) -> None:
    """What the pools could run when the supervisor died: their options bind what became of their jobs meanwhile."""
    for pool in memory.pools.values():
        sealed = tables.handlers.get(pool.name.encode())
        try:
            if sealed is not None:
                pool.learn_handlers(t.read_catalogue(sealed))
        except CorruptRecord as error:
            memory.alarms.append(f"pool {pool.name}: {error}; its handlers are known when it is ready")


def _totals(tables: Tables, memory: Memory) -> Totals:
    """The numbers handed out, and what was counted; where that is lost, numbers that were surely never handed out."""
    sealed = tables.counters.get(TOTALS_KEY)
    jobs, events = tables.jobs.cursor(), tables.events.cursor()
    try:
        if sealed is not None:
            return t.read_totals(sealed)
        if not (jobs.first() or events.first()):
            return Totals()
        raise CorruptRecord("the record of totals is missing")
    except CorruptRecord as error:
        memory.alarms.append(f"{error}; what happened is counted from here on")
        last_job = t.read_number(jobs.key()) if jobs.last() else 0
        last_event = t.read_number(events.key()) if events.last() else 0
        return Totals(last_job + _NUMBERS_SKIPPED, last_event + _NUMBERS_SKIPPED)


def _load_queues(tables: Tables, memory: Memory, settings: Settings) -> None:
    memory.queues = {}
    memory.queue_by_number = {}
    cursor = tables.queues.cursor()
    found = cursor.first()
    while found:
        name, record = cursor.key().decode(), t.read_queue(cursor.value())
        counts = _counts(tables, memory, name, record.number)
        queue = Queue(name, record.number, record.paused, counts, settings.queue(name))
        memory.queues[name] = memory.queue_by_number[record.number] = queue
        found = cursor.next()


def _counts(tables: Tables, memory: Memory, name: str, number: int) -> list[int]:
    """The counts of a queue; where they are lost they are counted again, but for the active jobs."""
    sealed = tables.counters.get(t.queue_key(number))
    try:
        if sealed is None:
            raise CorruptRecord("the counts of a queue are missing")
        return t.read_counts(sealed)
    except CorruptRecord as error:
        memory.alarms.append(f"queue {name}: {error}; its jobs are counted again")
        memory.recounted = True
        counts = [
            _rows(tables.by_state.cursor(), t.by_state_prefix(number, state)) for state in range(len(STATE_NAMES))
        ]
        counts[WAITING] = _rows(tables.waiting.cursor(), t.queue_key(number))
        return counts


def _rows(cursor: t.Cursor, prefix: bytes) -> int:
    rows = 0
    found = cursor.set_range(prefix)
    while found and cursor.key().startswith(prefix):
        rows += 1
        found = cursor.next()
    return rows


def _load_leases(tables: Tables, memory: Memory) -> None:
    memory.leases, memory.active, memory.batches = {}, {}, {}
    for worker in memory.workers.values():
        worker.leases = {}
        worker.load_us = worker.held_bytes = 0
        worker.recalled = False
    cursor = tables.leases.cursor()
    found = cursor.first()
    while found:
        key, record = t.read_number(cursor.key()), t.read_lease(cursor.value())
        batch = memory.batches[key] = Batch(record.worker)
        for token, number in record.members:
            _load_lease(tables, memory, key, batch, token, number)
        found = cursor.next()
    if memory.damaged or memory.recounted:  # nothing else says of which queue they were
        for queue in memory.queues.values():
            queue.counts[ACTIVE] = sum(lease.queue is queue for lease in memory.leases.values())


def _load_lease(tables: Tables, memory: Memory, key: int, batch: Batch, token: int, number: int) -> None:
    sealed = tables.jobs.get(t.number_key(number))
    try:
        if sealed is None:
            raise CorruptRecord("a leased job has no record: the store is damaged, restore a backup")
        record = t.read_job(sealed)
    except CorruptRecord as error:
        memory.damaged.append((number, error))
        return
    move(record, CLAIM)
    record.worker = batch.worker
    worker = memory.workers.get(batch.worker)
    queue = memory.queue_by_number[record.queue]
    lease = Lease(token, number, record, queue, key, worker)
    batch.members[token] = number
    memory.leases[token] = memory.active[number] = lease
    pools = memory.pools_of(queue.name) if worker is None else [worker.pool]
    handlers = [handler for pool in pools if (handler := pool.handler(queue.name, record.name)) is not None]
    lease.handler = handlers[0] if handlers else None
    if worker is not None:
        known_us = None if lease.handler is None else lease.handler.estimate_us
        lease.estimate_us = UNKNOWN_US if known_us is None else known_us
        result_bytes = 0 if lease.handler is None else lease.handler.result_bytes
        lease.held_bytes = _payload_bytes(tables, number, record) + result_bytes
        worker.leases[token] = lease
        worker.load_us += lease.estimate_us
        worker.held_bytes += lease.held_bytes


def _payload_bytes(tables: Tables, number: int, record: JobRecord) -> int:
    if not record.flags & HAS_PAYLOAD:
        return len(record.payload)
    sealed = tables.payloads.get(t.number_key(number))
    return 0 if sealed is None else len(sealed) - _SEAL_BYTES


def recover(tick: Tick, survivors: list[Survivor]) -> None:
    """After a start: what an earlier supervisor's workers had finished is recorded, all else is waiting again.

    Every worker of the earlier supervisor is dead. Only what was running is charged with an interruption.
    """
    memory = tick.memory
    running = {survivor.running for survivor in survivors}
    for survivor in survivors:
        take_outcomes(tick, None, unrecorded(tick, survivor.outcomes))
    for lease in list(memory.leases.values()):
        release(tick, lease)
        if lease.token in running:
            interrupt(tick, lease, "the supervisor died while the job was running")
        else:
            put_back(tick, lease, RECALL)
    if memory.damaged or memory.recounted:
        tick.dirty_batches.update(memory.batches)
        tick.dirty_queues.update(memory.queues.values())
    for number, error in memory.damaged:
        set_aside(tick, None, number, None, error)
