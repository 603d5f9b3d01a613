"""Jobs as they end, many at once: all are waited for together, in few requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic

from conveyor_actors.client.channel import Channel
from conveyor_actors.client.job import Job
from conveyor_actors.errors import InvalidOption, WaitTimeout
from conveyor_actors.units import duration_ms, format_duration
from conveyor_actors.wire import Ref


def as_completed(jobs: Iterable[Job], timeout: object = None) -> Iterator[Job]:
    """The jobs in the order in which they end, each once and up to date; `WaitTimeout` if that takes longer than
    `timeout`. All of one conveyor.
    """
    timeout_ms = None if timeout is None else duration_ms(timeout, "timeout")
    by_ref: dict[Ref, Job] = {}
    channel: Channel | None = None
    for job in jobs:
        if not isinstance(job, Job):
            raise InvalidOption("jobs", job, "Jobs, as add_many and get_many give them")
        if channel is not None and job._channel is not channel:
            raise InvalidOption("jobs", job, "jobs of one Conveyor")
        channel = job._channel
        by_ref[job.queue, job.id] = job
    return iter(()) if channel is None else _as_completed(channel, by_ref, timeout_ms)


def _as_completed(channel: Channel, jobs: dict[Ref, Job], timeout_ms: int | None) -> Iterator[Job]:
    deadline = None if timeout_ms is None else monotonic() + timeout_ms / 1000
    count = len(jobs)
    wait = channel.watch(jobs)
    try:
        while jobs:
            ended = channel.take(wait, deadline)
            if not ended:
                waited = format_duration(timeout_ms or 0)
                raise WaitTimeout(f"{len(jobs)} of {count} jobs had not ended after {waited}; they go on")
            for ref, view in ended:
                job = jobs.pop(ref, None)
                if job is not None:  # told twice
                    job._end(view)
                    yield job
    finally:
        channel.give_up(wait)
