"""Adding jobs: all of a request or none of it."""

from __future__ import annotations

from conveyor_actors.engine.memory import Queue
from conveyor_actors.engine.ordering import enqueue, order_of, put_off
from conveyor_actors.engine.tick import Tick
from conveyor_actors.errors import InvalidPayload, ProtocolError, StoreFull
from conveyor_actors.model import ADD_MANY_BYTES_MAX, DELAYED, EVENT_CODE, NAME_BYTES_MAX, WAITING, RunOptions
from conveyor_actors.options import ATTEMPTS_MAX
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import HAS_NAME, HAS_PAYLOAD, INLINE_BYTES_MAX, JobRecord, number_key
from conveyor_actors.wire import Added, AddedJob, AddJobs, NewJob

_DUPLICATED_EVENT = EVENT_CODE["duplicated"]
_NUMBER_MAX = 2**63 - 1


def add_jobs(tick: Tick, request: AddJobs) -> Added:
    """Stores the jobs; a job whose id exists already is left as it is."""
    _check(tick, request)
    queue = tick.queue(request.queue)
    totals = tick.memory.totals
    first = totals.next_number
    listed: list[AddedJob] | None = None
    for index, new in enumerate(request.jobs):
        existing = None if new.id is None else find_by_id(tick, queue, new.id)
        if existing is None:
            number = _add(tick, queue, new)
        else:
            number = existing
            record = tick.job(existing)
            assert record is not None
            tick.emit(_DUPLICATED_EVENT, queue, existing, record)
        if new.id is not None and listed is None:
            listed = [AddedJob(first + i, True) for i in range(index)]
        if listed is not None:
            listed.append(AddedJob(number, existing is None))
    return Added(first, tick.now_ms, listed)


def find_by_id(tick: Tick, queue: Queue, id: str) -> int | None:
    """The number of the job that a user gave this id, unless it was removed."""
    key = tick.tables.names.get(t.name_key(queue.number, id))
    if key is None:
        return None
    number = t.read_number(key)
    record = tick.job(number)
    return None if record is None or record.flags & t.GONE else number


def _check(tick: Tick, request: AddJobs) -> None:
    if tick.memory.full is not None:
        raise StoreFull(tick.memory.full)
    check_name("queue", request.queue)
    total = 0
    for new in request.jobs:
        size = len(new.payload)
        total += size
        if size > tick.settings.max_payload:
            raise InvalidPayload(
                f"the data of a job {new.name!r} has {size} bytes; max_payload is {tick.settings.max_payload}"
            )
        if new.id is not None:
            check_name("id", new.id)
            if new.id.isdecimal():
                raise ProtocolError(f"the id {new.id!r} is all digits; such ids are generated")
        if new.options is not None:
            _check_options(new.options)
    if total > ADD_MANY_BYTES_MAX and len(request.jobs) > 1:
        raise InvalidPayload(f"the data of {len(request.jobs)} jobs has {total} bytes; add them in smaller chunks")


def _check_options(options: RunOptions) -> None:
    """Only that the engine can count with them: a client refuses more, and says more about it."""
    _check_number("attempts", options.attempts, 1, ATTEMPTS_MAX)
    backoff = options.backoff
    if backoff is not None:
        _check_number("backoff.delay_ms", backoff.delay_ms, 0, _NUMBER_MAX)
        _check_number("backoff.max_ms", backoff.max_ms, 0, _NUMBER_MAX)
        _check_number("backoff.jitter", backoff.jitter, 0, 1)
    for what, keep in (
        ("remove_on_complete", options.remove_on_complete),
        ("remove_on_fail", options.remove_on_fail),
    ):
        if keep is not None:
            _check_number(what, keep.count, 0, _NUMBER_MAX)


def _check_number(what: str, value: float | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ProtocolError(f"{what} is {value}; it has to be from {least} to {most}")


def check_name(what: str, text: str) -> None:
    if len(text.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX or "/" in text or ":" in text:
        raise ProtocolError(f"the {what} {text[:50]!r} is longer than {NAME_BYTES_MAX} bytes or contains / or :")


def _add(tick: Tick, queue: Queue, new: NewJob) -> int:
    tables = tick.tables
    number = tick.new_number()
    key = number_key(number)
    due_ms = new.due_ms if new.delay_ms is None else tick.now_ms + new.delay_ms
    delayed = due_ms is not None and due_ms > tick.now_ms
    flags = HAS_NAME if new.id is not None else 0
    if len(new.payload) > INLINE_BYTES_MAX:
        flags |= HAS_PAYLOAD
    record = JobRecord(
        queue.number,
        new.name,
        DELAYED if delayed else WAITING,
        new.priority,
        order_of(number, new.lifo),
        tick.now_ms,
        b"" if flags & HAS_PAYLOAD else new.payload,
        new.id,
        flags,
        new.lifo,
        new.options,
        due_ms,
        metadata=new.metadata,
    )
    tables.jobs.put(key, t.write(record), append=True)
    if flags & HAS_PAYLOAD:
        tables.payloads.put(key, t.seal(new.payload), append=True)
    if new.id is not None:
        tables.names.put(t.name_key(queue.number, new.id), key)
    place = put_off if delayed else enqueue
    place(tick, queue, number, record, before=None)
    tick.memory.totals.added += 1
    return number
