"""Only the job that was running pays for a crash, and no job waits behind a slow one while a worker is free."""

import os
import signal
import time

import pytest

SHORT_JOBS = 1_000
SECONDS_MAX = 3.0


def warm_up(queue, name, data, count=2_000):
    """Makes the handler known as a very short one, so that its jobs are handed out ahead."""
    for _ in queue.as_completed(queue.add_many([(name, data)] * count), timeout="30s"):
        pass


def test_jobs_handed_out_ahead_are_not_charged_for_the_crash_of_the_running_one(start, connect, record, gate):
    queue = connect(start(workers=1)).queue("q")
    warm_up(queue, "gated", {})
    items = [("gated", {})] * 2_000
    items[5] = ("gated", {"folder": record.folder, "gate": gate.path, "tag": "victim"})
    added = queue.add_many(items)
    victim = added[5]
    os.kill(record.running(victim.id), signal.SIGKILL)
    record.running(victim.id, times=2)
    gate.open()
    ended = {job.id: job for job in queue.as_completed(added, timeout="30s")}
    assert ended[victim.id].stalled_count == 1
    others = [job for job in ended.values() if job.id != victim.id]
    assert {(job.state, job.stalled_count, job.attempts_made) for job in others} == {("completed", 0, 1)}


@pytest.mark.parametrize("place", [0, 3, 500])
@pytest.mark.parametrize("measured", [False, True], ids=["new-handler", "measured-handler"])
def test_one_long_job_with_the_gil_held_does_not_hold_up_a_thousand_short_ones(start, connect, record, measured, place):
    queue = connect(start(workers=2, queues={"q": {"max_stalled_count": 0}})).queue("q")
    if measured:
        warm_up(queue, "hold-gil", {})
    items = [("hold-gil", {})] * SHORT_JOBS
    items.insert(place, ("hold-gil", {"folder": record.folder, "seconds": 10}))
    added = queue.add_many(items)
    began = time.monotonic()
    long = added.pop(place)
    ended = list(queue.as_completed(added, timeout="20s"))
    took = time.monotonic() - began
    assert {(job.state, job.stalled_count) for job in ended} == {("completed", 0)}
    assert took < SECONDS_MAX
    os.kill(record.running(long.id), signal.SIGKILL)  # nobody needs to wait for the rest of it
    assert long.wait("20s") == "failed"
