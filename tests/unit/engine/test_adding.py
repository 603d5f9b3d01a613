"""Adding: all of a request or none of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conveyor_actors.engine.inputs import SetFull
from conveyor_actors.engine.memory import Settings
from conveyor_actors.model import ADD_MANY_BYTES_MAX, RunOptions
from conveyor_actors.wire import Added, AddedJob, AddJobs, NewJob, Refused, SetPaused

from .harness import BEGIN_MS, Host, new, settings, success


def test_jobs_added_before_any_worker_exists_are_run(empty: Host) -> None:
    (id,) = empty.add("work")
    assert empty.job(id).state == 0
    empty.pool("work")
    empty.worker()
    assert empty.dispatched() == {"w1": [id]}


def test_a_job_is_told_as_it_was_added(host: Host) -> None:
    options = RunOptions(attempts=7)
    (id,) = host.add(new("nobody", b"\xa3abc", options, priority=-5, delay_ms=50, metadata=b"\x80"))
    job = host.job(id)
    assert (job.name, job.payload, job.priority, job.attempts) == ("nobody", b"\xa3abc", -5, 7)
    assert (job.created_ms, job.due_ms, job.metadata) == (BEGIN_MS, BEGIN_MS + 50, b"\x80")
    assert (job.attempts_made, job.stalled_count, job.result, job.failure) == (0, 0, None, None)


@pytest.mark.parametrize("size", [0, 255, 256, 257, 100_000])
def test_a_payload_of_any_size_comes_back_and_goes_with_its_job(host: Host, size: int) -> None:
    payload = bytes(size)
    (id,) = host.add(new(payload=payload, options=None))
    assert host.job(id).payload == payload
    assert host.tasks[id][0].payload == payload


def test_generated_ids_are_digits_in_the_order_of_adding(host: Host) -> None:
    added = host.ask(AddJobs("q", [new(), new(), new()]))
    assert added == Added(1, BEGIN_MS, None)


def test_where_any_id_was_given_all_are_listed(host: Host) -> None:
    added = host.ask(AddJobs("q", [new(), new(id="mine"), new()]))
    assert added == Added(1, BEGIN_MS, [AddedJob(1, True), AddedJob(2, True), AddedJob(3, True)])


def test_the_same_id_twice_is_one_job(empty: Host) -> None:
    empty.add(new(id="mine", payload=b"\x01"))
    again = empty.ask(AddJobs("q", [new("other", b"\x02", id="mine")]))
    assert again == Added(2, BEGIN_MS, [AddedJob(1, False)])
    assert (empty.job("mine").name, empty.job("mine").payload) == ("work", b"\x01")
    assert empty.counts() == {"waiting": 1}
    assert empty.events[-1] == ("duplicated", "mine")


def test_the_same_id_twice_in_one_request_is_one_job(empty: Host) -> None:
    added = empty.ask(AddJobs("q", [new(id="mine"), new(id="mine")]))
    assert added == Added(1, BEGIN_MS, [AddedJob(1, True), AddedJob(1, False)])


def test_the_same_id_in_two_queues_is_two_jobs(empty: Host) -> None:
    empty.add(new(id="mine"), queue="a")
    empty.add(new(id="mine"), queue="b")
    assert (empty.counts("a"), empty.counts("b")) == ({"waiting": 1}, {"waiting": 1})


def test_the_id_of_an_active_and_of_an_ended_job_is_taken(host: Host) -> None:
    host.add(new(id="mine"))
    assert host.job("mine").state == 3
    assert host.ask(AddJobs("q", [new(id="mine")])).listed[0].created is False  # type: ignore[union-attr, index]
    host.complete("mine")
    assert host.ask(AddJobs("q", [new(id="mine")])).listed[0].created is False  # type: ignore[union-attr, index]


@pytest.mark.parametrize("id", ["12345", "٣", "a/b", "a:b", "x" * 201, "é" * 101])
def test_an_id_that_cannot_be_is_refused_and_nothing_is_stored(empty: Host, id: str) -> None:
    before = empty.dump()
    refused = empty.ask(AddJobs("q", [new(), NewJob("work", b"", id=id)]))
    assert isinstance(refused, Refused)
    assert (refused.error, id[:20] in refused.message) == ("ProtocolError", True)
    after = empty.dump()
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"requests", "timers"}  # the answer itself


@pytest.mark.parametrize("queue", ["a/b", "a:b", "é" * 101])
def test_a_queue_that_cannot_be_is_refused(empty: Host, queue: str) -> None:
    refused = empty.ask(AddJobs(queue, [new()]))
    assert isinstance(refused, Refused)
    assert refused.error == "ProtocolError"
    assert empty.rows("queues") == 0


def test_one_payload_too_large_refuses_the_whole_request(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(max_payload=10))
    refused = host.ask(AddJobs("q", [new(), new("big", bytes(11))]))
    assert refused == Refused("InvalidPayload", "the data of a job 'big' has 11 bytes; max_payload is 10")
    assert host.rows("jobs") == 0


def test_a_request_too_large_as_a_whole_is_refused(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(max_payload=ADD_MANY_BYTES_MAX))
    half = bytes(ADD_MANY_BYTES_MAX // 2 + 1)
    refused = host.ask(AddJobs("q", [new(payload=half), new(payload=half)]))
    assert isinstance(refused, Refused)
    assert "smaller chunks" in refused.message
    assert host.rows("jobs") == 0


def test_a_full_disk_refuses_adds_and_still_records_what_ends(host: Host) -> None:
    (id,) = host.add("work")
    host.tick(SetFull("the disk is full"))
    assert host.ask(AddJobs("q", [new()])) == Refused("StoreFull", "the disk is full")
    host.complete(id)
    assert host.job(id).state == 4
    host.tick(SetFull(None))
    assert host.add("work") == ["2"]


def test_a_disk_that_is_fuller_still_starts_nothing_and_takes_back_what_has_not_begun(host: Host) -> None:
    host.report(success(host.token(host.add("work")[0]), us=1))
    host.ask(SetPaused("q", True))
    ids = host.add("work", "work", "work")
    host.ask(SetPaused("q", False))
    assert host.dispatched() == {"w1": ids}
    assert host.tick(SetFull("the disk is full", hold=True)).recalls == ["w1"]
    host.recalled(host.token(ids[0]), host.token(ids[2]))
    host.complete(ids[0])
    assert host.counts() == {"waiting": 2, "completed": 2}
    assert host.tick(SetFull("the disk is full")).dispatches
    assert host.counts() == {"active": 2, "completed": 2}


def test_ids_in_other_scripts_are_kept(empty: Host) -> None:
    empty.add(new(id="größe-日本"))
    assert empty.job("größe-日本").id == "größe-日本"
