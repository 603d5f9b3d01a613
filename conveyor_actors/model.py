"""The nouns: states, options, failures, events and what `info()` tells, as typed structs.

Knows nothing of processes, sockets or tables. Times inside are integer milliseconds with the unit in the
name (`created_ms`); what a user sees are aware datetimes in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import msgspec

from conveyor_actors.errors import InvalidOption
from conveyor_actors.units import duration_ms

#: State codes are stored: their order never changes.
WAITING: Final = 0
WAITING_CHILDREN: Final = 1
DELAYED: Final = 2
ACTIVE: Final = 3
COMPLETED: Final = 4
FAILED: Final = 5
STATE_NAMES: Final = ("waiting", "waiting-children", "delayed", "active", "completed", "failed")

State = Literal["waiting", "waiting-children", "delayed", "active", "completed", "failed"]
FailureKind = Literal[
    "error",
    "unrecoverable",
    "timeout",
    "memory",
    "crashed",
    "stalled",
    "cancelled",
    "expired",
    "invalid-payload",
    "unknown-handler",
    "child-failed",
]

#: Event codes are stored: their order never changes.
EVENT_TYPES: Final = (
    "waiting",
    "waiting-children",
    "delayed",
    "active",
    "completed",
    "failed",
    "retrying",
    "progress",
    "stalled",
    "removed",
    "drained",
    "paused",
    "resumed",
    "cancelled",
    "duplicated",
    "phase-completed",
    "webhook-delivered",
    "webhook-failed",
    "stale",
    "deleted",
    "worker-started",
    "worker-died",
    "error",
    "gap",
)
EVENT_CODE: Final = {name: code for code, name in enumerate(EVENT_TYPES)}

NAME_BYTES_MAX: Final = 200
ADD_MANY_JOBS_MAX: Final = 10_000
ADD_MANY_BYTES_MAX: Final = 64 * 1024 * 1024


# -- options ----------------------------------------------------------------------------------------


class Backoff(msgspec.Struct, frozen=True, array_like=True):
    """How long to wait before the next attempt. Made by `fixed`, `linear` or `exponential`."""

    kind: Literal["fixed", "linear", "exponential"]
    delay_ms: int
    max_ms: int | None = None
    jitter: float = 0.0


def fixed(delay: object, *, max: object = None, jitter: float = 0.0) -> Backoff:
    """The same `delay` before every further attempt."""
    return _backoff("fixed", delay, max, jitter)


def linear(delay: object, *, max: object = None, jitter: float = 0.0) -> Backoff:
    """`delay`, then twice, then three times as long."""
    return _backoff("linear", delay, max, jitter)


def exponential(delay: object, *, max: object = None, jitter: float = 0.0) -> Backoff:
    """`delay` · 2^(n-1) after the n-th failed attempt.

    >>> exponential("1s", max="1m", jitter=0.2)
    """
    return _backoff("exponential", delay, max, jitter)


def _backoff(kind: Literal["fixed", "linear", "exponential"], delay: object, longest: object, jitter: float) -> Backoff:
    number = isinstance(jitter, (int, float)) and not isinstance(jitter, bool)
    if not number or not 0 <= jitter <= 1:
        raise InvalidOption("jitter", jitter, "a number from 0 to 1")
    longest_ms = None if longest is None else duration_ms(longest, "max")
    return Backoff(kind, duration_ms(delay, "delay"), longest_ms, float(jitter))


class KeepRule(msgspec.Struct, frozen=True, array_like=True):
    """How much of what has ended is kept: the newest `count`; None for all."""

    count: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True)
class Keep:
    """How much of what has ended is kept: the newest `count`, and nothing that is older than `age`.

    >>> queue.add("resize", data, remove_on_complete=Keep(count=1000))
    """

    count: int | None = None
    age: float | str | timedelta | None = None

    def __post_init__(self) -> None:
        count = self.count
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**63):
            raise InvalidOption("count", count, "an int from 0: how many to keep, or None for all")
        if self.age is not None:
            duration_ms(self.age, "age")

    @property
    def rule(self) -> KeepRule:
        return KeepRule(self.count, None if self.age is None else duration_ms(self.age, "age"))


class RunOptions(msgspec.Struct, frozen=True, array_like=True):
    """What `add` may say of a job and else its handler says. None: not said."""

    attempts: int | None = None
    backoff: Backoff | None = None
    remove_on_complete: KeepRule | None = None
    remove_on_fail: KeepRule | None = None

    def over(self, other: RunOptions) -> RunOptions:
        """These options, completed by `other` where they say nothing."""
        return RunOptions(*[mine if mine is not None else theirs for mine, theirs in zip(self, other, strict=True)])

    def __iter__(self) -> Any:
        return (getattr(self, field) for field in self.__struct_fields__)


NO_OPTIONS: Final = RunOptions()


# -- what a user reads ------------------------------------------------------------------------------


class Failure(msgspec.Struct, frozen=True):
    """Why a job failed."""

    kind: FailureKind
    message: str
    traceback: str
    at: datetime


class Attempt(msgspec.Struct, frozen=True):
    """One line of a job's history: an attempt that ended, a stall or an interruption."""

    kind: Literal["completed", "failed", "stalled", "interrupted"]
    at: datetime
    worker: str
    message: str = ""
    traceback: str = ""


class Event(msgspec.Struct, frozen=True):
    """Something that happened. `seq` is unique and rising over the life of the store."""

    seq: int
    at: datetime
    type: str
    queue: str | None
    job_id: str | None
    name: str | None
    data: Any = None


class Worker(msgspec.Struct, frozen=True):
    """A worker process. `state` is starting, idle or busy; `job` is the ref of what it runs."""

    id: str
    pool: str
    pid: int
    state: str
    job: str | None = None


class PoolInfo(msgspec.Struct, frozen=True):
    """A pool. `state` is starting, ready, suspended (and `reason` says why) or stopped."""

    name: str
    state: str
    queues: list[str]
    workers: int
    workers_ready: int
    handlers: list[str]
    reason: str = ""


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue with the number of jobs in each state."""

    name: str
    paused: bool
    counts: dict[str, int]


class StoreInfo(msgspec.Struct, frozen=True):
    """The store on disk."""

    path: str
    size: int
    disk_free: int


class Info(msgspec.Struct, frozen=True):
    """The supervisor's health. `state` is starting, running or draining."""

    state: str
    version: str
    pid: int
    incarnation: int
    started_at: datetime
    totals: dict[str, int]
    pools: list[PoolInfo]
    queues: list[QueueInfo]
    store: StoreInfo
    warnings: list[str]
    #: Messages that nobody could read or that came from nobody we know, since the supervisor started.
    garbage: int = 0


def utc(ms: int) -> datetime:
    """A wall time of the inside as the user sees it."""
    return datetime.fromtimestamp(ms / 1000, UTC)
