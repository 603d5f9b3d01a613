"""What is kept of jobs that have ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conveyor_actors.engine.memory import QueueSettings, Settings
from conveyor_actors.model import KeepRule, RunOptions
from conveyor_actors.store.tables import GONE
from conveyor_actors.wire import AddJobs, GetHistory, GetJobs, History, Jobs, ListJobs, Page, Registered, WaitJobs

from .harness import Host, failure, new, settings, success

KEPT_MS = 60_000
AT_ONCE = RunOptions(remove_on_complete=KeepRule(0), remove_on_fail=KeepRule(0))


def ended(host: Host) -> list[str]:
    page = host.ask(ListJobs("q", [4, 5], None, 1_000))
    assert isinstance(page, Page)
    return [job.id for job in page.jobs]


def run(host: Host, *jobs: object, outcome: Callable[[int], object] = success) -> list[str]:
    """Adds jobs and ends them one by one."""
    ids = host.add(*jobs)  # type: ignore[arg-type]
    for id in ids:
        host.report(outcome(host.token(id)))  # type: ignore[arg-type]
    return ids


def test_everything_is_kept_where_nothing_is_said(host: Host) -> None:
    ids = run(host, *["work"] * 5)
    assert ended(host) == ids
    assert host.counts() == {"completed": 5}


def test_false_keeps_all_whatever_the_queue_says(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(queues={"q": QueueSettings(remove_on_complete=KeepRule(0))}))
    host.pool("work")
    host.worker()
    kept, removed = run(host, new(options=RunOptions(remove_on_complete=KeepRule())), "work")
    assert ended(host) == [kept]
    assert host.history_of(removed)[-1] == "removed"


@pytest.mark.parametrize("outcome", [success, failure])
def test_true_removes_at_once_from_listings_and_counts(host: Host, outcome: Callable[[int], object]) -> None:
    (id,) = run(host, new(options=AT_ONCE), outcome=outcome)
    assert ended(host) == []
    assert host.counts() == {}
    assert host.ask(GetJobs([("q", id)])) == Jobs([None])
    assert host.ask(GetHistory(("q", id))) == History(None)
    assert host.engine.memory.totals.removed == 1


def test_n_keeps_the_newest_n(host: Host) -> None:
    ids = run(host, *[new(options=RunOptions(remove_on_complete=KeepRule(2)))] * 5)
    assert ended(host) == ids[3:]
    assert [kind for kind, _ in host.events].count("removed") == 3


def test_completed_and_failed_are_kept_apart(host: Host) -> None:
    options = RunOptions(remove_on_complete=KeepRule(1), remove_on_fail=KeepRule(2))
    good = run(host, *[new(options=options)] * 3)
    bad = run(host, *[new(options=options)] * 3, outcome=failure)
    assert ended(host) == [good[2], *bad[1:]]


def test_keeping_n_trims_also_those_that_said_nothing(host: Host) -> None:
    run(host, *["work"] * 4)
    (last,) = run(host, new(options=RunOptions(remove_on_complete=KeepRule(1))))
    assert ended(host) == [last]


def test_a_great_many_are_trimmed_bit_by_bit(host: Host) -> None:
    run(host, *["work"] * 250)
    one = new(options=RunOptions(remove_on_complete=KeepRule(1)))
    run(host, one)
    assert host.counts() == {"completed": 151}
    run(host, one, one)
    assert host.counts() == {"completed": 1}


def test_a_removed_job_still_answers_those_who_wait_for_a_minute(host: Host) -> None:
    (id,) = run(host, new(options=AT_ONCE), outcome=lambda token: success(token, b"\x05" * 1_000))
    host.later(KEPT_MS)
    answer = host.ask(WaitJobs([("q", id)]))
    assert isinstance(answer, Registered)
    assert [(job.id, job.result, job.removed) for job in answer.ended] == [(id, b"\x05" * 1_000, True)]
    host.later(1)
    assert host.ask(WaitJobs([("q", id)])) == Registered([], [("q", id)])


def test_after_that_minute_nothing_of_it_is_left(host: Host) -> None:
    options = RunOptions(attempts=2, remove_on_complete=KeepRule(0))
    (id,) = host.add(new(payload=bytes(1_000), options=options, id="mine"))
    host.fail(id)
    host.report(success(host.token(id), bytes(1_000)))
    assert {name: host.rows(name) for name in ("jobs", "payloads", "results", "history", "names")} == {
        "jobs": 1, "payloads": 1, "results": 1, "history": 1, "names": 1,
    }  # fmt: skip
    host.later(KEPT_MS + 1)
    left = {
        name: host.rows(name) for name in ("jobs", "payloads", "results", "history", "names", "by_state", "waiting")
    }
    assert not any(left.values()), left


def test_forgetting_one_job_leaves_the_history_of_the_next(host: Host) -> None:
    gone, kept = host.add(new(options=RunOptions(2, remove_on_fail=KeepRule(0))), new(options=RunOptions(2)))
    for id in (gone, gone, kept, kept):
        host.fail(id)
    host.later(KEPT_MS + 1)
    assert host.rows("history") == 2
    history = host.ask(GetHistory(("q", kept)))
    assert isinstance(history, History)
    assert len(history.entries or ()) == 2


def test_the_id_of_a_removed_job_can_be_used_again_at_once(host: Host) -> None:
    host.add(new(id="mine", payload=b"\x01", options=AT_ONCE))
    host.complete("mine")
    added = host.ask(AddJobs("q", [new(id="mine", payload=b"\x02")]))
    assert added.listed[0].created  # type: ignore[union-attr, index]
    assert host.job("mine").payload == b"\x02"
    host.later(KEPT_MS + 1)  # the first is forgotten now, and the name stays with the second
    assert host.job("mine").payload == b"\x02"
    host.complete("mine")
    assert host.job("mine").state == 4


def test_the_queues_settings_hold_where_the_job_says_nothing(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(queues={"q": QueueSettings(remove_on_complete=KeepRule(1), remove_on_fail=KeepRule(0))}))
    host.pool("work")
    host.worker()
    good = run(host, "work", "work")
    run(host, "work", outcome=failure)
    assert ended(host) == good[1:]


def test_jobs_with_a_long_history_are_forgotten_a_few_in_a_tick(host: Host) -> None:
    options = RunOptions(attempts=400, remove_on_fail=KeepRule(0))
    ids = host.add(*[new(options=options)] * 4)
    for id in ids:
        for _ in range(400):
            host.fail(id)
    host.later(KEPT_MS + 1)
    assert host.rows("jobs") == 2
    assert host.rows("history") == 800
    assert host.engine.wake_ms is not None
    assert host.engine.wake_ms <= host.now_ms
    host.tick()
    assert host.rows("history") == 0


def test_the_newest_are_kept_also_when_the_clock_was_set_back(host: Host) -> None:
    keep = RunOptions(remove_on_complete=KeepRule(3))
    older = host.add(*[new(options=keep)] * 3)
    for id in older:
        host.complete(id)
    host.now_ms -= 3_600_000
    newer = host.add(*[new(options=keep)] * 3)
    for index, id in enumerate(newer):
        host.complete(id)
        assert not host.record(id).flags & GONE
        assert host.record(older[index]).flags & GONE
        if index == 0:
            host.start()  # the next supervisor knows it too
            host.pool("work")
            host.worker()
