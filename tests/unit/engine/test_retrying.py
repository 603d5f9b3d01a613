"""Whether and when a failed attempt is repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor_actors.engine.retrying import (
    Fail,
    Requeue,
    Retry,
    backoff_ms,
    decide_after_interruption,
    decide_after_stall,
    decide_retry,
    spread,
)
from conveyor_actors.model import Backoff, RunOptions

YEAR_MS = 366 * 24 * 3600 * 1000

draws = st.floats(0, 1, exclude_max=True)
jitters = st.floats(0, 1)
delays = st.integers(0, 10**9)
attempts = st.integers(1, 1_000_000)
longest = st.one_of(st.none(), st.integers(0, 10**9))


def grown(kind: str, delay_ms: int, attempts_made: int) -> int:
    if kind == "fixed":
        return delay_ms
    return delay_ms * attempts_made if kind == "linear" else delay_ms << min(attempts_made - 1, 62)


@given(st.sampled_from(["fixed", "linear", "exponential"]), delays, attempts, longest, jitters, draws)
def test_a_backoff_falls_inside_its_bounds(
    kind: str, delay_ms: int, attempts_made: int, max_ms: int | None, jitter: float, draw: float
) -> None:
    backoff = Backoff(kind, delay_ms, max_ms, jitter)  # type: ignore[arg-type]
    most = min(grown(kind, delay_ms, attempts_made), YEAR_MS if max_ms is None else min(max_ms, YEAR_MS))
    assert int(most * (1 - jitter)) <= backoff_ms(backoff, attempts_made, draw) <= most


def test_backoffs_without_jitter_are_exact() -> None:
    assert [backoff_ms(Backoff("fixed", 1_000), n, 0.9) for n in (1, 2, 3)] == [1_000, 1_000, 1_000]
    assert [backoff_ms(Backoff("linear", 1_000), n, 0.9) for n in (1, 2, 3)] == [1_000, 2_000, 3_000]
    assert [backoff_ms(Backoff("exponential", 1_000), n, 0.9) for n in (1, 2, 3, 4)] == [1_000, 2_000, 4_000, 8_000]
    assert backoff_ms(Backoff("exponential", 1_000, 3_000), 10, 0.9) == 3_000


@pytest.mark.parametrize("jitter", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_jitter_that_cannot_be_is_no_jitter(jitter: float) -> None:
    """Raising here would lose the outcomes that were to be recorded."""
    assert backoff_ms(Backoff("fixed", 1_000, None, jitter), 1, 0.5) == 1_000


def test_an_exponential_backoff_never_asks_for_more_than_a_year() -> None:
    assert backoff_ms(Backoff("exponential", 1_000), 1_000_000, 0.0) == YEAR_MS


@given(st.integers(1, 50), st.integers(1, 50))
def test_n_attempts_are_exactly_n_runs(allowed: int, made: int) -> None:
    decision = decide_retry("error", made, RunOptions(allowed), 0.0)
    assert decision == (Retry(0) if made < allowed else Fail())


def test_one_attempt_is_all_where_nothing_was_said() -> None:
    assert decide_retry("error", 1, RunOptions(), 0.0) == Fail()


@pytest.mark.parametrize("kind", ["unrecoverable", "invalid-payload", "unknown-handler", "timeout"])
def test_what_cannot_get_better_is_not_tried_again(kind: str) -> None:
    assert decide_retry(kind, 1, RunOptions(10, Backoff("fixed", 5)), 0.0) == Fail()


@given(draws, st.integers(1, 2**40))
def test_one_draw_spreads_over_the_jobs_of_a_tick(draw: float, number: int) -> None:
    first, second = spread(draw, number), spread(draw, number + 1)
    assert 0 <= first < 1
    assert 0 <= second < 1
    assert abs(first - second) > 0.3


@given(st.integers(0, 20), st.integers(1, 40))
def test_a_job_may_stall_so_often_and_no_more(allowed: int, stalls: int) -> None:
    assert decide_after_stall(stalls, allowed) == (Requeue() if stalls <= allowed else Fail())


@pytest.mark.parametrize(("interruptions", "decision"), [(1, Requeue()), (9, Requeue()), (10, Fail()), (11, Fail())])
def test_the_tenth_interruption_is_the_last(interruptions: int, decision: Requeue | Fail) -> None:
    assert decide_after_interruption(interruptions) == decision
