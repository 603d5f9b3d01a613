"""Where the log is written: a file descriptor that may be full, and must not stop the supervisor for that.

Knows nothing of log records. What a reader does not take is kept, up to a bound, and beyond that it is dropped and
counted. Invariant: `write` never waits for a reader.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import time
from collections.abc import Callable
from typing import Final

_KEPT_BYTES_MAX: Final = 256 * 1024
#: A pipe that has room at all has room for so much.
_PIECE_BYTES_MAX: Final = select.PIPE_BUF
_AT_THE_END_SECONDS_MAX: Final = 1.0


class LogStream:
    """Lines on their way to a file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._kept = bytearray()
        self._dropped = 0
        self._put = _writer(fd)

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def write(self, text: str) -> int:
        """Whole lines only."""
        if self._dropped and not self._kept:
            self._kept += f"({self._dropped} lines of the log were dropped: nobody read them)\n".encode()
            self._dropped = 0
        encoded = text.encode("utf-8", "backslashreplace")
        if len(self._kept) + len(encoded) > _KEPT_BYTES_MAX:
            self._dropped += text.count("\n")
        else:
            self._kept += encoded
        self.flush()
        return len(text)

    def flush(self) -> None:
        """Writes what can be written now."""
        try:
            while self._kept:
                del self._kept[: self._put(bytes(self._kept[:_PIECE_BYTES_MAX]))]
        except BlockingIOError:
            return
        except OSError:  # nobody will ever read it, or there is no room: the work goes on without a log
            self._kept.clear()

    def finish(self) -> None:
        """The end: a reader gets a moment."""
        deadline = time.monotonic() + _AT_THE_END_SECONDS_MAX
        self.flush()
        while self._kept and (left := deadline - time.monotonic()) > 0:
            if not _has_room(self._fd, left):
                return
            self.flush()


def _writer(fd: int) -> Callable[[bytes], int]:
    """Writes to the descriptor or raises `BlockingIOError`. Its flags are shared with other processes: they stay."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):
            own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            return lambda piece: os.write(own, piece)
    if stat.S_ISSOCK(mode):
        connection = socket.socket(fileno=os.dup(fd))
        return lambda piece: connection.send(piece, socket.MSG_DONTWAIT)

    def write(piece: bytes) -> int:
        if not _has_room(fd, 0):
            raise BlockingIOError
        return os.write(fd, piece)

    return write


def _has_room(fd: int, seconds: float) -> bool:
    return bool(select.select([], [fd], [], seconds)[1])
