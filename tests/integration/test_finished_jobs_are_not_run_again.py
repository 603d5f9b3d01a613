"""What a worker had finished and sent is recorded, however late the supervisor comes to read it."""

import collections
import os
import random
import signal
import time

JOBS = 20_000
WORKERS = 12


def test_jobs_whose_results_were_waiting_when_their_worker_was_killed_ran_once(start, connect, record):
    supervisor = start(workers=WORKERS, queues={"q": {"max_stalled_count": 100}})
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    added = list(queue.add_all(("slow", {"folder": record.folder, "seconds": 0.001}) for _ in range(JOBS)))
    draw = random.Random(7)
    killed = 0
    while queue.counts()["waiting"]:
        pids = [worker.pid for worker in conveyor.workers() if worker.state == "busy"]
        os.kill(supervisor.pid, signal.SIGSTOP)  # as a slow disk stops it
        time.sleep(0.2)
        if pids:
            os.kill(draw.choice(pids), signal.SIGKILL)
            killed += 1
        os.kill(supervisor.pid, signal.SIGCONT)
    charged = {job.id for job in queue.as_completed(added, timeout="60s") if job.stalled_count}
    assert killed >= 3 and len(charged) <= killed
    runs = collections.Counter(record.ids("start"))
    assert len(runs) == JOBS
    assert {id for id, times in runs.items() if times > 1} <= charged
