"""The box: a small file mapping that a worker and its supervisor share, and that outlives a SIGKILL of either.

It tells which job runs since when, and holds what the worker has finished: what is not yet sent, and the last 32 to
64 KB of what was, which may not have arrived. It knows nothing of jobs beyond their tokens. Invariants: single slots
are stored whole (a 64-bit store never tears); claim, revocation and the change of halves happen under the lock, which
the kernel frees when its holder dies.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
from typing import Final, NamedTuple

from conveyor_actors.packing import join

MAGIC: Final = 0x32_58_4F_42_56_4E_4F_43  # "CONVBOX2"
BOX_BYTES: Final = 64 * 1024
HEADER_BYTES: Final = 256
OUTCOMES_BYTES_MAX: Final = (BOX_BYTES - HEADER_BYTES) // 2
_MESSAGE_BYTES_MAX: Final = OUTCOMES_BYTES_MAX + len(join(0, b""))

# Slots of eight bytes. The worker writes all but REVOKED, ABORT and who it is.
TOKEN: Final = 1  # what runs now, 0 for nothing; written last at a start, cleared after the outcome is in the box
STARTED_WALL_MS: Final = 2  # its real start
BEAT_NS: Final = 3  # the last heartbeat, CLOCK_MONOTONIC
CLAIMED: Final = 4  # the highest token that the worker has taken for its own
REVOKED: Final = 5  # whatever is above CLAIMED and not above this was taken back
ABORT: Final = 6  # set by the supervisor: the running job is asked to stop
# Who the worker is, written by the supervisor: pid, start ticks and boot.
PID: Final = 7
START_TICKS: Final = 8
BOOT: Final = 9
# What it has finished. A part of a half is (count << 32) | bytes, from its beginning.
SENT: Final = 10  # how many messages with outcomes were sent
LARGE_SENT: Final = 11  # how many outcomes too large for the box were sent, each as a message of its own
HALF: Final = 12  # which half is filled now
SENT_PART: Final = 13  # the part of that half that was sent
OUTCOMES: Final = 14  # two slots: the part of each half that is filled
SENT_BEFORE: Final = 16  # two slots: how many messages were sent before each half was begun
_BYTES: Final = 0xFFFF_FFFF


def is_large(message: bytes) -> bool:
    """Whether a message brings an outcome that did not fit into the box."""
    return len(message) > _MESSAGE_BYTES_MAX


class BoxState(NamedTuple):
    """What a box says at one moment: what runs since when, and what was finished, as messages."""

    token: int
    started_wall_ms: int
    outcomes: list[bytes]


class Recalled(NamedTuple):
    """What a worker keeps when jobs are taken back from it: all up to a token, and what it has not sent of them."""

    claimed: int
    unsent: bytes | None


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
        """Keeps an outcome; False if there is no room for it in this half."""
        half = self.slots[HALF]
        filled = self.slots[OUTCOMES + half]
        used = filled & _BYTES
        after = used + len(encoded)
        if after > OUTCOMES_BYTES_MAX:
            return False
        start = half * OUTCOMES_BYTES_MAX
        self.data[start + used : start + after] = encoded
        self.slots[OUTCOMES + half] = (((filled >> 32) + 1) << 32) | after
        return True

    def unsent(self) -> bytes | None:
        """All unsent outcomes as one message; None if there are none."""
        half, sent = self.slots[HALF], self.slots[SENT_PART]  # in this order: what is filled only grows
        return self._part(half, sent, self.slots[OUTCOMES + half])

    def mark_sent(self) -> None:
        """The unsent outcomes are on their way."""
        slots = self.slots
        slots[SENT_PART] = slots[OUTCOMES + slots[HALF]]
        slots[SENT] += 1

    def turn_over(self) -> None:
        """Begins the other half and forgets what was in it. Everything has to be sent."""
        slots = self.slots
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        half = 1 - slots[HALF]
        slots[SENT_BEFORE + half] = slots[SENT]  # first: a death in between must not hide what is forgotten
        slots[OUTCOMES + half] = slots[SENT_PART] = 0
        slots[HALF] = half
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def mark_large_sent(self) -> None:
        """An outcome that does not fit into the box is on its way."""
        self.slots[LARGE_SENT] += 1

    def _part(self, half: int, begin: int, end: int) -> bytes | None:
        if begin == end:
            return None
        start = half * OUTCOMES_BYTES_MAX
        encoded = bytes(self.data[start + (begin & _BYTES) : start + (end & _BYTES)])
        return join((end >> 32) - (begin >> 32), encoded)

    # -- the supervisor's side ------------------------------------------------------------------------

    def recall(self, last_token: int) -> Recalled | None:
        """Takes back every job up to `last_token` that is not claimed. Never waits: None if the lock is taken."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        try:
            # Never lower: the worker may still have before it what an earlier recall took back.
            self.slots[REVOKED] = max(self.slots[REVOKED], last_token)
            return Recalled(self.slots[CLAIMED], self.unsent())
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def read(self) -> BoxState:
        """What is in it when its worker is dead, or would be if it died now."""
        slots = self.slots
        halves = [self._part(half, 0, slots[OUTCOMES + half]) for half in (1 - slots[HALF], slots[HALF])]
        return BoxState(slots[TOKEN], slots[STARTED_WALL_MS], [half for half in halves if half is not None])

    def holds_all_after(self, messages: int, large: int) -> bool:
        """Whether who has received so many of its messages finds in here whatever else the worker has sent."""
        slots = self.slots
        return messages >= min(slots[SENT_BEFORE], slots[SENT_BEFORE + 1]) and large >= slots[LARGE_SENT]

    def ask_to_abort(self) -> None:
        self.slots[ABORT] = 1
