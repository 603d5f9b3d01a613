"""How much of two cores goes into the jobs: fixed CPU work of 10 ms, calibrated alone, on two workers.

The work alone is measured before and after each run, in a process of its own. Beside it stands what two bare processes
reach that do the same work with nothing between them: two cores of a virtual machine seldom give twice what one gives.
"""

from __future__ import annotations

import multiprocessing
import time

from bench.common import completed, median, supervisor, wait_until
from bench.handlers import burn
from conveyor_actors import Conveyor

TARGET_SECONDS = 0.010
JOBS = 200


def _iterations() -> int:
    """How much work takes 10 ms here."""
    iterations = 20_000
    for _ in range(5):
        took = min(_timed(iterations) for _ in range(20))
        iterations = int(iterations * TARGET_SECONDS / took)
    return iterations


def _timed(iterations: int) -> float:
    started = time.perf_counter()
    burn(iterations)
    return time.perf_counter() - started


def _work(iterations: int, jobs: int) -> None:
    for _ in range(jobs):
        burn(iterations)


def _bare(processes: int, iterations: int, jobs: int) -> float:
    """Seconds for so many jobs in each of some processes that are forked for them."""
    fork = multiprocessing.get_context("fork")
    forked = [fork.Process(target=_work, args=(iterations, jobs)) for _ in range(processes)]
    started = time.perf_counter()
    for process in forked:
        process.start()
    for process in forked:
        process.join()
    return time.perf_counter() - started


def _conveyor(conveyor: Conveyor, iterations: int, jobs: int) -> float:
    """Seconds for all jobs on two workers, until the last end that was recorded: asking often would cost."""
    queue = conveyor.queue("bench")
    queue.pause()
    added = queue.add_many([("burn", {"iterations": iterations})] * jobs)
    before = completed(conveyor)
    started = time.time()
    queue.resume()
    wait_until(lambda: completed(conveyor) - before >= jobs, pause=0.2)
    ended = max(job.finished_at.timestamp() for job in queue.get_many([job.id for job in added]))
    return ended - started


def run(short: bool = False) -> dict[str, object]:
    runs = 9 if short else 15
    alone: list[float] = []
    bare: list[float] = []
    ours: list[float] = []
    with supervisor(2) as (_, conveyor):
        iterations = _iterations()
        _conveyor(conveyor, iterations, 20)

        def measure_alone() -> float:
            return _bare(1, iterations, JOBS // 4) / (JOBS // 4)

        solo = measure_alone()
        for _ in range(runs):
            bare.append(_bare(2, iterations, JOBS // 2))
            ours.append(_conveyor(conveyor, iterations, JOBS))
            before, solo = solo, measure_alone()
            alone.append((before + solo) / 2)

    def efficiency(walls: list[float]) -> float:
        return median([JOBS * one / (2 * wall) for one, wall in zip(alone, walls, strict=True)])

    return {
        "job_ms": median(alone) * 1000,
        "jobs": JOBS,
        "wall_seconds": median(ours),
        "efficiency": efficiency(ours),
        "bare_processes": efficiency(bare),
        "of_bare_processes": median([other / mine for mine, other in zip(ours, bare, strict=True)]),
        "required": "efficiency >= 0.93",
        "ok": efficiency(ours) >= 0.93,
    }
