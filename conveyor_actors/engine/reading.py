"""Reading: jobs as clients see them, listings by cursor, history, counts.

Changes nothing. Invariant: no reply is larger than a page, whatever it was asked for (a single job always fits).
"""

from __future__ import annotations

from collections.abc import Iterator

from conveyor_actors.engine.memory import Handler, Memory, Queue, effective_options
from conveyor_actors.engine.tick import Tick
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import ACTIVE, COMPLETED, NAME_BYTES_MAX, STATE_NAMES, WAITING, QueueInfo
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import GONE, HAS_HISTORY, HAS_RESULT, JobRecord, number_key
from conveyor_actors.wire import (
    PAGE_BYTES_MAX,
    Counts,
    EventBatch,
    EventPage,
    GetCounts,
    GetHistory,
    GetJobs,
    History,
    HistoryEntry,
    Jobs,
    JobView,
    ListJobs,
    Page,
    Queues,
    ReadEvents,
    Ref,
    Registered,
    WaitJobs,
)

_EVENT_RECORDS_READ_MAX = 2_000
#: What is left of a line of history that has to be short, and what that takes at the most.
_SHORT_MESSAGE_CHARS = 200
_SHORT_ENTRY_BYTES_MAX = 1_000


def view(tick: Tick, queue: Queue, number: int, record: JobRecord, cursor: bytes = b"") -> JobView:
    """The job with its payload and its result."""
    result = record.result
    if record.flags & HAS_RESULT:
        sealed = tick.tables.results.get(number_key(number))
        result = None if sealed is None else t.unseal(sealed, "a result")
    lease = tick.memory.active.get(number)
    handler = lease.handler if lease is not None else _handler(tick, queue, record.name)
    return JobView(
        number,
        record.id or str(number),
        queue.name,
        record.name,
        record.state,
        record.priority,
        effective_options(record, handler).attempts or 1,
        record.attempts_made,
        record.stalled_count,
        tick.payload(number, record),
        result,
        record.failure,
        record.metadata,
        record.created_ms,
        record.due_ms,
        record.processed_ms,
        record.finished_ms,
        record.worker,
        bool(record.flags & GONE),
        cursor,
    )


def _handler(tick: Tick, queue: Queue, name: str) -> Handler | None:
    for pool in tick.memory.pools.values():
        handler = pool.handler(queue.name, name)
        if handler is not None:
            return handler
    return None


def find(tick: Tick, ref: Ref) -> tuple[Queue, int, JobRecord] | None:
    """The job a client means, also one that is gone but still answers."""
    memory = tick.memory
    queue_name, id = ref
    queue = memory.queues.get(queue_name)
    if id.isdecimal():
        number = int(id)
        if number >= 2**63:
            return None
    else:
        if queue is None or len(id.encode()) > NAME_BYTES_MAX:
            return None
        key = tick.tables.names.get(t.name_key(queue.number, id))
        if key is None:
            return None
        number = t.read_number(key)
    try:
        record = tick.job(number)
    except CorruptRecord as error:
        raise CorruptRecord(f"job {id}: {error}") from error
    if record is None or (queue_name and (queue is None or record.queue != queue.number)):
        return None
    if id.isdecimal() and record.id is not None:
        return None  # it is known by the name its user gave it
    return memory.queue_by_number[record.queue], number, record


def get_jobs(tick: Tick, request: GetJobs) -> Jobs:
    jobs: list[JobView | None] = []
    size = 0
    for ref in request.refs:
        found = find(tick, ref)
        if found is None or found[2].flags & GONE:
            jobs.append(None)
            continue
        job = view(tick, *found)
        size += _size(job)
        if size > tick.settings.page_bytes_max and jobs:
            break  # the client asks again for the rest
        jobs.append(job)
    return Jobs(jobs)


def wait_jobs(tick: Tick, route: bytes, request: WaitJobs) -> Registered:
    """Registers the connection for what has not ended yet, up to where the answer is full."""
    ended: list[JobView] = []
    missing: list[Ref] = []
    size = 0
    for index, ref in enumerate(request.refs):
        found = find(tick, ref)
        if found is None:
            missing.append(ref)
            continue
        queue, number, record = found
        if record.state < COMPLETED:
            routes = tick.memory.waits.setdefault(number, set())
            if route not in routes:
                routes.add(route)
                tick.memory.just_registered.append((number, route))
            continue
        job = view(tick, queue, number, record)
        size += _size(job)
        if size > tick.settings.page_bytes_max and ended:
            return Registered(ended, missing, len(request.refs) - index)
        ended.append(job)
    return Registered(ended, missing)


def list_jobs(tick: Tick, request: ListJobs) -> Page:
    """One page; the states come one after the other, each in its own order."""
    queue = tick.memory.queues.get(request.queue)
    jobs: list[JobView] = []
    size = 0
    if queue is not None:
        last: bytes | None = None
        walk = _walk(tick, queue, sorted(set(request.states)), request.after)
        for looked_at, (cursor, number) in enumerate(walk):
            if looked_at == request.limit or size > tick.settings.page_bytes_max:
                return Page(jobs, last)
            last = cursor
            try:
                jobs.append(view(tick, queue, number, tick.indexed_job(number), cursor))
            except CorruptRecord as error:
                tick.effects.alarms.append(f"job {number} of the queue {queue.name} is left out of a listing: {error}")
                continue
            size += _size(jobs[-1])
    return Page(jobs, None)


def _walk(tick: Tick, queue: Queue, states: list[int], after: bytes | None) -> Iterator[tuple[bytes, int]]:
    """(cursor, job number) of all jobs in these states that come after a cursor."""
    for state in states:
        code = bytes((state,))
        if after is not None and code < after[:1]:
            continue
        start = after[1:] if after is not None and after[:1] == code else b""
        if state == ACTIVE:
            for number in sorted(tick.memory.active):
                key = number_key(number)
                if tick.memory.active[number].queue is queue and key > start:
                    yield code + key, number
            continue
        waiting = state == WAITING
        table = tick.tables.waiting if waiting else tick.tables.by_state
        prefix = t.queue_key(queue.number) if waiting else t.by_state_prefix(queue.number, state)
        cursor = table.cursor()
        found = cursor.set_range(max(prefix, start))
        while found and cursor.key().startswith(prefix):
            key = cursor.key()
            if key != start:
                yield code + key, t.read_number(cursor.value()) if waiting else t.read_by_state(key)[3]
            found = cursor.next()


def history(tick: Tick, request: GetHistory) -> History:
    found = find(tick, request.ref)
    if found is None or found[2].flags & GONE:
        return History(None)
    _, number, record = found
    entries = _history_of(tick, number) if record.flags & HAS_HISTORY else []
    if record.state == COMPLETED:
        assert record.finished_ms is not None
        entries.append(HistoryEntry("completed", record.finished_ms, record.worker))
    return History(entries)


def _history_of(tick: Tick, number: int) -> list[HistoryEntry]:
    """The oldest first. Where they are more than a page the older ones come without their tracebacks."""
    prefix = number_key(number)
    rows: list[bytes] = []
    cursor = tick.tables.history.cursor()
    more = cursor.set_range(prefix)
    while more and cursor.key().startswith(prefix):
        rows.append(cursor.value())
        more = cursor.next()
    entries: list[HistoryEntry] = []
    left = tick.settings.page_bytes_max - len(rows) * _SHORT_ENTRY_BYTES_MAX
    for sealed in reversed(rows):
        entry = t.read_history(sealed)
        left -= len(sealed)
        if left < 0 and entries:
            entry = HistoryEntry(entry.kind, entry.at_ms, entry.worker, entry.message[:_SHORT_MESSAGE_CHARS])
        entries.append(entry)
    return entries[::-1]


def counts(tick: Tick, request: GetCounts) -> Counts:
    queue = tick.memory.queues.get(request.queue)
    return Counts([0] * len(STATE_NAMES), False) if queue is None else Counts(list(queue.counts), queue.paused)


def queues(tick: Tick) -> Queues:
    return Queues(queue_infos(tick.memory))


def queue_infos(memory: Memory) -> list[QueueInfo]:
    """All queues by name, with their counts."""
    return [
        QueueInfo(queue.name, queue.paused, dict(zip(STATE_NAMES, queue.counts, strict=True)))
        for queue in sorted(memory.queues.values(), key=lambda queue: queue.name)
    ]


def read_events(tick: Tick, request: ReadEvents) -> EventPage:
    """A page of the log after an event; the reader drops what it did not ask for."""
    memory = tick.memory
    last = memory.totals.next_event - 1
    if request.after is None or request.after >= last:
        return EventPage([], memory.events_from, last, False)
    cursor = tick.tables.events.cursor()
    wanted = request.after + 1
    if not cursor.set_range(number_key(wanted)):
        cursor.last()
    if t.read_number(cursor.key()) > wanted:
        _ = cursor.prev() or cursor.first()
    batches: list[EventBatch] = []
    size = looked_upto = 0
    for _ in range(_EVENT_RECORDS_READ_MAX):
        sealed, looked_upto = cursor.value(), t.read_number(cursor.key())
        try:
            batch = t.read_events(sealed)
            if batch.first + len(batch.rows) > wanted:
                batches.append(batch)
                size += len(sealed)
        except CorruptRecord as error:
            tick.effects.alarms.append(f"events from {t.read_number(cursor.key())} on are left out: {error}")
        if not cursor.next():
            return EventPage(batches, memory.events_from, last, False)
        if size > tick.settings.page_bytes_max:
            break
    upto = batches[-1].first + len(batches[-1].rows) - 1 if batches else 0
    return EventPage(batches, memory.events_from, last, True, max(upto, looked_upto))


def pages(jobs: list[JobView]) -> Iterator[list[JobView]]:
    """The jobs in as few lists as there is room for them, none larger than a page."""
    begin = size = 0
    for index, job in enumerate(jobs):
        size += _size(job)
        if size > PAGE_BYTES_MAX and index > begin:
            yield jobs[begin:index]
            begin, size = index, _size(job)
    yield jobs[begin:]


def _size(job: JobView) -> int:
    size = 300 + len(job.payload) + len(job.result or b"") + len(job.metadata or b"")
    return size if job.failure is None else size + len(job.failure.message) + len(job.failure.traceback)
