"""Processes as the kernel knows them: who is who, who descends from whom, and how to be sure that someone is dead.

Knows nothing of jobs or pools. Invariant: no signal goes to a pid whose identity (start ticks, boot) was not checked.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple

#: In the environment of everything we start, and so of everything that is started by it: `name=value` entries that say
#: which store and which spawner it belongs to.
STORE_VARIABLE: Final = "CONVEYOR_STORE_ID"
SPAWNER_VARIABLE: Final = "CONVEYOR_SPAWNER_ID"

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_libc: Final = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the thread that forked it ends; at once if it has ended already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Takes `die_with_parent` back."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def become_subreaper() -> None:
    """Orphaned descendants become children of this process instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl({option}, {value}): {os.strerror(error)}")


class Stat(NamedTuple):
    """A line of /proc/PID/stat. `children_ticks` is the CPU time of children that were waited for."""

    state: str
    parent: int
    session: int
    cpu_ticks: int
    children_ticks: int
    start_ticks: int


def parse_stat(text: bytes) -> Stat:
    # The name may hold anything, also spaces and brackets: what follows its last bracket is regular.
    fields = text[text.rindex(b")") + 2 :].split()
    return Stat(
        fields[0].decode(),
        int(fields[1]),
        int(fields[3]),
        int(fields[11]) + int(fields[12]),
        int(fields[13]) + int(fields[14]),
        int(fields[19]),
    )


def read_stat(pid: int | str, thread: int | None = None) -> Stat | None:
    """None if there is no such process."""
    path = f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat"
    try:
        return parse_stat(Path(path).read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None


def start_ticks(pid: int) -> int:
    """When the process was started, in ticks since boot; 0 if there is none. Unlike a wall time it never moves."""
    stat = read_stat(pid)
    return 0 if stat is None else stat.start_ticks


def boot_number() -> int:
    """This boot of the machine, as a number of 63 bits."""
    text = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    return int(text, 16) & (2**63 - 1)


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def children_of(pid: int) -> list[int]:
    """Direct children, zombies included."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found


def kill_for_sure(pid: int, is_meant: Callable[[int], bool], deadline_s: float) -> bool:
    """Kills the process if it is the one that is meant, and waits for its end. False if it does not end in time."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        # The pidfd is open: from here on the pid cannot come to mean another process.
        if not is_meant(pid):
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return bool(select.select([pidfd], [], [], max(0.0, deadline_s - time.monotonic()))[0])
    finally:
        os.close(pidfd)


def kill_marked(variable: str, value: str, deadline_s: float) -> list[int]:
    """Kills all other processes that carry this in their environment, until none does. Gives what is still there at
    the deadline.
    """
    entry = f"{variable}={value}".encode()

    def is_marked(pid: int) -> bool:
        with contextlib.suppress(OSError):
            return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return False

    while True:
        found = [pid for pid in all_pids() if pid != os.getpid() and is_marked(pid) and _is_alive(pid)]
        if not found or time.monotonic() > deadline_s:
            return found
        for pid in found:
            kill_for_sure(pid, is_marked, deadline_s)


class Killed(NamedTuple):
    """How many children were killed and reaped, and whether none is left."""

    reaped: int
    none_left: bool


def kill_children(spared: Collection[int], deadline_s: float) -> Killed:
    """Kills and reaps all children of this process but those that are spared, until there are none, or the deadline."""
    count = 0
    while strays := set(children_of(os.getpid())) - set(spared):
        if time.monotonic() > deadline_s:
            return Killed(count, False)
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # our own child, not reaped: the pid is its
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    count += 1
                else:
                    time.sleep(0.0005)
    return Killed(count, True)


def reap_strangers(known: Collection[int]) -> None:
    """Takes the ends of children that came to this process when their parents died, and of nobody else's."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid not in known:
            os.waitpid(ended.si_pid, 0)


def _is_alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state not in "ZX"


def describe_status(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(number).name}"
        return f"was killed by signal {number}"
    return f"exited with status {os.waitstatus_to_exitcode(status)}"


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since boot; 0 where it does not tell."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
