"""A delayed job starts when it is due: not earlier, and not much later."""

from __future__ import annotations

from conveyor_actors.engine.inputs import Later
from conveyor_actors.wire import AddJobs, SetPaused

from .harness import BEGIN_MS, Host, new


def test_a_delayed_job_is_not_handed_out_before_it_is_due(host: Host) -> None:
    (id,) = host.add(new(delay_ms=1_000))
    assert host.counts() == {"delayed": 1}
    assert host.engine.wake_ms == BEGIN_MS + 1_001
    host.later(1_000)  # it may have been added at the end of its millisecond, and this one may have just begun
    assert host.dispatched() == {}
    host.later(1)
    assert host.dispatched() == {"w1": [id]}
    assert host.history_of(id) == ["delayed", "waiting", "active"]


def test_a_job_can_be_due_at_a_time(host: Host) -> None:
    (id,) = host.add(new(due_ms=BEGIN_MS + 5))
    assert host.job(id).due_ms == BEGIN_MS + 5
    host.later(6)
    assert host.dispatched() == {"w1": [id]}


def test_what_is_due_already_waits_at_once(host: Host) -> None:
    host.add(new(due_ms=BEGIN_MS - 10), new(due_ms=BEGIN_MS), new(delay_ms=0))
    assert host.counts() == {"active": 1, "waiting": 2}
    assert host.engine.wake_ms is not None  # the client's replies are kept for a day
    assert host.engine.wake_ms > BEGIN_MS + 3_600_000


def test_equal_due_times_are_first_in_first_out(empty: Host) -> None:
    ids = empty.add(*[new(due_ms=BEGIN_MS + 50)] * 3)
    ids += empty.add(new(delay_ms=50))
    empty.later(51)
    assert empty.waiting() == ids


def test_a_short_delay_added_after_a_long_one_fires_on_time(host: Host) -> None:
    host.add(new(delay_ms=3_600_000))
    (short,) = host.add(new(delay_ms=10))
    assert host.engine.wake_ms == BEGIN_MS + 11
    host.later(11)
    assert host.dispatched() == {"w1": [short]}


def test_a_plain_job_starts_at_once_while_a_far_delayed_one_waits(host: Host) -> None:
    host.add(new(delay_ms=3_600_000))
    (plain,) = host.add("work")
    assert host.dispatched() == {"w1": [plain]}


def test_a_promoted_job_goes_behind_those_that_wait(empty: Host) -> None:
    (delayed,) = empty.add(new(delay_ms=10))
    (plain,) = empty.add("work")
    empty.later(11)
    empty.pool("work")
    empty.worker()
    assert empty.dispatched() == {"w1": [plain]}
    empty.complete(plain)
    assert empty.dispatched() == {"w1": [delayed]}


def test_delayed_jobs_are_promoted_while_their_queue_is_paused(host: Host) -> None:
    host.ask(SetPaused("q", True))
    host.add(new(delay_ms=10))
    host.later(11)
    assert host.counts() == {"waiting": 1}


def test_many_jobs_due_at_once_take_several_ticks_and_none_is_forgotten(empty: Host) -> None:
    empty.add(*[new(delay_ms=10)] * 1_200)
    empty.later(11)
    assert empty.counts() == {"waiting": 500, "delayed": 700}
    assert empty.engine.wake_ms == BEGIN_MS + 11
    empty.tick()
    empty.tick()
    assert empty.counts() == {"waiting": 1_200}


def test_what_comes_in_later_in_a_tick_is_delayed_from_then(host: Host) -> None:
    early, late = host.says(AddJobs("q", [new(delay_ms=20)])), host.says(AddJobs("q", [new(delay_ms=20)]))
    after = host.moment._replace(wall_ms=BEGIN_MS + 21, mono_us=21_000)
    host.tick(early, Later(after), late)
    assert host.dispatched() == {"w1": ["1"]}
    job = host.job("2")
    assert (job.state, job.created_ms, job.due_ms) == (2, BEGIN_MS + 21, BEGIN_MS + 41)
    assert host.engine.wake_ms == BEGIN_MS + 42


def test_a_clock_that_steps_back_starts_nothing_early(host: Host) -> None:
    (id,) = host.add(new(delay_ms=100))
    host.later(-3_600_000)
    assert host.dispatched() == {}
    host.later(3_600_101)
    assert host.dispatched() == {"w1": [id]}
