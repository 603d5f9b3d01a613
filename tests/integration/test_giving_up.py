"""Some errors are not worth another attempt: the handler may say so by what it raises, or beforehand."""

import pytest


def test_unrecoverable_stops_at_once(queue):
    job = queue.add("unrecoverable")
    assert job.wait("20s") == "failed"
    assert job.failure.kind == "unrecoverable"
    assert "never again" in job.failure.message
    assert job.attempts_made == 1
    assert len(job.history()) == 1


@pytest.mark.parametrize(("kind", "runs"), [("os", 3), ("missing", 1), ("value", 1)])
def test_exceptions_are_sorted_by_retry_on_and_give_up_on(queue, record, kind, runs):
    job = queue.add("picky", {"kind": kind, "folder": record.folder})
    assert job.wait("20s") == "failed"
    assert record.ids() == [job.id] * runs
    assert job.attempts_made == runs
