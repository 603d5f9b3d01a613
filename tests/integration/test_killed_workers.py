"""A killed worker costs its job one stall and no attempt, and a new worker takes its place."""

import os
import signal

import pytest
from waiting import until

RECOVERY_SECONDS_MAX = 5.0


def test_a_job_whose_worker_is_killed_is_finished_by_another(conveyor, queue, record, gate):
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "done"})
    victim = record.running(job.id)
    os.kill(victim, signal.SIGKILL)
    second = record.running(job.id, times=2)
    assert second != victim
    gate.open()
    assert job.result("20s") == "done"
    assert job.stalled_count == 1
    assert job.attempts_made == 1
    assert [words[0] for words in record("end")] == [job.id]


def test_the_history_tells_of_the_kill_and_of_the_end(queue, record, gate):
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    os.kill(record.running(job.id), signal.SIGKILL)
    record.running(job.id, times=2)
    gate.open()
    job.result("20s")
    stalled, completed = job.history()
    assert (stalled.kind, completed.kind) == ("stalled", "completed")
    assert "SIGKILL" in stalled.message
    assert stalled.worker != completed.worker
    assert stalled.at <= completed.at
    assert completed.worker == job.worker


def test_a_kill_is_seen_by_the_kernel_and_not_by_a_timeout(start, connect, record, gate):
    queue = connect(start(workers=1, queues={"q": {"lock_duration": "10m", "stalled_interval": "10m"}})).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    os.kill(record.running(job.id), signal.SIGKILL)
    until(lambda: len(record("start")) == 2, RECOVERY_SECONDS_MAX)
    gate.open()
    job.result("20s")


def test_a_dead_worker_is_replaced_whether_it_was_busy_or_idle(conveyor, queue, record, gate):
    before = {worker.id: worker.pid for worker in conveyor.workers()}
    assert len(before) == 2
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    until(lambda: not before.keys() & {worker.id for worker in conveyor.workers()})
    until(lambda: [worker.state for worker in conveyor.workers()] == ["idle", "idle"])
    assert queue.add("echo", "alive").result("20s") == "alive"


def test_a_stall_leaves_the_attempts_alone(queue, record, gate):
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path}, attempts=1)
    os.kill(record.running(job.id), signal.SIGKILL)
    record.running(job.id, times=2)
    assert job.refresh().attempts_made == 0
    assert job.state == "active"
    gate.open()
    assert job.wait("20s") == "completed"


@pytest.mark.parametrize("how", ["kill", "segv", "0", "5"])
def test_whatever_way_a_worker_dies_its_job_gets_another_chance(queue, how):
    job = queue.add("crash", {"how": how})
    assert job.result("20s") == "survived"
    assert (job.stalled_count, job.attempts_made) == (1, 1)


def test_every_worker_killed_again_and_again_loses_no_job(start, connect, record):
    conveyor = connect(start(workers=2, queues={"q": {"max_stalled_count": 100}}))
    queue = conveyor.queue("q")
    added = queue.add_many([("slow", {"folder": record.folder, "seconds": 0.02})] * 60)
    for kills in range(1, 11):
        until(lambda kills=kills: len(record("end")) >= 4 * kills)
        for worker in conveyor.workers()[: 1 + kills % 2]:
            try:
                os.kill(worker.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    ended = list(queue.as_completed(added, timeout="30s"))
    assert {job.state for job in ended} == {"completed"}
    assert {job.attempts_made for job in ended} == {1}
    assert conveyor.info().totals["completed"] == 60
