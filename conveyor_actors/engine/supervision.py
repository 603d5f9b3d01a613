"""The rules of supervision: when a pool is suspended, how long to wait before a restart, who is stalled. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

BACKOFF_MS_FIRST: Final = 100
BACKOFF_MS_MAX: Final = 5_000
#: The least CPU time, in clock ticks, that counts as work.
_CPU_TICKS_MIN: Final = 2


def over_intensity(deaths_ms: Sequence[int], intensity: int, period_ms: int, now_ms: int) -> bool:
    """Whether more than `intensity` deaths fell into the last `period_ms`."""
    return sum(1 for at_ms in deaths_ms if at_ms > now_ms - period_ms) > intensity


def restart_delay_ms(deaths: int, draw: float) -> int:
    """How long to wait after so many deaths before ready in a row; jittered by up to a quarter."""
    if deaths == 0:
        return 0
    delay = min(BACKOFF_MS_FIRST << min(deaths - 1, 20), BACKOFF_MS_MAX)
    return round(delay * (1 - draw / 4))


class Sample(NamedTuple):
    """What the kernel says of a worker and its descendants, without our own threads in it."""

    cpu_ticks: int
    io_bytes: int
    running: bool
    stopped: bool


def made_progress(before: Sample, after: Sample) -> bool:
    """Whether there was work between two looks. A process that was stopped by a signal does none."""
    if after.stopped:
        return False
    return after.cpu_ticks - before.cpu_ticks >= _CPU_TICKS_MIN or after.io_bytes != before.io_bytes or after.running
