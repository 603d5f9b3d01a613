"""Every way to fail has its own clear failure, and the next job runs."""

import pytest
from processes import is_alive

from conveyor_actors import JobFailed


def failure_of(job):
    with pytest.raises(JobFailed) as failed:
        job.result("20s")
    return failed.value.failure


@pytest.mark.parametrize(
    ("how", "says"),
    [("0", "status 0"), ("3", "status 3"), ("segv", "SIGSEGV"), ("kill", "SIGKILL")],
)
def test_a_worker_that_ends_is_told_by_its_exit_status_or_signal(queue, how, says):
    job = queue.add("crash", {"how": how, "times": 100})
    failure = failure_of(job)
    assert failure.kind == "crashed"
    assert says in failure.message
    assert queue.add("echo", "next").result("20s") == "next"


def test_sys_exit_in_a_handler_fails_the_attempt_and_not_the_worker(conveyor, queue):
    before = {worker.pid for worker in conveyor.workers()}
    job = queue.add("exits", attempts=2)
    failure = failure_of(job)
    assert failure.kind == "error"
    assert "SystemExit" in failure.message
    assert (job.attempts_made, job.stalled_count) == (2, 0)
    assert queue.add("echo", "next").result("20s") == "next"
    assert {worker.pid for worker in conveyor.workers()} == before


@pytest.mark.parametrize(
    ("how", "code", "status", "says"),
    [
        ("returns", None, 0, ""),
        ("raises", None, 1, "ValueError: in the child"),
        ("exits", None, 0, ""),
        ("exits", 7, 7, ""),
        ("exits", "last words", 1, "last words"),
    ],
)
def test_a_child_that_a_handler_forked_ends_where_the_handler_ends(
    start, connect, home, record, how, code, status, says
):
    conveyor = connect(start(workers=1, pools={"default": {"imports": ["jobs", "rude_jobs"]}}))
    queue = conveyor.queue("q")
    before = [worker.pid for worker in conveyor.workers()]
    output = home / "output"
    job = queue.add("forks", {"how": how, "code": code, "folder": record.folder, "output": str(output)})
    assert job.result("20s") == status
    ((ended, child),) = record("child")
    assert ended == job.id and not is_alive(int(child))
    assert "printed and not flushed" in output.read_text()
    assert says in output.read_text()
    assert (job.attempts_made, job.stalled_count, len(job.history())) == (1, 0, 1)
    assert queue.add("echo", "next").result("20s") == "next"
    assert [worker.pid for worker in conveyor.workers()] == before


def test_a_result_that_cannot_be_stored_names_the_path_to_the_value(queue):
    job = queue.add("unserialisable")
    failure = failure_of(job)
    assert '["files"][1]' in failure.message
    assert "object" in failure.message
    assert job.stalled_count == 0
    assert queue.add("echo", "next").result("20s") == "next"


def test_a_result_over_max_payload_says_how_large_it_was_and_may_be(start, connect):
    queue = connect(start(workers=1, supervisor={"max_payload": "64KiB"})).queue("q")
    job = queue.add("big", {"bytes": 100_000})
    failure = failure_of(job)
    assert "max_payload" in failure.message
    assert "65536" in failure.message
    assert job.stalled_count == 0
    assert len(queue.add("big", {"bytes": 60_000}).result("20s")) == 60_000


def test_data_that_does_not_fit_the_handler_fails_once_whatever_the_attempts(queue):
    job = queue.add("resize", {"path": "a.jpg", "width": "wide"}, attempts=5)
    failure = failure_of(job)
    assert failure.kind == "invalid-payload"
    assert "width" in failure.message
    assert job.attempts_made <= 1
    assert len(job.history()) == 1
    assert queue.add("resize", {"path": "a.jpg"}).result("20s")["width"] == 640


@pytest.mark.parametrize(
    ("error", "says"), [("assertion", "AssertionError: too wide"), ("exit", "SystemExit: 3"), ("surrogate", "not ?")]
)
def test_whatever_a_schema_raises_is_one_invalid_payload_and_costs_no_worker(start, connect, error, says):
    conveyor = connect(start(pools={"default": {"imports": ["jobs", "rude_jobs"]}}))
    queue = conveyor.queue("q")
    assert queue.add("echo", "first").result("20s") == "first"
    before = {worker.pid for worker in conveyor.workers()}
    job = queue.add("strict", {"error": error}, attempts=5)
    failure = failure_of(job)
    assert failure.kind == "invalid-payload"
    assert says in failure.message
    assert job.stalled_count == 0
    assert len(job.history()) == 1
    assert queue.add("echo", "next").result("20s") == "next"
    assert {worker.pid for worker in conveyor.workers()} == before


def test_a_job_that_nobody_has_a_handler_for_names_those_there_are(queue):
    job = queue.add("resise", attempts=5)
    failure = failure_of(job)
    assert failure.kind == "unknown-handler"
    assert "resise" in failure.message
    assert "resize" in failure.message
    assert "echo" in failure.message


def test_a_queue_that_no_pool_serves_waits_and_says_so(start, connect):
    conveyor = connect(start(pools={"images": {"queues": ["images"]}}))
    assert conveyor.info().warnings == []
    job = conveyor.queue("mail").add("whereabouts")
    assert any("mail" in warning for warning in conveyor.info().warnings)
    conveyor.queue("images").add("whereabouts").result("20s")
    assert job.refresh().state == "waiting"


def test_an_import_error_suspends_its_pool_with_the_reason_and_no_other(start, connect):
    broken = {"queues": ["broken"], "imports": ["cannot_be_imported"]}
    conveyor = connect(start(pools={"broken": broken, "default": {}}))
    waiting = conveyor.queue("broken").add("whereabouts")
    assert conveyor.queue("q").add("echo", "works").result("20s") == "works"
    pools = {pool.name: pool for pool in conveyor.info().pools}
    assert pools["broken"].state == "suspended"
    assert "there_is_no_such_module" in pools["broken"].reason
    assert pools["broken"].workers_ready == 0
    assert pools["default"].state == "ready"
    assert any("broken" in warning for warning in conveyor.info().warnings)
    assert waiting.refresh().state == "waiting"
    assert {worker.pool for worker in conveyor.workers()} == {"default"}


def test_jobs_of_a_suspended_pool_run_when_the_import_is_mended(start, connect):
    supervisor = start(pools={"broken": {"imports": ["cannot_be_imported"]}})
    job = connect(supervisor).queue("q").add("echo", "at last")
    supervisor.close()
    start()
    assert job.result("20s") == "at last"


def test_what_a_handler_raises_is_kept_with_its_traceback(queue):
    job = queue.add("fail", {"message": "öhm"})
    failure = failure_of(job)
    assert failure.kind == "error"
    assert failure.message == "ValueError: öhm"
    assert "raise ValueError" in failure.traceback
    assert failure.at == job.refresh().finished_at


def test_a_very_long_message_does_not_push_out_where_it_was_raised(queue):
    job = queue.add("fail", {"message": "öhm " * 50_000})
    failure = failure_of(job)
    assert failure.message.startswith("ValueError: öhm")
    assert "raise ValueError" in failure.traceback


def test_a_module_with_an_error_in_it_is_told_with_the_line(start, connect, home):
    (home / "misspelt.py").write_text("def work(data:\n    return data\n")
    conveyor = connect(start(pools={"default": {"imports": ["misspelt"], "pythonpath": [str(home)]}}))
    (pool,) = conveyor.info().pools
    assert pool.state == "suspended"
    assert "misspelt cannot be imported: SyntaxError: '(' was never closed (misspelt.py, line 1)" in pool.reason
