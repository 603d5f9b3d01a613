"""The way down: what each request and the passing of time lead to."""

from __future__ import annotations

from conveyor_actors.supervisor.shutdown import ABORT_SECONDS, KILL_SECONDS, Phase, Shutdown


def test_it_asks_waits_asks_louder_and_kills() -> None:
    shutdown = Shutdown(30)
    assert not shutdown.finished(busy=False)
    assert shutdown.request(100) is Phase.DRAINING
    assert shutdown.advance(129, busy=True) is None
    assert shutdown.advance(130, busy=True) is Phase.ABORTING
    assert shutdown.advance(130 + ABORT_SECONDS, busy=True) is Phase.KILLING
    assert shutdown.killed
    assert shutdown.finished(busy=False)


def test_with_nothing_running_it_is_over_at_once() -> None:
    shutdown = Shutdown(30)
    shutdown.request(100)
    assert shutdown.finished(busy=False)
    assert not shutdown.killed


def test_a_second_request_hurries() -> None:
    shutdown = Shutdown(30)
    shutdown.request(100)
    assert shutdown.request(101) is Phase.ABORTING
    assert shutdown.request(102) is Phase.KILLING
    assert shutdown.request(103) is Phase.KILLING


def test_a_second_request_with_a_time_says_how_long_draining_may_take() -> None:
    shutdown = Shutdown(30)
    shutdown.request(100)
    assert shutdown.request(101, 3600) is Phase.DRAINING
    assert shutdown.advance(130, busy=True) is None
    assert shutdown.wakes_in(101) == 3600
    assert shutdown.request(102, -1) is Phase.DRAINING
    assert shutdown.wakes_in(102) is None
    assert shutdown.advance(1_000_000, busy=True) is None


def test_jobs_that_are_asked_to_end_are_given_no_more_time() -> None:
    shutdown = Shutdown(30)
    shutdown.request(100)
    shutdown.request(101)
    assert shutdown.request(102, 3600) is Phase.KILLING


def test_what_cannot_be_killed_does_not_keep_the_supervisor_for_ever() -> None:
    shutdown = Shutdown(30)
    for now in (100, 101, 102):
        shutdown.request(now)
    assert shutdown.wakes_in(102) == KILL_SECONDS
    assert shutdown.advance(102 + KILL_SECONDS - 1, busy=True) is None
    assert not shutdown.finished(busy=True)
    assert shutdown.advance(102 + KILL_SECONDS, busy=True) is None
    assert shutdown.given_up and shutdown.finished(busy=True)
