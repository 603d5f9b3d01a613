"""A worker that was given up and wakes up again changes nothing: a job's end is recorded once."""

import contextlib
import os
import signal

from processes import is_alive
from waiting import until

LOCKS = {"q": {"lock_duration": "400ms", "stalled_interval": "100ms"}}


def ends_of(conveyor, job, marker):
    """The events of a job up to the end of a marker job that was added after it ended."""
    types = []
    for event in conveyor.events(since=0, timeout="10s"):
        if event.job_id == job.id:
            types.append(event.type)
        if event.job_id == marker.id and event.type == "completed":
            return types
    raise AssertionError("the events ended")


def test_a_frozen_worker_that_wakes_up_after_its_job_went_elsewhere_adds_no_second_end(start, connect, record, gate):
    conveyor = connect(start(workers=2, queues=LOCKS))
    queue = conveyor.queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "once"})
    frozen = record.running(job.id)
    os.kill(frozen, signal.SIGSTOP)
    second = record.running(job.id, times=2)
    assert second != frozen
    gate.open()
    assert job.result("20s") == "once"
    with contextlib.suppress(ProcessLookupError):
        os.kill(frozen, signal.SIGCONT)
    until(lambda: not is_alive(frozen))
    marker = queue.add("echo")
    marker.result("20s")
    types = ends_of(conveyor, job, marker)
    assert types == ["waiting", "active", "stalled", "waiting", "active", "completed"]
    assert [line.kind for line in job.history()] == ["stalled", "completed"]
    job.refresh()
    assert (job.stalled_count, job.attempts_made) == (1, 1)
    assert conveyor.info().totals["completed"] == 2


def test_a_frozen_worker_never_shares_its_job_with_a_second_one(start, connect, record, gate):
    queue = connect(start(workers=2, queues=LOCKS)).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    frozen = record.running(job.id)
    os.kill(frozen, signal.SIGSTOP)
    record.running(job.id, times=2)
    assert not is_alive(frozen)
    gate.open()
    job.result("20s")
    assert [words[0] for words in record("end")] == [job.id]


def test_a_worker_blocked_with_the_gil_held_is_stalled_and_its_job_done_elsewhere(start, connect, record):
    queue = connect(start(workers=2, queues=LOCKS)).queue("q")
    job = queue.add("sleeps-with-gil", {"folder": record.folder, "seconds": 30})
    assert job.result("20s") == "woke up"
    assert (job.stalled_count, job.attempts_made) == (1, 1)
    assert len(record("start")) == 2


def test_a_worker_that_freezes_for_less_than_its_lock_keeps_the_job(start, connect, record, gate):
    queue = connect(start(workers=2, queues={"q": {"lock_duration": "30s"}})).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    pid = record.running(job.id)
    os.kill(pid, signal.SIGSTOP)
    assert queue.add("echo", "beside it").result("20s") == "beside it"
    os.kill(pid, signal.SIGCONT)
    gate.open()
    job.result("20s")
    assert job.stalled_count == 0
    assert len(record("start")) == 1


def test_a_job_that_freezes_too_often_fails_as_stalled(start, connect, record, gate):
    queue = connect(start(workers=1, queues={"q": {**LOCKS["q"], "max_stalled_count": 0}})).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    os.kill(record.running(job.id), signal.SIGSTOP)
    assert job.wait("20s") == "failed"
    assert job.failure.kind == "stalled"
    assert (job.stalled_count, job.attempts_made) == (1, 0)
    assert queue.add("echo", "next").result("20s") == "next"
