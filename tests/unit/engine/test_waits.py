"""Waiting for a job: answered at once if it has ended, else told once when it does."""

from __future__ import annotations

from conveyor_actors.engine.inputs import ClientsGone, Outcomes
from conveyor_actors.wire import Registered, WaitJobs

from .harness import Host, new, success


def test_what_has_ended_is_answered_at_once(host: Host) -> None:
    (id,) = host.add("work")
    host.complete(id)
    answer = host.ask(WaitJobs([("q", id)]))
    assert isinstance(answer, Registered)
    assert [(job.id, job.state) for job in answer.ended] == [(id, 4)]
    assert host.engine.memory.waits == {}


def test_what_does_not_exist_is_told_so(host: Host) -> None:
    assert host.ask(WaitJobs([("q", "nothing"), ("q", "99")])) == Registered([], [("q", "nothing"), ("q", "99")])


def test_the_end_is_pushed_once_to_each_who_waits(host: Host) -> None:
    (id,) = host.add("work")
    assert host.ask(WaitJobs([("q", id)]), route=b"one") == Registered([], [])
    host.ask(WaitJobs([("q", id)]), route=b"one")
    host.ask(WaitJobs([("q", id)]), route=b"two")
    effects = host.complete(id)
    assert {route: [job.id for job in jobs] for route, jobs in effects.ended.items()} == {b"one": [id], b"two": [id]}
    assert host.engine.memory.waits == {}
    assert host.tick().ended == {}


def test_a_wait_and_the_end_may_fall_into_one_tick(host: Host) -> None:
    (id,) = host.add("work")
    effects = host.tick(host.says(WaitJobs([("q", id)])), Outcomes("w1", [success(host.token(id), b"\x01")]))
    assert host.reply(effects) == Registered([], [])
    assert [job.result for job in effects.ended[b"r"]] == [b"\x01"]


def test_a_retry_is_not_an_end(host: Host) -> None:
    (id,) = host.add(new(options=None))
    host.ask(WaitJobs([("q", id)]))
    assert host.kill(id).ended == {}
    assert list(host.engine.memory.waits) == [int(id)]


def test_very_many_large_results_are_pushed_where_the_answer_is_full(host: Host) -> None:
    ids = host.add(*["work"] * 6)
    for id in ids:
        host.report(success(host.token(id), bytes(1_000_000)))
    effects = host.tick(host.says(WaitJobs([("q", id) for id in ids])))
    answer = host.reply(effects)
    assert isinstance(answer, Registered)
    pushed = [job.id for job in effects.ended[b"r"]]
    assert [job.id for job in answer.ended] + pushed == ids
    assert pushed


def test_a_client_that_is_gone_leaves_nothing_behind(host: Host) -> None:
    mine, ours = host.add("work", "work")
    host.ask(WaitJobs([("q", mine), ("q", ours)]), route=b"gone")
    host.ask(WaitJobs([("q", ours)]), route=b"here")
    host.tick(ClientsGone(frozenset({b"gone", b"never seen"})))
    assert host.engine.memory.waits == {int(ours): {b"here"}}
    host.complete(mine)
    assert list(host.complete(ours).ended) == [b"here"]


def test_a_client_that_comes_and_goes_in_an_aborted_tick_leaves_nothing_behind(host: Host) -> None:
    (id,) = host.add("work")
    host.decide(host.says(WaitJobs([("q", id)])), ClientsGone(frozenset({b"r"})))
    host.store.abort()
    host.engine.reload(host.store.begin())
    assert host.engine.memory.waits == {}
