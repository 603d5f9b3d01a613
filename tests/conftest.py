"""What every test gets: a short folder, and the certainty that nothing of ours is left behind."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

LEFT_SECONDS_MAX = 5.0


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path, since that of an ipc socket may have 107 bytes only."""
    path = Path(tempfile.mkdtemp(prefix="cv-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def _ours() -> set[int]:
    """Children of this process, and whatever carries the mark of a store in its environment."""
    found = {child.pid for child in psutil.Process().children(recursive=True)}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                if b"CONVEYOR_STORE_ID=" in Path(f"/proc/{entry.name}/environ").read_bytes():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def _describe(pids: set[int]) -> list[str]:
    described = []
    for pid in pids:
        try:
            process = psutil.Process(pid)
            described.append(f"{pid} {process.status()} {' '.join(process.cmdline())[:120]}")
        except psutil.NoSuchProcess:
            continue
    return described


def _sockets(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)] if folder.exists() else []


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test no process, thread or socket file of ours is left."""
    home = request.getfixturevalue("home") if "home" in request.fixturenames else None
    processes, threads = _ours(), set(threading.enumerate())
    yield
    deadline = time.monotonic() + LEFT_SECONDS_MAX
    while True:
        left = _describe(_ours() - processes)
        left += [thread.name for thread in threading.enumerate() if thread not in threads]
        left += [str(path) for path in (_sockets(home) if home is not None else [])]
        if not left:
            return
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {left}")
        time.sleep(0.02)
