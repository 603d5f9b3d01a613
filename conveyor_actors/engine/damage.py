"""Jobs of which something cannot be read: they are set aside, so that a damaged row does not stop all the others.

Invariant: such a job is in no index and in no count. What is left of it stays where it is, for a repair; the event log
tells of it, and whoever asks for it is refused with the cause.
"""

from __future__ import annotations

from conveyor_actors.engine.memory import Queue
from conveyor_actors.engine.tick import Tick
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import EVENT_CODE
from conveyor_actors.wire import Reset, encode, encode_reply

_ERROR_EVENT = EVENT_CODE["error"]


def set_aside(tick: Tick, queue: Queue | None, number: int, state: int | None, error: CorruptRecord) -> None:
    """The caller has taken the job out of the index of its state; without a queue it was in no count."""
    if queue is not None:
        tick.count(queue, state, None)
    told = f"job {number} is set aside: {error}"
    tick.effects.alarms.append(told)
    tick.rows.append((_ERROR_EVENT, None if queue is None else queue.name, number, None, encode({"message": told})))
    let_ask_again(tick, number)


def let_ask_again(tick: Tick, number: int) -> None:
    """Whoever waits for a job that cannot be shown registers anew, and is refused with the cause."""
    routes = tick.memory.waits.get(number)
    if routes:
        tick.answered.append(number)
        reset = encode_reply(0, encode(Reset()))
        tick.effects.replies += [(route, reset) for route in sorted(routes)]
