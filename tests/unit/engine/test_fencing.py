"""A result counts only if it carries the job's current token and comes from who holds it."""

from __future__ import annotations

from conveyor_actors.engine.inputs import Outcomes
from conveyor_actors.model import RunOptions

from .harness import Host, died, failure, new, success


def test_a_stale_token_changes_nothing(host: Host) -> None:
    (id,) = host.add("work")
    stale = host.token(id)
    host.kill(id)
    host.worker("w2")
    before = host.dump()
    host.report(success(stale), worker="w2")
    host.report(failure(stale), worker="w1")
    assert host.dump() == before
    assert host.job(id).state == 3
    assert host.engine.memory.totals.outdated_results == 2


def test_a_result_that_comes_twice_is_recorded_once(host: Host) -> None:
    (id,) = host.add("work")
    outcome = success(host.token(id), b"\x01")
    host.report(outcome, outcome)
    before = host.dump()
    host.report(outcome)
    assert host.dump() == before
    assert host.events.count(("completed", id)) == 1
    assert host.engine.memory.totals.completed == 1


def test_a_late_failure_does_not_undo_a_success(host: Host) -> None:
    (id,) = host.add("work")
    token = host.token(id)
    host.report(success(token, b"\x01"))
    host.report(failure(token))
    assert (host.job(id).state, host.job(id).result) == (4, b"\x01")


def test_a_worker_cannot_end_the_job_of_another(host: Host) -> None:
    (id,) = host.add("work")
    host.worker("w2")
    host.report(success(host.token(id)), worker="w2")
    assert host.job(id).state == 3


def test_a_token_of_an_earlier_supervisor_is_never_given_again(host: Host) -> None:
    (id,) = host.add("work")
    stale = host.token(id)
    host.start()
    host.pool("work")
    host.worker("w2")
    assert host.token(id) > stale
    host.report(success(stale), worker="w2")
    assert host.job(id).state == 3


def test_the_words_of_a_worker_that_died_are_dropped(host: Host) -> None:
    (id,) = host.add("work")
    token = host.token(id)
    host.tick(died("w1", token), Outcomes("w1", [success(token)]))
    assert host.job(id).state == 0
    assert host.engine.memory.totals.outdated_results == 1


def test_a_token_that_was_taken_back_is_stale(host: Host) -> None:
    host.complete(host.add("work")[0])  # now the handler is known to be quick
    running, behind = host.add("work", "work")
    taken = host.token(behind)
    host.recalled(host.token(running), taken)
    host.worker("w2")
    host.report(success(taken), worker="w1")
    assert host.job(behind).state != 4


def test_an_attempt_that_failed_cannot_complete_by_its_old_token(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(attempts=3)))
    first = host.token(id)
    host.fail(id)
    assert host.token(id) > first
    host.report(success(first))
    assert (host.job(id).state, host.job(id).attempts_made) == (3, 1)
