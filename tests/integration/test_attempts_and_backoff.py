"""`attempts=n` is n runs, and what lies between them keeps inside the bounds of the backoff."""

import itertools

import pytest

from conveyor_actors import JobFailed, exponential, fixed, linear

LATE_SECONDS_MAX = 2.0


def gaps_of(job, record):
    """The seconds between the starts of a job's attempts."""
    times = [float(words[2]) for words in record() if words[0] == job.id]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_a_job_that_always_fails_runs_exactly_as_often_as_it_may(queue, record, attempts):
    job = queue.add("fail", {"folder": record.folder}, attempts=attempts)
    with pytest.raises(JobFailed, match="as told") as failed:
        job.result("20s")
    assert [int(words[1]) for words in record()] == list(range(1, attempts + 1))
    assert job.attempts_made == attempts
    assert job.state == "failed"
    assert failed.value.failure.kind == "error"
    assert "jobs.py" in failed.value.failure.traceback
    assert [line.kind for line in job.history()] == ["failed"] * attempts


def test_a_job_that_succeeds_at_last_has_no_failure(queue, record):
    job = queue.add("fail", {"times": 2, "folder": record.folder}, attempts=5)
    assert job.result("20s") == 3
    assert job.attempts_made == 3
    assert job.failure is None
    assert [line.kind for line in job.history()] == ["failed", "failed", "completed"]
    assert len(record()) == 3


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (None, [0, 0, 0]),
        (0.1, [0.1, 0.1, 0.1]),
        ("80ms", [0.08, 0.08, 0.08]),
        (fixed("100ms"), [0.1, 0.1, 0.1]),
        (linear("60ms"), [0.06, 0.12, 0.18]),
        (exponential("50ms"), [0.05, 0.1, 0.2]),
        (exponential("50ms", max="80ms"), [0.05, 0.08, 0.08]),
        (linear("60ms", max="100ms"), [0.06, 0.1, 0.1]),
    ],
    ids=["none", "number", "text", "fixed", "linear", "exponential", "exponential-max", "linear-max"],
)
def test_a_backoff_is_never_shorter_than_it_says_and_not_much_longer(queue, record, backoff, delays):
    job = queue.add("fail", {"folder": record.folder}, attempts=4, backoff=backoff)
    assert job.wait("20s") == "failed"
    gaps = gaps_of(job, record)
    assert len(gaps) == len(delays)
    for gap, delay in zip(gaps, delays, strict=True):
        assert delay <= gap < delay + LATE_SECONDS_MAX


def test_jitter_spreads_retries_inside_its_bounds(queue, record):
    backoff = fixed("400ms", jitter=0.5)
    added = queue.add_many([("fail", {"folder": record.folder}, {"attempts": 2, "backoff": backoff})] * 20)
    for job in added:
        assert job.wait("20s") == "failed"
    gaps = [gap for job in added for gap in gaps_of(job, record)]
    assert len(gaps) == 20
    assert all(0.2 <= gap < 0.6 + LATE_SECONDS_MAX for gap in gaps)
    assert max(gaps) - min(gaps) > 0.02


def test_a_job_between_two_attempts_is_delayed_and_says_until_when(queue, record):
    from waiting import until

    job = queue.add("fail", {"folder": record.folder, "times": 1}, attempts=2, backoff="500ms")
    until(lambda: job.refresh().state == "delayed")
    assert job.attempts_made == 1
    assert job.delay_until is not None
    due = job.delay_until
    assert job.result("20s") == 2
    assert float(record()[1][2]) >= due.timestamp()


def test_the_handlers_own_options_hold_when_a_job_is_added_by_name(queue):
    job = queue.add("patient")
    assert job.result("20s") == 3
    assert job.attempts == 4
    assert job.attempts_made == 3


def test_options_given_on_add_win_over_the_handlers_own(queue):
    job = queue.add("patient", attempts=2)
    assert job.wait("20s") == "failed"
    assert job.attempts == 2
    assert job.attempts_made == 2


def test_a_restart_between_two_attempts_neither_forgets_nor_repeats_one(start, connect, record):
    from processes import kill
    from waiting import until

    supervisor = start(workers=1)
    queue = connect(supervisor).queue("q")
    job = queue.add("fail", {"folder": record.folder}, attempts=3, backoff="400ms")
    until(lambda: job.refresh().attempts_made == 1)
    kill(supervisor)
    start(workers=1)
    assert job.wait("20s") == "failed"
    assert [int(words[1]) for words in record()] == [1, 2, 3]
    assert all(gap >= 0.4 for gap in gaps_of(job, record))
