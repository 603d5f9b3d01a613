"""How much work a worker may hold ahead of the job it runs. Pure."""

from __future__ import annotations

from typing import Final

#: A worker that holds less work than this gets one more job. On a host whose cores are all busy a report, its commit
#: and the next dispatch together take ten milliseconds and more, and no worker should idle meanwhile.
WINDOW_US: Final = 25_000
#: A job expected to run longer than this never has another one behind it.
AHEAD_US_MAX: Final = 50_000
#: A worker that has reported nothing for this long gives back what it has not begun.
QUIET_US_MAX: Final = 50_000
HELD_JOBS_MAX: Final = 512
#: A worker that holds jobs with this much data, and results to be expected, gets nothing behind them: all of the one is
#: in memory until it is run, and all of the other until it is recorded.
HELD_BYTES_MAX: Final = 4 * 1024 * 1024
#: What a job counts whose handler nobody has measured: nothing is put behind it.
UNKNOWN_US: Final = 1 << 40
#: What handling one job costs a worker at the least, whatever its handler does.
OVERHEAD_US: Final = 20


def has_room(held: int, load_us: int, estimate_us: int | None, window_us: int = WINDOW_US, held_bytes: int = 0) -> bool:
    """Whether a worker that holds `held` jobs of `load_us` and `held_bytes` in all may get one more of `estimate_us`.

    The window is never shorter than two ticks, or a slow disk would starve the workers.
    """
    if held == 0:
        return True
    if estimate_us is None or held >= HELD_JOBS_MAX or held_bytes >= HELD_BYTES_MAX:
        return False
    if load_us <= window_us and estimate_us <= window_us:
        return True
    return held == 1 and load_us <= AHEAD_US_MAX and estimate_us <= AHEAD_US_MAX


def learn(estimate_us: int | None, duration_us: int) -> int:
    """The estimate after one more run: up at once, down slowly, so that a rare long run is expected again."""
    measured = duration_us + OVERHEAD_US
    if estimate_us is None:
        return measured
    step = 2 if measured > estimate_us else 16
    return estimate_us + (measured - estimate_us) // step


def expect_bytes(known: int, measured: int) -> int:
    """How large the next result of a handler may be: up at once, down slowly, so that a rare large one is expected."""
    return max(measured, known - known // 16)


def share(waiting: int, workers: int) -> int:
    """How many of the waiting jobs one of several open workers gets, so that none idles while another queues."""
    return -(-waiting // workers)
