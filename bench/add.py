"""Adding single jobs, each awaited, to a paused queue, against raw LMDB commits."""

from __future__ import annotations

import threading
import time

from bench.common import PAYLOAD, alternate, median, raw_commits_per_second, supervisor
from conveyor_actors import Conveyor


def _adds_per_second(conveyor: Conveyor, producers: int, count: int) -> float:
    """From the moment when all producers are there until each has added so many."""
    queue = conveyor.queue("bench")
    together = threading.Barrier(producers + 1)

    def produce() -> None:
        together.wait()
        for _ in range(count):
            queue.add("noop", PAYLOAD)

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads:
        thread.start()
    together.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return producers * count / (time.perf_counter() - started)


def run(short: bool = False) -> dict[str, object]:
    count, runs = (100, 15) if short else (200, 61)  # short turns: the machine is not the same a second later
    with supervisor(2) as (_, conveyor):
        conveyor.queue("bench").pause()
        _adds_per_second(conveyor, 1, 200)
        raw, single, many = alternate(
            runs,
            lambda: raw_commits_per_second(count),
            lambda: _adds_per_second(conveyor, 1, count),
            lambda: _adds_per_second(conveyor, 16, count // 2),
        )
    single_ratio = median([mine / base for mine, base in zip(single, raw, strict=True)])
    many_ratio = median([mine / base for mine, base in zip(many, raw, strict=True)])
    return {
        "raw_commits_per_second": median(raw),
        "single_stream_per_second": median(single),
        "sixteen_producers_per_second": median(many),
        "single_ratio": single_ratio,
        "sixteen_ratio": many_ratio,
        "required": "single_ratio >= 0.5, sixteen_ratio >= 2.5",
        "ok": single_ratio >= 0.5 and many_ratio >= 2.5,
    }
