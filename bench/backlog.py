"""A million waiting jobs, against a thousand: rates of adding and dispatching, time to restart, memory."""

from __future__ import annotations

import contextlib
import tempfile
import time

from bench.common import PAYLOAD, alternate, completed, configuration, median, private_bytes, wait_until
from conveyor_actors import Conveyor, Supervisor

SMALL = 1_000
BURST = 4_000
ADDED = 10_000


class Backlog:
    """A supervisor with about so many waiting jobs in a paused queue."""

    def __init__(self, running: Supervisor, conveyor: Conveyor, jobs: int) -> None:
        self.running = running
        self.conveyor = conveyor
        self.jobs = jobs
        self.queue = conveyor.queue("bench")
        self.queue.add("noop").result(timeout=10)
        self.queue.pause()
        for _ in self.queue.add_all((("noop", PAYLOAD) for _ in range(jobs)), chunk=1000):
            pass

    def adds_per_second(self) -> float:
        started = time.perf_counter()
        for _ in range(ADDED // 200):
            self.queue.add_many([("noop", PAYLOAD)] * 200)
        return ADDED / (time.perf_counter() - started)

    def dispatches_per_second(self) -> float:
        """Completions a second right after a resume."""
        before = completed(self.conveyor)
        started = time.perf_counter()
        self.queue.resume()
        wait_until(lambda: completed(self.conveyor) - before >= BURST, pause=0.001)
        rate = (completed(self.conveyor) - before) / (time.perf_counter() - started)
        self._back_to_size()
        return rate

    def _back_to_size(self) -> None:
        if self.jobs == SMALL:
            wait_until(lambda: self.queue.counts()["waiting"] <= SMALL)
        self.queue.pause()
        wait_until(lambda: self.queue.counts()["active"] == 0)


def _restart(folder: str) -> float:
    started = time.perf_counter()
    with Supervisor(configuration(folder, 2)):
        return time.perf_counter() - started


def run(short: bool = False) -> dict[str, object]:
    large, runs = (100_000, 5) if short else (1_000_000, 7)
    with contextlib.ExitStack() as folders:
        empty_folder, small_folder, full_folder = (
            folders.enter_context(tempfile.TemporaryDirectory(prefix="conveyor-bench-")) for _ in range(3)
        )
        with contextlib.ExitStack() as stack:

            def backlog(folder: str, jobs: int) -> Backlog:
                running = stack.enter_context(Supervisor(configuration(folder, 2)))
                return Backlog(running, stack.enter_context(Conveyor(running.url)), jobs)

            small, full = backlog(small_folder, SMALL), backlog(full_folder, large)
            adds, dispatches, full_adds, full_dispatches = alternate(
                runs,
                small.adds_per_second,
                small.dispatches_per_second,
                full.adds_per_second,
                full.dispatches_per_second,
            )
            private_mb = private_bytes(full.running.pid) / 1e6
        _restart(empty_folder)
        restarts, full_restarts = alternate(runs, lambda: _restart(empty_folder), lambda: _restart(full_folder))

    def ratio(mine: list[float], base: list[float]) -> float:
        return median([one / other for one, other in zip(mine, base, strict=True)])

    add_ratio, dispatch_ratio = ratio(full_adds, adds), ratio(full_dispatches, dispatches)
    restart_ratio = ratio(full_restarts, restarts)
    return {
        "backlog": large,
        "adds_per_second": median(full_adds),
        "adds_per_second_with_1000": median(adds),
        "dispatches_per_second": median(full_dispatches),
        "dispatches_per_second_with_1000": median(dispatches),
        "restart_seconds": median(full_restarts),
        "restart_seconds_empty": median(restarts),
        "private_mb": private_mb,
        "add_ratio": add_ratio,
        "dispatch_ratio": dispatch_ratio,
        "restart_ratio": restart_ratio,
        "required": "add_ratio, dispatch_ratio >= 0.8; restart_ratio < 1.5; private memory < 120 MB",
        "ok": add_ratio >= 0.8 and dispatch_ratio >= 0.8 and restart_ratio < 1.5 and private_mb < 120,
    }
