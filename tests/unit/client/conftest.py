"""What the tests of the client share: addresses, fakes and conveyors that are all gone at the end."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beside import Clock
from fake_supervisor import FakeSupervisor

from conveyor_actors import Conveyor
from conveyor_actors.client import channel, completion, job


@pytest.fixture
def url() -> Iterator[str]:
    """An ipc address that is short enough whatever pytest calls its folders."""
    with tempfile.TemporaryDirectory(prefix="cv-") as folder:
        yield f"ipc://{Path(folder) / 's'}"


@pytest.fixture
def start(url: str) -> Iterator[Callable[..., FakeSupervisor]]:
    """Starts fakes at `url`, one after the other."""
    started: list[FakeSupervisor] = []

    def begin(**settings: Any) -> FakeSupervisor:
        started.append(FakeSupervisor(url, **settings))
        return started[-1]

    yield begin
    for fake in started:
        fake.kill()


@pytest.fixture
def fake(start: Callable[..., FakeSupervisor]) -> FakeSupervisor:
    return start()


@pytest.fixture
def connect(url: str) -> Iterator[Callable[..., Conveyor]]:
    """Makes conveyors to `url`."""
    made: list[Conveyor] = []

    def make(**options: Any) -> Conveyor:
        made.append(Conveyor(url, **options))
        return made[-1]

    yield make
    for conveyor in made:
        conveyor.close()


@pytest.fixture
def conveyor(fake: FakeSupervisor, connect: Callable[..., Conveyor]) -> Conveyor:
    return connect(timeout="20s")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the client."""
    clock = Clock()
    for module in (channel, completion, job):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock
