"""A worker that computes is never taken for a dead one, however long it holds the GIL."""

import pytest

LOCKS = {"q": {"lock_duration": "500ms", "stalled_interval": "100ms"}}


def test_a_job_that_holds_the_gil_for_many_lock_durations_is_never_stalled(start, connect, record):
    conveyor = connect(start(workers=2, queues=LOCKS))
    queue = conveyor.queue("q")
    job = queue.add("hold-gil", {"folder": record.folder, "seconds": 4})
    assert job.result("30s") == "held"
    assert (job.stalled_count, job.attempts_made) == (0, 1)
    assert len(record("start")) == 1
    assert conveyor.info().totals["stalled"] == 0


def test_neither_are_more_of_them_than_there_are_cores(start, connect, record):
    conveyor = connect(start(workers=4, queues=LOCKS))
    queue = conveyor.queue("q")
    added = queue.add_many([("hold-gil", {"folder": record.folder, "seconds": 2})] * 4)
    ended = list(queue.as_completed(added, timeout="40s"))
    assert {(job.state, job.stalled_count) for job in ended} == {("completed", 0)}
    assert sorted(record.ids("start")) == sorted(job.id for job in added)


@pytest.mark.parametrize("with_gil", [False, True], ids=["gil-released", "gil-held"])
def test_a_job_that_waits_for_a_busy_child_process_is_not_stalled(start, connect, record, with_gil):
    queue = connect(start(workers=1, queues=LOCKS)).queue("q")
    job = queue.add("busy-child", {"folder": record.folder, "seconds": 2.5, "with_gil": with_gil})
    assert job.result("30s") == 0
    assert job.stalled_count == 0
    assert len(record("start")) == 1


def test_a_job_that_waits_with_the_gil_released_is_not_stalled(start, connect, record):
    queue = connect(start(workers=1, queues=LOCKS)).queue("q")
    job = queue.add("slow", {"folder": record.folder, "seconds": 2})
    assert job.result("30s") == "done"
    assert job.stalled_count == 0
    assert len(record("start")) == 1


@pytest.mark.slow
def test_not_even_after_forty_lock_durations(start, connect, record):
    queue = connect(start(workers=2, queues=LOCKS)).queue("q")
    job = queue.add("hold-gil", {"folder": record.folder, "seconds": 20})
    assert job.result("60s") == "held"
    assert job.stalled_count == 0
    assert len(record("start")) == 1
