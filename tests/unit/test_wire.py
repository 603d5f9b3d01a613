"""Requests: what travels, and what is refused before anybody looks at it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from conveyor_actors.options import METADATA_BYTES_MAX, new_job
from conveyor_actors.wire import AddJobs, NewJob, Request, decode_request, encode


def test_whatever_a_user_may_say_of_a_job_travels() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    metadata = {"k": "x" * (METADATA_BYTES_MAX - 6)}
    jobs = [new_job("n", b"", {"delay": "36525 days", "metadata": metadata}), new_job("n", b"", {"at": last})]
    assert decode_request(encode(Request(1, 1, AddJobs("q", jobs)))).body == AddJobs("q", jobs)


@pytest.mark.parametrize(
    "job",
    [
        NewJob("n", b"", delay_ms=2**64 - 1),
        NewJob("n", b"", delay_ms=2**53),
        NewJob("n", b"", due_ms=2**64 - 1),
        NewJob("n", b"", due_ms=2**48),
        NewJob("n", b"", due_ms=-1),
        NewJob("n", b"", priority=2**31),
        NewJob("n", b"", metadata=bytes(METADATA_BYTES_MAX + 1)),
    ],
)
def test_a_job_that_nobody_could_count_with_is_refused(job: NewJob) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_request(encode(Request(1, 1, AddJobs("q", [job]))))
