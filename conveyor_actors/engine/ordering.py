"""Where a job stands while it does not run: its place among the waiting, or its time among the delayed.

Nobody else puts jobs there. Invariant: a pool that has passed over a part of a queue finds whatever is put there later
that it can run.
"""

from __future__ import annotations

from bisect import insort

from conveyor_actors.engine.memory import Memory, Queue
from conveyor_actors.engine.tick import Tick
from conveyor_actors.model import DELAYED, EVENT_CODE, WAITING
from conveyor_actors.store import tables as t
from conveyor_actors.store.tables import JobRecord, number_key

_WAITING_EVENT = EVENT_CODE["waiting"]
_DELAYED_EVENT = EVENT_CODE["delayed"]
_FIFO = 2**63
#: With more places to look at again, all is looked at again.
_TAKEN_SINCE_MAX = 10_000


def order_of(number: int, lifo: bool) -> int:
    """The place among jobs of one priority: the newest LIFO job first, then FIFO jobs as they came."""
    return _FIFO - number if lifo else _FIFO + number


def enqueue(tick: Tick, queue: Queue, number: int, record: JobRecord, before: int | None) -> None:
    """The job, which was in the state `before`, waits at the place that its priority and order give it."""
    key = t.waiting_key(queue.number, record.priority, record.order)
    tick.tables.waiting.put(key, number_key(number))
    if queue.passed_over:
        _look_there_again(tick.memory, queue, key, record.name)
    tick.count(queue, before, WAITING)
    tick.emit(_WAITING_EVENT, queue, number, record)


def put_off(tick: Tick, queue: Queue, number: int, record: JobRecord, before: int | None) -> None:
    """The job, which was in the state `before`, is delayed until its `due_ms`."""
    assert record.due_ms is not None
    tick.tables.timers.put(t.timer_key(record.due_ms, t.PROMOTE, number), b"")
    tick.tables.by_state.put(t.by_state_key(queue.number, DELAYED, record.due_ms, number), b"")
    tick.count(queue, before, DELAYED)
    tick.emit(_DELAYED_EVENT, queue, number, record)


def _look_there_again(memory: Memory, queue: Queue, key: bytes, name: str) -> None:
    able = [pool.name for pool in memory.pools_of(queue.name) if pool.handler(queue.name, name) is not None]
    for pool, passed in list(queue.passed_over.items()):
        # A job that nobody can run is refused by whoever finds it.
        if key <= passed.upto and (pool in able or not able):
            insort(passed.taken_since, key)
            if len(passed.taken_since) > _TAKEN_SINCE_MAX:
                del queue.passed_over[pool]
