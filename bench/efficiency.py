"""How much of two cores goes into the jobs: fixed CPU work of 10 ms, calibrated alone, on two workers."""

from __future__ import annotations

import time

from bench.common import alternate, completed, median, supervisor, wait_until
from bench.handlers import burn
from conveyor_actors import Conveyor

TARGET_SECONDS = 0.010


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


def _solo(iterations: int, jobs: int) -> float:
    """Seconds of one job, alone in this process."""
    return median([_timed(iterations) for _ in range(jobs)])


def _conveyor(conveyor: Conveyor, iterations: int, jobs: int) -> float:
    """Seconds for all jobs on two workers, until the last end that was recorded: asking often would cost."""
    queue = conveyor.queue("bench")
    queue.pause()
    added = queue.add_many([("burn", {"iterations": iterations})] * jobs)
    before = completed(conveyor)
    started = time.time()
    queue.resume()
    wait_until(lambda: completed(conveyor) - before >= jobs, pause=0.2)
    ends = [job.finished_at for job in queue.get_many([job.id for job in added]) if job is not None and job.finished_at]
    return max(ends).timestamp() - started


def run(short: bool = False) -> dict[str, object]:
    jobs, runs = (200, 3) if short else (200, 11)
    with supervisor(2) as (_, conveyor):
        iterations = _iterations()
        _conveyor(conveyor, iterations, 20)
        solo, walls = alternate(
            runs, lambda: _solo(iterations, jobs // 4), lambda: _conveyor(conveyor, iterations, jobs)
        )
    ratios = [jobs * alone / (2 * wall) for alone, wall in zip(solo, walls, strict=True)]
    return {
        "job_ms": median(solo) * 1000,
        "jobs": jobs,
        "wall_seconds": median(walls),
        "efficiency": median(ratios),
        "required": ">= 0.93",
        "ok": median(ratios) >= 0.93,
    }
