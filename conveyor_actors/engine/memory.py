"""What the engine remembers between ticks: things that die with the process, and small things derived from the tables.

Everything derived is loaded anew after an aborted tick (`recovery.load`); the rest changes in ways that may be repeated
(pools, new workers, what is full, estimates) or are undone then (dead workers, waits).
"""

from __future__ import annotations

import msgspec

from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import NO_OPTIONS, KeepRule, RunOptions
from conveyor_actors.store.tables import JobRecord, Totals
from conveyor_actors.wire import PAGE_BYTES_MAX, CatalogueEntry


class QueueSettings(msgspec.Struct, frozen=True):
    """What the configuration says of a queue."""

    max_stalled_count: int = 1
    remove_on_complete: KeepRule | None = None
    remove_on_fail: KeepRule | None = None


class PoolSettings(msgspec.Struct, frozen=True):
    """Which queues a pool serves, in order of precedence; `*` is any that no other pool names."""

    queues: tuple[str, ...] = ("*",)


class Settings(msgspec.Struct, frozen=True):
    """What the engine needs of the configuration."""

    pools: dict[str, PoolSettings]
    queues: dict[str, QueueSettings]
    max_payload: int
    events_kept_max: int = 500_000
    page_bytes_max: int = PAGE_BYTES_MAX

    def queue(self, name: str) -> QueueSettings:
        return self.queues.get(name, _DEFAULT_QUEUE)


_DEFAULT_QUEUE = QueueSettings()


class Queue:
    """A queue with its counts by state."""

    __slots__ = ("counts", "name", "newest_ms", "number", "passed_over", "paused", "settings")

    def __init__(self, name: str, number: int, paused: bool, counts: list[int], settings: QueueSettings) -> None:
        self.name = name
        self.number = number
        self.paused = paused
        self.counts = counts
        self.settings = settings
        #: When the newest of the jobs that are filed under a state ended; None: nobody has looked.
        self.newest_ms: list[int | None] = [None] * len(counts)
        #: What a pool (by name) has looked at and left to others.
        self.passed_over: dict[str, PassedOver] = {}


class PassedOver:
    """The beginning of a queue, in which a pool has nothing to do but at the places that were taken since."""

    __slots__ = ("taken_since", "upto")

    def __init__(self, upto: bytes) -> None:
        #: Keys of `waiting`.
        self.upto = upto
        self.taken_since: list[bytes] = []


class Handler:
    """A handler of a pool: how long a run of it takes (None: nobody has measured it), how large a result may be."""

    __slots__ = ("estimate_us", "options", "result_bytes")

    def __init__(self, options: RunOptions = NO_OPTIONS) -> None:
        self.options = options
        self.estimate_us: int | None = None
        self.result_bytes = 0


class Batch:
    """Jobs dispatched together: one record in `leases`."""

    __slots__ = ("members", "worker")

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.members: dict[int, int] = {}  # token -> job number


class Lease:
    """An active job. `record` is the job's, with state ACTIVE, as it is nowhere on disk."""

    __slots__ = ("batch", "estimate_us", "handler", "held_bytes", "number", "queue", "record", "token", "worker")

    def __init__(
        self, token: int, number: int, record: JobRecord, queue: Queue, batch: int, worker: Worker | None
    ) -> None:
        self.token = token
        self.number = number
        self.record = record
        self.queue = queue
        self.batch = batch
        self.worker = worker
        self.estimate_us = 0
        #: Its payload, and the result to be expected of it.
        self.held_bytes = 0
        self.handler: Handler | None = None


class Pool:
    __slots__ = ("handlers", "name", "queues", "ready", "served_last", "workers")

    def __init__(self, name: str, queues: tuple[str, ...]) -> None:
        self.name = name
        self.queues = queues
        self.ready = False
        self.handlers: dict[tuple[str | None, str], Handler] = {}
        self.workers: dict[str, Worker] = {}
        #: The number of the queue that its workers were given work of last.
        self.served_last = 0

    def learn_handlers(self, entries: list[CatalogueEntry]) -> None:
        """Takes a catalogue; what was measured of a handler stays known."""
        measured = self.handlers
        self.handlers = {}
        for entry in entries:
            handler = self.handlers[entry.queue, entry.name] = Handler(entry.options)
            before = measured.get((entry.queue, entry.name))
            if before is not None:
                handler.estimate_us, handler.result_bytes = before.estimate_us, before.result_bytes

    def handler(self, queue: str, name: str) -> Handler | None:
        return self.handlers.get((queue, name)) or self.handlers.get((None, name))


class Worker:
    """A worker that can take jobs. `load_us` is the estimated time of what it holds, `held_bytes` its data."""

    __slots__ = ("held_bytes", "id", "leases", "load_us", "pid", "pool", "quiet_since_us", "recalled")

    def __init__(self, id: str, pool: Pool, pid: int) -> None:
        self.id = id
        self.pool = pool
        self.pid = pid
        self.leases: dict[int, Lease] = {}
        self.load_us = 0
        self.held_bytes = 0
        self.quiet_since_us = 0
        self.recalled = False  # it is busy for long: nothing more until it reports


class Client:
    """A client across its connections. `replies` are those it may not have got: none below `low`."""

    __slots__ = ("low", "replies", "seen_ms", "stored")

    def __init__(self, seen_ms: int, replies: dict[int, bytes], low: int, stored: bool) -> None:
        self.seen_ms = seen_ms
        self.replies = replies
        self.low = low
        self.stored = stored


class Memory:
    """All of it."""

    def __init__(self, settings: Settings) -> None:
        # Derived from the tables.
        self.incarnation = 0
        self.totals = Totals()
        self.queues: dict[str, Queue] = {}
        self.queue_by_number: dict[int, Queue] = {}
        self.leases: dict[int, Lease] = {}  # by token
        self.active: dict[int, Lease] = {}  # by job number
        self.batches: dict[int, Batch] = {}
        #: Leased jobs that cannot be read: they have no lease here.
        self.damaged: list[tuple[int, CorruptRecord]] = []
        #: Whether the counts of some queue were lost; and what else is to be told of what was loaded.
        self.recounted = False
        self.alarms: list[str] = []
        self.clients: dict[int, Client] = {}
        self.events_from = 1
        # What the open tick did to the rest, to be undone if it is aborted.
        self.just_died: list[Worker] = []
        self.just_registered: list[tuple[int, bytes]] = []
        # Dying with the process.
        self.next_token = 0
        self.pools = {name: Pool(name, pool.queues) for name, pool in settings.pools.items()}
        #: What `*` does not stand for.
        self.named_queues = frozenset(name for pool in self.pools.values() for name in pool.queues)
        self.workers: dict[str, Worker] = {}
        self.waits: dict[int, set[bytes]] = {}
        self.draining = False
        #: Why no jobs are accepted, and whether none are started either.
        self.full: str | None = None
        self.hold = False

    def pools_of(self, queue: str) -> list[Pool]:
        """The pools that serve a queue."""
        named = [pool for pool in self.pools.values() if queue in pool.queues]
        return named or [pool for pool in self.pools.values() if "*" in pool.queues]


def effective_options(record: JobRecord, handler: Handler | None) -> RunOptions:
    """What `add` said, else the handler."""
    if handler is None:
        return record.options or NO_OPTIONS
    if record.options is None:
        return handler.options
    return record.options.over(handler.options)
