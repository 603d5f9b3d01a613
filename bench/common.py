"""What the benchmarks share.

A supervisor in a temporary folder, alternating runs, medians, the raw costs to compare with.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import zmq

from conveyor_actors import Conveyor, Supervisor

PAYLOAD = {"path": "/data/images/0001.jpg", "size": [640, 480]}
ROOT = Path(__file__).resolve().parent.parent


@contextlib.contextmanager
def supervisor(workers: int = 2, **sections: Any) -> Iterator[tuple[Supervisor, Conveyor]]:
    """A supervisor on a fresh store, with the handlers of `bench.handlers`."""
    with (
        tempfile.TemporaryDirectory(prefix="conveyor-bench-") as folder,
        Supervisor(configuration(folder, workers, **sections)) as running,
        Conveyor(running.url) as conveyor,
    ):
        yield running, conveyor


def configuration(folder: str, workers: int, **sections: Any) -> dict[str, Any]:
    pool = {"workers": workers, "imports": ["bench.handlers"], "pythonpath": [str(ROOT)]}
    return {"supervisor": {"data_dir": folder + "/data"}, "pools": {"default": pool}, **sections}


def alternate(runs: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Each measure `runs` times, in turns, so that a noisy minute hits all of them."""
    results: list[list[float]] = [[] for _ in measures]
    for _ in range(runs):
        for index, measure in enumerate(measures):
            results[index].append(measure())
    return results


def median(values: list[float]) -> float:
    return statistics.median(values)


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def wait_until(condition: Callable[[], bool], seconds: float = 120, pause: float = 0.002) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the benchmark did not come to its end")
        time.sleep(pause)


def completed(conveyor: Conveyor) -> int:
    return conveyor.info().totals["completed"]


def raw_commits_per_second(count: int = 1000) -> float:
    """Single-put LMDB commits with fsync: what the disk allows."""
    with tempfile.TemporaryDirectory(prefix="conveyor-bench-") as folder:
        environment = lmdb.open(folder + "/raw", map_size=1 << 28, lib_version=0)
        try:
            started = time.perf_counter()
            for number in range(count):
                with environment.begin(write=True) as transaction:
                    transaction.put(number.to_bytes(8, "big"), b"x" * 100)
            return count / (time.perf_counter() - started)
        finally:
            environment.close()


def _echo(address: str) -> None:
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(address)
    while True:
        frames = socket.recv_multipart()
        if frames[-1] == b"stop":
            break
        socket.send_multipart(frames)
    socket.close()
    context.term()


def raw_round_trip_seconds(count: int = 1000) -> float:
    """A request and its echo over an ipc socket to another process, both in plain pyzmq."""
    with tempfile.TemporaryDirectory(prefix="conveyor-bench-") as folder:
        address = f"ipc://{folder}/echo"
        process = multiprocessing.get_context("spawn").Process(target=_echo, args=(address,))
        process.start()
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 1000)
        socket.connect(address)
        for _ in range(100):
            socket.send(b"x" * 100)
            socket.recv()
        started = time.perf_counter()
        for _ in range(count):
            socket.send(b"x" * 100)
            socket.recv()
        took = (time.perf_counter() - started) / count
        socket.send(b"stop")
        process.join()
        socket.close()
        context.term()
        return took


def private_bytes(pid: int) -> int:
    """Memory that belongs to the process alone: the map of the store is shared with the page cache."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def machine() -> dict[str, Any]:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "unknown",
    )
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
