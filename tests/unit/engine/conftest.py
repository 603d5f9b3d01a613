from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conveyor_actors.engine.memory import Settings

from .harness import Host


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[[Settings | None], Host]]:
    """Makes a host of given settings; closes its store at the end."""
    hosts: list[Host] = []

    def make(chosen: Settings | None = None) -> Host:
        path = tmp_path / str(len(hosts))
        path.mkdir()
        hosts.append(Host(path, chosen))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def empty(make_host: Callable[[Settings | None], Host]) -> Host:
    """One pool that serves every queue and is not ready."""
    return make_host(None)


@pytest.fixture
def host(empty: Host) -> Host:
    """One ready pool with the handlers `work` and `other`, and one worker, `w1`."""
    empty.pool("work", "other")
    empty.worker()
    return empty
