"""Whatever is killed whenever, and however often: every job ends exactly once, and nothing is lost."""

import collections
import contextlib
import os
import random
import signal
import time

import psutil
import pytest
from processes import kill, tree_of
from waiting import until

LIMITS = {"q": {"max_stalled_count": 1_000}}
JOBS = 4_000
KILLS = 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_workers_spawners_and_supervisors_killed_at_random(start, connect, record, seed):
    draw = random.Random(seed)
    supervisor = start(workers=3, queues=LIMITS)
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    quick = ("stamped", {"folder": record.folder})
    long = ("slow", {"folder": record.folder, "seconds": 0.02})
    added = queue.add_many([draw.choice([quick, quick, quick, long]) for _ in range(JOBS)])
    supervisors_killed = 0
    for _ in range(KILLS):
        time.sleep(draw.random() * 0.3)  # any moment will do
        if draw.random() < 0.25 and supervisors_killed < 8:  # ten interruptions would fail a job
            supervisors_killed += 1
            kill(supervisor)
            supervisor = start(workers=3, queues=LIMITS)
        else:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, IndexError):
                os.kill(draw.choice(tree_of(supervisor.pid)).pid, signal.SIGKILL)
    ended = collections.Counter()
    for job in queue.as_completed(added, timeout="60s"):
        ended[job.id] += 1
        assert (job.state, job.attempts_made) == ("completed", 1)
    assert ended == collections.Counter(job.id for job in added)
    assert conveyor.info().totals["completed"] == JOBS
    until(lambda: queue.counts()["completed"] == JOBS)
    completions = collections.Counter()
    for event in conveyor.events("q", since=0, timeout="10s"):
        completions[event.job_id] += event.type == "completed"
        if completions.total() == JOBS:
            break
    assert set(completions.values()) == {1}
    until(lambda: len(conveyor.workers()) == 3)
