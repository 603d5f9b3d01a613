"""The box: a small file mapping that a worker and its supervisor share, and that outlives a SIGKILL of either.

It tells which job runs since when, and holds what the worker has finished: the outcomes not yet sent, and those
sent last, which a dying process may not have got rid of. It knows nothing of jobs beyond their tokens. Invariants:
single slots are stored whole (a 64-bit store never tears); claim, revocation and the change of halves happen under
the lock, which the kernel frees when its holder dies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import Final, NamedTuple

from conveyor_actors.packing import join

MAGIC: Final = 0x31_58_4F_42_56_4E_4F_43  # "CONVBOX1"
BOX_BYTES: Final = 64 * 1024
HEADER_BYTES: Final = 128
OUTCOMES_BYTES_MAX: Final = (BOX_BYTES - HEADER_BYTES) // 2

# Slots of eight bytes. The worker writes all but REVOKED, ABORT and who it is.
TOKEN: Final = 1  # what runs now, 0 for nothing; written last at a start, cleared after the outcome is in the box
STARTED_NS: Final = 2  # its real start, CLOCK_MONOTONIC
STARTED_WALL_MS: Final = 3
BEAT_NS: Final = 4  # the last heartbeat, CLOCK_MONOTONIC
CLAIMED: Final = 5  # the highest token that the worker has taken for its own
REVOKED: Final = 6  # whatever is above CLAIMED and not above this was taken back
SENT: Final = 7  # how many messages with outcomes were sent; its last bit says which half is filled now
OUTCOMES: Final = 8  # two slots, one for each half: (count << 32) | bytes
ABORT: Final = 10  # set by the supervisor: the running job is asked to stop
# Who the worker is, written by the supervisor: pid, start ticks and boot.
PID: Final = 11
START_TICKS: Final = 12
BOOT: Final = 13


class BoxState(NamedTuple):
    """What a box says at one moment."""

    token: int
    started_ns: int
    started_wall_ms: int
    beat_ns: int
    claimed: int
    sent: int
    outcomes: list[bytes]


class Box:
    """One end of the mapping."""

    __slots__ = ("_fd", "_map", "data", "path", "slots")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._map = mmap.mmap(fd, BOX_BYTES)
        self.data = memoryview(self._map)[HEADER_BYTES:]
        self.slots = memoryview(self._map)[:HEADER_BYTES].cast("Q")

    @classmethod
    def create(cls, path: Path) -> Box:
        """A new box, with all its room on disk: a mapping that cannot get a page is a SIGBUS."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, BOX_BYTES)
        except OSError:
            os.close(fd)
            path.unlink()
            raise
        box = cls(path, fd)
        box.slots[0] = MAGIC
        return box

    @classmethod
    def open(cls, path: Path) -> Box | None:
        """The box at `path`, or None where there is no whole box."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if os.fstat(fd).st_size != BOX_BYTES:
            os.close(fd)
            return None
        box = cls(path, fd)
        if box.slots[0] != MAGIC:
            box.close()
            return None
        return box

    def close(self) -> None:
        self.slots.release()
        self.data.release()
        self._map.close()
        os.close(self._fd)

    def remove(self) -> None:
        """Closes this end and deletes the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    # -- the worker's side --------------------------------------------------------------------------

    def claim(self, token: int) -> bool:
        """Takes the job for the worker; False if it was taken back."""
        slots, fd = self.slots, self._fd
        fcntl.flock(fd, fcntl.LOCK_EX)
        claimed = token > slots[REVOKED]
        if claimed:
            slots[CLAIMED] = token
        fcntl.flock(fd, fcntl.LOCK_UN)
        return claimed

    def add_outcome(self, encoded: bytes) -> bool:
        """Keeps an outcome until it is sent; False if there is no room for it."""
        half = self.slots[SENT] & 1
        count_and_bytes = self.slots[OUTCOMES + half]
        used = count_and_bytes & 0xFFFF_FFFF
        after = used + len(encoded)
        if after > OUTCOMES_BYTES_MAX:
            return False
        start = half * OUTCOMES_BYTES_MAX
        self.data[start + used : start + after] = encoded
        self.slots[OUTCOMES + half] = (((count_and_bytes >> 32) + 1) << 32) | after
        return True

    def unsent(self) -> bytes | None:
        """All unsent outcomes as one message; None if there are none."""
        return self._half(self.slots[SENT] & 1)

    def mark_sent(self) -> None:
        """The unsent outcomes are on their way: they stay readable while the other half is filled."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        sent = self.slots[SENT] + 1
        self.slots[OUTCOMES + (sent & 1)] = 0
        self.slots[SENT] = sent
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _half(self, half: int) -> bytes | None:
        count_and_bytes = self.slots[OUTCOMES + half]
        if not count_and_bytes:
            return None
        start = half * OUTCOMES_BYTES_MAX
        return join(count_and_bytes >> 32, bytes(self.data[start : start + (count_and_bytes & 0xFFFF_FFFF)]))

    # -- the supervisor's side ------------------------------------------------------------------------

    def recall(self, last_token: int) -> BoxState | None:
        """Takes back every job up to `last_token` that is not claimed. Never waits: None if the lock is taken."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        try:
            # Never lower: the worker may still have before it what an earlier recall took back.
            self.slots[REVOKED] = max(self.slots[REVOKED], last_token)
            return self.read()
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def read(self) -> BoxState:
        slots = self.slots
        return BoxState(
            slots[TOKEN],
            slots[STARTED_NS],
            slots[STARTED_WALL_MS],
            slots[BEAT_NS],
            slots[CLAIMED],
            slots[SENT],
            [half for half in (self._half(0), self._half(1)) if half is not None],
        )

    def ask_to_abort(self) -> None:
        self.slots[ABORT] = 1
