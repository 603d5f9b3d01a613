"""A worker as its supervisor sees it: a process, a box, and what became of it.

Knows nothing of pools or jobs. Invariant: a signal goes through the worker's pidfd, and so to nobody else.
"""

from __future__ import annotations

import contextlib
import secrets
import signal
from typing import TYPE_CHECKING, Literal

from conveyor_actors.box import Box, is_large
from conveyor_actors.data import UNREADABLE
from conveyor_actors.supervisor.liveness import Watch
from conveyor_actors.wire import Outcome, decode_outcomes

if TYPE_CHECKING:
    from conveyor_actors.supervisor.pools import Pool

Cause = Literal["crashed", "stalled", "orphaned", "stopped"]


class WorkerProcess:
    """A forked worker, from the order to its end."""

    __slots__ = (
        "_large_heard",
        "_outcomes_heard",
        "box",
        "cause",
        "dead",
        "id",
        "identity",
        "pid",
        "pidfd",
        "pool",
        "ready",
        "stall",
        "threads",
        "watch",
    )

    def __init__(self, id: str, pool: Pool, box: Box) -> None:
        self.id = id
        self.pool = pool
        self.box = box
        self.identity = f"{id}:{secrets.token_hex(8)}".encode()
        self.pid = 0
        self.pidfd = -1
        self.ready = False
        self.dead = False
        self.threads: list[int] = []
        #: Why it was killed, if it was us.
        self.cause: Cause | None = None
        self.stall = ""
        self.watch: Watch | None = None
        self._outcomes_heard = self._large_heard = 0

    def heard(self, message: bytes) -> None:
        """Outcomes have arrived."""
        if is_large(message):
            self._large_heard += 1
        else:
            self._outcomes_heard += 1

    @property
    def all_known(self) -> bool:
        """Whether everything it sent has arrived or is in its box."""
        return self.box.holds_all_after(self._outcomes_heard, self._large_heard)

    def kill(self, cause: Cause, why: str = "") -> None:
        """From outside; its pidfd makes sure that nobody else is hit."""
        if self.cause is None:
            self.cause, self.stall = cause, why
        if self.pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)


def read_outcomes(messages: list[bytes]) -> list[Outcome]:
    """What a box holds. A part that cannot be read was being written when its worker died."""
    found: list[Outcome] = []
    for message in messages:
        with contextlib.suppress(*UNREADABLE):
            found += decode_outcomes(message)
    return found
