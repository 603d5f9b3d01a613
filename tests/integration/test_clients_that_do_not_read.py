"""A client that was stopped in the middle of waiting costs the supervisor no memory, and loses nothing."""

import os
import signal
import subprocess
import sys

import psutil
from waiting import until

RESULT_BYTES = 1_000_000
JOBS = 400
MEMORY_BYTES_MAX = 200_000_000

CLIENT = """
import sys
from conveyor_actors import Conveyor
with Conveyor(sys.argv[1]) as conveyor:
    first = conveyor.queue("another").add("whereabouts")
    jobs = [conveyor.get(ref) for ref in sys.stdin.read().split()]
    for job in conveyor.as_completed([first, *jobs]):
        print(job.name, len(job.returnvalue), flush=True)
"""


def test_large_results_do_not_pile_up_for_a_client_that_is_stopped(start, connect):
    running = start()
    queue = connect(running).queue("q")
    queue.pause()
    jobs = queue.add_many([("big", {"bytes": RESULT_BYTES})] * JOBS)
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, running.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as client:
        try:
            client.stdin.write(" ".join(job.ref for job in jobs))
            client.stdin.close()
            assert client.stdout.readline().startswith("whereabouts")  # it waits for all of them
            os.kill(client.pid, signal.SIGSTOP)
            queue.resume()
            until(lambda: queue.counts()["completed"] == JOBS, seconds=60)
            assert psutil.Process(running.pid).memory_full_info().uss < MEMORY_BYTES_MAX
            os.kill(client.pid, signal.SIGCONT)
            assert client.stdout.read().splitlines() == [f"big {RESULT_BYTES}"] * JOBS
        finally:
            client.kill()
