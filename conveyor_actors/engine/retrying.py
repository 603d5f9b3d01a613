"""Whether and when a failed attempt is repeated. Pure: the decision only, another writes it."""

from __future__ import annotations

from typing import Final, NamedTuple

from conveyor_actors.model import Backoff, RunOptions

#: The longest delay that is ever asked for.
_DELAY_MS_MAX: Final = 366 * 24 * 3600 * 1000
_INTERRUPTIONS_MAX: Final = 10
#: An irrational step through [0, 1): neighbours of one tick get different jitter from one draw.
_GOLDEN: Final = 0.6180339887498949


class Retry(NamedTuple):
    delay_ms: int


class Fail(NamedTuple):
    pass


def decide_retry(kind: str, attempts_made: int, options: RunOptions, draw: float) -> Retry | Fail:
    """After an attempt that ended with an error of `kind`; `attempts_made` counts that attempt."""
    if kind != "error" or attempts_made >= (options.attempts or 1):
        return Fail()
    return Retry(0 if options.backoff is None else backoff_ms(options.backoff, attempts_made, draw))


def backoff_ms(backoff: Backoff, attempts_made: int, draw: float) -> int:
    """The delay before the attempt after this many; jitter shortens it by up to that part."""
    if backoff.kind == "fixed":
        delay = backoff.delay_ms
    elif backoff.kind == "linear":
        delay = backoff.delay_ms * attempts_made
    else:
        delay = backoff.delay_ms << min(attempts_made - 1, 62)
    longest = _DELAY_MS_MAX if backoff.max_ms is None else min(backoff.max_ms, _DELAY_MS_MAX)
    delay = min(delay, longest)
    part = backoff.jitter * draw
    # Written this way round it is false for what is no number: a client may send anything.
    return round(delay * (1 - part)) if 0 <= part <= 1 else delay


def spread(draw: float, number: int) -> float:
    """One draw of a tick as a draw of its own for each job."""
    return (draw + number * _GOLDEN) % 1.0


class Requeue(NamedTuple):
    pass


def decide_after_stall(stalled_count: int, max_stalled_count: int) -> Requeue | Fail:
    """After a worker died or froze while running the job; `stalled_count` counts that stall."""
    return Fail() if stalled_count > max_stalled_count else Requeue()


def decide_after_interruption(interruptions: int) -> Requeue | Fail:
    """After the job died with its supervisor; `interruptions` counts that one."""
    return Fail() if interruptions >= _INTERRUPTIONS_MAX else Requeue()
