"""A million waiting jobs, against a thousand: rates of adding and dispatching, time to restart, memory."""

from __future__ import annotations

import tempfile
import time

from bench.common import PAYLOAD, completed, configuration, median, private_bytes, wait_until
from conveyor_actors import Conveyor, Supervisor

BURST = 4_000


def _fill(conveyor: Conveyor, jobs: int) -> None:
    queue = conveyor.queue("bench")
    for _ in queue.add_all((("noop", PAYLOAD) for _ in range(jobs)), chunk=1000):
        pass


def _add_rate(conveyor: Conveyor, jobs: int = 10_000) -> float:
    queue = conveyor.queue("bench")
    started = time.perf_counter()
    for _ in range(jobs // 200):
        queue.add_many([("noop", PAYLOAD)] * 200)
    return jobs / (time.perf_counter() - started)


def _dispatch_rate(conveyor: Conveyor) -> float:
    """Completions a second right after a resume."""
    queue = conveyor.queue("bench")
    before = completed(conveyor)
    started = time.perf_counter()
    queue.resume()
    wait_until(lambda: completed(conveyor) - before >= BURST, pause=0.001)
    rate = (completed(conveyor) - before) / (time.perf_counter() - started)
    queue.pause()
    return rate


def _settle(conveyor: Conveyor) -> None:
    wait_until(lambda: conveyor.queue("bench").counts()["active"] == 0)


def _measure(folder: str, backlog: int, runs: int) -> dict[str, float]:
    settings = configuration(folder, 2)
    adds, dispatches, starts = [], [], []
    with Supervisor(settings) as running, Conveyor(running.url) as conveyor:
        queue = conveyor.queue("bench")
        queue.add("noop").result(timeout=10)
        queue.pause()
        _fill(conveyor, backlog)
        for _ in range(runs):
            adds.append(_add_rate(conveyor))
            dispatches.append(_dispatch_rate(conveyor))
            _settle(conveyor)
            surplus = queue.counts()["waiting"] - backlog
            if surplus > 0 and backlog <= 1_000:  # keep it at about a thousand
                queue.resume()
                wait_until(lambda: queue.counts()["waiting"] <= backlog)
                queue.pause()
                _settle(conveyor)
        memory = private_bytes(running.pid)
    for _ in range(runs):
        started = time.perf_counter()
        with Supervisor(settings):
            starts.append(time.perf_counter() - started)
    return {
        "adds_per_second": median(adds),
        "dispatches_per_second": median(dispatches),
        "restart_seconds": median(starts),
        "private_mb": memory / 1e6,
    }


def _empty_restart(runs: int) -> float:
    with tempfile.TemporaryDirectory(prefix="conveyor-bench-") as folder:
        settings = configuration(folder, 2)
        with Supervisor(settings):
            pass
        took = []
        for _ in range(runs):
            started = time.perf_counter()
            with Supervisor(settings):
                took.append(time.perf_counter() - started)
        return median(took)


def run(short: bool = False) -> dict[str, object]:
    large, runs = (100_000, 3) if short else (1_000_000, 5)
    with tempfile.TemporaryDirectory(prefix="conveyor-bench-") as folder:
        small = _measure(folder, 1_000, runs)
    with tempfile.TemporaryDirectory(prefix="conveyor-bench-") as folder:
        full = _measure(folder, large, runs)
    empty = _empty_restart(runs)
    add_ratio = full["adds_per_second"] / small["adds_per_second"]
    dispatch_ratio = full["dispatches_per_second"] / small["dispatches_per_second"]
    restart_ratio = full["restart_seconds"] / empty
    return {
        "backlog": large,
        "with_1000": small,
        "with_backlog": full,
        "empty_restart_seconds": empty,
        "add_ratio": add_ratio,
        "dispatch_ratio": dispatch_ratio,
        "restart_ratio": restart_ratio,
        "required": "add_ratio, dispatch_ratio >= 0.8; restart_ratio < 1.5; private memory < 120 MB",
        "ok": add_ratio >= 0.8 and dispatch_ratio >= 0.8 and restart_ratio < 1.5 and full["private_mb"] < 120,
    }
