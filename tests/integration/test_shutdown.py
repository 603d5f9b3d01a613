"""Told to stop, a supervisor starts nothing new, lets running jobs finish, and returns what it must kill."""

import os
import signal
import time

import pytest
from waiting import until

QUICK_SECONDS_MAX = 3.0


def test_running_jobs_finish_and_are_recorded_while_nothing_new_starts(start, connect, record, gate):
    supervisor = start(workers=1, supervisor={"shutdown_timeout": "60s"})
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    running = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "finished"})
    record.running(running.id)
    waiting = queue.add_many([("record", {"folder": record.folder})] * 5)
    os.kill(supervisor.pid, signal.SIGTERM)
    until(lambda: conveyor.info().state == "draining")
    assert running.refresh().state == "active"
    assert {job.refresh().state for job in waiting} == {"waiting"}
    gate.open()
    assert supervisor.process.wait(20) == 0
    assert [words[0] for words in record()] == ["start", "end"]

    start(workers=1)
    running.refresh()
    assert (running.state, running.returnvalue, running.attempts_made) == ("completed", "finished", 1)
    for job in waiting:
        job.result("20s")
    assert len(record("start")) == 1


def test_who_waits_for_a_running_job_is_answered_before_the_supervisor_goes(start, connect, record, gate):
    supervisor = start(workers=1)
    job = connect(supervisor).queue("q").add("gated", {"folder": record.folder, "gate": gate.path, "tag": "told"})
    record.running(job.id)
    os.kill(supervisor.pid, signal.SIGTERM)
    gate.open()
    assert job.result("20s") == "told"
    assert supervisor.process.wait(20) == 0


def test_jobs_handed_out_ahead_are_taken_back_and_run_after_the_restart(start, connect, record, gate):
    supervisor = start(workers=1, supervisor={"shutdown_timeout": "60s"})
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    for _ in queue.as_completed(queue.add_many([("gated", {})] * 2_000), timeout="30s"):
        pass
    items = [("gated", {})] * 1_000
    items.insert(2, ("gated", {"folder": record.folder, "gate": gate.path}))
    added = queue.add_many(items)
    record.running(added[2].id)
    os.kill(supervisor.pid, signal.SIGTERM)
    until(lambda: conveyor.info().state == "draining")
    until(lambda: queue.counts()["active"] == 1)
    gate.open()
    assert supervisor.process.wait(20) == 0
    start(workers=1)
    ended = list(queue.as_completed(added, timeout="30s"))
    assert {(job.state, job.stalled_count, job.attempts_made) for job in ended} == {("completed", 0, 1)}
    assert len(record("start")) == 1


def test_at_the_deadline_a_handler_sees_aborted_and_may_stop(start, connect, record):
    supervisor = start(workers=1, supervisor={"shutdown_timeout": "200ms"})
    job = connect(supervisor).queue("q").add("waits-for-abort", {"folder": record.folder})
    record.running(job.id)
    os.kill(supervisor.pid, signal.SIGTERM)
    assert supervisor.process.wait(20) == 0
    assert record.ids("aborted") == [job.id]
    start(workers=1)
    job.refresh()
    assert (job.state, job.returnvalue, job.stalled_count) == ("completed", "stopped early", 0)
    assert len(record("start")) == 1


def test_aborted_is_not_seen_before_the_deadline(start, connect, record, gate):
    supervisor = start(workers=2, supervisor={"shutdown_timeout": "1s"})
    queue = connect(supervisor).queue("q")
    job = queue.add("waits-for-abort", {"folder": record.folder})
    record.running(job.id)
    told = time.monotonic()
    os.kill(supervisor.pid, signal.SIGTERM)
    until(lambda: record("aborted"))
    assert time.monotonic() - told >= 0.9
    assert supervisor.process.wait(20) == 0


def test_what_does_not_stop_is_killed_and_returned_uncharged_to_its_place(start, connect, record, gate):
    supervisor = start(workers=1, supervisor={"shutdown_timeout": "100ms"})
    queue = connect(supervisor).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "again"})
    record.running(job.id)
    queue.pause()
    behind = queue.add("record", {"folder": record.folder})
    os.kill(supervisor.pid, signal.SIGTERM)
    assert supervisor.process.wait(30) == 3

    start(workers=1)
    job.refresh()
    assert (job.state, job.attempts_made, job.stalled_count) == ("waiting", 0, 0)
    assert list(queue.jobs("waiting")) == [job, behind]
    queue.resume()
    record.running(job.id, times=2)
    gate.open()
    assert job.result("20s") == "again"
    assert (job.attempts_made, job.stalled_count) == (1, 0)
    assert record.ids("end") == [job.id]
    behind.result("20s")


def test_a_second_signal_hurries(start, connect, record, gate):
    supervisor = start(workers=1, supervisor={"shutdown_timeout": "10m"})
    conveyor = connect(supervisor)
    job = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": gate.path})
    record.running(job.id)
    os.kill(supervisor.pid, signal.SIGTERM)
    until(lambda: conveyor.info().state == "draining")
    os.kill(supervisor.pid, signal.SIGTERM)
    assert supervisor.process.wait(20) == 3
    start(workers=1)
    gate.open()
    job.result("20s")
    assert (job.attempts_made, job.stalled_count) == (1, 0)


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_idle_supervisor_stops_quickly(start, connect, told):
    supervisor = start()
    connect(supervisor).queue("q").add("echo").result("20s")
    before = time.monotonic()
    os.kill(supervisor.pid, told)
    assert supervisor.process.wait(20) == 0
    assert time.monotonic() - before < QUICK_SECONDS_MAX


def test_closing_is_idempotent(start):
    supervisor = start()
    supervisor.close()
    supervisor.close()
    assert supervisor.process.returncode == 0


def test_a_job_longer_than_its_lock_keeps_it_during_shutdown(start, connect, record):
    locks = {"q": {"lock_duration": "300ms", "stalled_interval": "100ms"}}
    supervisor = start(workers=2, queues=locks, supervisor={"shutdown_timeout": "60s"})
    queue = connect(supervisor).queue("q")
    added = [
        queue.add("hold-gil", {"folder": record.folder, "seconds": 2}),
        queue.add("slow", {"folder": record.folder, "seconds": 2}),
    ]
    for job in added:
        record.running(job.id)
    os.kill(supervisor.pid, signal.SIGTERM)
    assert supervisor.process.wait(30) == 0
    start()
    for job in added:
        job.refresh()
        assert (job.state, job.stalled_count, job.attempts_made) == ("completed", 0, 1)
    assert len(record("start")) == 2


def test_a_worker_killed_during_shutdown_does_not_get_a_successor(start, connect, record, gate):
    supervisor = start(workers=2, supervisor={"shutdown_timeout": "60s"})
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    victim, other = (queue.add("gated", {"folder": record.folder, "gate": gate.path}) for _ in range(2))
    pid = record.running(victim.id)
    record.running(other.id)
    os.kill(supervisor.pid, signal.SIGTERM)
    until(lambda: conveyor.info().state == "draining")
    os.kill(pid, signal.SIGKILL)
    until(lambda: victim.refresh().state == "waiting")
    gate.open()
    assert supervisor.process.wait(20) == 0
    assert len(record("start")) == 2
    start()
    victim.result("20s")
    assert victim.stalled_count == 1


def test_closing_with_a_time_is_a_shutdown_like_any_other(start, connect, record):
    supervisor = start(workers=1)
    stubborn = connect(supervisor).queue("q").add("slow", {"folder": record.folder, "seconds": 600})
    record.running(stubborn.id)
    supervisor.close(timeout="200ms")
    assert supervisor.returncode == 3
    start.started.clear()
    again = start(workers=1)
    assert stubborn.refresh().state in ("waiting", "active")
    assert stubborn.history() == []
    again.close(timeout="100ms")
    start.started.clear()


def test_closing_with_more_time_than_configured_lets_a_job_finish(start, connect, record):
    supervisor = start(workers=1, supervisor={"shutdown_timeout": "100ms"})
    job = connect(supervisor).queue("q").add("slow", {"folder": record.folder, "seconds": 1})
    record.running(job.id)
    supervisor.close(timeout="20s")
    assert supervisor.returncode == 0
    assert record.ids("end") == [job.id]
