"""Looking at processes from outside, and ending them the hard way."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:  # handlers import this module too, and have no need of a client
    from conveyor_actors import Supervisor


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that is dead and not yet reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def tree_of(pid: int) -> list[psutil.Process]:
    """The descendants of a process, at any depth."""
    return psutil.Process(pid).children(recursive=True)


def marked(mark: str) -> set[int]:
    """The living processes with this word on their command line."""
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{entry.name}/cmdline").read_bytes().split(b"\0")
                if mark.encode() in words and is_alive(int(entry.name)):
                    found.add(int(entry.name))
    return found


def kill(supervisor: Supervisor) -> None:
    """SIGKILL, as the kernel does it when memory runs out; returns when the process is gone."""
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.process.wait(timeout=10)


def cpu_seconds(pids: list[int]) -> float:
    """What these processes have used of the CPU up to now."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            used += times.user + times.system
    return used
