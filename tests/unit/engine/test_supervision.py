"""When a pool is suspended, how long a restart waits, what counts as work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor_actors.engine.supervision import (
    BACKOFF_MS_FIRST,
    BACKOFF_MS_MAX,
    Sample,
    made_progress,
    over_intensity,
    restart_delay_ms,
)

STILL = Sample(cpu_ticks=100, io_bytes=5_000, running=False, stopped=False)


def test_a_pool_may_lose_as_many_workers_as_its_intensity() -> None:
    assert not over_intensity([10, 20, 30], 3, 60_000, 40)
    assert over_intensity([10, 20, 30, 40], 3, 60_000, 40)


def test_deaths_before_the_period_are_forgotten() -> None:
    assert not over_intensity([0, 0, 0, 0, 60_000], 3, 60_000, 60_000)
    assert over_intensity([1, 1, 1, 60_000], 3, 60_000, 60_000)


def test_with_an_intensity_of_nothing_the_first_death_is_too_many() -> None:
    assert over_intensity([5], 0, 60_000, 5)


@given(st.integers(1, 1_000), st.floats(0, 1, exclude_max=True))
def test_a_restart_waits_longer_each_time_up_to_a_bound(deaths: int, draw: float) -> None:
    delay = restart_delay_ms(deaths, draw)
    most = min(BACKOFF_MS_FIRST * 2 ** (deaths - 1), BACKOFF_MS_MAX)
    assert most * 0.75 - 1 <= delay <= most


def test_the_first_start_does_not_wait() -> None:
    assert restart_delay_ms(0, 0.9) == 0


@pytest.mark.parametrize(
    ("after", "progress"),
    [
        (STILL, False),
        (STILL._replace(cpu_ticks=101), False),  # what our own threads use waiting for the GIL
        (STILL._replace(cpu_ticks=102), True),
        (STILL._replace(io_bytes=5_001), True),
        (STILL._replace(running=True), True),
        (STILL._replace(stopped=True, cpu_ticks=500, running=True), False),
    ],
)
def test_work_is_cpu_or_io_or_a_running_thread_and_never_that_of_a_stopped_process(
    after: Sample, progress: bool
) -> None:
    assert made_progress(STILL, after) is progress
