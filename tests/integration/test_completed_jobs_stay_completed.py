"""Recovery never runs a completed job again: the record outside tells what ran, the store what ended."""

import collections
import itertools
import random
import threading
import time

from processes import kill

JOBS = 10_000
KILLS = 5


def runs_of(record):
    """The moments at which each job ran."""
    runs = collections.defaultdict(list)
    for id, moment in record():
        runs[id].append(float(moment))
    return runs


def test_ten_thousand_jobs_and_a_supervisor_killed_at_random_end_once_each(start, connect, record):
    supervisor = start(workers=2)
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    added = queue.add_many([("stamped", {"folder": record.folder})] * JOBS)
    ended, seen_at = {}, {}

    def collect():
        for job in queue.as_completed(added, timeout="100s"):
            assert job.id not in ended
            ended[job.id] = job
            seen_at[job.id] = time.time()

    collector = threading.Thread(target=collect)
    collector.start()
    draw, outages = random.Random(7), []
    for number in range(1, KILLS + 1):
        goal = JOBS * number // (KILLS + 2)
        while len(ended) < goal and collector.is_alive():
            time.sleep(0.001)
        time.sleep(draw.random() * 0.02)
        killed = time.time()
        kill(supervisor)
        supervisor = start(workers=2)
        outages.append((killed, time.time()))
    collector.join()

    assert len(ended) == JOBS
    assert {(job.state, job.attempts_made, job.stalled_count) for job in ended.values()} == {("completed", 1, 0)}
    assert conveyor.info().totals["completed"] == JOBS
    runs = runs_of(record)
    assert runs.keys() == ended.keys()
    for id, moments in runs.items():
        assert max(moments) <= seen_at[id], f"job {id} ran again after its end was known"
        for earlier, later in itertools.pairwise(moments):
            # Workers notice the death of their supervisor a moment later: what they run until then is in flight too.
            in_flight = any(earlier <= restarted and killed <= later for killed, restarted in outages)
            assert in_flight, f"job {id} ran twice, at {earlier} and {later}, and in no outage"
    completions = collections.Counter()
    for event in conveyor.events("q", since=0, timeout="10s"):
        if event.type == "completed":
            completions[event.job_id] += 1
            if sum(completions.values()) == JOBS:
                break
    assert set(completions.values()) == {1}


def test_what_was_completed_before_the_kill_is_not_run_after_it(start, connect, record):
    supervisor = start()
    queue = connect(supervisor).queue("q")
    done = queue.add_many([("stamped", {"folder": record.folder})] * 200)
    results = {job.id: job.returnvalue for job in queue.as_completed(done, timeout="20s")}
    kill(supervisor)
    start()
    later = queue.add("stamped", {"folder": record.folder})
    later.result("20s")
    runs = runs_of(record)
    assert all(len(runs[job.id]) == 1 for job in done)
    assert {job.id: job.returnvalue for job in queue.get_many(results)} == results
    assert {job.state for job in queue.get_many(results)} == {"completed"}


def test_a_job_that_ran_when_the_supervisor_was_killed_ends_once_and_is_not_charged(start, connect, record, gate):
    supervisor = start(workers=1)
    conveyor = connect(supervisor)
    job = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": gate.path, "tag": "done"})
    record.running(job.id)
    kill(supervisor)
    start(workers=1)
    gate.open()
    assert job.result("20s") == "done"
    assert (job.attempts_made, job.stalled_count) == (1, 0)
    assert conveyor.info().totals["completed"] == 1


def test_a_job_that_outlives_ten_interruptions_fails_as_crashed(start, connect, record, gate):
    supervisor = start(workers=1, supervisor={"orphan_grace": 0})
    job = connect(supervisor).queue("q").add("gated", {"folder": record.folder, "gate": gate.path})
    for times in range(1, 11):
        record.running(job.id, times)
        kill(supervisor)
        supervisor = start(workers=1, supervisor={"orphan_grace": 0})
    assert job.wait("20s") == "failed"
    assert job.failure.kind == "crashed"
    assert (job.attempts_made, job.stalled_count) == (0, 0)
    assert [line.kind for line in job.history()] == ["interrupted"] * 10
    assert len(record("start")) == 10
