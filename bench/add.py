"""Adding single jobs, each awaited, to a paused queue, against raw LMDB commits.

One producer, and sixteen threads of a program that share a connection.
"""

from __future__ import annotations

import threading
import time

from bench.common import PAYLOAD, alternate, median, raw_commits_per_second, supervisor
from conveyor_actors import Conveyor

PRODUCERS = 16


def _produce(conveyor: Conveyor, count: int) -> None:
    queue = conveyor.queue("bench")
    for _ in range(count):
        queue.add("noop", PAYLOAD)


def _alone(conveyor: Conveyor, count: int) -> float:
    """Adds a second of one producer."""
    started = time.perf_counter()
    _produce(conveyor, count)
    return count / (time.perf_counter() - started)


def _together(conveyor: Conveyor, count: int) -> float:
    """Adds a second of all producers, from when they are there until each has added so many."""
    all_there = threading.Barrier(PRODUCERS + 1)

    def produce() -> None:
        all_there.wait()
        _produce(conveyor, count)

    threads = [threading.Thread(target=produce) for _ in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    all_there.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return PRODUCERS * count / (time.perf_counter() - started)


def run(short: bool = False) -> dict[str, object]:
    count, runs = (100, 15) if short else (200, 61)  # short turns: the machine is not the same a second later
    with supervisor(2) as (_, conveyor):
        conveyor.queue("bench").pause()
        _alone(conveyor, 200)
        raw, single, many = alternate(
            runs,
            lambda: raw_commits_per_second(count),
            lambda: _alone(conveyor, count),
            lambda: _together(conveyor, count // 2),
        )

    def of_raw(mine: list[float]) -> float:
        return median([one / base for one, base in zip(mine, raw, strict=True)])

    single_ratio, many_ratio = of_raw(single), of_raw(many)
    return {
        "raw_commits_per_second": median(raw),
        "single_stream_per_second": median(single),
        "sixteen_producers_per_second": median(many),
        "single_ratio": single_ratio,
        "sixteen_ratio": many_ratio,
        "required": "single_ratio >= 0.5, sixteen_ratio >= 2.5",
        "ok": single_ratio >= 0.5 and many_ratio >= 2.5,
    }
