"""What every test gets: a short folder, and the certainty that nothing of ours is left behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LEFT_SECONDS_MAX = 5.0
#: Every process that a test starts carries it in its environment, with a name for the test.
MARK = "CONVEYOR_TEST"

# A shell starts what runs in the background with SIGINT ignored; the tests that interrupt need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, since that of an ipc socket may have 107 bytes only."""
    path = Path(tempfile.mkdtemp(prefix="cv-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _left(mark: bytes, home: Path | None, threads: set[threading.Thread]) -> list[str]:
    left = [thread.name for thread in threading.enumerate() if thread not in threads]
    left += [str(path) for path in (home.rglob("*") if home is not None else ()) if path.is_socket()]
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and mark in Path(entry.path, "environ").read_bytes().split(b"\0"):
                left.append(f"{entry.name} {Path(entry.path, 'cmdline').read_bytes()!r:.120}")
    return left


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """After every test no process, thread or socket file of it is left. Others on this host have their own."""
    home = request.getfixturevalue("home") if "home" in request.fixturenames else None
    name = secrets.token_hex(8)
    monkeypatch.setenv(MARK, name)
    threads = set(threading.enumerate())
    yield
    deadline = time.monotonic() + LEFT_SECONDS_MAX
    while left := _left(f"{MARK}={name}".encode(), home, threads):
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {left}")
        time.sleep(0.02)
