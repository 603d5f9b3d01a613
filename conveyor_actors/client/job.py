"""A job as a producer sees it: what was last heard of it, and the questions that can be asked about it.

Knows nothing of sockets. Invariant: attributes never change by themselves; `refresh`, `wait`, `result` and
`as_completed` bring them up to date.
"""

from __future__ import annotations

from datetime import datetime
from time import monotonic
from typing import Any, Final, cast

from msgspec import UNSET

from conveyor_actors import data as data_codec
from conveyor_actors.client.channel import Channel
from conveyor_actors.errors import (
    CorruptRecord,
    InvalidOption,
    JobCancelled,
    JobFailed,
    JobRemoved,
    ProtocolError,
    WaitTimeout,
)
from conveyor_actors.model import (
    COMPLETED,
    DELAYED,
    NAME_BYTES_MAX,
    STATE_NAMES,
    WAITING,
    Attempt,
    Failure,
    FailureKind,
    State,
    utc,
)
from conveyor_actors.units import duration_ms, format_duration
from conveyor_actors.wire import REFS_MAX, GetHistory, GetJobs, History, Jobs, JobView, NewJob, Ref

_REF_ALLOWED: Final = "a Job, its ref ('queue/id') or a generated id (digits)"


class Job:
    """One job. Made by `add` and its relatives, `get` and `jobs`."""

    __slots__ = ("_at_ms", "_channel", "_cursor", "_data", "_id", "_new", "_returnvalue", "_view", "created", "queue")

    def __init__(
        self,
        channel: Channel,
        queue: str,
        id: int | str,
        created: bool = False,
        new: NewJob | None = None,
        at_ms: int = 0,
        view: JobView | None = None,
    ) -> None:
        self._channel = channel
        self.queue = queue
        self._id = id
        #: False if this `add` met a job that had the id already, and for jobs that were read.
        self.created = created
        self._new = new
        self._at_ms = at_ms
        self._view = view
        self._data: Any = UNSET
        self._returnvalue: Any = UNSET
        self._cursor = b""

    # -- who it is --------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return str(self._id)

    @property
    def ref(self) -> str:
        """`queue/id`: names the job everywhere."""
        return f"{self.queue}/{self._id}"

    def __eq__(self, other: object) -> bool:
        return self.ref == other.ref if isinstance(other, Job) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.ref)

    def __repr__(self) -> str:
        view = self._view or (None if self._new is None else self._as_added(self._new))
        return f"<Job {self.ref}>" if view is None else f"<Job {self.ref} {view.name} {STATE_NAMES[view.state]}>"

    # -- what was last heard of it ------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._known().name

    @property
    def data(self) -> Any:
        if self._data is UNSET:
            self._data = self._read("data", self._known().payload)
        return self._data

    @property
    def state(self) -> State:
        return STATE_NAMES[self._known().state]

    @property
    def priority(self) -> int:
        return self._known().priority

    @property
    def attempts(self) -> int:
        """How many tries it has in all. Before the first refresh: as `add` said, without the handler's own option."""
        return self._known().attempts

    @property
    def attempts_made(self) -> int:
        return self._known().attempts_made

    @property
    def stalled_count(self) -> int:
        return self._known().stalled_count

    @property
    def returnvalue(self) -> Any:
        """What the handler returned; None before that."""
        if self._returnvalue is UNSET:
            result = self._known().result
            self._returnvalue = None if result is None else self._read("result", result)
        return self._returnvalue

    @property
    def failure(self) -> Failure | None:
        record = self._known().failure
        if record is None:
            return None
        return Failure(cast(FailureKind, record.kind), record.message, record.traceback, utc(record.at_ms))

    @property
    def metadata(self) -> dict[str, Any]:
        encoded = self._known().metadata
        return {} if encoded is None else cast(dict[str, Any], self._read("metadata", encoded))

    @property
    def created_at(self) -> datetime:
        return utc(self._known().created_ms)

    @property
    def delay_until(self) -> datetime | None:
        return _time(self._known().due_ms)

    @property
    def processed_at(self) -> datetime | None:
        return _time(self._known().processed_ms)

    @property
    def finished_at(self) -> datetime | None:
        return _time(self._known().finished_ms)

    @property
    def worker(self) -> str | None:
        return self._known().worker or None

    @property
    def progress(self) -> Any:
        return None

    @property
    def parent(self) -> str | None:
        return None

    @property
    def stale(self) -> bool:
        return False

    @property
    def webhook_state(self) -> str | None:
        return None

    # -- asking -------------------------------------------------------------------------------------------

    def refresh(self) -> Job:
        """Brings the attributes up to date, or raises `JobRemoved`."""
        view = get_views(self._channel, [(self.queue, self.id)])[0]
        if view is None:
            raise removed(self.ref)
        self._update(view)
        return self

    def wait(self, timeout: object = None) -> State:
        """Waits until the job has ended and gives its state."""
        timeout_ms = None if timeout is None else duration_ms(timeout, "timeout")
        if self._view is None or self._view.state < COMPLETED:
            self._await_end(timeout_ms)
        return self.state

    def result(self, timeout: object = None) -> Any:
        """Waits until the job has ended and gives what its handler returned.

        Raises `JobFailed` (`JobCancelled`), `JobRemoved`, or `WaitTimeout` if it takes longer than `timeout`.
        """
        if self.wait(timeout) == "completed":
            return self.returnvalue
        failure = self.failure
        assert failure is not None, "a failed job says why"
        if failure.kind == "cancelled":
            reason = f": {failure.message}" if failure.message else ""
            raise JobCancelled(f"{self.ref} {self.name} was cancelled{reason}", failure)
        raise JobFailed(f"{self.ref} {self.name} failed: {failure.kind}: {failure.message}", failure)

    def history(self) -> list[Attempt]:
        """A record of each attempt that ended, each stall and each interruption."""
        entries = self._channel.call(GetHistory((self.queue, self.id)), History).entries
        if entries is None:
            raise removed(self.ref)
        return [
            Attempt(cast(Any, entry.kind), utc(entry.at_ms), entry.worker, entry.message, entry.traceback)
            for entry in entries
        ]

    # -- for the rest of the client -------------------------------------------------------------------------

    def _update(self, view: JobView) -> None:
        """Takes what the supervisor told of the job."""
        self._view = view
        self._new = None
        self._data = self._returnvalue = UNSET

    def _read(self, what: str, encoded: bytes) -> Any:
        try:
            return data_codec.decode(encoded)
        except data_codec.UNREADABLE as error:
            raise CorruptRecord(
                f"the {what} of {self.ref} cannot be read ({error}): it was not sent by this package"
            ) from None

    def _await_end(self, timeout_ms: int | None) -> None:
        deadline = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        wait = self._channel.watch([(self.queue, self.id)])
        try:
            ended = self._channel.take(wait, deadline)
        finally:
            self._channel.give_up(wait)
        if not ended:
            raise WaitTimeout(f"{self.ref} had not ended after {format_duration(timeout_ms or 0)}; it goes on")
        self._end(ended[0][1])

    def _end(self, view: JobView | None) -> None:
        """Takes what was told of the job's end."""
        if view is None or view.state < COMPLETED:
            raise removed(self.ref)
        self._update(view)

    def _known(self) -> JobView:
        """All that is known of the job. What an `add` met under its id is asked for when somebody wants to know."""
        if self._view is None:
            if self._new is None:
                self.refresh()
            else:
                self._view = self._as_added(self._new)
        assert self._view is not None
        return self._view

    def _as_added(self, new: NewJob) -> JobView:
        due_ms = new.due_ms if new.delay_ms is None else self._at_ms + new.delay_ms
        return JobView(
            number=self._id if isinstance(self._id, int) else 0,
            id=self.id,
            queue=self.queue,
            name=new.name,
            state=DELAYED if due_ms is not None and due_ms > self._at_ms else WAITING,
            priority=new.priority,
            attempts=(new.options and new.options.attempts) or 1,
            attempts_made=0,
            stalled_count=0,
            payload=new.payload,
            result=None,
            failure=None,
            metadata=new.metadata,
            created_ms=self._at_ms,
            due_ms=due_ms,
            processed_ms=None,
            finished_ms=None,
            worker="",
            removed=False,
        )


def job_of(channel: Channel, view: JobView) -> Job:
    job = Job(channel, view.queue, view.id, view=view)
    job._cursor = view.cursor
    return job


def ref_of(named: object, queue: str = "") -> Ref:
    """The job that a caller means; `queue` is where an id alone is looked up."""
    if isinstance(named, Job):
        return named.queue, named.id
    if isinstance(named, int) and not isinstance(named, bool):
        named = str(named)
    if not isinstance(named, str):
        raise InvalidOption("job", named, _REF_ALLOWED)
    of_queue, slash, id = named.rpartition("/")
    if slash and queue and of_queue != queue:
        raise InvalidOption("job", named, f"a job of the queue {queue!r}")
    of_queue = of_queue or queue
    if not (_fits(id) and _fits(of_queue)) or not id or not (of_queue or id.isdecimal()):
        raise InvalidOption("job", named, _REF_ALLOWED)
    return of_queue, id


def get_views(channel: Channel, refs: list[Ref]) -> list[JobView | None]:
    """The jobs in the order asked for. An answer may hold fewer than were asked for: then the rest is asked again."""
    views: list[JobView | None] = []
    while len(views) < len(refs):
        found = channel.call(GetJobs(refs[len(views) : len(views) + REFS_MAX]), Jobs).jobs
        if not found:
            raise ProtocolError("the supervisor answered a question for jobs with none")
        views += found
    return views


def removed(ref: str) -> JobRemoved:
    return JobRemoved(f"there is no job {ref}: it was removed, or never was")


def _fits(name: str) -> bool:
    try:
        return len(name.encode()) <= NAME_BYTES_MAX
    except UnicodeEncodeError:
        return False


def _time(ms: int | None) -> datetime | None:
    return None if ms is None else utc(ms)
