"""Telling a busy worker from a stuck one, by what the kernel says of its process tree.

Looks only at workers whose heartbeat is late. Invariant: a worker is called stalled only after a full lock duration
without a heartbeat and without progress; one that holds the GIL and computes makes progress.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from conveyor_actors.engine.supervision import Sample, made_progress
from conveyor_actors.supervisor import processes


class Watch:
    """A worker with a late heartbeat."""

    __slots__ = ("looked_ns", "progress_ns", "sample")

    def __init__(self, sample: Sample, progress_ns: int, now_ns: int) -> None:
        self.sample = sample
        self.progress_ns = progress_ns
        self.looked_ns = now_ns


def look(
    watch: Watch | None, pid: int, ours: Iterable[int], beat_ns: int, lock_ns: int, now_ns: int
) -> tuple[Watch | None, bool]:
    """One look at a worker that runs a job: what to remember for the next one, and whether it is stalled.

    `ours` are the ids of threads in it that are not the job's.
    """
    if now_ns - beat_ns < lock_ns // 4:
        return None, False
    now = sample(pid, ours)
    if watch is None or now_ns - watch.looked_ns > lock_ns:  # a first look, or we ourselves were away
        return Watch(now, max(beat_ns, now_ns - lock_ns // 4), now_ns), False
    if beat_ns > watch.progress_ns:
        watch.progress_ns = beat_ns
    if made_progress(watch.sample, now):
        watch.progress_ns = now_ns
    watch.sample, watch.looked_ns = now, now_ns
    return watch, now_ns - watch.progress_ns >= lock_ns


def sample(pid: int, ours: Iterable[int]) -> Sample:
    """CPU, I/O and thread states of a worker with its session and descendants, less our own threads."""
    own = processes.read_stat(pid)
    if own is None:
        return Sample(0, 0, False, False)
    skipped = frozenset(ours)
    cpu_ticks, io_bytes, running = 0, 0, False
    for member in _tree(pid):
        stat = processes.read_stat(member)
        if stat is None:
            continue
        cpu_ticks += stat.cpu_ticks + stat.children_ticks
        io_bytes += _io_bytes(member)
        running = running or _has_running_thread(member, skipped)
    for thread in skipped:
        stat = processes.read_stat(pid, thread)
        cpu_ticks -= 0 if stat is None else stat.cpu_ticks
    return Sample(cpu_ticks, io_bytes, running, own.state in "Tt")


def _tree(root: int) -> list[int]:
    """The process, its session, and all its descendants."""
    stats = {pid: stat for pid in processes.all_pids() if (stat := processes.read_stat(pid)) is not None}
    found = {root} | {pid for pid, stat in stats.items() if stat.session == root}
    grown = True
    while grown:
        more = {pid for pid, stat in stats.items() if stat.parent in found} - found
        found |= more
        grown = bool(more)
    return list(found)


def _io_bytes(pid: int) -> int:
    """Everything read and written, also from caches and pipes."""
    with contextlib.suppress(OSError):
        fields = dict(line.split(b": ") for line in Path(f"/proc/{pid}/io").read_bytes().splitlines())
        return sum(int(fields[name]) for name in (b"rchar", b"wchar", b"read_bytes", b"write_bytes"))
    return 0


def _has_running_thread(pid: int, skipped: frozenset[int]) -> bool:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/task").iterdir():
            thread = int(entry.name)
            if thread not in skipped:
                stat = processes.read_stat(pid, thread)
                if stat is not None and stat.state == "R":
                    return True
    return False
