"""The tables: their keys, their records, and how both are written as bytes.

Knows nothing of LMDB or of what a record means to a job's life. Keys are big-endian, so that the order of bytes is the
order of numbers. Records carry the version of their layout and a checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Protocol, TypeVar
from zlib import crc32

import msgspec

from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import RunOptions
from conveyor_actors.wire import CatalogueEntry, EventBatch, FailureRecord, HistoryEntry

SCHEMA_VERSION: Final = 1

#: Only ever added to at the end: the journal calls tables by their place here.
TABLES: Final = (
    "meta",
    "queues",
    "handlers",
    "counters",
    "jobs",
    "payloads",
    "results",
    "waiting",
    "by_state",
    "timers",
    "leases",
    "names",
    "history",
    "events",
    "requests",
)

#: A payload or a result up to this size lives in its job's record: one page less to write for each.
INLINE_BYTES_MAX: Final = 256

# What other tables hold something of a job, so that its removal touches only those.
HAS_NAME: Final = 1
HAS_RESULT: Final = 2
HAS_HISTORY: Final = 4
HAS_PAYLOAD: Final = 16
#: Removed automatically; kept out of every listing for those who still ask for its result.
GONE: Final = 8

# Kinds of timers.
PROMOTE: Final = 1  # ref: job; its delay is over
FORGET: Final = 2  # ref: job; nobody can ask for its result any longer
FORGET_CLIENT: Final = 3  # ref: client; its replies need not be kept any longer


class Cursor(Protocol):
    """What the engine uses of an LMDB cursor."""

    def first(self) -> bool: ...
    def last(self) -> bool: ...
    def next(self) -> bool: ...
    def prev(self) -> bool: ...
    def key(self) -> bytes: ...
    def value(self) -> bytes: ...
    def set_range(self, key: bytes) -> bool: ...


class Table(Protocol):
    """One table inside a transaction."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, *, append: bool = False) -> bool: ...
    def delete(self, key: bytes) -> bool: ...
    def delete_at(self, cursor: Cursor) -> bool:
        """Deletes the row the cursor is at, and moves it to the next one; False if there is none."""

    def cursor(self) -> Cursor: ...


class Tables(Protocol):
    """All tables inside one transaction."""

    meta: Table
    queues: Table
    handlers: Table
    counters: Table
    jobs: Table
    payloads: Table
    results: Table
    waiting: Table
    by_state: Table
    timers: Table
    leases: Table
    names: Table
    history: Table
    events: Table
    requests: Table


# -- keys -------------------------------------------------------------------------------------------

_number: Final = Struct(">Q")
_queue: Final = Struct(">I")
_waiting: Final = Struct(">IIIQ")
_by_state: Final = Struct(">IBQQ")
_by_state_prefix: Final = Struct(">IB")
_timer: Final = Struct(">QBQ")
_history: Final = Struct(">QI")

NUMBER_BYTES: Final = _number.size
number_key: Final = _number.pack
queue_key: Final = _queue.pack
by_state_prefix: Final = _by_state_prefix.pack
by_state_key: Final = _by_state.pack
timer_key: Final = _timer.pack
history_key: Final = _history.pack

_PRIORITY_BIAS: Final = 2**31
_NO_GROUP: Final = 0


def waiting_key(queue: int, priority: int, order: int) -> bytes:
    """Lower priority numbers first, then the order; the group between them is for later use and always 0."""
    return _waiting.pack(queue, _NO_GROUP, priority + _PRIORITY_BIAS, order)


def read_number(key: bytes) -> int:
    return int.from_bytes(key, "big")


def read_by_state(key: bytes) -> tuple[int, int, int, int]:
    """(queue, state, time, job number)"""
    queue, state, time, number = _by_state.unpack(key)
    return queue, state, time, number


def read_timer(key: bytes) -> tuple[int, int, int]:
    """(due, kind, ref)"""
    due, kind, ref = _timer.unpack(key)
    return due, kind, ref


def name_key(queue: int, id: str) -> bytes:
    return _queue.pack(queue) + id.encode()


META_KEY: Final = b"meta"
#: In `meta` too: which records of the journal may count.
LIFE_KEY: Final = b"life"
TOTALS_KEY: Final = b"totals"


# -- records ----------------------------------------------------------------------------------------


class Meta(msgspec.Struct, array_like=True):
    """`incarnation` counts the supervisors that ever owned this store."""

    schema: int
    incarnation: int
    created_ms: int


class QueueRecord(msgspec.Struct, array_like=True):
    number: int
    paused: bool = False


class Totals(msgspec.Struct, array_like=True):
    """Numbers handed out, and what happened since the store was made."""

    next_number: int = 1
    next_event: int = 1
    added: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    stalled: int = 0
    interrupted: int = 0
    removed: int = 0
    outdated_results: int = 0


class JobRecord(msgspec.Struct, array_like=True):
    """The record of a job; a large payload or result lies apart. On disk `state` is never ACTIVE: a lease says that."""

    queue: int
    name: str
    state: int
    priority: int
    order: int
    created_ms: int
    payload: bytes
    id: str | None = None
    flags: int = 0
    lifo: bool = False
    options: RunOptions | None = None
    due_ms: int | None = None
    processed_ms: int | None = None
    finished_ms: int | None = None
    attempts_made: int = 0
    stalled_count: int = 0
    interruptions: int = 0
    worker: str = ""
    result: bytes | None = None
    failure: FailureRecord | None = None
    metadata: bytes | None = None
    #: The time under which it is filed, where that is not `finished_ms`.
    filed_ms: int | None = None


class LeaseRecord(msgspec.Struct, array_like=True):
    """One batch of jobs at a worker, as (token, job number). Being here is what makes a job active."""

    worker: str
    members: list[tuple[int, int]]


class RequestRecord(msgspec.Struct, array_like=True):
    """The replies a client may not have got yet. All requests below `low` were answered."""

    seen_ms: int
    replies: dict[int, bytes]
    low: int = 0


Record = TypeVar("Record")

_header: Final = Struct(">BI")
_HEADER_BYTES: Final = _header.size
_encode: Final = msgspec.msgpack.Encoder().encode


def seal(body: bytes) -> bytes:
    return _header.pack(SCHEMA_VERSION, crc32(body)) + body


def unseal(sealed: bytes, what: str = "a record") -> bytes:
    if len(sealed) < _HEADER_BYTES:
        raise CorruptRecord(f"{what} has only {len(sealed)} bytes: the store is damaged, restore a backup")
    version, checksum = _header.unpack_from(sealed)
    body = sealed[_HEADER_BYTES:]
    if version != SCHEMA_VERSION:
        raise CorruptRecord(f"{what} has layout version {version}; this program reads version {SCHEMA_VERSION}")
    if crc32(body) != checksum:
        raise CorruptRecord(f"{what} does not match its checksum: the store is damaged, restore a backup")
    return body


def write(record: Any) -> bytes:
    return seal(_encode(record))


def _reader(kind: type[Record], what: str) -> Callable[[bytes], Record]:
    decode = msgspec.msgpack.Decoder(kind).decode
    unpack, checksum_of, header = _header.unpack_from, crc32, _HEADER_BYTES

    def read(sealed: bytes) -> Record:
        body = sealed[header:]
        if len(sealed) < header or unpack(sealed) != (SCHEMA_VERSION, checksum_of(body)):
            unseal(sealed, what)
        return decode(body)

    return read


read_meta: Final = _reader(Meta, "the store's own record")
read_queue: Final = _reader(QueueRecord, "the record of a queue")
read_catalogue: Final = _reader(list[CatalogueEntry], "the catalogue of a pool")
read_counts: Final = _reader(list[int], "the counts of a queue")
read_totals: Final = _reader(Totals, "the record of totals")
read_job: Final = _reader(JobRecord, "the record of a job")
read_lease: Final = _reader(LeaseRecord, "a lease")
read_requests: Final = _reader(RequestRecord, "the requests of a client")
read_history: Final = _reader(HistoryEntry, "a line of history")
read_events: Final = _reader(EventBatch, "a batch of events")
