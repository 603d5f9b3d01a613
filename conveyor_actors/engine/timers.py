"""What is due: delays that are over, and what need not be kept any longer.

Invariant: nothing fires before its time. Now is known in whole milliseconds, rounded down, and so is all that was
counted from a now: a time has surely come when its millisecond is over. A tick does a bounded part; the rest keeps the
next wake-up in the past.
"""

from __future__ import annotations

from typing import Final

from conveyor_actors.engine.damage import set_aside
from conveyor_actors.engine.memory import Queue
from conveyor_actors.engine.ordering import enqueue, order_of
from conveyor_actors.engine.requests import forget_client
from conveyor_actors.engine.retention import forget
from conveyor_actors.engine.tick import Tick
from conveyor_actors.engine.transitions import PROMOTE, move
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import DELAYED
from conveyor_actors.store import tables as t

_FIRED_MAX: Final = 500


def fire_due(tick: Tick) -> None:
    """Fires what is due, the earliest first."""
    cursor = tick.tables.timers.cursor()
    left = _FIRED_MAX
    while left > 0 and cursor.first():
        due_ms, kind, ref = t.read_timer(cursor.key())
        if due_ms >= tick.now_ms:
            return
        tick.tables.timers.delete_at(cursor)
        left -= 1
        try:
            if kind == t.PROMOTE:
                _promote(tick, ref, due_ms)
            elif kind == t.FORGET:
                left -= forget(tick, ref)
            else:
                forget_client(tick, ref)
        except CorruptRecord as error:  # each of them reads before it changes anything
            if kind == t.FORGET_CLIENT:
                tick.tables.requests.delete(t.number_key(ref))
            else:
                set_aside(tick, _queue_of_delayed(tick, ref, due_ms), ref, DELAYED, error)


def next_due_ms(tick: Tick) -> int | None:
    """The first millisecond in which something fires."""
    cursor = tick.tables.timers.cursor()
    return t.read_timer(cursor.key())[0] + 1 if cursor.first() else None


def _promote(tick: Tick, number: int, due_ms: int) -> None:
    record = tick.indexed_job(number)
    queue = tick.memory.queue_by_number[record.queue]
    move(record, PROMOTE)
    record.order = order_of(tick.new_number(), record.lifo)
    tick.save(number, record)
    tick.tables.by_state.delete(t.by_state_key(queue.number, DELAYED, due_ms, number))
    enqueue(tick, queue, number, record, before=DELAYED)


def _queue_of_delayed(tick: Tick, number: int, due_ms: int) -> Queue | None:
    """Takes a job that cannot be read out of the index of the delayed ones, which alone says where it was."""
    for queue in tick.memory.queues.values():
        key = t.by_state_key(queue.number, DELAYED, due_ms, number)
        if tick.tables.by_state.get(key) is not None:
            tick.tables.by_state.delete(key)
            return queue
    return None
