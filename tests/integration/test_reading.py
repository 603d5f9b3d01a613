"""What can be read: single jobs, many, pages of them, counts, queues, workers and the supervisor's own state."""

from datetime import UTC, datetime

import pytest
from processes import is_alive
from waiting import until

from conveyor_actors import InvalidOption, JobRemoved

STATES = ["waiting", "waiting-children", "delayed", "active", "completed", "failed"]


def test_a_job_can_be_named_by_itself_its_ref_or_its_generated_id(conveyor, queue):
    job = queue.add("echo", 1)
    named = queue.add("echo", 2, id="named")
    for name in (job, job.ref, job.id, f"q/{job.id}"):
        assert conveyor.get(name) == job
    for name in (named, "q/named"):
        assert conveyor.get(name) == named
    assert queue.get("named") == named
    assert queue.get(job.id) == job
    for nothing in ("q/none", "999999", "elsewhere/named"):
        assert conveyor.get(nothing) is None
    assert queue.get("none") is None
    with pytest.raises(InvalidOption, match="job"):
        conveyor.get(3.5)


def test_a_job_tells_everything_about_itself(queue):
    before = datetime.now(UTC)
    data, metadata = {"n": 1}, {"owner": "me", "tags": ["a"]}
    job = queue.add("echo", data, priority=3, attempts=2, metadata=metadata)
    job.result("20s")
    read = queue.get(job.id)
    assert (read.id, read.ref, read.queue, read.name) == (job.id, f"q/{job.id}", "q", "echo")
    assert (read.state, read.data, read.returnvalue, read.metadata) == ("completed", data, data, metadata)
    assert (read.priority, read.attempts, read.attempts_made, read.stalled_count) == (3, 2, 1, 0)
    assert read.failure is None
    assert read.worker is not None
    assert read.delay_until is None
    assert not read.created
    assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= read.created_at
    assert read.created_at <= read.processed_at <= read.finished_at <= datetime.now(UTC)
    assert read.created_at.utcoffset().total_seconds() == 0


def test_no_job_ends_before_it_began(queue):
    added = queue.add_many([("echo", None)] * 5_000)
    for job in queue.as_completed(added, timeout="30s"):
        assert job.created_at <= job.processed_at <= job.finished_at


def test_many_jobs_come_in_the_order_they_were_asked_for(queue):
    added = queue.add_many([("echo", number) for number in range(50)])
    ids = [added[30].id, "none", added[3].id, added[3].id]
    found = queue.get_many(ids)
    assert found[1] is None
    assert [job and job.data for job in found] == [30, None, 3, 3]
    assert queue.get_many([]) == []


def test_jobs_are_listed_in_pages_that_cover_all_and_repeat_none(queue):
    queue.pause()
    added = queue.add_many([("echo", number) for number in range(250)])
    pages, after = [], None
    while True:
        page = queue.jobs("waiting", limit=100, after=after)
        pages.append([job.id for job in page])
        after = page.next
        if after is None:
            break
    assert [len(page) for page in pages] == [100, 100, 50]
    assert [id for page in pages for id in page] == [job.id for job in added]
    assert len(queue.jobs()) == 100
    assert len(queue.jobs(limit=5_000)) == 250
    first = queue.jobs("waiting", limit=7)
    assert [job.id for job in queue.jobs("waiting", limit=3, after=first[-1])] == [job.id for job in added[7:10]]
    queue.resume()


def test_jobs_are_listed_by_state(queue, record, gate):
    active = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    record.running(active.id)
    done = queue.add("echo")
    done.result("20s")
    failed = queue.add("fail", {})
    failed.wait("20s")
    delayed = queue.add("echo", delay="1h")
    queue.pause()
    waiting = queue.add("echo")
    expected = {"waiting": waiting, "delayed": delayed, "active": active, "completed": done, "failed": failed}
    for state in STATES:
        assert list(queue.jobs(state)) == ([expected[state]] if state in expected else [])
    assert set(queue.jobs("completed", "failed")) == {done, failed}
    assert set(queue.jobs()) == set(expected.values())
    assert queue.counts() == {state: int(state in expected) for state in STATES}
    with pytest.raises(InvalidOption, match="completed"):
        queue.jobs("complete")
    gate.open()
    queue.resume()
    active.result("20s")
    waiting.result("20s")


def test_finished_jobs_are_listed_even_when_they_are_many(queue):
    added = queue.add_many([("echo", number) for number in range(3_000)])
    for _ in queue.as_completed(added, timeout="30s"):
        pass
    listed = queue.jobs("completed", limit=10_000)
    assert sorted(job.data for job in listed) == list(range(3_000))
    assert queue.counts()["completed"] == 3_000


def test_finished_jobs_with_large_results_come_one_page_after_the_other(queue):
    data = bytes(1024 * 1024)
    jobs = [queue.add("echo", data) for _ in range(12)]
    for _ in queue.as_completed(jobs, timeout="30s"):
        pass
    known = [queue.get(job.id) for job in jobs]
    ended = [job for job in queue.as_completed(known, timeout="30s") if job.returnvalue == data]
    assert sorted(ended, key=lambda job: int(job.id)) == jobs


def test_counts_of_a_queue_that_never_was_are_zero(conveyor):
    assert conveyor.queue("nowhere").counts() == dict.fromkeys(STATES, 0)
    assert not conveyor.queue("nowhere").paused()
    assert list(conveyor.queue("nowhere").jobs()) == []


def test_queues_are_listed_with_their_counts(conveyor):
    conveyor.queue("a").add("whereabouts").result("20s")
    conveyor.queue("b").add("whereabouts", delay="1h")
    conveyor.queue("b").pause()
    queues = {queue.name: queue for queue in conveyor.queues()}
    assert queues.keys() == {"a", "b"}
    assert queues["a"].counts["completed"] == 1
    assert queues["b"].counts["delayed"] == 1
    assert (queues["a"].paused, queues["b"].paused) == (False, True)


def test_workers_tell_what_they_run(conveyor, queue, record, gate):
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    pid = record.running(job.id)
    busy = until(lambda: [worker for worker in conveyor.workers() if worker.state == "busy"])
    assert [(worker.pid, worker.job, worker.pool) for worker in busy] == [(pid, job.ref, "default")]
    idle = [worker for worker in conveyor.workers() if worker.state == "idle"]
    assert [worker.job for worker in idle] == [None]
    assert job.refresh().worker == busy[0].id
    gate.open()
    job.result("20s")
    until(lambda: {worker.state for worker in conveyor.workers()} == {"idle"})


def test_info_tells_how_the_supervisor_is(start, connect):
    supervisor = start()
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    queue.add("echo").result("20s")
    queue.add("fail", {}).wait("20s")
    queue.add("crash", {"how": "kill"}).wait("20s")
    info = conveyor.info()
    assert info.state == "running"
    assert info.pid == supervisor.pid
    assert info.totals["added"] == 3
    assert info.totals["completed"] == 2
    assert info.totals["failed"] == 1
    assert info.totals["stalled"] == 1
    assert [(pool.name, pool.state, pool.workers) for pool in info.pools] == [("default", "ready", 2)]
    assert "echo" in info.pools[0].handlers
    assert [each.name for each in info.queues] == ["q"]
    assert info.store.path.startswith(str(start.data_dir))
    assert info.store.size > 0
    assert info.warnings == []
    assert info.started_at <= datetime.now(UTC)
    assert conveyor.ping() < 5


def test_totals_are_those_of_the_store_and_outlive_a_supervisor(start, connect):
    supervisor = start()
    conveyor = connect(supervisor)
    conveyor.queue("q").add("echo", remove_on_complete=True).result("20s")
    first = conveyor.info()
    supervisor.close()
    assert not is_alive(supervisor.pid)
    start()
    second = conveyor.info()
    assert second.totals == first.totals
    assert second.totals["completed"] == 1
    assert second.incarnation > first.incarnation


def test_what_is_gone_says_so_when_it_is_refreshed(queue):
    job = queue.add("echo", remove_on_complete=True)
    job.result("20s")
    with pytest.raises(JobRemoved, match=job.ref):
        job.refresh()
