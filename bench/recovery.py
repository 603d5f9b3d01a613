"""From the SIGKILL of the only worker to its job running again, against a bare fork that tells it has started."""

from __future__ import annotations

import os
import select
import signal
import tempfile
import time
from pathlib import Path

from bench.common import median, quantile, supervisor


class Fifo:
    """Lines that other processes write, `<monotonic ns> <pid>` each; held open, so that it never ends."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)

    def read(self) -> tuple[int, int]:
        if not select.select([self._fd], [], [], 30)[0]:
            raise TimeoutError("nobody has told that it runs")
        at_ns, pid = os.read(self._fd, 100).split()
        return int(at_ns), int(pid)

    def close(self) -> None:
        os.close(self._fd)


def _bare_fork(path: Path, fifo: Fifo) -> float:
    started_ns = time.monotonic_ns()
    pid = os.fork()
    if pid == 0:
        try:
            path.write_text(f"{time.monotonic_ns()} {os.getpid()}\n")
        finally:
            os._exit(0)
    at_ns, _ = fifo.read()
    os.waitpid(pid, 0)
    return (at_ns - started_ns) / 1e6


def run(short: bool = False) -> dict[str, object]:
    kills = 50 if short else 200
    took: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="conveyor-bench-") as folder:
        path = Path(folder) / "fifo"
        fifo = Fifo(path)
        with supervisor(1, queues={"bench": {"max_stalled_count": 1_000_000}}) as (running, conveyor):
            conveyor.queue("bench").add("hold", {"fifo": str(path)})
            _, pid = fifo.read()
            for _ in range(kills):
                bare.append(_bare_fork(path, fifo))
                killed_ns = time.monotonic_ns()
                os.kill(pid, signal.SIGKILL)
                at_ns, pid = fifo.read()
                took.append((at_ns - killed_ns) / 1e6)
            running.close(timeout=0.1)
        fifo.close()
    return {
        "kills": kills,
        "median_ms": median(took),
        "p99_ms": quantile(took, 0.99),
        "max_ms": max(took),
        "bare_fork_median_ms": median(bare),
        "of_bare_fork": median([mine / other for mine, other in zip(took, bare, strict=True)]),
        "required": "median < 30, p99 < 150",
        "ok": median(took) < 30 and quantile(took, 0.99) < 150,
    }
