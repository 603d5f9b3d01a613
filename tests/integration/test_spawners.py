"""Whatever happens to a spawner, its pool comes back, and no job is lost, doubled or kept from ending."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from waiting import until

from conveyor_actors import Conveyor, Supervisor


def spawners_of(supervisor):
    return psutil.Process(supervisor.pid).children()


def serving(conveyor):
    """The ids of all workers, once there are as many as there should be."""
    (pool,) = conveyor.info().pools
    return pool.state == "ready" and pool.workers_ready == pool.workers and {worker.id for worker in conveyor.workers()}


def test_a_worker_and_its_spawner_killed_in_one_breath_cost_no_more_than_the_spawner(start, connect, record, gate):
    """The spawner cannot report the worker's end any more; it is seen all the same."""
    supervisor = start(workers=2)
    conveyor = connect(supervisor)
    job = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": gate.path, "tag": "done"})
    victim = record.running(job.id)
    (spawner,) = spawners_of(supervisor)
    spawner.suspend()
    os.kill(victim, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(victim) or psutil.Process(victim).status() == psutil.STATUS_ZOMBIE)
    conveyor.ping()  # the supervisor has had its turn after that death
    spawner.kill()
    record.running(job.id, times=2)
    gate.open()
    assert job.result("20s") == "done"
    assert [line.kind for line in job.history()] == ["interrupted", "completed"]
    assert until(lambda: serving(conveyor))


@pytest.mark.parametrize("first", ["worker", "spawner"])
def test_killed_together_in_any_order_they_are_replaced(start, connect, record, gate, first):
    supervisor = start(workers=2)
    conveyor = connect(supervisor)
    for round in range(1, 4):
        before = until(lambda: serving(conveyor))
        job = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": f"{gate.path}{round}"})
        doomed = [record.running(job.id), spawners_of(supervisor)[0].pid]
        for pid in doomed if first == "worker" else reversed(doomed):
            os.kill(pid, signal.SIGKILL)
        record.running(job.id, times=2)
        Path(f"{gate.path}{round}").touch()
        job.result("20s")
        assert not before & until(lambda: serving(conveyor))


def test_spawners_that_were_of_use_may_die_as_often_as_they_like(start, connect):
    supervisor = start(workers=1, pools={"default": {"restart_intensity": 2}})
    conveyor = connect(supervisor)
    for _ in range(5):
        before = until(lambda: serving(conveyor))
        spawners_of(supervisor)[0].kill()
        until(lambda before=before: (now := serving(conveyor)) and not now & before)
    assert conveyor.queue("q").add("echo", "alive").result("20s") == "alive"


def test_a_fork_that_fails_hurts_no_running_job_and_is_tried_again(start, connect, record, gate, home):
    no_forks = home / "no-forks"
    pool = {"imports": ["forks_fail"], "env": {"TEST_NO_FORKS": str(no_forks)}, "restart_intensity": 1000}
    conveyor = connect(start(workers=2, pools={"default": pool}))
    queue = conveyor.queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    busy = record.running(job.id)
    no_forks.touch()
    idle = next(worker for worker in conveyor.workers() if worker.pid != busy)
    os.kill(idle.pid, signal.SIGKILL)
    told = (event.data["message"] for event in conveyor.events(since=0, timeout="20s") if event.type == "worker-died")
    assert any("could not be forked: " in message for message in told)
    no_forks.unlink()
    assert until(lambda: serving(conveyor))
    gate.open()
    job.result("20s")
    assert record.ids("start") == [job.id]


def test_a_pool_that_cannot_fork_at_all_is_suspended_with_the_reason(start, connect, home):
    no_forks = home / "no-forks"
    no_forks.touch()
    pool = {"imports": ["forks_fail"], "env": {"TEST_NO_FORKS": str(no_forks)}, "restart_intensity": 2}
    conveyor = connect(start(workers=1, pools={"default": pool}))
    (pool,) = until(lambda: [pool for pool in conveyor.info().pools if pool.state == "suspended"])
    assert "could not be forked: " in pool.reason


def test_a_worker_that_freezes_while_idle_keeps_no_job_for_longer_than_lock_duration(start, connect):
    conveyor = connect(start(workers=1, queues={"q": {"lock_duration": "1s"}}))
    (frozen,) = conveyor.workers()
    psutil.Process(frozen.pid).suspend()
    job = conveyor.queue("q").add("echo", "through")
    assert job.result("20s") == "through"
    assert job.worker != frozen.id
    assert (job.attempts_made, job.stalled_count) == (1, 0)  # it never began there


def test_the_log_tells_which_job_a_death_hit(start, connect, record, gate, home):
    with Supervisor(start.config(workers=1), log=home / "log") as supervisor:
        job = connect(supervisor).queue("q").add("gated", {"folder": record.folder, "gate": gate.path}, id="thumb")
        os.kill(record.running(job.id), signal.SIGKILL)
        record.running(job.id, times=2)
        gate.open()
        job.result("20s")
    (line,) = [line for line in (home / "log").read_text().splitlines() if "was killed by SIGKILL" in line]
    assert '"job":"q/thumb"' in line
    assert '"cause":"crashed"' in line


def test_a_process_that_was_there_before_the_supervisor_is_none_of_its_own(start):
    """As beside it in a container: started by the script that becomes the supervisor."""
    with start.process(before="sleep 600 &") as process:
        sidecar = until(lambda: [child for child in psutil.Process(process.pid).children() if child.name() == "sleep"])
        with Conveyor(start.url) as conveyor:
            assert conveyor.queue("q").add("echo", 1).result("20s") == 1
            (spawner,) = [child for child in psutil.Process(process.pid).children() if child.name() != "sleep"]
            spawner.kill()
            assert conveyor.queue("q").add("echo", 2).result("20s") == 2
        assert sidecar[0].status() == psutil.STATUS_SLEEPING
        process.terminate()
        process.wait()
        sidecar[0].kill()
