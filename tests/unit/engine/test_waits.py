"""Waiting for a job: answered at once if it has ended, else told once when it does."""

from __future__ import annotations

from conveyor_actors.client.session import Session
from conveyor_actors.engine.inputs import ClientsGone, Outcomes
from conveyor_actors.wire import Registered, Reply, WaitJobs, decode_request, encode

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


def test_an_answer_holds_a_page_of_large_results_and_says_how_many_are_left(host: Host) -> None:
    ids = host.add(*["work"] * 9)
    for id in ids:
        host.report(success(host.token(id), bytes(1_000_000)))
    (running,) = host.add("other")
    refs = [("q", "nothing"), *(("q", id) for id in ids), ("q", running)]
    effects = host.tick(host.says(WaitJobs(refs)))
    answer = host.reply(effects)
    assert isinstance(answer, Registered)
    assert (answer.left, [job.id for job in answer.ended], answer.missing) == (6, ids[:4], [("q", "nothing")])
    assert effects.ended == {}
    assert host.engine.memory.waits == {}


def test_a_result_larger_than_a_page_is_answered_too(host: Host) -> None:
    first, second = host.add("work", "work")
    for id in (first, second):
        host.report(success(host.token(id), bytes(5_000_000)))
    answer = host.ask(WaitJobs([("q", first), ("q", second)]))
    assert isinstance(answer, Registered)
    assert ([job.id for job in answer.ended], answer.left) == ([first], 1)


def test_a_client_asks_again_until_it_has_all(host: Host) -> None:
    ids = host.add(*["work"] * 9)
    for id in ids:
        host.report(success(host.token(id), bytes(1_000_000)))
    (running,) = host.add("other")
    session = Session()
    wait, given_up = session.watch([("q", id) for id in ids] + [("q", running)]), session.watch([("q", "nothing")])
    session.give_up(given_up)
    frames, answers = session.outgoing(), 0
    while frames:
        (request,) = [decode_request(frame) for frame in frames]
        ((_, answer),) = host.tick(host.says(request.body, no=request.no)).replies
        answers += 1
        frames, ready = session.received(answer)
        assert ready == ([wait] if answers < 4 else [])
    assert [id for (_, id), _ in wait.take()] == ids
    assert list(wait.refs) == [("q", running)]
    assert list(host.engine.memory.waits) == [int(running)]


def test_who_gave_up_is_not_asked_for_again(host: Host) -> None:
    session = Session()
    wait = session.watch([("q", str(number)) for number in range(4)])
    (frame,) = session.outgoing()
    session.give_up(wait)
    other = session.watch([("q", "2")])
    session.outgoing()
    (frame,), _ = session.received(encode(Reply(decode_request(frame).no, Registered([], [], 3))))
    assert decode_request(frame).body == WaitJobs([("q", "2")])
    assert list(other.refs) == [("q", "2")]


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
