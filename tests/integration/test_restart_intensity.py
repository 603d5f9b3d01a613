"""A pool whose workers die before they are ready is suspended, loudly; its jobs stay queued and nothing spins."""

import time

from processes import cpu_seconds, tree_of
from waiting import until


def suspended(conveyor, name):
    pool = next(pool for pool in conveyor.info().pools if pool.name == name)
    return pool if pool.state == "suspended" else None


def pools(**bad):
    return {"bad": {"queues": ["bad"], "imports": ["dies_after_fork"], **bad}, "good": {"queues": ["*"]}}


def test_a_pool_whose_workers_never_become_ready_is_suspended_with_the_reason(start, connect):
    conveyor = connect(start(pools=pools(restart_intensity=3)))
    waiting = conveyor.queue("bad").add("whereabouts")
    pool = until(lambda: suspended(conveyor, "bad"))
    assert pool.reason
    assert "7" in pool.reason  # what they exited with
    assert any("bad" in warning for warning in conveyor.info().warnings)
    assert waiting.refresh().state == "waiting"
    assert (waiting.attempts_made, waiting.stalled_count) == (0, 0)
    assert conveyor.queue("q").add("echo", "others work").result("20s") == "others work"


def test_a_suspended_pool_costs_nothing(start, connect):
    supervisor = start(pools=pools(restart_intensity=3))
    conveyor = connect(supervisor)
    conveyor.queue("bad").add("whereabouts")
    until(lambda: suspended(conveyor, "bad"))
    died = conveyor.info().warnings
    pids = [supervisor.pid, *(process.pid for process in tree_of(supervisor.pid))]
    before = cpu_seconds(pids)
    time.sleep(1.5)  # it is a span that is measured, not an event that is waited for
    assert cpu_seconds(pids) - before < 0.3
    assert {process.pid for process in tree_of(supervisor.pid)} <= set(pids)
    assert conveyor.info().warnings == died


def test_workers_that_die_while_running_jobs_do_not_suspend_their_pool(start, connect):
    conveyor = connect(start(workers=1, pools={"default": {"restart_intensity": 2}}))
    queue = conveyor.queue("q")
    doomed = queue.add_many([("crash", {"how": "kill", "times": 100})] * 10)
    ended = list(queue.as_completed(doomed, timeout="30s"))
    assert {job.failure.kind for job in ended} == {"crashed"}
    assert queue.add("echo", "alive").result("20s") == "alive"
    assert [pool.state for pool in conveyor.info().pools] == ["ready"]


def test_the_jobs_of_a_suspended_pool_run_when_it_is_mended(start, connect):
    supervisor = start(pools=pools(restart_intensity=2))
    conveyor = connect(supervisor)
    waiting = conveyor.queue("bad").add("whereabouts")
    until(lambda: suspended(conveyor, "bad"))
    supervisor.close()
    assert supervisor.process.returncode == 0
    start(pools=pools(imports=["jobs"]))
    assert waiting.result("20s")["queue"] == "bad"
    assert waiting.stalled_count == 0


def test_a_pool_that_cannot_start_is_told_of_at_once_and_keeps_nobody_waiting(start, connect):
    began = time.monotonic()
    conveyor = connect(start(pools=pools(restart_intensity=50)))
    assert time.monotonic() - began < 10
    info = conveyor.info()
    assert info.state == "running"
    (warning,) = info.warnings
    assert warning.startswith("pool bad cannot start: ") and "status 7" in warning
