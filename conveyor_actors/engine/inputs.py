"""What the shell tells the engine. The simulation tells it the same."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from conveyor_actors.wire import Body, CatalogueEntry, Outcome


class Moment(NamedTuple):
    """Now, as an argument: wall and monotonic time, a number drawn from [0, 1), and how long the last tick took."""

    wall_ms: int
    mono_us: int
    draw: float
    tick_us: int = 0


class ClientSays(msgspec.Struct, frozen=True, gc=False):
    """A client's request. `route` is its connection, `client` who it is across connections."""

    route: bytes
    client: int
    no: int
    low: int
    body: Body


class PoolReady(msgspec.Struct, frozen=True):
    """A pool's spawner has imported its handlers."""

    pool: str
    handlers: list[CatalogueEntry]


class PoolDown(msgspec.Struct, frozen=True):
    """A pool cannot take jobs now."""

    pool: str


class WorkerReady(msgspec.Struct, frozen=True):
    worker: str
    pool: str
    pid: int


class Outcomes(msgspec.Struct, frozen=True, gc=False):
    """How jobs ended at a worker."""

    worker: str
    outcomes: list[Outcome]


class Recalled(msgspec.Struct, frozen=True):
    """Jobs were taken back from a worker: those with a token above `claimed` and not above `upto`.

    `outcomes` is what it had finished and not yet sent.
    """

    worker: str
    claimed: int
    upto: int
    outcomes: list[Outcome]


class WorkerDied(msgspec.Struct, frozen=True):
    """A worker and all its descendants are dead. `running` is the token it was executing, 0 for none; `unheard` are
    tokens of jobs that had finished, but how cannot be recorded.

    `cause`: `crashed` died by itself, `stalled` was killed as frozen, `orphaned` died with its spawner, `stopped` was
    killed by a shutdown.
    """

    worker: str
    pool: str
    pid: int
    running: int
    started_ms: int
    outcomes: list[Outcome]
    cause: Literal["crashed", "stalled", "orphaned", "stopped"]
    message: str
    unheard: tuple[int, ...] = ()


class Survivor(msgspec.Struct, frozen=True):
    """What the box of a worker of an earlier supervisor says. The worker is dead."""

    worker: str
    running: int
    started_ms: int
    outcomes: list[Outcome]


class ClientsGone(msgspec.Struct, frozen=True):
    """Nobody can be told anything by these routes any more."""

    routes: frozenset[bytes]


class Drain(msgspec.Struct, frozen=True):
    """Dispatch nothing from now on."""


class SetFull(msgspec.Struct, frozen=True):
    """Whether the disk is too full to accept jobs; `message` says so to whoever adds. `hold`: too full to start any."""

    message: str | None
    hold: bool = False


class Later(msgspec.Struct, frozen=True):
    """What follows in this tick came in at that time."""

    moment: Moment


Input = (
    ClientSays
    | PoolReady
    | PoolDown
    | WorkerReady
    | Outcomes
    | Recalled
    | WorkerDied
    | ClientsGone
    | Drain
    | SetFull
    | Later
)
