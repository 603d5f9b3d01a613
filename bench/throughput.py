"""No-op jobs from the first add to the last recorded completion, against `ProcessPoolExecutor.submit`."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ProcessPoolExecutor

from bench.common import PAYLOAD, alternate, completed, median, supervisor, wait_until
from conveyor_actors import Conveyor

BATCH = 200


def _nothing(data: object) -> None:
    return None


def _executor(pool: ProcessPoolExecutor, jobs: int) -> float:
    started = time.perf_counter()
    futures = [pool.submit(_nothing, PAYLOAD) for _ in range(jobs)]
    for future in futures:
        future.result()
    return jobs / (time.perf_counter() - started)


def _conveyor(url: str, conveyor: Conveyor, jobs: int) -> float:
    before = completed(conveyor)

    def produce() -> None:
        with Conveyor(url) as own:
            queue = own.queue("bench")
            for _ in range(jobs // 2 // BATCH):
                queue.add_many([("noop", PAYLOAD)] * BATCH)

    started = time.perf_counter()
    threads = [threading.Thread(target=produce) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: completed(conveyor) - before >= jobs)
    return jobs / (time.perf_counter() - started)


def run(short: bool = False) -> dict[str, object]:
    jobs, runs = (10_000, 3) if short else (40_000, 7)
    with supervisor(2) as (running, conveyor), ProcessPoolExecutor(2) as pool:
        _executor(pool, 100)
        _conveyor(running.url, conveyor, 2 * BATCH)
        ours, theirs = alternate(
            runs, lambda: _conveyor(running.url, conveyor, jobs), lambda: _executor(pool, jobs // 2)
        )
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return {
        "jobs_per_second": median(ours),
        "process_pool_executor_per_second": median(theirs),
        "ratio": median(ratios),
        "required": ">= 2, aimed 3",
        "ok": median(ratios) >= 2,
    }
