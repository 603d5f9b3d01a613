"""The messages between processes: tagged structs, their bounds, and the codecs. No I/O.

Three conversations: client and supervisor (`Request`, `Reply`, pushes), worker and supervisor (`Task`, `Outcome`),
spawner and supervisor (`Setup`, `Fork`, `Report`). Users' data travels inside as bytes that nobody here looks into.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from conveyor_actors.model import Info, QueueInfo, RunOptions, Worker
from conveyor_actors.units import DURATION_MAX_MS, WALL_MAX_MS

#: Raised with every change that an older peer would misread.
PROTOCOL_VERSION: Final = 1

UNANSWERED_REQUESTS_MAX: Final = 256
REFS_MAX: Final = 10_000
PAGE_JOBS_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
#: A client that was sent so much and shows by no `low` that it reads it is given up.
UNREAD_BYTES_MAX: Final = 32 * 1024 * 1024
#: It shows it in time, and more than once, for what it is pushed too.
PUSHED_BYTES_TOLD: Final = UNREAD_BYTES_MAX // 8

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Count = Annotated[int, msgspec.Meta(ge=0)]
#: A delay, and a time: no later than a `datetime` can be.
DelayMs = Annotated[int, msgspec.Meta(ge=0, le=DURATION_MAX_MS)]
WallMs = Annotated[int, msgspec.Meta(ge=0, le=WALL_MAX_MS)]
Metadata = Annotated[bytes, msgspec.Meta(max_length=64 * 1024)]
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
#: A job as a client names it: (queue, id); the queue is "" for a generated id.
Ref = tuple[Annotated[str, msgspec.Meta(max_length=200)], Text]


class Message(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Base of what is told apart by its class name on the wire."""


# -- client -> supervisor -----------------------------------------------------------------------------


class Hello(Message, frozen=True):
    version: int
    client: Count


class NewJob(msgspec.Struct, array_like=True, frozen=True):
    name: Text
    payload: bytes
    options: RunOptions | None = None
    id: Text | None = None
    delay_ms: DelayMs | None = None
    due_ms: WallMs | None = None
    priority: Priority = 0
    lifo: bool = False
    metadata: Metadata | None = None


class AddJobs(Message, frozen=True):
    queue: Text
    jobs: Annotated[list[NewJob], msgspec.Meta(min_length=1, max_length=10_000)]


class SetPaused(Message, frozen=True):
    queue: Text
    paused: bool


class GetJobs(Message, frozen=True):
    refs: Annotated[list[Ref], msgspec.Meta(max_length=REFS_MAX)]


class WaitJobs(Message, frozen=True):
    """Answered at once with what has ended; the end of the others is pushed."""

    refs: Annotated[list[Ref], msgspec.Meta(max_length=REFS_MAX)]


class ListJobs(Message, frozen=True):
    queue: Text
    states: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=5)]], msgspec.Meta(min_length=1, max_length=6)]
    after: bytes | None
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_JOBS_MAX)]


class GetHistory(Message, frozen=True):
    ref: Ref


class GetCounts(Message, frozen=True):
    queue: Text


class GetQueues(Message, frozen=True):
    pass


class GetInfo(Message, frozen=True):
    pass


class GetWorkers(Message, frozen=True):
    pass


class ReadEvents(Message, frozen=True):
    """Events after `after`; None asks only where the log ends."""

    after: Count | None


class Ping(Message, frozen=True):
    pass


class Stop(Message, frozen=True):
    """Shut down as on SIGTERM; `timeout_ms` in the place of the configured one, -1: however long it takes."""

    timeout_ms: int | None = None


Body = (
    Hello
    | AddJobs
    | SetPaused
    | GetJobs
    | WaitJobs
    | ListJobs
    | GetHistory
    | GetCounts
    | GetQueues
    | GetInfo
    | GetWorkers
    | ReadEvents
    | Ping
    | Stop
)
#: What changes something, and so must not be carried out twice.
MUTATIONS: Final = (AddJobs, SetPaused)


class Request(msgspec.Struct, array_like=True, frozen=True):
    """`low`: all requests below it were answered and their replies need not be kept."""

    no: Count
    low: Count
    body: Body


# -- supervisor -> client -----------------------------------------------------------------------------


class FailureRecord(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    message: str
    traceback: str
    at_ms: int


class JobView(msgspec.Struct, array_like=True, frozen=True):
    """All there is to tell of a job. `cursor` is its place in the listing it came from."""

    number: int
    id: str
    queue: str
    name: str
    state: int
    priority: int
    attempts: int
    attempts_made: int
    stalled_count: int
    payload: bytes
    result: bytes | None
    failure: FailureRecord | None
    metadata: bytes | None
    created_ms: int
    due_ms: int | None
    processed_ms: int | None
    finished_ms: int | None
    worker: str
    removed: bool
    cursor: bytes = b""


class HistoryEntry(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    at_ms: int
    worker: str
    message: str = ""
    traceback: str = ""


class Welcome(Message, frozen=True):
    version: int
    incarnation: int
    max_payload: int
    #: Where events are published; `~` stands for the address the client connected to.
    events: str


class AddedJob(msgspec.Struct, array_like=True, frozen=True):
    """Its id is known to whoever gave it one."""

    number: int
    created: bool


class Added(Message, frozen=True):
    """Jobs with generated ids are `first`, `first + 1` ...; where any differs all are listed."""

    first: int
    at_ms: int
    listed: list[AddedJob] | None = None


class Done(Message, frozen=True):
    pass


class Jobs(Message, frozen=True):
    """In the order asked for; None where there is no such job."""

    jobs: list[JobView | None]


class Page(Message, frozen=True):
    jobs: list[JobView]
    next: bytes | None


class Registered(Message, frozen=True):
    """The answer to `WaitJobs`: what has ended already and what does not exist.

    `left`: so many at the end of the request found no room in this answer; the client asks again for them.
    """

    ended: list[JobView]
    missing: list[Ref]
    left: int = 0


class History(Message, frozen=True):
    entries: list[HistoryEntry] | None


class Counts(Message, frozen=True):
    counts: list[int]
    paused: bool


class Queues(Message, frozen=True):
    queues: list[QueueInfo]


class InfoReply(Message, frozen=True):
    info: Info


class Workers(Message, frozen=True):
    workers: list[Worker]


class Pong(Message, frozen=True):
    pass


class Refused(Message, frozen=True):
    """`error` names a class of `errors.BY_NAME`."""

    error: str
    message: str


#: (type code, queue, job id or number, name, data)
EventRow = tuple[int, str | None, int | str | None, str | None, bytes | None]


class EventBatch(Message, frozen=True):
    """What one commit made happen: events `first` ... `first + len(rows) - 1`."""

    first: int
    at_ms: int
    rows: list[EventRow]


class EventPage(Message, frozen=True):
    """`kept_from` is the oldest event kept, `last` the newest written; `more`: ask again for what follows `upto`."""

    batches: list[EventBatch]
    kept_from: int
    last: int
    more: bool
    upto: int = 0


class Ended(Message, frozen=True):
    """Pushed: these jobs, which the client waits for, have ended."""

    jobs: list[JobView]


class Reset(Message, frozen=True):
    """Pushed: the supervisor does not know this connection; say Hello and send again what is unanswered."""


ReplyBody = (
    Welcome
    | Added
    | Done
    | Jobs
    | Page
    | Registered
    | History
    | Counts
    | Queues
    | InfoReply
    | Workers
    | Pong
    | Refused
    | EventPage
    | Ended
    | Reset
)


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """`no` is that of the request; 0 for what is pushed."""

    no: int
    body: ReplyBody


class Published(msgspec.Struct, array_like=True, frozen=True):
    """One commit's events of one queue on the event socket. `before`: the last event of that queue published earlier,
    so that a reader sees that it missed something. `rows` carry their own numbers: the seq comes first. Where there are
    none they were too many to be published: the log has them."""

    before: int
    at_ms: int
    rows: list[tuple[int, EventRow]]


# -- worker <-> supervisor ----------------------------------------------------------------------------


class Ready(Message, frozen=True):
    """A worker's first word. `threads`: ids of threads that are ours and not the job's."""

    pid: int
    threads: list[int]


class Task(msgspec.Struct, array_like=True, frozen=True):
    """One job for a worker. Tokens rise: of two tasks of a worker the later sent has the larger one."""

    token: int
    id: str
    queue: str
    name: str
    payload: bytes
    attempts_made: int
    stalled_count: int
    attempts: int


#: Codes of `Outcome.kind`: 0 is success; the others are failure kinds a worker can tell by itself.
OUTCOME_KINDS: Final = ("completed", "error", "unrecoverable", "invalid-payload", "unknown-handler")
SUCCESS: Final = 0


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """How one attempt ended. `value` is the encoded result of a success."""

    token: int
    kind: Annotated[int, msgspec.Meta(ge=0, lt=len(OUTCOME_KINDS))]
    started_ms: int
    duration_us: int
    value: bytes = b""
    message: str = ""
    traceback: str = ""


# -- spawner <-> supervisor ---------------------------------------------------------------------------


class Setup(Message, frozen=True):
    """The supervisor's first word to a spawner."""

    supervisor: int
    root: str
    pythonpath: list[str]
    imports: list[str]
    max_payload: int


class Fork(Message, frozen=True):
    worker: str
    identity: bytes
    box: str
    address: str
    beat_ms: int


class Catalogue(Message, frozen=True):
    """The spawner has imported its handlers and can fork."""

    handlers: list[CatalogueEntry]


class CatalogueEntry(msgspec.Struct, array_like=True, frozen=True):
    name: str
    queue: str | None
    options: RunOptions


class ImportFailed(Message, frozen=True):
    module: str
    reason: str
    traceback: str


class Forked(Message, frozen=True):
    """Comes with the worker's pidfd."""

    worker: str
    pid: int
    start_ticks: int


class Exited(Message, frozen=True):
    """The worker is dead and reaped, and so are its descendants, unless the kernel would not let go of one for seconds.
    `status` as of `waitpid`.

    `swept`: how many descendants had to be killed; `peak_memory`: the most it ever held, in bytes.
    """

    worker: str
    pid: int
    status: int
    swept: int
    peak_memory: int


class NotForked(Message, frozen=True):
    """An order that could not be carried out."""

    worker: str
    reason: str


Report = Catalogue | ImportFailed | Forked | Exited | NotForked

_encoder: Final = msgspec.msgpack.Encoder()
encode: Final = _encoder.encode
decode_request: Final = msgspec.msgpack.Decoder(Request).decode
decode_reply: Final = msgspec.msgpack.Decoder(Reply).decode
decode_reply_body: Final = msgspec.msgpack.Decoder(ReplyBody).decode
decode_published: Final = msgspec.msgpack.Decoder(Published).decode
decode_tasks: Final = msgspec.msgpack.Decoder(list[Task]).decode
decode_outcomes: Final = msgspec.msgpack.Decoder(list[Outcome]).decode
decode_ready: Final = msgspec.msgpack.Decoder(Ready).decode
decode_setup: Final = msgspec.msgpack.Decoder(Setup).decode
decode_fork: Final = msgspec.msgpack.Decoder(Fork).decode
decode_report: Final = msgspec.msgpack.Decoder(Report).decode


def encode_reply(no: int, body: bytes) -> bytes:
    """A reply whose body is encoded already: `[no, body]`."""
    return b"\x92" + _encoder.encode(no) + body


#: Subscribing to a topic that begins so asks to be told, on that topic, that all earlier subscriptions are in place.
SYNC_PREFIX: Final = b"\xff"
EVENTS_SUFFIX: Final = ".events"
#: From the port of a tcp address to that of its events. The one between is where HTTP is by default (7600, 7601).
EVENTS_PORT_STEP: Final = 2


def events_address(address: str, suffix: str = EVENTS_SUFFIX) -> str:
    """Where events are published for a listen address: beside an ipc socket, two ports above a tcp one."""
    if address.startswith("ipc://"):
        return address + suffix
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + EVENTS_PORT_STEP}"
