"""What goes wrong inside a simulated supervisor: a map that is full, a death before a commit, an input that raises.

Knows the world it is in by its draws only.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from conveyor_actors.engine.inputs import ClientSays, Input, Outcomes, Recalled, WorkerDied, WorkerReady
from conveyor_actors.store.lmdb_store import LmdbStore, MapFull

if TYPE_CHECKING:
    from .world import World

#: A journal that is filled up to here takes one more commit for sure.
ROOM_FOR_ONE_BYTES: Final = 3 << 20

#: What the engine is made to fail at.
POISONOUS = (ClientSays, Outcomes, Recalled, WorkerReady, WorkerDied)


@dataclass(frozen=True)
class Faults:
    """How often what goes wrong in this run, per tick or per step."""

    replay: float
    poison: float
    crash: float
    worker_crash: float
    pool_down: float
    clock_step: float
    repeat: float
    shutdown: float
    full: float
    checkpoint: float

    @classmethod
    def draw(cls, draw: random.Random) -> Faults:
        """Runs differ in what goes wrong at all."""

        def rate(often: float) -> float:
            return draw.choice((0.0, often, often, 3 * often))

        return cls(
            replay=rate(0.03),
            poison=rate(0.02),
            crash=rate(0.015),
            worker_crash=rate(0.4),
            pool_down=rate(0.01),
            clock_step=rate(0.003),
            repeat=rate(0.03),
            shutdown=rate(0.004),
            full=rate(0.01),
            checkpoint=rate(0.02),
        )


class Poisoned(Exception):
    """Raised in the middle of handling one message."""


class SupervisorCrash(Exception):
    """The end of a simulated supervisor, before a commit."""


class FaultyStore:
    """The store, whose map may be full, and whose owner may die before a commit."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._full = world.strikes(world.rates.replay)

    def begin(self) -> Any:
        world, full = self._world, self._full
        self._full = False
        tables = world.store.begin()
        if not full:
            return tables
        world.seen["map declared full"] += 1
        return Breaking(tables, world.draw.randint(0, 60), MapFull())

    def commit(self) -> None:
        world = self._world
        if world.strikes(world.rates.crash / 2):
            if world.strikes(0.5) and tear(world.store, world.draw):
                world.seen["torn commit"] += 1
            world.store.abort()
            raise SupervisorCrash
        world.store.commit()

    def abort(self) -> None:
        self._world.store.abort()

    def grow(self) -> int:
        self._world.seen["grown"] += 1
        return self._world.store.grow()


class PoisonedEngine:
    """The engine, with a defect that one input meets, and sometimes what is put in its place."""

    def __init__(self, world: World, poison: Input | None) -> None:
        self._world = world
        self._engine = world.engine
        self._poison = poison
        outcomes = getattr(poison, "outcomes", ())
        #: The token of the outcome that it fails at, wherever it comes from.
        self.bad: int = world.draw.choice(outcomes).token if outcomes else 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def handle(self, message: Input) -> None:
        if not self._is_poison(message):
            self._engine.handle(message)
            return
        self._world.seen["poisoned"] += 1
        tick = self._engine._tick
        tick.tables = Breaking(tick.tables, self._world.draw.randint(0, 3), Poisoned())
        self._engine.handle(message)
        raise Poisoned

    def _is_poison(self, message: Input) -> bool:
        poison = self._poison
        if self.bad:
            return self.bad in [outcome.token for outcome in getattr(message, "outcomes", ())]
        if isinstance(message, WorkerDied) and isinstance(poison, WorkerDied) and message.worker == poison.worker:
            return bool(message.running)  # the barest death is always understood
        return message is poison


class Breaking:
    """The tables of a transaction that fails after so many more puts."""

    def __init__(self, tables: Any, puts: int, error: Exception) -> None:
        self._tables = tables
        self._left = puts
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return BreakingTable(self, getattr(self._tables, name))

    def count_put(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise self._error


class BreakingTable:
    def __init__(self, tables: Breaking, table: Any) -> None:
        self._tables = tables
        self._table = table

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._table, operation)

    def put(self, key: bytes, value: bytes, **how: bool) -> Any:
        self._tables.count_put()
        return self._table.put(key, value, **how)


def tear(store: LmdbStore, draw: random.Random) -> bool:
    """The power fails while a commit is written: some bytes of it do not reach the disk. False if there are none."""
    journal = store._journal
    start = journal._end
    if not store._changes or start > ROOM_FOR_ONE_BYTES:
        return False
    store.commit()
    used = len(os.pread(journal._file, journal._end - start, start).rstrip(b"\0"))
    hole = start + draw.randrange(used)
    lost = os.pread(journal._file, draw.randint(1, 64), hole)
    os.pwrite(journal._file, bytes(byte ^ 0xFF for byte in lost), hole)
    return True
