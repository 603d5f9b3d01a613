"""What a handler is told of its job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from conveyor_actors.box import ABORT, Box
from conveyor_actors.wire import Task


class JobContext:
    """The second argument of a handler."""

    __slots__ = ("_box", "_task", "data")

    def __init__(self, task: Task, data: Any, box: Box) -> None:
        self._task = task
        self._box = box
        self.data = data

    @property
    def id(self) -> str:
        return self._task.id

    @property
    def queue(self) -> str:
        return self._task.queue

    @property
    def name(self) -> str:
        return self._task.name

    @property
    def attempt(self) -> int:
        """Which attempt this is; the first is 1."""
        return self._task.attempts_made + 1

    @property
    def attempts_made(self) -> int:
        """Attempts that have ended before this one."""
        return self._task.attempts_made

    @property
    def stalled_count(self) -> int:
        """How often a worker died or froze while running this job."""
        return self._task.stalled_count

    @property
    def parent(self) -> str | None:
        """The ref of the job this one is a child of."""
        return None

    @property
    def deadline(self) -> datetime | None:
        """When this attempt will be ended from outside."""
        return None

    @property
    def resumed(self) -> bool:
        """Whether the job goes on after it waited for children."""
        return False

    @property
    def aborted(self) -> bool:
        """True once the job is asked to stop: return or raise soon, the process is about to be killed."""
        return bool(self._box.slots[ABORT])

    def __repr__(self) -> str:
        return f"<JobContext {self.queue}/{self.id} {self.name} attempt {self.attempt}>"
