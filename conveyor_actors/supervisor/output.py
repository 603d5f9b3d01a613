"""What handlers and their modules print: written at once, and lost where nobody can take it, which harms nobody.

Knows nothing of jobs. In the place of Python's own streams in a spawner, and so in its workers.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, Final

_STDOUT: Final = 1
_STDERR: Final = 2


class _Output(io.FileIO):
    """A descriptor that takes everything. A full disk or a closed pipe must not fail the job that printed."""

    def write(self, data: Any) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return len(data) if written is None else written


def take_over_streams() -> None:
    """Lines are written when they are printed: a worker ends by a signal, and what it had buffered would be lost."""
    sys.stdout, sys.stderr = _stream(_STDOUT, "replace"), _stream(_STDERR, "backslashreplace")


def _stream(fd: int, errors: str) -> io.TextIOWrapper:
    raw = _Output(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors, line_buffering=True)


def flush_streams() -> None:
    """Before a fork: what is in a buffer would be written by every worker."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # a module may have put anything there
            stream.flush()


def open_standard_streams() -> None:
    """Whichever of stdin, stdout and stderr is closed is /dev/null: else the next file would be taken for it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: that very one
        os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
