"""What the engine wants done once its transaction is committed. The shell carries it out, in this order.

A pause is answered when the jobs that wait at workers have been taken back: none of them begins after it.
"""

from __future__ import annotations

from conveyor_actors.wire import EventBatch, JobView, Task


class Effects:
    """The outcome of one tick."""

    __slots__ = ("alarms", "dispatches", "ended", "events", "recalls", "replies")

    def __init__(self) -> None:
        #: Workers to take unclaimed jobs back from.
        self.recalls: list[str] = []
        #: (route, encoded reply)
        self.replies: list[tuple[bytes, bytes]] = []
        #: (worker, tasks)
        self.dispatches: list[tuple[str, list[Task]]] = []
        #: What clients wait for, by route.
        self.ended: dict[bytes, list[JobView]] = {}
        self.events: EventBatch | None = None
        #: What whoever runs this should look at.
        self.alarms: list[str] = []
