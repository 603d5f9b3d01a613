"""What is kept of jobs that have ended, and how a job is removed.

Invariant: an automatically removed job is in no listing and no count at once; its record answers for a minute more
to those who ask for its result, and then everything that belongs to it goes.
"""

from __future__ import annotations

from conveyor_actors.engine.damage import set_aside
from conveyor_actors.engine.memory import Queue
from conveyor_actors.engine.tick import Tick
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import COMPLETED, EVENT_CODE, KeepRule, RunOptions
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import (
    FORGET,
    GONE,
    HAS_HISTORY,
    HAS_NAME,
    HAS_PAYLOAD,
    HAS_RESULT,
    JobRecord,
    number_key,
)

ANSWERS_AFTER_REMOVAL_MS = 60_000
#: How many lines a job's history has at most; the oldest goes when another one is written.
HISTORY_KEPT_MAX = 1_000
#: An end removes this many older jobs at most, and all ends of a tick this many; the rest goes with the next ends.
_TRIMMED_MAX = 100
_TRIMMED_IN_A_TICK_MAX = 5_000
_REMOVED_EVENT = EVENT_CODE["removed"]


def keep_after_end(tick: Tick, queue: Queue, number: int, record: JobRecord, options: RunOptions) -> None:
    """Files the ended job under its state, or removes it, and trims older ones to what its options keep."""
    keep = _keep(queue, record.state, options)
    if keep is not None and keep.count == 0:
        _mark_gone(tick, queue, number, record)
        return
    assert record.finished_ms is not None
    # In the order of the ends also where the clock was set back: the oldest are removed first.
    filed_ms, newest_ms = record.finished_ms, _newest_ms(tick, queue, record.state)
    if filed_ms < newest_ms:
        filed_ms = record.filed_ms = newest_ms + 1
    queue.newest_ms[record.state] = filed_ms
    tick.tables.by_state.put(t.by_state_key(queue.number, record.state, filed_ms, number), b"")
    tick.save(number, record)
    if keep is not None and keep.count is not None and queue.counts[record.state] > keep.count:
        _trim(tick, queue, record.state, keep.count)


def _keep(queue: Queue, state: int, options: RunOptions) -> KeepRule | None:
    if state == COMPLETED:
        said, default = options.remove_on_complete, queue.settings.remove_on_complete
    else:
        said, default = options.remove_on_fail, queue.settings.remove_on_fail
    return said if said is not None else default


def _newest_ms(tick: Tick, queue: Queue, state: int) -> int:
    """When the last of the jobs ended that are filed under this state."""
    known = queue.newest_ms[state]
    if known is None:
        cursor = tick.tables.by_state.cursor()
        prefix = t.by_state_prefix(queue.number, state)
        found = cursor.prev() if cursor.set_range(t.by_state_prefix(queue.number, state + 1)) else cursor.last()
        known = t.read_by_state(cursor.key())[2] if found and cursor.key().startswith(prefix) else 0
    return known


def _trim(tick: Tick, queue: Queue, state: int, count: int) -> None:
    cursor = tick.tables.by_state.cursor()
    prefix = t.by_state_prefix(queue.number, state)
    left = min(_TRIMMED_MAX, queue.counts[state] - count, _TRIMMED_IN_A_TICK_MAX - tick.trimmed)
    for _ in range(left):
        tick.trimmed += 1
        if not cursor.set_range(prefix) or not cursor.key().startswith(prefix):
            return
        number = t.read_by_state(cursor.key())[3]
        tick.tables.by_state.delete_at(cursor)
        try:
            record = tick.indexed_job(number)
        except CorruptRecord as error:
            set_aside(tick, queue, number, state, error)
            continue
        _mark_gone(tick, queue, number, record)


def _mark_gone(tick: Tick, queue: Queue, number: int, record: JobRecord) -> None:
    record.flags |= GONE
    tick.save(number, record)
    tick.tables.timers.put(t.timer_key(tick.now_ms + ANSWERS_AFTER_REMOVAL_MS, FORGET, number), b"")
    tick.count(queue, record.state, None)
    tick.memory.totals.removed += 1
    tick.emit(_REMOVED_EVENT, queue, number, record)


def forget(tick: Tick, number: int) -> int:
    """Deletes everything of a job that is gone; gives the number of lines its history had."""
    tables, key = tick.tables, number_key(number)
    record = tick.job(number)
    lines = 0
    if record is None:
        return lines
    tables.jobs.delete(key)
    if record.flags & HAS_PAYLOAD:
        tables.payloads.delete(key)
    if record.flags & HAS_RESULT:
        tables.results.delete(key)
    if record.flags & HAS_HISTORY:
        cursor = tables.history.cursor()
        found = cursor.set_range(key)
        while found and cursor.key().startswith(key):
            found = tables.history.delete_at(cursor)
            lines += 1
    if record.flags & HAS_NAME:
        assert record.id is not None
        name = t.name_key(record.queue, record.id)
        if tables.names.get(name) == key:  # the id may have been used again since
            tables.names.delete(name)
    return lines
