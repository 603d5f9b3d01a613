"""`Conveyor`: where producers begin. Finds the supervisor's address and hands out queues, jobs and events.

Knows nothing of sockets. Invariant: nothing is connected before the first question, or `with`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final

from conveyor_actors import ipc
from conveyor_actors.client.channel import Channel
from conveyor_actors.client.completion import as_completed
from conveyor_actors.client.events import Events
from conveyor_actors.client.job import Job, get_views, job_of, ref_of
from conveyor_actors.client.queue import Queue
from conveyor_actors.config import client_url, find_config, load_config
from conveyor_actors.errors import InvalidOption, UsageError
from conveyor_actors.handlers import handler_of
from conveyor_actors.model import Info, QueueInfo, Worker
from conveyor_actors.options import check_name
from conveyor_actors.units import duration_ms
from conveyor_actors.wire import (
    Done,
    GetInfo,
    GetQueues,
    GetWorkers,
    InfoReply,
    Ping,
    Pong,
    Queues,
    Stop,
    Workers,
)

URL_VARIABLE: Final = "CONVEYOR_URL"
_URL_ALLOWED: Final = "an address such as 'ipc:///srv/app/data/conveyor.sock' or 'tcp://127.0.0.1:7600'"


class Conveyor:
    """A connection to a supervisor, for any number of threads; not for a forked child.

    >>> with Conveyor() as conveyor:
    ...     job = conveyor.queue("images").add("resize", {"path": "a.jpg"})
    ...     job.result(timeout="60s")
    """

    def __init__(self, url: str | None = None, *, timeout: object = "30s", curve: object = None) -> None:
        if curve is not None:
            raise InvalidOption("curve", curve, "None: CURVE keys are not available yet")
        timeout_ms = duration_ms(timeout, "timeout")
        if timeout_ms == 0:
            raise InvalidOption("timeout", timeout, "a duration above 0")
        self.url: Final = find_url(url)
        self._channel: Final = Channel(self.url, timeout_ms)

    def __enter__(self) -> Conveyor:
        self._channel.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Conveyor {self.url}>"

    def close(self) -> None:
        """Never blocks; threads that wait for an answer get `Closed`."""
        self._channel.close()

    # -- the supervisor -----------------------------------------------------------------------------------

    def ping(self) -> float:
        """Seconds that a question and its answer take."""
        self._channel.connect()
        started = monotonic()
        self._channel.call(Ping(), Pong)
        return monotonic() - started

    def info(self) -> Info:
        return self._channel.call(GetInfo(), InfoReply).info

    def workers(self) -> list[Worker]:
        return self._channel.call(GetWorkers(), Workers).workers

    def queues(self) -> list[QueueInfo]:
        return self._channel.call(GetQueues(), Queues).queues

    def stop(self, timeout: object = None, *, finish: bool = False) -> None:
        """Stops the supervisor as SIGTERM does. `timeout` in the place of its shutdown_timeout; `finish`: however long
        running jobs take."""
        if finish and timeout is not None:
            raise InvalidOption("timeout", timeout, "either timeout or finish, not both")
        timeout_ms = -1 if finish else None if timeout is None else duration_ms(timeout, "timeout")
        self._channel.call(Stop(timeout_ms), Done)

    # -- jobs ---------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        return Queue(self._channel, name)

    def add(self, handler: Callable[..., Any], data: Any = None, **options: Any) -> Job:
        """Adds a job for a function declared with `@handler`, to the handler's own queue."""
        declared = handler_of(handler)
        if declared is None or declared.queue is None:
            raise InvalidOption(
                "handler",
                handler,
                "a function declared with @handler(name, queue=...); where it has no queue, or for a name: "
                "conveyor.queue(...).add(...)",
            )
        return self.queue(declared.queue).add(handler, data, **options)

    def get(self, job: object) -> Job | None:
        """The job of a `Job`, a ref (`"queue/id"`) or a generated id; None if there is none."""
        view = get_views(self._channel, [ref_of(job)])[0]
        return None if view is None else job_of(self._channel, view)

    def as_completed(self, jobs: Iterable[Job], timeout: object = None) -> Iterator[Job]:
        """The jobs in the order in which they end, up to date; `WaitTimeout` if that takes longer than `timeout`."""
        return as_completed(jobs, timeout)

    def events(self, queue: str | None = None, *, since: int | None = None, timeout: object = None) -> Events:
        """What happens from now on, or after the event number `since` (0: all that is kept), in one queue or in all.

        With a `timeout` the iterator raises `WaitTimeout` when no event comes for so long.
        """
        if queue is not None:
            check_name("queue", queue)
        if since is not None and (isinstance(since, bool) or not isinstance(since, int) or not 0 <= since < 2**63):
            raise InvalidOption("since", since, "the seq of an event, or 0 for all that is kept")
        return Events(self._channel, queue, since, None if timeout is None else duration_ms(timeout, "timeout"))


def find_url(url: str | None) -> str:
    """The address: as given, else $CONVEYOR_URL, else of the nearest conveyor.toml at or above the cwd."""
    if url is not None:
        return _checked_url("url", url)
    from_environment = os.environ.get(URL_VARIABLE)
    if from_environment:
        return _checked_url(f"${URL_VARIABLE}", from_environment)
    path = find_config(Path.cwd())
    if path is None:
        raise UsageError(
            f"no supervisor is named: give Conveyor(url), set {URL_VARIABLE}, or work at or below a folder with a "
            f"conveyor.toml (there is none at or above {Path.cwd()})"
        )
    return client_url(load_config(path))


def _checked_url(field: str, url: object) -> str:
    if not isinstance(url, str):
        raise InvalidOption(field, url, _URL_ALLOWED)
    if url.startswith("tcp://"):
        port = url.rpartition(":")[2]
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidOption(field, url, _URL_ALLOWED)
        return url
    path = url.removeprefix("ipc://")
    if path == url or not path:
        raise InvalidOption(field, url, _URL_ALLOWED)
    if not path.startswith("@"):
        path = os.path.abspath(path)  # the working directory may change later
    size = len(os.fsencode(path))
    if size > ipc.PATH_BYTES_MAX:
        raise InvalidOption(field, url, f"a path of at most {ipc.PATH_BYTES_MAX} bytes (this has {size})")
    return f"ipc://{path}"
