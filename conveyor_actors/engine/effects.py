"""What the engine wants done once its transaction is committed. The shell carries it out, in this order."""

from __future__ import annotations

from conveyor_actors.wire import EventBatch, JobView, Task


class Effects:
    """The outcome of one tick."""

    __slots__ = ("dispatches", "ended", "events", "recalls", "replies")

    def __init__(self) -> None:
        #: (route, encoded reply)
        self.replies: list[tuple[bytes, bytes]] = []
        #: What clients wait for, by route.
        self.ended: dict[bytes, list[JobView]] = {}
        #: (worker, tasks)
        self.dispatches: list[tuple[str, list[Task]]] = []
        #: Workers to take unclaimed jobs back from.
        self.recalls: list[str] = []
        self.events: EventBatch | None = None
