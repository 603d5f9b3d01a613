"""A tick of the shell: what it does when an input raises, or when the map is full."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.engine import Engine
from conveyor_actors.engine.inputs import (
    ClientSays,
    Drain,
    Input,
    Moment,
    Outcomes,
    PoolReady,
    WorkerDied,
    WorkerReady,
)
from conveyor_actors.engine.memory import PoolSettings, Settings
from conveyor_actors.store.lmdb_store import LmdbStore
from conveyor_actors.supervisor.ticker import Ticker
from conveyor_actors.wire import (
    AddJobs,
    CatalogueEntry,
    NewJob,
    Outcome,
    RunOptions,
    decode_reply,
)


class Broken(Exception):
    """A defect of the engine."""


class Shell:
    """A ticker on a real store and engine, without sockets and processes."""

    def __init__(self, path: Path, map_bytes: int = 1 << 26) -> None:
        self.store = LmdbStore(path / "store", durability="relaxed", map_bytes=map_bytes)
        self.engine = Engine(Settings({"pool": PoolSettings()}, {}, 1 << 26))
        self.moments = itertools.count(1_700_000_000_000, 10)
        self.engine.start(self.store.begin(), [], self.moment())
        self.store.commit()
        self.numbers = itertools.count(1)
        #: Whether the engine fails at an input, after it has handled it.
        self.breaks_at: Callable[[Input], bool] = lambda message: False
        self.ticker = Ticker(
            self.store,
            self,  # type: ignore[arg-type]
            collect=lambda: False,
            now=self.moment,
            clock_ns=lambda: 0,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def handle(self, message: Input) -> None:
        self.engine.handle(message)
        if self.breaks_at(message):
            raise Broken("a defect")

    def moment(self) -> Moment:
        wall_ms = next(self.moments)
        return Moment(wall_ms, wall_ms * 1000, 0.5, 100)

    def says(self, *jobs: NewJob) -> ClientSays:
        return ClientSays(b"route", 7, next(self.numbers), 1, AddJobs("q", list(jobs)))

    def run(self, *inputs: Input) -> Effects:
        for message in inputs:
            (self.ticker.requests if isinstance(message, ClientSays) else self.ticker.inputs).append(message)
        effects = self.ticker.run(self.moment())
        self.engine.committed()
        return effects

    def with_a_worker(self) -> None:
        self.run(PoolReady("pool", [CatalogueEntry("work", None, RunOptions())]), WorkerReady("pool-1", "pool", 9))

    def answers(self, effects: Effects) -> list[str]:
        return [type(decode_reply(reply).body).__name__ for _, reply in effects.replies]

    @property
    def counts(self) -> list[int]:
        return self.engine.memory.queues["q"].counts


@pytest.fixture(autouse=True)
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("conveyor.supervisor"), "disabled", True)


@pytest.fixture
def shell(home: Path) -> Iterator[Shell]:
    shell = Shell(home)
    yield shell
    shell.store.close()


def test_a_request_that_raises_is_refused_and_the_others_are_carried_out_once(shell: Shell) -> None:
    first, bad, last = (shell.says(NewJob("work", b"\xc0")) for _ in range(3))
    shell.breaks_at = lambda message: message is bad
    answers = shell.answers(shell.run(first, bad, last)) + shell.answers(shell.run())
    assert answers == ["Added", "Refused", "Added"]
    assert shell.counts[0] == 2
    assert shell.engine.memory.totals.next_number == 3


def test_a_worker_whose_report_raises_is_to_die_and_gives_its_jobs_back(shell: Shell) -> None:
    shell.with_a_worker()
    shell.run(shell.says(NewJob("work", b"\xc0")))
    (token,) = shell.engine.memory.leases
    shell.breaks_at = lambda message: isinstance(message, Outcomes)
    shell.run(Outcomes("pool-1", [Outcome(token, 0, 1, 1, b"\xc0")]))
    assert shell.ticker.distrusted == {"pool-1"}
    assert shell.counts[3] == 1
    shell.run(WorkerDied("pool-1", "pool", 9, 0, 0, [Outcome(token, 0, 1, 1, b"\xc0")], "crashed", "killed"))
    assert shell.counts[4] == 1


def brings(message: Input, token: int) -> bool:
    """Whether this brings the outcome of that job."""
    return isinstance(message, (Outcomes, WorkerDied)) and token in [outcome.token for outcome in message.outcomes]


def test_of_several_outcomes_only_the_one_that_raises_is_lost(shell: Shell) -> None:
    shell.with_a_worker()
    shell.run(shell.says(NewJob("work", b"\xc0")))
    shell.run(Outcomes("pool-1", [Outcome(next(iter(shell.engine.memory.leases)), 0, 1, 1, b"\xc0")]))
    shell.run(shell.says(*[NewJob("work", b"\xc0")] * 3))
    first, bad, last = shell.engine.memory.leases
    shell.breaks_at = lambda message: brings(message, bad)
    shell.run(Outcomes("pool-1", [Outcome(token, 0, 1, 1, b"\xc0") for token in (first, bad, last)]))
    assert shell.counts[4] == 3
    assert list(shell.engine.memory.leases) == [bad]


def test_a_job_whose_end_can_never_be_recorded_does_not_run_for_ever(shell: Shell) -> None:
    shell.run(PoolReady("pool", [CatalogueEntry("work", None, RunOptions())]))
    shell.run(shell.says(NewJob("work", b"\xc0")))
    lives = 0
    while not shell.counts[5]:
        lives += 1
        id = f"pool-{lives}"
        shell.run(WorkerReady(id, "pool", 9))
        (token,) = shell.engine.memory.leases
        shell.breaks_at = lambda message, token=token: brings(message, token)  # type: ignore[misc]
        outcome = Outcome(token, 0, 1, 1)
        shell.run(Outcomes(id, [outcome]))
        shell.run(WorkerDied(id, "pool", 9, 0, 1, [outcome], "stopped", "killed"))
    assert lives == 10


def test_a_death_that_raises_however_bare_it_is_frees_its_worker(shell: Shell) -> None:
    shell.with_a_worker()
    shell.run(shell.says(NewJob("work", b"\xc0")))
    (token,) = shell.engine.memory.leases
    shell.breaks_at = lambda message: isinstance(message, WorkerDied) and message.running == token
    shell.run(WorkerDied("pool-1", "pool", 9, token, 1, [], "crashed", "killed"))
    assert shell.engine.memory.workers == {} and shell.engine.memory.leases == {}
    assert (shell.counts[0], shell.engine.memory.totals.stalled) == (1, 0)


def test_what_cannot_be_left_out_ends_the_supervisor(shell: Shell) -> None:
    shell.breaks_at = lambda message: isinstance(message, Drain)
    with pytest.raises(Broken):
        shell.run(Drain())


def test_a_tick_that_is_too_much_for_the_map_and_the_journal_is_not_lost(home: Path) -> None:
    shell = Shell(home, map_bytes=6 << 20)
    payload = bytes(1_000_000)
    assert shell.answers(shell.run(*(shell.says(NewJob("work", payload)) for _ in range(5)))) == ["Added"] * 5
    shell.store.close()
    store = LmdbStore(home / "store", durability="relaxed")
    tables = store.begin()
    assert sum(tables.payloads.get(number.to_bytes(8, "big")) is not None for number in range(1, 6)) == 5
    store.close()
