"""Taking back what a worker has not begun: no job waits behind a slow one while a worker is free."""

from __future__ import annotations

from collections.abc import Callable

from conveyor_actors.engine.credits import QUIET_US_MAX
from conveyor_actors.engine.inputs import Drain, Moment
from conveyor_actors.engine.memory import Settings

from .harness import Host, settings, success

QUIET_MS = QUIET_US_MAX // 1000


def three_at_one_worker(host: Host) -> list[str]:
    host.complete(host.add("work")[0])
    ids = host.add("work", "work", "work")
    assert host.dispatched() == {"w1": ids}
    return ids


def test_a_handler_nobody_has_measured_gets_one_job_at_a_time(host: Host) -> None:
    first, *_ = host.add("work", "work", "work")
    assert host.dispatched() == {"w1": [first]}


def test_quick_jobs_are_handed_out_several_at_once(host: Host) -> None:
    three_at_one_worker(host)
    assert host.rows("leases") == 1


def test_jobs_are_shared_between_workers_that_have_room(host: Host) -> None:
    host.worker("w2")
    host.complete(host.add("work")[0])
    host.add("work", "work", "work", "work")
    assert {worker: len(ids) for worker, ids in host.dispatched().items()} == {"w1": 2, "w2": 2}


def test_a_worker_that_is_silent_for_long_is_asked_for_what_it_has_not_begun(host: Host) -> None:
    running, *behind = three_at_one_worker(host)
    assert host.engine.wake_us == host.now_us + QUIET_US_MAX
    assert host.later(QUIET_MS - 1).recalls == []
    assert host.later(1).recalls == ["w1"]
    assert host.engine.wake_us is None
    host.worker("w2")
    host.recalled(host.token(running), host.token(behind[-1]))
    assert host.dispatched() == {"w2": behind}
    assert host.job(running).state == 3


def test_the_engine_wakes_for_what_it_has_just_handed_out(make_host: Callable[[Settings], Host]) -> None:
    """Two pools serve a queue: what the first put behind a slow job must not wait for somebody else's next word."""
    host = make_host(settings({"one": ("q",), "two": ("q",)}))
    host.pool("work", name="one")
    host.pool("work", name="two")
    host.worker("one-1", pool="one")
    host.complete(host.add("work")[0], worker="one-1")
    host.worker("two-1", pool="two")
    slow, behind = host.add("work", "work")
    assert host.dispatched() == {"one-1": [slow, behind]}
    assert host.engine.wake_us == host.now_us + QUIET_US_MAX
    assert host.later(QUIET_MS).recalls == ["one-1"]
    host.recalled(host.token(slow), host.token(behind), worker="one-1")
    assert host.dispatched() == {"two-1": [behind]}


def test_a_report_proves_that_it_goes_on(host: Host) -> None:
    first, *_ = three_at_one_worker(host)
    host.later(QUIET_MS - 1)
    host.complete(first)
    assert host.later(QUIET_MS - 1).recalls == []
    assert host.later(1).recalls == ["w1"]


def test_what_was_claimed_in_the_meantime_stays(host: Host) -> None:
    running, claimed, unclaimed = three_at_one_worker(host)
    host.worker("w2")
    host.recalled(host.token(claimed), host.token(unclaimed))
    assert host.dispatched() == {"w2": [unclaimed]}
    assert (host.job(running).state, host.job(claimed).state) == (3, 3)


def test_what_was_dispatched_after_the_recall_stays(host: Host) -> None:
    first, second, third = three_at_one_worker(host)
    host.recalled(host.token(first), host.token(second))
    assert host.tasks[third][-1].token == host.token(third)
    assert host.job(third).state == 3


def test_outcomes_in_the_box_are_recorded_on_the_way(host: Host) -> None:
    done, running, behind = three_at_one_worker(host)
    host.recalled(host.token(running), host.token(behind), success(host.token(done), b"\x02"))
    assert (host.job(done).state, host.job(done).result) == (4, b"\x02")


def test_taken_back_jobs_are_charged_nothing_and_keep_their_place(host: Host) -> None:
    running, *behind = three_at_one_worker(host)
    later = host.add("other")
    host.recalled(host.token(running), host.token(behind[-1]))
    job = host.job(behind[0])
    assert (job.stalled_count, job.attempts_made, job.worker) == (0, 0, "")
    assert host.waiting() == [*behind, *later]


def test_a_busy_worker_gets_nothing_more_until_it_reports(host: Host) -> None:
    running, *behind = three_at_one_worker(host)
    host.later(QUIET_MS)
    host.recalled(host.token(running), host.token(behind[-1]))
    assert host.dispatched() == {}
    host.complete(running)
    assert host.dispatched() == {"w1": behind}


def test_a_recall_of_a_worker_that_died_meanwhile_changes_nothing(host: Host) -> None:
    running, *behind = three_at_one_worker(host)
    host.kill(running)
    before = host.dump()
    host.recalled(host.token(running), host.token(behind[-1]))
    assert host.dump() == before


def test_draining_hands_out_nothing_and_takes_back_what_was_not_begun(host: Host) -> None:
    running, *behind = three_at_one_worker(host)
    assert host.tick(Drain()).recalls == ["w1"]
    host.recalled(host.token(running), host.token(behind[-1]))
    host.complete(running)
    assert host.dispatched() == {}
    assert host.counts() == {"completed": 2, "waiting": 2}


def test_a_slow_tick_widens_the_window(host: Host) -> None:
    host.complete(host.add("work")[0])
    host.engine.begin(host.store.begin(), Moment(host.now_ms, host.now_us, 0.5, tick_us=1_000_000))
    host.store.abort()
    host.add(*["work"] * 100)
    narrow = len(host.dispatched()["w1"])
    assert narrow < 100
    host.engine.begin(host.store.begin(), Moment(host.now_ms, host.now_us, 0.5, tick_us=1_000_000))
    wide = host.engine.finish()
    host.store.commit()
    assert narrow + sum(len(tasks) for _, tasks in wide.dispatches) == 100
