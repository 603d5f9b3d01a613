"""A queue as a producer sees it: adding jobs, reading them, pausing.

Knows nothing of sockets. Invariant: every argument was checked before anything is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from conveyor_actors import data as data_codec
from conveyor_actors.client.channel import Channel
from conveyor_actors.client.completion import as_completed
from conveyor_actors.client.job import Job, get_views, job_of, ref_of
from conveyor_actors.client.session import Call
from conveyor_actors.errors import InvalidOption, InvalidPayload, UsageError, nearest
from conveyor_actors.handlers import Handler, handler_of
from conveyor_actors.model import ADD_MANY_BYTES_MAX, ADD_MANY_JOBS_MAX, STATE_NAMES
from conveyor_actors.options import check_name, new_job
from conveyor_actors.units import format_size
from conveyor_actors.wire import PAGE_JOBS_MAX, Added, AddJobs, Counts, Done, GetCounts, ListJobs, NewJob, SetPaused
from conveyor_actors.wire import Page as WirePage

#: Chunks that `add_all` has under way, and how many bytes of data a chunk of several jobs has.
_CHUNKS_IN_FLIGHT: Final = 4
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_ITEM_ALLOWED: Final = "(name, data) or (name, data, options)"
_known_name: Final = lru_cache(maxsize=4096)(check_name)

Name = str | Callable[..., Any]
Item = Sequence[Any]


class Page(list[Job]):
    """Jobs of a listing. `next` is where the next page begins: give it as `after`; None on the last."""

    def __init__(self, jobs: Iterable[Job], next: bytes | None) -> None:
        super().__init__(jobs)
        self.next = next


class Queue:
    """A queue by its name; it exists once something was added to it. Made by `conveyor.queue(name)`."""

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self.name = check_name("queue", name)

    def __repr__(self) -> str:
        return f"<Queue {self.name} at {self._channel.address}>"

    # -- adding -------------------------------------------------------------------------------------------

    def add(self, name: Name, data: Any = None, **options: Any) -> Job:
        """Adds a job, by the name of its handler or the handler itself; it is on disk when this returns.

        >>> images.add("resize", {"path": "a.jpg"}, delay="5 minutes", attempts=3)
        """
        jobs = [self._new(name, data, options)]
        self._check_sizes(jobs)
        return self._added(jobs, self._channel.call(AddJobs(self.name, jobs), Added))[0]

    def add_many(self, items: Iterable[Item]) -> list[Job]:
        """Adds up to 10,000 jobs, all or none: `[(name, data), (name, data, options), ...]`."""
        jobs = [self._read_item(item, index) for index, item in enumerate(items)]
        if not jobs:
            return []
        if len(jobs) > ADD_MANY_JOBS_MAX:
            raise InvalidOption("items", f"{len(jobs)} jobs", f"at most {ADD_MANY_JOBS_MAX} a call, or add_all")
        size = sum(map(_size, jobs))
        if size > ADD_MANY_BYTES_MAX and len(jobs) > 1:
            raise InvalidPayload(
                f"the data of these {len(jobs)} jobs has {size} bytes ({format_size(size)}); one call takes at most "
                f"{format_size(ADD_MANY_BYTES_MAX)}: use add_all"
            )
        self._check_sizes(jobs)
        return self._added(jobs, self._channel.call(AddJobs(self.name, jobs), Added))

    def add_all(self, items: Iterable[Item], chunk: int = 1000) -> Iterator[Job]:
        """Adds however many jobs, `chunk` at a time (each all or none), and yields them in order once on disk."""
        if isinstance(chunk, bool) or not isinstance(chunk, int) or not 1 <= chunk <= ADD_MANY_JOBS_MAX:
            raise InvalidOption("chunk", chunk, f"an int from 1 to {ADD_MANY_JOBS_MAX}")
        return self._add_all(items, chunk)

    def _add_all(self, items: Iterable[Item], chunk: int) -> Iterator[Job]:
        under_way: deque[tuple[list[NewJob], Call]] = deque()
        broken: Exception | None = None
        chunks = self._chunks(items, chunk)
        try:
            while True:
                jobs: list[NewJob] = []
                try:
                    jobs = next(chunks, [])
                except Exception as error:  # raised after those that were added before it
                    broken = error
                if jobs:
                    under_way.append((jobs, self._channel.start(AddJobs(self.name, jobs))))
                while under_way and (not jobs or len(under_way) >= _CHUNKS_IN_FLIGHT):
                    sent, call = under_way.popleft()
                    yield from self._added(sent, self._channel.finish(call, Added))
                if not jobs:
                    break
        finally:
            for _, call in under_way:
                self._channel.give_up(call)
        if broken is not None:
            raise broken

    def _chunks(self, items: Iterable[Item], chunk: int) -> Iterator[list[NewJob]]:
        """The jobs in lists that a request may hold; one that is large gets a request of its own."""
        jobs: list[NewJob] = []
        size = 0
        try:
            for index, item in enumerate(items):
                job = self._read_item(item, index)
                self._check_sizes([job])
                if jobs and size + _size(job) > _CHUNK_BYTES:
                    yield jobs
                    jobs, size = [], 0
                jobs.append(job)
                size += _size(job)
                if len(jobs) == chunk:
                    yield jobs
                    jobs, size = [], 0
        except Exception:
            if jobs:
                yield jobs
            raise
        if jobs:
            yield jobs

    def _read_item(self, item: Item, index: int) -> NewJob:
        try:
            if not isinstance(item, (tuple, list)) or not 2 <= len(item) <= 3:
                raise InvalidOption("item", item, _ITEM_ALLOWED)
            options = item[2] if len(item) == 3 else {}
            if not isinstance(options, Mapping):
                raise InvalidOption("options", options, "a dict of the options of add")
            return self._new(item[0], item[1], options)
        except UsageError as error:
            error.add_note(f"This is about item {index}.")
            raise

    def _new(self, name: Name, data: Any, options: Mapping[str, Any]) -> NewJob:
        payload = data_codec.encode(data)
        if not isinstance(name, str):
            handler = self._handler(name)
            handler.check(payload)
            name = handler.name
        return new_job(_known_name("name", name), payload, options)

    def _check_sizes(self, jobs: list[NewJob]) -> None:
        """Refuses data that is too large for this supervisor."""
        largest = self._channel.connect().max_payload
        for job in jobs:
            size = len(job.payload)
            if size > largest:
                raise InvalidPayload(
                    f"the data of the job {job.name!r} has {size} bytes ({format_size(size)}) when it is encoded; "
                    f"max_payload is {largest} ({format_size(largest)}): write it to a file and send the path"
                )

    def _handler(self, function: object) -> Handler:
        handler = handler_of(function)
        if handler is None:
            raise InvalidOption("name", function, "the name of a handler, or a function declared with @handler")
        if handler.queue is not None and handler.queue != self.name:
            allowed = f"a handler of the queue {self.name!r}; this one is of {handler.queue!r}"
            raise InvalidOption("name", function, allowed)
        return handler

    def _added(self, jobs: list[NewJob], added: Added) -> list[Job]:
        channel, queue, at_ms = self._channel, self.name, added.at_ms
        if added.listed is None:
            return [Job(channel, queue, number, True, new, at_ms) for number, new in enumerate(jobs, added.first)]
        return [
            Job(channel, queue, new.id or one.number, one.created, new if one.created else None, at_ms)
            for one, new in zip(added.listed, jobs, strict=True)
        ]

    # -- reading ------------------------------------------------------------------------------------------

    def get(self, id: object) -> Job | None:
        """The job with this id, or None."""
        return self.get_many([id])[0]

    def get_many(self, ids: Iterable[object]) -> list[Job | None]:
        """The jobs with these ids in the same order, None where there is none."""
        views = get_views(self._channel, [ref_of(id, self.name) for id in ids])
        return [None if view is None else job_of(self._channel, view) for view in views]

    def jobs(self, *states: str, after: Job | bytes | None = None, limit: int = 100) -> Page:
        """A page of the jobs in these states (all six by default), the states one after the other.

        >>> page = images.jobs("failed", limit=50)
        >>> page = images.jobs("failed", limit=50, after=page.next)
        """
        codes = [_state_code(state) for state in states] or list(range(len(STATE_NAMES)))
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidOption("limit", limit, "an int from 1")
        cursor = _cursor(after)
        jobs: list[Job] = []
        while True:
            asked = min(limit - len(jobs), PAGE_JOBS_MAX)
            page = self._channel.call(ListJobs(self.name, codes, cursor, asked), WirePage)
            jobs += [job_of(self._channel, view) for view in page.jobs]
            cursor = page.next
            if cursor is None or len(jobs) >= limit:
                return Page(jobs, cursor)

    def counts(self) -> dict[str, int]:
        """How many jobs are in each of the six states now."""
        return dict(zip(STATE_NAMES, self._counts().counts, strict=True))

    def as_completed(self, jobs: Iterable[Job], timeout: object = None) -> Iterator[Job]:
        """The jobs in the order in which they end, up to date; `WaitTimeout` if that takes longer than `timeout`."""
        return as_completed(jobs, timeout)

    # -- control ------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """No further job of this queue is started until `resume`, also after a restart; running ones go on."""
        self._channel.call(SetPaused(self.name, True), Done)

    def resume(self) -> None:
        self._channel.call(SetPaused(self.name, False), Done)

    def paused(self) -> bool:
        return self._counts().paused

    def _counts(self) -> Counts:
        return self._channel.call(GetCounts(self.name), Counts)


def _size(job: NewJob) -> int:
    return len(job.payload) + len(job.metadata or b"")


def _state_code(state: object) -> int:
    if state not in STATE_NAMES:
        names = list(STATE_NAMES)
        raise InvalidOption("state", state, f"one of {', '.join(names)}{nearest(str(state), names)}")
    return STATE_NAMES.index(state)


def _cursor(after: object) -> bytes | None:
    if isinstance(after, Job):
        after = after._cursor
    if after is None or (isinstance(after, bytes) and after):
        return after
    raise InvalidOption("after", after, "a Job of an earlier page, or the `next` of that page")
