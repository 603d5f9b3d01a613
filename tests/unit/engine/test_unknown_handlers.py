"""A job that no pool has a handler for: refused, or left waiting where one may still come."""

from __future__ import annotations

from collections.abc import Callable

from conveyor_actors.engine.inputs import PoolDown
from conveyor_actors.engine.memory import Settings
from conveyor_actors.model import KeepRule, RunOptions

from .harness import Host, entry, new, settings


def test_it_is_refused_with_the_names_there_are(host: Host) -> None:
    (id,) = host.add("wrok")
    job = host.job(id)
    assert job.failure is not None
    assert (job.state, job.failure.kind, job.attempts_made) == (5, "unknown-handler", 0)
    assert "'wrok'" in job.failure.message
    assert job.failure.message.endswith("there are: other, work")
    assert host.history_of(id) == ["waiting", "failed"]
    assert host.counts() == {"failed": 1}


def test_only_handlers_of_its_queue_are_named(empty: Host) -> None:
    empty.pool("anywhere", entry("elsewhere", "other-queue"), entry("here", "q"))
    empty.worker()
    job = empty.job(empty.add("elsewhere")[0])
    assert job.failure is not None
    assert job.failure.message.endswith("there are: anywhere, here")


def test_it_does_not_hold_up_those_behind_it(host: Host) -> None:
    _, good = host.add("wrok", "work")
    assert host.dispatched() == {"w1": [good]}


def test_it_is_removed_as_its_options_say(host: Host) -> None:
    (id,) = host.add(new("wrok", options=RunOptions(remove_on_fail=KeepRule(0))))
    assert host.history_of(id) == ["waiting", "failed", "removed"]


def test_it_waits_while_a_pool_that_serves_its_queue_is_not_ready(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"one": ("q",), "two": ("q",)}))
    host.pool("work", name="one")
    host.worker("one-1", pool="one")
    (id,) = host.add("special")
    assert host.job(id).state == 0
    host.pool("special", name="two")
    host.worker("two-1", pool="two")
    assert host.job(id).state == 3


def test_it_is_refused_when_the_last_pool_has_told_its_handlers(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"one": ("q",), "two": ("q",)}))
    host.pool("work", name="one")
    host.worker("one-1", pool="one")
    (id,) = host.add("special")
    host.pool("more", name="two")
    job = host.job(id)
    assert job.failure is not None
    assert job.failure.message.endswith("there are: more, work")


def test_it_waits_while_a_pool_is_down(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"one": ("q",), "two": ("q",)}))
    host.pool("work", name="one")
    host.pool("special", name="two")
    host.worker("one-1", pool="one")
    host.tick(PoolDown("two"))
    (id,) = host.add("nobody")
    assert host.job(id).state == 0


def test_a_job_of_a_queue_that_no_pool_serves_waits(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"one": ("a",)}))
    host.pool("work", name="one")
    host.worker("one-1", pool="one")
    (id,) = host.add("work", queue="unserved")
    assert host.job(id, "unserved").state == 0


def test_another_pools_jobs_are_stepped_over(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"one": ("q",), "two": ("q",)}))
    host.pool("work", name="one")
    host.pool("special", name="two")
    host.worker("one-1", pool="one")
    special, plain = host.add("special", "work")
    assert host.dispatched() == {"one-1": [plain]}
    host.worker("two-1", pool="two")
    assert host.dispatched() == {"two-1": [special]}
