"""How much work lies at a worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor_actors.engine.credits import (
    AHEAD_US_MAX,
    HELD_BYTES_MAX,
    HELD_JOBS_MAX,
    OVERHEAD_US,
    UNKNOWN_US,
    WINDOW_US,
    expect_bytes,
    has_room,
    learn,
    share,
)

estimates = st.one_of(st.none(), st.integers(0, 10**9))


@given(estimates)
def test_a_worker_that_holds_nothing_takes_anything(estimate_us: int | None) -> None:
    assert has_room(0, 0, estimate_us)


@given(st.integers(1, HELD_JOBS_MAX), st.integers(0, 10**9))
def test_a_handler_nobody_has_measured_gets_one_job_at_a_time(held: int, load_us: int) -> None:
    assert not has_room(held, load_us, None)
    assert not has_room(held, UNKNOWN_US, 1)


@given(st.integers(AHEAD_US_MAX + 1, 10**9), st.integers(0, 10**9))
def test_nothing_is_put_behind_a_long_job_nor_a_long_job_behind_another(long_us: int, other_us: int) -> None:
    assert not has_room(1, long_us, other_us)
    assert not has_room(1, other_us, long_us)


def test_tiny_jobs_fill_the_window() -> None:
    held, load_us = 0, 0
    while has_room(held, load_us, 1_000):
        held, load_us = held + 1, load_us + 1_000
    assert held == WINDOW_US // 1_000 + 1


def test_a_slow_disk_makes_the_window_longer() -> None:
    assert not has_room(26, WINDOW_US + 1, 1_000)
    assert has_room(26, WINDOW_US + 1, 1_000, window_us=60_000)


def test_no_worker_holds_more_than_so_many() -> None:
    assert has_room(HELD_JOBS_MAX - 1, 0, 0)
    assert not has_room(HELD_JOBS_MAX, 0, 0)


def test_and_it_never_holds_much_more_data_than_a_few_megabytes() -> None:
    assert has_room(1, 0, 0, held_bytes=HELD_BYTES_MAX - 1)
    assert not has_room(1, 0, 0, held_bytes=HELD_BYTES_MAX)
    assert has_room(0, 0, 0, held_bytes=0)


def test_one_job_of_medium_length_may_lie_ahead() -> None:
    assert has_room(1, 30_000, 30_000)
    assert not has_room(2, 60_000, 30_000)


@given(estimates, st.integers(0, 10**9))
def test_an_estimate_moves_towards_what_was_measured_and_never_past_it(known_us: int | None, took_us: int) -> None:
    after = learn(known_us, took_us)
    if known_us is None:
        assert after == took_us + OVERHEAD_US
    else:
        assert min(known_us, took_us + OVERHEAD_US) - 1 <= after <= max(known_us, took_us + OVERHEAD_US)


def test_a_rare_long_run_is_expected_again_for_a_while() -> None:
    estimate = learn(1_000, 1_000_000)
    assert estimate > 500_000
    assert learn(estimate, 1_000) > 450_000


def test_a_rare_large_result_is_expected_again_for_a_while() -> None:
    assert expect_bytes(10, 1_000_000) == 1_000_000
    assert expect_bytes(1_000_000, 10) == 937_500
    assert expect_bytes(0, 0) == 0


@pytest.mark.parametrize(("waiting", "workers", "each"), [(1, 4, 1), (4, 4, 1), (5, 4, 2), (1000, 3, 334), (0, 2, 0)])
def test_waiting_jobs_are_shared_out(waiting: int, workers: int, each: int) -> None:
    assert share(waiting, workers) == each
