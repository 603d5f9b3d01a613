"""A tick: inputs, decided on inside one transaction, until it is committed; whatever goes wrong with one of them.

Knows no sockets, processes or clocks of its own; the simulation runs it too. Invariant: an input that the engine cannot
handle costs no other input anything, and never leaves a job with a worker that nobody hears of any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.engine import Engine
from conveyor_actors.engine.inputs import (
    ClientSays,
    ClientsGone,
    Input,
    Later,
    Moment,
    Outcomes,
    Recalled,
    SetFull,
    WorkerDied,
    WorkerReady,
)
from conveyor_actors.store.lmdb_store import Faults, MapFull
from conveyor_actors.supervisor.logs import event

log: Final = logging.getLogger("conveyor.supervisor")

#: How long one tick goes on taking requests into its transaction. What workers report is always taken, and first.
_TAKE_NS_MAX: Final = 4_000_000
#: A tick that took no longer than this so far does not look for more: hardly anything can have come.
_TAKE_NS_MIN: Final = 50_000


class Store(Protocol):
    """What a tick needs of the store."""

    def begin(self) -> Any: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def grow(self) -> int: ...


class Poison(Exception):
    """An input that the engine could not handle."""

    def __init__(self, index: int, cause: Exception) -> None:
        super().__init__(str(cause))
        self.index = index
        self.cause = cause


class _Refusal:
    """Stands where a request stood that could not be carried out."""

    def __init__(self, said: ClientSays, message: str) -> None:
        self.said = said
        self.message = message


Item = Input | _Refusal


class Ticker:
    """`inputs` and `requests` are filled by the shell; `run` takes all of the first, and of the others what it can."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        collect: Callable[[], bool],
        now: Callable[[], Moment],
        clock_ns: Callable[[], int],
    ) -> None:
        self._store = store
        self._engine = engine
        #: Takes what has arrived meanwhile; tells whether there was something.
        self._collect = collect
        self._now = now
        self._clock_ns = clock_ns
        self.inputs: list[Input] = []
        self.requests: list[Input] = []
        #: Workers of which something could not be handled: only their end makes sure of what became of their jobs.
        self.distrusted: set[str] = set()
        self._unheard: dict[str, set[int]] = {}

    def run(self, moment: Moment) -> Effects:
        """One transaction; aborted if the map is full or an input raises, and done again without what was wrong."""
        store, engine = self._store, self._engine
        handled: list[Item] = []
        self._unheard.clear()
        again = False
        while True:
            try:
                tables = store.begin()
                if again:
                    engine.reload(tables)
                engine.begin(tables, moment)
                for index, message in enumerate(handled):
                    self._handle(index, message)
                if not again:
                    self._handle_new(handled)
                effects = engine.finish()
                store.commit()
                return effects
            except MapFull:
                store.abort()
                event(log, "info", "the store's map was full and has grown", bytes=store.grow())
            except Poison as poison:
                store.abort()
                message = handled[poison.index]
                told = "an input could not be handled and was left out"
                event(log, "error", told, exc_info=poison.cause, input=type(message).__name__)
                handled[poison.index : poison.index + 1] = self._instead_of(message, poison.cause)
                self._note_unheard(handled)
            again = True

    def _handle_new(self, handled: list[Item]) -> None:
        """Goes on as long as messages come in, for a bounded time: more in one transaction is cheaper for each."""
        started_ns = self._clock_ns()
        until_ns = started_ns + _TAKE_NS_MAX
        while True:
            self._handle_from(self.inputs, handled, None)
            self._handle_from(self.requests, handled, until_ns)
            if not _TAKE_NS_MIN < self._clock_ns() - started_ns < _TAKE_NS_MAX:
                return
            if not self._collect() or not (self.inputs or self.requests):
                return
            self.inputs.insert(0, Later(self._now()))

    def _handle_from(self, source: list[Input], handled: list[Item], until_ns: int | None) -> None:
        """Moves what is handled from one list to the other; what is left when the time is over is for the next tick."""
        taken = 0
        try:
            for message in source:
                taken += 1
                handled.append(message)
                self._handle(len(handled) - 1, message)
                if until_ns is not None and self._clock_ns() > until_ns:
                    return
        finally:
            del source[:taken]

    def _handle(self, index: int, message: Item) -> None:
        if isinstance(message, _Refusal):
            self._engine.refuse(message.said, message.message)
            return
        try:
            self._engine.handle(message)
        except Faults:
            raise
        except Exception as error:
            raise Poison(index, error) from error

    def _instead_of(self, message: Item, cause: Exception) -> list[Item]:
        """What is handled in the place of a message that raised; raises where there is no safe way to go on.

        Of several outcomes each is tried by itself, so that only the one that raises is lost.
        """
        match message:
            case ClientSays():
                return [_Refusal(message, f"the request could not be carried out: {type(cause).__name__}: {cause}")]
            case Outcomes(outcomes=[one]):
                self.distrusted.add(message.worker)
                self._unheard.setdefault(message.worker, set()).add(one.token)
                return []
            case Outcomes() | Recalled() | WorkerDied() if message.outcomes:
                each: list[Item] = [Outcomes(message.worker, [one]) for one in message.outcomes]
                return each if isinstance(message, Outcomes) else [*each, replace(message, outcomes=[])]
            case Recalled() | WorkerReady():
                self.distrusted.add(message.worker)
                return []
            case WorkerDied() if message.running:
                return [replace(message, running=0)]
            case ClientsGone() | SetFull() | Later():
                return []
        raise cause

    def _note_unheard(self, handled: list[Item]) -> None:
        """A death is charged to those jobs of whose end nothing can be recorded, or they might run for ever."""
        for index, message in enumerate(handled):
            if isinstance(message, WorkerDied) and message.worker in self._unheard:
                handled[index] = replace(message, unheard=tuple(self._unheard[message.worker]))
