"""The way down: ask, wait, ask louder, kill. Decides; the loop does."""

from __future__ import annotations

from enum import Enum
from typing import Final

ABORT_SECONDS: Final = 5.0
#: Killing takes milliseconds; what is not over after so long is left to the next supervisor.
KILL_SECONDS: Final = 20.0


class Phase(Enum):
    RUNNING = "running"
    DRAINING = "draining"  # nothing new is started, running jobs go on
    ABORTING = "aborting"  # running jobs are asked to stop
    KILLING = "killing"  # running jobs are killed and return to their queues


class Shutdown:
    """`request` on each signal, `advance` on each turn of the loop. Times are monotonic seconds."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.phase = Phase.RUNNING
        self._until: float | None = None
        self.killed = False
        self.given_up = False

    @property
    def state(self) -> str:
        return "running" if self.phase is Phase.RUNNING else "draining"

    def request(self, now: float, timeout_s: float | None = None) -> Phase:
        """The first request drains. A further one goes a step further at once, or says how long draining may take.

        A negative time-out is none.
        """
        if self.phase is Phase.RUNNING or (self.phase is Phase.DRAINING and timeout_s is not None):
            wait = self._timeout_s if timeout_s is None else timeout_s
            self._until = None if wait < 0 else now + wait
            self.phase = Phase.DRAINING
        elif self.phase is not Phase.KILLING:
            self._until = now
            return self.advance(now, busy=True) or self.phase
        return self.phase

    def advance(self, now: float, *, busy: bool) -> Phase | None:
        """The phase that begins now, if any."""
        if not busy or self._until is None or now < self._until:
            return None
        if self.phase is Phase.DRAINING:
            self.phase, self._until = Phase.ABORTING, now + ABORT_SECONDS
            return self.phase
        if self.phase is Phase.ABORTING:
            self.phase, self._until, self.killed = Phase.KILLING, now + KILL_SECONDS, True
            return self.phase
        self.given_up = True
        return None

    def wakes_in(self, now: float) -> float | None:
        return None if self._until is None else max(0.0, self._until - now)

    def finished(self, *, busy: bool) -> bool:
        return self.given_up or (self.phase is not Phase.RUNNING and not busy)
