"""From add to result, one job at a time, against two raw commits and two raw ZeroMQ round trips."""

from __future__ import annotations

import time

from bench.common import PAYLOAD, alternate, median, raw_commits_per_second, raw_round_trip_seconds, supervisor
from conveyor_actors import Conveyor


def _round_trip(conveyor: Conveyor, count: int) -> float:
    queue = conveyor.queue("bench")
    took = []
    for _ in range(count):
        started = time.perf_counter()
        queue.add("noop", PAYLOAD).result(timeout=10)
        took.append(time.perf_counter() - started)
    return median(took)


def run(short: bool = False) -> dict[str, object]:
    count, runs = (100, 11) if short else (200, 21)  # short turns, as for adding
    with supervisor(2) as (_, conveyor):
        _round_trip(conveyor, 50)
        ours, commits, trips = alternate(
            runs,
            lambda: _round_trip(conveyor, count),
            lambda: 1 / raw_commits_per_second(count),
            lambda: raw_round_trip_seconds(count),
        )
    floors = [2 * commit + 2 * trip for commit, trip in zip(commits, trips, strict=True)]
    ratio = median([mine / floor for mine, floor in zip(ours, floors, strict=True)])
    return {
        "add_to_result_ms": median(ours) * 1000,
        "raw_commit_ms": median(commits) * 1000,
        "raw_round_trip_ms": median(trips) * 1000,
        "ratio": ratio,
        "required": "<= 2.5",
        "ok": ratio <= 2.5,
    }
