"""What a handler started dies with its worker, in whatever way the worker, its spawner or the supervisor goes."""

import os
import signal

import psutil
from processes import is_alive, kill, marked, tree_of
from waiting import until

GONE_SECONDS_MAX = 8.0


def add_family(queue, record, gate):
    """A job with a plain child, one in its own session and a daemon; gives the job, its worker and their mark."""
    mark = f"family-{os.getpid()}-{os.path.basename(record.folder)}"
    job = queue.add("family", {"folder": record.folder, "gate": gate.path, "mark": mark})
    worker = record.running(job.id)
    until(lambda: len(marked(mark)) == 3)
    return job, worker, mark


def found_before_each_run(record):
    """How many of an earlier run's processes each run of the job met."""
    return [int(words[1]) for words in record("found")]


def test_no_child_survives_a_killed_worker(start, connect, record, gate):
    queue = connect(start(workers=1)).queue("q")
    job, worker, mark = add_family(queue, record, gate)
    family = marked(mark)
    os.kill(worker, signal.SIGKILL)
    record.running(job.id, times=2)
    assert not [pid for pid in family if is_alive(pid)]
    assert found_before_each_run(record) == [0, 0]
    gate.open()
    assert job.result("20s") == "ok"
    assert job.stalled_count == 1


def test_no_child_survives_a_handler_that_crashes(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    job = queue.add("children", {"folder": record.folder})
    assert job.result("20s") == "ok"
    first = [int(pid) for pid in record("pids")[0]]
    assert not [pid for pid in first if is_alive(pid)]


def test_no_child_survives_a_stop(start, connect, record, gate):
    supervisor = start(workers=1, supervisor={"shutdown_timeout": 0})
    _, worker, mark = add_family(connect(supervisor).queue("q"), record, gate)
    os.kill(supervisor.pid, signal.SIGTERM)
    assert supervisor.process.wait(30) == 3
    assert not is_alive(worker)
    assert marked(mark) == set()


def test_after_a_restart_nothing_of_the_old_tree_is_alive_when_the_job_runs_again(start, connect, record, gate):
    grace = {"orphan_grace": 0}
    supervisor = start(workers=1, supervisor=grace)
    queue = connect(supervisor).queue("q")
    job, worker, mark = add_family(queue, record, gate)
    family = marked(mark)
    old_tree = [process.pid for process in tree_of(supervisor.pid)]
    assert worker in old_tree
    kill(supervisor)
    start(workers=1, supervisor=grace)
    record.running(job.id, times=2)
    assert found_before_each_run(record) == [0, 0]
    assert not [pid for pid in {*old_tree, *family} if is_alive(pid)]
    gate.open()
    assert job.result("20s") == "ok"
    assert (job.attempts_made, job.stalled_count) == (1, 0)


def test_without_a_restart_workers_and_their_children_are_gone_soon_all_the_same(start, connect, record, gate):
    supervisor = start(workers=2, supervisor={"orphan_grace": "500ms"})
    job, _, mark = add_family(connect(supervisor).queue("q"), record, gate)
    old_tree = [process.pid for process in tree_of(supervisor.pid)]
    kill(supervisor)
    until(lambda: not [pid for pid in old_tree if is_alive(pid)], GONE_SECONDS_MAX)
    until(lambda: not marked(mark), GONE_SECONDS_MAX)
    gate.open()
    start()
    assert job.result("20s") == "ok"


def test_a_busy_worker_with_the_gil_held_does_not_outlive_its_supervisor(start, connect, record):
    supervisor = start(workers=1, supervisor={"orphan_grace": "500ms"})
    job = connect(supervisor).queue("q").add("hold-gil", {"folder": record.folder, "seconds": 30})
    worker = record.running(job.id)
    kill(supervisor)
    until(lambda: not is_alive(worker), GONE_SECONDS_MAX)
    start(workers=1, queues={"q": {"max_stalled_count": 0}})
    os.kill(record.running(job.id, times=2), signal.SIGKILL)
    assert job.wait("20s") == "failed"


def test_a_killed_spawner_takes_its_workers_along_and_the_pool_comes_back(start, connect, record, gate):
    conveyor = connect(start(workers=2))
    queue = conveyor.queue("q")
    job, worker, mark = add_family(queue, record, gate)
    family = marked(mark)
    old = [each.pid for each in conveyor.workers()]
    spawner = psutil.Process(worker).ppid()
    os.kill(spawner, signal.SIGKILL)
    record.running(job.id, times=2)
    assert found_before_each_run(record) == [0, 0]
    assert not [pid for pid in {spawner, *old, *family} if is_alive(pid)]
    until(lambda: [pool.state for pool in conveyor.info().pools] == ["ready"])
    until(lambda: len(conveyor.workers()) == 2)
    gate.open()
    assert job.result("20s") == "ok"
    assert queue.add("echo", "alive").result("20s") == "alive"


def test_a_killed_spawner_of_one_pool_leaves_the_other_pools_alone(start, connect, record, gate):
    pools = {"one": {"queues": ["q"], "workers": 1}, "other": {"queues": ["*"], "workers": 1}}
    conveyor = connect(start(pools=pools))
    job = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": gate.path})
    worker = record.running(job.id)
    other = next(each.pid for each in conveyor.workers() if each.pool == "other")
    os.kill(psutil.Process(other).ppid(), signal.SIGKILL)
    until(lambda: not is_alive(other))
    assert conveyor.queue("anything").add("whereabouts").result("20s")["pid"] != other
    assert is_alive(worker)
    gate.open()
    job.result("20s")
    assert job.stalled_count == 0
    assert len(record("start")) == 1
