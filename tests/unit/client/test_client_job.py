"""A job: what is known of it, and waiting for its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from beside import Clock, in_thread, joined
from fake_supervisor import AT_MS, DEADLINE_S, FakeSupervisor

from conveyor_actors import (
    Attempt,
    Conveyor,
    Failure,
    InvalidOption,
    Job,
    JobCancelled,
    JobFailed,
    JobRemoved,
    Queue,
    WaitTimeout,
    as_completed,
    wire,
)
from conveyor_actors.model import ACTIVE

AT = datetime.fromtimestamp(AT_MS / 1000, UTC)


@pytest.fixture
def images(conveyor: Conveyor) -> Queue:
    return conveyor.queue("images")


def failure(kind: str, message: str) -> wire.FailureRecord:
    return wire.FailureRecord(kind, message, "Traceback (most recent call last): ...", AT_MS)


def test_an_added_job_is_known_without_asking(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", {"path": "a.jpg", "size": (1, 2)}, priority=3, attempts=5, metadata={"by": "me"})
    assert (job.id, job.ref, job.queue, job.name, job.state) == ("1", "images/1", "images", "resize", "waiting")
    assert job.data == {"path": "a.jpg", "size": [1, 2]} and job.data is job.data
    assert (job.priority, job.attempts, job.attempts_made, job.stalled_count) == (3, 5, 0, 0)
    assert job.metadata == {"by": "me"} and job.created is True and job.created_at == AT
    nothing_yet = (job.returnvalue, job.failure, job.progress, job.parent, job.delay_until, job.processed_at)
    assert nothing_yet == (None,) * 6
    assert (job.finished_at, job.worker, job.stale, job.webhook_state) == (None, None, False, None)
    assert [type(request.body) for request in fake.received] == [wire.Hello, wire.AddJobs]


def test_a_delayed_job_knows_until_when(images: Queue) -> None:
    by_delay, by_time = images.add("resize", delay="5m"), images.add("resize", at=AT + timedelta(hours=1))
    assert (by_delay.state, by_delay.delay_until) == ("delayed", AT + timedelta(minutes=5))
    assert (by_time.state, by_time.delay_until) == ("delayed", AT + timedelta(hours=1))
    assert images.add("resize", delay=0).state == "waiting"


def test_the_same_id_again_is_the_existing_job(fake: FakeSupervisor, images: Queue) -> None:
    first = images.add("resize", "first", id="cover")
    again = images.add("crop", "second", id="cover")
    assert (first.created, again.created) == (True, False)
    assert first == again and hash(first) == hash(again) and first != images.add("resize") and first != "images/cover"
    assert fake.count(wire.GetJobs) == 0
    assert (again.name, again.data) == ("resize", "first")
    assert fake.count(wire.GetJobs) == 1


def test_repr_says_which_and_how_without_asking(fake: FakeSupervisor, images: Queue) -> None:
    assert repr(images.add("resize", id="a")) == "<Job images/a resize waiting>"
    assert repr(images.add("resize", id="a")) == "<Job images/a>"
    assert fake.count(wire.GetJobs) == 0


def test_refresh_brings_it_up_to_date(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    fake.end([("images", "1")], {"thumb": "t"})
    assert job.state == "waiting"
    assert job.refresh() is job
    assert (job.state, job.returnvalue, job.worker) == ("completed", {"thumb": "t"}, "w-1")
    assert job.finished_at == datetime.fromtimestamp((AT_MS + 1) / 1000, UTC)


def test_refresh_of_a_removed_job_says_so(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    fake.store.jobs.clear()
    with pytest.raises(JobRemoved, match="images/1"):
        job.refresh()
    with pytest.raises(JobRemoved, match="images/1"):
        job.history()
    for wait in (job.wait, job.result):
        with pytest.raises(JobRemoved, match="images/1"):
            wait()


def test_result_of_what_has_ended_asks_once_and_then_knows(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    fake.end([("images", "1")], None)
    assert job.result() is None
    assert (job.wait(), job.result(), job.state) == ("completed", None, "completed")
    assert fake.count(wire.WaitJobs) == 1


def test_a_failed_job_raises_its_failure(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    fake.end([("images", "1")], failure=failure("error", "ValueError: too wide"))
    with pytest.raises(JobFailed) as caught:
        job.result()
    assert str(caught.value) == "images/1 resize failed: error: ValueError: too wide"
    assert caught.value.failure == job.failure
    assert job.failure == Failure("error", "ValueError: too wide", "Traceback (most recent call last): ...", AT)
    assert job.wait() == "failed"


def test_a_cancelled_job_raises_that(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    fake.end([("images", "1")], failure=failure("cancelled", "not needed"))
    with pytest.raises(JobCancelled, match="images/1 resize was cancelled: not needed"):
        job.result()


def test_a_wait_that_takes_too_long_names_the_job_and_the_time(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    for wait in (job.wait, job.result):
        with pytest.raises(WaitTimeout, match="images/1 had not ended after 20ms"):
            wait("20ms")
    with pytest.raises(InvalidOption):
        job.result("soon")
    fake.end([("images", "1")], 5)
    assert job.result("20s") == 5


@pytest.mark.parametrize("others", [False, True])
def test_what_has_ended_before_needs_no_time(
    fake: FakeSupervisor, conveyor: Conveyor, images: Queue, others: bool
) -> None:
    ended, failed, removed, running = images.add_many([("resize", number) for number in range(4)])
    waiting = in_thread(running.result) if others else None
    fake.end([("images", ended.id)], {"thumb": "t"})
    fake.end([("images", failed.id)], failure=failure("error", "E"))
    del fake.store.jobs[3]
    assert ended.wait(0) == "completed" and images.get(ended.id).result(timeout=0) == {"thumb": "t"}  # type: ignore[union-attr]
    with pytest.raises(JobFailed):
        failed.result(timeout=0)
    with pytest.raises(JobRemoved):
        removed.result(timeout=0)
    for _ in range(2):
        with pytest.raises(WaitTimeout):
            running.result(timeout=0)
    assert list(images.as_completed([ended, failed], timeout=0)) == [ended, failed]
    fake.end([("images", running.id)], 1)
    assert waiting is None or joined(waiting) == 1


def test_whether_a_job_has_ended_is_answered_in_the_connections_own_time(
    start: Callable[..., FakeSupervisor], connect: Callable[..., Conveyor]
) -> None:
    fake = start(ignored={wire.WaitJobs})
    job = connect(timeout="1s").queue("images").add("resize", 1)
    started = time.monotonic()
    with pytest.raises(WaitTimeout, match="after 0s"):
        job.result(timeout=0)
    assert 1 <= time.monotonic() - started < DEADLINE_S
    assert fake.count(wire.WaitJobs) == 1


def test_a_job_that_is_removed_while_somebody_waits_is_told_as_removed(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    gone = fake.store.jobs[1]
    fake.store.jobs[1] = msgspec.structs.replace(gone, removed=True)

    def push() -> None:
        for route in fake._waits[("images", "1")]:
            fake._send(route, 0, wire.Ended([fake.store.jobs[1]]))

    def later() -> None:
        fake.await_request(wire.WaitJobs)
        fake.do(push)

    thread = threading.Thread(target=later)
    thread.start()
    with pytest.raises(JobRemoved):
        job.result("20s")
    thread.join(DEADLINE_S)


def test_history_lists_the_attempts(images: Queue) -> None:
    assert images.add("resize").history() == [Attempt("failed", AT, "w-1", "ValueError: no", "Traceback")]


# -- many ---------------------------------------------------------------------------------------------------


def test_jobs_are_yielded_as_they_end(fake: FakeSupervisor, images: Queue) -> None:
    jobs = images.add_many([("resize", number) for number in range(3)])
    fake.end([("images", "2")], "second")
    done = images.as_completed(jobs, "20s")
    assert next(done) is jobs[1] and jobs[1].returnvalue == "second"
    fake.end([("images", "3")], "third")
    assert next(done) is jobs[2]
    fake.end([("images", "1")], failure=failure("error", "E"))
    assert next(done) is jobs[0] and jobs[0].state == "failed"
    assert next(done, None) is None


def test_twenty_thousand_waits_share_a_connection(fake: FakeSupervisor, conveyor: Conveyor, images: Queue) -> None:
    jobs = list(images.add_all((("resize", number) for number in range(20_000)), chunk=5000))
    fake.end([("images", str(number)) for number in range(1, 5001)], 1)
    done = conveyor.as_completed(jobs, "60s")
    first = [next(done) for _ in range(5000)]
    assert {job.id for job in first} == {str(number) for number in range(1, 5001)}
    for start in range(5001, 20_001, 5000):
        fake.end([("images", str(number)) for number in range(start, start + 5000)], 2)
    rest = list(done)
    assert len(rest) == 15_000 and {job.result() for job in rest} == {2}
    assert fake.count(wire.WaitJobs) == 2


def test_as_completed_across_a_restart(start: Callable[..., FakeSupervisor], connect: Callable[..., Conveyor]) -> None:
    first = start()
    images = connect().queue("images")
    jobs = images.add_many([("resize", number) for number in range(100)])
    first.end([("images", "1")], 1)
    done = images.as_completed(jobs, "20s")
    assert next(done).id == "1"
    first.kill()
    second = start(store=first.store)
    second.end([("images", str(number)) for number in range(2, 101)], 2)
    assert len(list(done)) == 99


def test_as_completed_has_a_time_limit_and_can_be_left(fake: FakeSupervisor, conveyor: Conveyor, images: Queue) -> None:
    jobs = images.add_many([("resize", number) for number in range(3)])
    fake.end([("images", "1")], 1)
    done = images.as_completed(jobs, "50ms")
    next(done)
    with pytest.raises(WaitTimeout, match="2 of 3 jobs had not ended after 50ms"):
        next(done)
    left = images.as_completed(jobs)
    next(left)
    del left
    conveyor.ping()
    assert conveyor._channel._session._watched == {}


def test_as_completed_gives_what_lies_in_the_socket_when_its_time_is_over(
    fake: FakeSupervisor, conveyor: Conveyor, images: Queue, clock: Clock
) -> None:
    jobs = images.add_many([("resize", number) for number in range(4)])
    fake.end([("images", "1")], 1)
    done = images.as_completed(jobs, "10s")
    assert next(done) is jobs[0]
    clock.pass_an_hour()
    link = conveyor._channel._link
    for number in ("2", "3"):
        fake.end([("images", number)], 1)
        assert link is not None and link.socket.poll(DEADLINE_S * 1000)
        assert next(done).id == number
    with pytest.raises(WaitTimeout, match="1 of 4 jobs had not ended after 10s"):
        next(done)


def test_as_completed_raises_for_a_removed_job_and_knows_only_jobs(fake: FakeSupervisor, images: Queue) -> None:
    jobs = images.add_many([("resize", 1), ("resize", 2)])
    del fake.store.jobs[1]
    with pytest.raises(JobRemoved, match="images/1"):
        list(images.as_completed(jobs))
    with pytest.raises(InvalidOption, match="jobs"):
        images.as_completed(["images/1"])  # type: ignore[list-item]
    assert list(images.as_completed([])) == []
    fake.end([("images", "2")], 1)
    assert len(list(images.as_completed([jobs[1], jobs[1]]))) == 1


def test_a_read_job_has_all_its_attributes(fake: FakeSupervisor, images: Queue) -> None:
    images.add("resize", [1], id="cover")
    record = fake.store.jobs[1]
    fake.store.jobs[1] = msgspec.structs.replace(
        record, state=ACTIVE, attempts_made=2, stalled_count=1, processed_ms=AT_MS, worker="images-2"
    )
    job = images.get("cover")
    assert isinstance(job, Job) and job.created is False
    assert (job.state, job.attempts_made, job.stalled_count, job.worker) == ("active", 2, 1, "images-2")
    assert (job.processed_at, job.data) == (AT, [1])


def test_waiting_never_asks_again_and_again(fake: FakeSupervisor, images: Queue) -> None:
    job = images.add("resize", 1)
    started = time.monotonic()
    with pytest.raises(WaitTimeout):
        job.result("300ms")
    assert time.monotonic() - started >= 0.3
    assert fake.count(wire.WaitJobs) == 1 and fake.count(wire.Ping) == 0


def test_as_completed_takes_jobs_of_one_conveyor(start: Callable[..., Any], connect: Callable[..., Any]) -> None:
    start()
    first, second = connect(), connect()
    jobs = [each.queue("images").add("resize", 1) for each in (first, second)]
    with pytest.raises(InvalidOption, match="use jobs of one Conveyor"):
        as_completed(jobs)
    assert list(as_completed([])) == []
