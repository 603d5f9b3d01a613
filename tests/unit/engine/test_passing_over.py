"""Two pools on one queue: each finds its own jobs, however many of the other's, or of nobody's, lie before them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conveyor_actors.engine import dispatching
from conveyor_actors.engine.memory import Settings
from conveyor_actors.store.tables import read_job

from .harness import Host, new, settings

MANY = 1_200


@pytest.fixture
def two(make_host: Callable[[Settings], Host]) -> Host:
    """The pool `one` runs `work` and has a worker; the pool `two` runs `special` and has none yet."""
    host = make_host(settings({"one": ("q",), "two": ("q",)}))
    host.pool("work", name="one")
    host.pool("special", name="two")
    host.worker("one-1", pool="one")
    return host


def go_on(host: Host) -> int:
    """Ticks as long as the engine wants to be woken at once; gives how often that was."""
    for ticks in range(100):
        if host.engine.wake_us is None or host.engine.wake_us > host.now_us:
            return ticks
        host.tick()
    raise AssertionError("the engine never comes to an end")


def test_a_job_behind_very_many_of_another_pool_is_found(two: Host) -> None:
    *_, mine = two.add(*["special"] * MANY, "work")
    assert go_on(two) > 1
    assert two.job(mine).state == 3


def test_what_was_passed_over_once_is_not_looked_at_again(two: Host) -> None:
    two.add(*["special"] * MANY)
    go_on(two)
    for _ in range(3):
        (mine,) = two.add("work")
        assert two.dispatched() == {"one-1": [mine]}
        two.complete(mine, "one-1")
        assert go_on(two) == 0


def test_a_job_that_is_put_before_what_was_passed_over_is_found(two: Host) -> None:
    two.add(*["special"] * 10)
    (urgent,) = two.add(new("work", priority=-1))
    assert two.dispatched() == {"one-1": [urgent]}


def test_a_job_that_returns_to_its_place_is_found(two: Host) -> None:
    first, _, last = two.add("work", "special", "special")
    assert two.dispatched() == {"one-1": [first]}
    two.kill(first, worker="one-1", pool="one")
    two.worker("one-2", pool="one")
    assert two.dispatched() == {"one-2": [first]}
    assert two.job(last).state == 0


def test_a_job_of_another_pool_that_is_put_there_is_no_reason_to_look(two: Host) -> None:
    two.add(*["special"] * 10)
    passed = two.engine.memory.queues["q"].passed_over["one"]
    before = passed.upto
    two.add(new("special", priority=-1))
    assert (passed.upto, passed.taken_since) == (before, [])


def test_a_job_of_nobody_that_is_put_there_is_refused(two: Host) -> None:
    two.add(*["special"] * 10)
    (wrong,) = two.add(new("wrok", priority=-1))
    assert two.job(wrong).state == 5


def test_handlers_that_come_later_find_what_was_passed_over(two: Host) -> None:
    first, *_ = two.add(*["special"] * 10)
    two.pool("work", "special", name="one")
    assert two.dispatched() == {"one-1": [first]}


def test_very_many_jobs_of_nobody_are_refused_over_several_ticks(two: Host) -> None:
    two.add(*["wrok"] * MANY)
    refused = two.counts()["failed"]
    assert 0 < refused < MANY
    assert go_on(two) > 1
    assert two.counts() == {"failed": MANY}


def test_jobs_that_are_put_before_it_are_found_in_order_and_nothing_else_is_looked_at(
    two: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.add(*["special"] * MANY)
    go_on(two)
    (running,) = two.add("work")
    second, first, third = two.add(new("work", priority=-1), new("work", priority=-2), "work")
    looked_at = []
    monkeypatch.setattr(dispatching, "read_job", lambda sealed: looked_at.append(sealed) or read_job(sealed))
    two.complete(running, "one-1")
    assert two.dispatched() == {"one-1": [first, second, third]}
    assert len(looked_at) < 10
    assert two.engine.memory.queues["q"].passed_over["one"].taken_since == []


def test_a_place_that_was_taken_and_is_empty_again_is_no_hindrance(two: Host) -> None:
    two.add(*["special"] * 10)
    (running,) = two.add("work")
    two.add(new("work", priority=-1))
    passed = two.engine.memory.queues["q"].passed_over["one"]
    (place,) = passed.taken_since
    passed.taken_since.insert(0, place[:-1])
    (last,) = two.add("work")
    two.complete(running, "one-1")
    assert len(two.dispatched()["one-1"]) == 2 and last in two.dispatched()["one-1"]
