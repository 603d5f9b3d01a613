"""A delayed job starts when it is due: not before, and not because of others much later."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from processes import kill
from waiting import until

from conveyor_actors import InvalidOption

LATE_SECONDS_MAX = 3.0


def test_a_delayed_job_never_starts_early(queue, record):
    data = {"folder": record.folder}
    due, added = {}, []
    for number in range(30):
        delay = 0.1 + number * 0.013
        job = queue.add("stamped", data, delay=delay)
        assert job.state == "delayed"
        due[job.id] = job.created_at.timestamp() + delay
        added.append(job)
    for job in queue.as_completed(added, timeout="20s"):
        assert job.returnvalue >= due[job.id]
        assert job.returnvalue >= job.delay_until.timestamp()
        assert job.processed_at >= job.delay_until
        assert job.returnvalue < due[job.id] + LATE_SECONDS_MAX


def test_a_delay_counts_from_the_add_as_the_producer_sees_it(queue, record):
    before = time.time()
    started = queue.add("stamped", {"folder": record.folder}, delay="300ms").result("20s")
    assert started >= before + 0.3


def test_jobs_that_are_due_at_the_same_moment_run_in_the_order_of_adding(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    at = datetime.now(UTC) + timedelta(milliseconds=500)
    added = [queue.add("record", {"folder": record.folder}, at=at) for _ in range(20)]
    for job in added:
        job.result("20s")
    assert record.ids() == [job.id for job in added]


def test_jobs_become_due_in_the_order_of_their_times(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    base = datetime.now(UTC) + timedelta(milliseconds=300)
    order = [7, 2, 9, 0, 4, 1, 8, 3, 6, 5]
    at = [base + timedelta(milliseconds=50 * number) for number in order]
    added = [queue.add("record", {"folder": record.folder}, at=moment) for moment in at]
    for job in added:
        job.result("20s")
    by_due = sorted(added, key=lambda job: job.delay_until)
    assert record.ids() == [job.id for job in by_due]


def test_a_short_delay_added_after_a_long_one_fires_on_time(queue, record):
    far = queue.add("stamped", {"folder": record.folder}, delay="1h")
    near = queue.add("stamped", {"folder": record.folder}, delay="200ms")
    started = near.result("20s")
    assert near.delay_until.timestamp() <= started < near.delay_until.timestamp() + LATE_SECONDS_MAX
    assert far.refresh().state == "delayed"


def test_a_plain_job_starts_at_once_while_a_far_delayed_one_waits(queue, record):
    far = queue.add("record", {"folder": record.folder}, delay="1 day")
    before = time.monotonic()
    assert queue.add("echo", "now").result("20s") == "now"
    assert time.monotonic() - before < LATE_SECONDS_MAX
    assert queue.counts()["delayed"] == 1
    assert far.refresh().state == "delayed"
    assert record() == []


def test_at_names_the_moment_itself(queue, record):
    at = datetime.now(UTC) + timedelta(milliseconds=400)
    job = queue.add("stamped", {"folder": record.folder}, at=at)
    assert job.state == "delayed"
    assert job.result("20s") >= at.timestamp()
    assert abs(job.delay_until - at) <= timedelta(milliseconds=1)


def test_a_moment_that_has_passed_is_now(queue):
    past = datetime.now(UTC) - timedelta(hours=1)
    job = queue.add("echo", "late", at=past)
    assert job.state == "waiting"
    assert job.result("20s") == "late"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"at": datetime(2030, 1, 1)}, "at"),
        ({"delay": -1}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "at"),
    ],
    ids=["naive", "negative", "words", "both"],
)
def test_a_time_that_cannot_be_is_refused_with_the_reason(conveyor, options, field):
    with pytest.raises(InvalidOption, match=rf"^{field} = ") as refusal:
        conveyor.queue("q").add("echo", **options)
    assert refusal.value.field == field
    assert conveyor.info().totals["added"] == 0


def test_what_became_due_while_no_supervisor_ran_starts_with_the_next_one(start, connect, record):
    supervisor = start(workers=1)
    queue = connect(supervisor).queue("q")
    missed = queue.add("stamped", {"folder": record.folder}, delay="300ms")
    far = queue.add("stamped", {"folder": record.folder}, delay="1h")
    kill(supervisor)
    until(lambda: datetime.now(UTC) > missed.delay_until)
    start(workers=1)
    assert missed.result("20s") >= missed.delay_until.timestamp()
    assert far.refresh().state == "delayed"
