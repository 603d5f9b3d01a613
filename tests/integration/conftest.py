"""Supervisors for tests: real processes on a real store, all of them stopped cleanly when the test is over."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from conveyor_actors import Conveyor, Queue, Supervisor

__all__ = ["Gate", "Record", "Start", "until"]

HERE = Path(__file__).parent
SHUTDOWN_TIMEOUT = "5s"


class Start:
    """Starts supervisors on the data dir of this test, one after the other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data_dir = home / "data"
        self.started: list[Supervisor] = []

    def __call__(
        self,
        workers: int = 2,
        *,
        queues: dict[str, Any] | None = None,
        pools: dict[str, Any] | None = None,
        supervisor: dict[str, Any] | None = None,
    ) -> Supervisor:
        running = Supervisor(self.config(workers, queues=queues, pools=pools, supervisor=supervisor))
        self.started.append(running)
        return running.__enter__()

    @contextlib.contextmanager
    def process(
        self,
        *,
        stdout: Any = None,
        stderr: Any = None,
        prepare: Callable[[], None] | None = None,
        before: str | None = None,
        **how: Any,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A supervisor that nobody waits for, with these streams, by a script if something comes before; killed at the
        end if it still runs.
        """
        command = [sys.executable, "-m", "conveyor_actors.supervisor.main", "--config", self.write_config(**how)]
        if before is not None:
            command = ["sh", "-c", f'{before} exec "$@"', "sh", *command]
        with subprocess.Popen(command, stdout=stdout, stderr=stderr, preexec_fn=prepare) as process:
            try:
                yield process
            finally:
                process.kill()

    def write_config(self, **how: Any) -> str:
        path = self.home / "conveyor.json"
        path.write_text(json.dumps(self.config(**how)))
        return str(path)

    @property
    def url(self) -> str:
        return f"ipc://{self.data_dir}/conveyor.sock"

    def config(
        self,
        workers: int = 2,
        *,
        queues: dict[str, Any] | None = None,
        pools: dict[str, Any] | None = None,
        supervisor: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The configuration of such a supervisor, every pool with the handlers of `jobs` unless it says otherwise."""
        common = {"workers": workers, "imports": ["jobs"], "pythonpath": [str(HERE)]}
        given = {"default": {}} if pools is None else pools
        place = {"data_dir": str(self.data_dir), "min_free_disk": "1MiB", "shutdown_timeout": SHUTDOWN_TIMEOUT}
        return {
            "supervisor": {**place, **(supervisor or {})},
            "pools": {name: {**common, **pool} for name, pool in given.items()},
            "queues": queues or {},
        }

    def close(self) -> None:
        """Stops what still runs. A supervisor with nothing to do has no reason to end otherwise than with 0."""
        codes = []
        for running in reversed(self.started):
            if running.process.poll() is None:
                running.close()
                codes.append(running.process.poll())
            else:
                running.close()
        assert all(code == 0 for code in codes), f"a supervisor ended with {codes} when it was closed"


class Record:
    """What the handlers noted, line by line, as lists of words."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._path = folder / "record"

    def __call__(self, first: str | None = None) -> list[list[str]]:
        """All lines; or those that begin with this word, without it."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        words = [line.split() for line in lines]
        return words if first is None else [line[1:] for line in words if line and line[0] == first]

    def ids(self, first: str | None = None) -> list[str]:
        """The ids of the jobs in those lines."""
        return [line[0] for line in self(first)]

    def running(self, job_id: str, times: int = 1) -> int:
        """Waits until the job has started so many times; the pid of the worker that runs it now."""
        starts = until(lambda: (found := [line for line in self("start") if line[0] == job_id])[times - 1 :] and found)
        return int(starts[-1][1])


class Gate:
    """Handlers that were told of it wait in front of it until it is opened."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "gate")

    def open(self) -> None:
        Path(self.path).touch()


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    starting = Start(home)
    yield starting
    starting.close()


@pytest.fixture
def connect(start: Start) -> Iterator[Callable[[Supervisor], Conveyor]]:
    """`connect(supervisor)`: a Conveyor that is closed when the test is over."""
    opened: list[Conveyor] = []

    def connected(supervisor: Supervisor) -> Conveyor:
        conveyor = Conveyor(supervisor.url)
        opened.append(conveyor)
        return conveyor.__enter__()

    yield connected
    for conveyor in opened:
        conveyor.close()


@pytest.fixture
def conveyor(start: Start, connect: Callable[[Supervisor], Conveyor]) -> Conveyor:
    """A conveyor on a supervisor with two workers."""
    return connect(start())


@pytest.fixture
def queue(conveyor: Conveyor) -> Queue:
    return conveyor.queue("q")


@pytest.fixture
def record(home: Path) -> Record:
    return Record(home)


@pytest.fixture
def gate(home: Path) -> Gate:
    return Gate(home)
