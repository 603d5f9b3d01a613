"""How an attempt ends: completed, failed, to be repeated, stalled or interrupted.

Invariant: an end is recorded once, by whoever holds the job's current token; all that belongs to it (record, index,
counts, events, waits, removal of older jobs) is written in the same transaction.
"""

from __future__ import annotations

from conveyor_actors.engine.credits import expect_bytes, learn
from conveyor_actors.engine.damage import let_ask_again
from conveyor_actors.engine.leasing import put_back, release
from conveyor_actors.engine.memory import Lease, Queue, Worker, effective_options
from conveyor_actors.engine.ordering import enqueue, order_of, put_off
from conveyor_actors.engine.reading import view
from conveyor_actors.engine.retention import HISTORY_KEPT_MAX, keep_after_end
from conveyor_actors.engine.retrying import (
    Fail,
    Retry,
    decide_after_interruption,
    decide_after_stall,
    decide_retry,
    spread,
)
from conveyor_actors.engine.tick import Tick
from conveyor_actors.engine.transitions import BACK_OFF, COMPLETE, FAIL, INTERRUPT, RETRY, STALL, move
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import ACTIVE, EVENT_CODE
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import HAS_HISTORY, HAS_RESULT, JobRecord, number_key
from conveyor_actors.wire import OUTCOME_KINDS, SUCCESS, FailureRecord, HistoryEntry, Outcome

_COMPLETED_EVENT = EVENT_CODE["completed"]
_FAILED_EVENT = EVENT_CODE["failed"]
_RETRYING_EVENT = EVENT_CODE["retrying"]
_STALLED_EVENT = EVENT_CODE["stalled"]
_MESSAGE_CHARS_IN_EVENT_MAX = 200


def take_outcomes(tick: Tick, worker: Worker | None, outcomes: list[Outcome]) -> None:
    """Records what a worker reports; whatever does not carry a job's current token is counted and dropped."""
    leases, totals = tick.memory.leases, tick.memory.totals
    for outcome in outcomes:
        lease = leases.get(outcome.token)
        if lease is None or lease.worker is not worker:
            totals.outdated_results += 1
            continue
        release(tick, lease)
        record = lease.record
        record.attempts_made += 1
        record.processed_ms = min(outcome.started_ms, tick.now_ms)  # whatever happened to the clock, it began before
        handler = lease.handler
        if handler is not None:
            handler.estimate_us = learn(handler.estimate_us, outcome.duration_us)
            handler.result_bytes = expect_bytes(handler.result_bytes, len(outcome.value))
        if outcome.kind == SUCCESS:
            _complete(tick, lease, outcome.value)
        else:
            _attempt_failed(tick, lease, outcome)
    if worker is not None and outcomes:
        worker.quiet_since_us = tick.now_us
        worker.recalled = False


def unrecorded(tick: Tick, outcomes: list[Outcome]) -> list[Outcome]:
    """A box also holds outcomes that arrived in time; those are no news."""
    return [outcome for outcome in outcomes if outcome.token in tick.memory.leases]


def _complete(tick: Tick, lease: Lease, value: bytes) -> None:
    record, queue = lease.record, lease.queue
    move(record, COMPLETE)
    record.failure = None
    if len(value) <= t.INLINE_BYTES_MAX:
        record.result = value
    else:
        tick.tables.results.put(number_key(lease.number), t.seal(value))
        record.flags |= HAS_RESULT
    tick.memory.totals.completed += 1
    tick.emit(_COMPLETED_EVENT, queue, lease.number, record)
    _end(tick, queue, lease.number, record, ACTIVE, lease)


def _attempt_failed(tick: Tick, lease: Lease, outcome: Outcome) -> None:
    record = lease.record
    kind = OUTCOME_KINDS[outcome.kind]
    failure = FailureRecord(kind, outcome.message, outcome.traceback, tick.now_ms)
    _add_history(tick, lease, "failed", outcome.message, outcome.traceback)
    options = effective_options(record, lease.handler)
    decision = decide_retry(kind, record.attempts_made, options, spread(tick.draw, lease.number))
    if isinstance(decision, Retry):
        _repeat(tick, lease, failure, decision.delay_ms)
    else:
        move(record, FAIL)
        fail(tick, lease.queue, lease.number, record, failure, before=ACTIVE, lease=lease)


def _repeat(tick: Tick, lease: Lease, failure: FailureRecord, delay_ms: int) -> None:
    """Back to the queue with a fresh place in it, now or later."""
    record, queue, number = lease.record, lease.queue, lease.number
    record.failure = failure
    record.worker = ""
    record.order = order_of(tick.new_number(), record.lifo)
    tick.memory.totals.retried += 1
    told = {"delay_ms": delay_ms, "attempts_made": record.attempts_made, "message": _short(failure.message)}
    tick.emit(_RETRYING_EVENT, queue, number, record, told)
    if delay_ms > 0:
        move(record, BACK_OFF)
        record.due_ms = tick.now_ms + delay_ms
        put_off(tick, queue, number, record, before=ACTIVE)
    else:
        move(record, RETRY)
        enqueue(tick, queue, number, record, before=ACTIVE)
    tick.save(number, record)


def fail(
    tick: Tick,
    queue: Queue,
    number: int,
    record: JobRecord,
    failure: FailureRecord,
    *,
    before: int,
    lease: Lease | None = None,
) -> None:
    """The one way a job comes to its end as failed. The caller has moved its state."""
    record.failure = failure
    tick.memory.totals.failed += 1
    tick.emit(_FAILED_EVENT, queue, number, record, {"kind": failure.kind, "message": _short(failure.message)})
    _end(tick, queue, number, record, before, lease)


def _end(tick: Tick, queue: Queue, number: int, record: JobRecord, before: int, lease: Lease | None) -> None:
    record.finished_ms = tick.now_ms
    options = effective_options(record, None if lease is None else lease.handler)
    if options.attempts is not None or options.backoff is not None:
        record.options = options  # what the handler said when it ran stays with the job
    tick.count(queue, before, record.state)
    keep_after_end(tick, queue, number, record, options)
    routes = tick.memory.waits.get(number)
    if routes:
        try:
            told = view(tick, queue, number, record)
        except CorruptRecord:
            let_ask_again(tick, number)
            return
        tick.answered.append(number)
        for route in routes:
            tick.effects.ended.setdefault(route, []).append(told)


# -- deaths -----------------------------------------------------------------------------------------


def stall(tick: Tick, lease: Lease, kind: str, message: str) -> None:
    """The worker died or froze while running this job."""
    record, queue = lease.record, lease.queue
    worker = record.worker
    record.stalled_count += 1
    tick.memory.totals.stalled += 1
    _add_history(tick, lease, "stalled", message)
    told = {"worker": worker, "stalled_count": record.stalled_count, "message": _short(message)}
    tick.emit(_STALLED_EVENT, queue, lease.number, record, told)
    decision = decide_after_stall(record.stalled_count, queue.settings.max_stalled_count)
    _settle_death(tick, lease, decision, STALL, FailureRecord(kind, message, "", tick.now_ms))


def interrupt(tick: Tick, lease: Lease, message: str) -> None:
    """The supervisor died while this job was running."""
    record = lease.record
    record.interruptions += 1
    tick.memory.totals.interrupted += 1
    _add_history(tick, lease, "interrupted", message)
    decision = decide_after_interruption(record.interruptions)
    message = f"{message}, for the {record.interruptions}th time"
    _settle_death(tick, lease, decision, INTERRUPT, FailureRecord("crashed", message, "", tick.now_ms))


def _settle_death(tick: Tick, lease: Lease, decision: object, trigger: str, failure: FailureRecord) -> None:
    record, number = lease.record, lease.number
    if isinstance(decision, Fail):
        move(record, FAIL)
        fail(tick, lease.queue, number, record, failure, before=ACTIVE, lease=lease)
    else:
        put_back(tick, lease, trigger)
        tick.save(number, record)


def _add_history(tick: Tick, lease: Lease, kind: str, message: str, traceback: str = "") -> None:
    record = lease.record
    ordinal = record.attempts_made + record.stalled_count + record.interruptions
    entry = HistoryEntry(kind, tick.now_ms, record.worker, message, traceback)
    tick.tables.history.put(t.history_key(lease.number, ordinal), t.write(entry))
    if ordinal > HISTORY_KEPT_MAX:
        tick.tables.history.delete(t.history_key(lease.number, ordinal - HISTORY_KEPT_MAX))
    record.flags |= HAS_HISTORY


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_CHARS_IN_EVENT_MAX else text[: _MESSAGE_CHARS_IN_EVENT_MAX - 1] + "…"
