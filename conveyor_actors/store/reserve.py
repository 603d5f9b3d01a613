"""Room on the disk that is kept for what has to be recorded when nothing else fits any more.

A file that only takes up room, given up when the disk has hardly any. Knows nothing of the store. Invariant: no error
of the disk is met by trying again; the room is given up before it is needed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

#: What a transaction of LMDB may take: a full journal, and the pages that its rows are spread over.
NEEDED_BYTES: Final = 16 * 1024 * 1024


class Reserve:
    """`size` bytes at `path`, or none at the moment."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self._held = _size_of(path) == size > 0
        if not self._held:
            path.unlink(missing_ok=True)

    @property
    def lacking(self) -> int:
        """How many bytes it would take to have all of it again."""
        return 0 if self._held else self._size

    def before_writing(self) -> None:
        """Gives up the room if there is not enough without it."""
        if self._held and self._disk_free() < NEEDED_BYTES:
            self._path.unlink(missing_ok=True)
            self._held = False

    def restore(self) -> None:
        """Takes the room again if there is so much that it will not be given up at once."""
        if not self._held and self._size and self._disk_free() >= self._size + 2 * NEEDED_BYTES:
            try:
                with open(self._path, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, self._size)
                self._held = True
            except OSError:
                self._path.unlink(missing_ok=True)

    def _disk_free(self) -> int:
        return disk_free(self._path.parent)


def disk_free(path: Path) -> int:
    """Bytes that are free for us on the disk of this path."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def _size_of(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0
