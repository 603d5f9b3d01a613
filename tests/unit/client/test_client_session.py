"""The protocol core without I/O: numbers, repetition, waits."""

from __future__ import annotations

import msgspec
import pytest

from conveyor_actors import wire
from conveyor_actors.client.session import Call, Session, Wait, Waiter
from conveyor_actors.errors import InternalError, OutcomeUnknown, ProtocolError, RemoteError


def sent(frames: list[bytes]) -> list[wire.Request]:
    return [wire.decode_request(frame) for frame in frames]


def bodies(frames: list[bytes]) -> list[wire.Body]:
    return [request.body for request in sent(frames)]


def reply(session: Session, no: int, body: wire.ReplyBody) -> tuple[list[bytes], list[Waiter]]:
    return session.received(wire.encode(wire.Reply(no, body)))


def welcomed() -> Session:
    session = Session()
    greeting = session.greeting()
    (hello,) = sent(session.outgoing())
    assert isinstance(hello.body, wire.Hello)
    _, ready = reply(session, hello.no, wire.Welcome(1, 1, 1000, "~.events"))
    assert ready == [greeting] and greeting.ready
    return session


def view(id: str, state: int = 4) -> wire.JobView:
    return wire.JobView(1, id, "q", "n", state, 0, 1, 1, 0, b"\xc0", b"\xc0", None, None, 0, None, None, 0, "", False)


def test_requests_are_numbered_from_one_and_tell_the_lowest_unanswered() -> None:
    session = Session()
    first, second = session.request(wire.Ping()), session.request(wire.Ping())
    assert [(request.no, request.low) for request in sent(session.outgoing())] == [(1, 1), (2, 1)]
    assert reply(session, 1, wire.Pong()) == ([], [first])
    assert (session.low, second.ready) == (2, False)
    session.request(wire.Ping())
    assert sent(session.outgoing())[0].low == 2
    reply(session, 3, wire.Pong())
    reply(session, 2, wire.Pong())
    assert session.low == 4


def test_a_client_is_a_random_number_of_63_bits() -> None:
    clients = {Session().client for _ in range(100)}
    assert len(clients) == 100 and all(0 <= client < 2**63 for client in clients)


def test_no_more_than_256_numbers_are_open_and_who_waits_for_room_is_let_in() -> None:
    session = welcomed()
    calls = []
    while not session.full:
        calls.append(session.request(wire.Ping()))
    assert len(calls) == wire.UNANSWERED_REQUESTS_MAX
    room = session.room()
    assert reply(session, calls[1].no, wire.Pong()) == ([], [calls[1]])
    assert session.full, "the oldest is still open, so replies since then are still kept"
    _, ready = reply(session, calls[0].no, wire.Pong())
    assert ready == [calls[0], room] and not session.full


def test_giving_up_the_oldest_request_makes_room() -> None:
    session = welcomed()
    calls = [session.request(wire.Ping()) for _ in range(wire.UNANSWERED_REQUESTS_MAX)]
    room = session.room()
    assert session.give_up(calls[0]) == [room]


def test_a_new_connection_is_told_hello_then_what_is_unanswered_then_the_waits() -> None:
    session = welcomed()
    answered, first, second = (session.request(wire.GetCounts(name)) for name in "abc")
    wait = session.watch([("q", str(number)) for number in range(25_000)])
    session.outgoing()
    reply(session, answered.no, wire.Counts([0] * 6, False))
    frames, ready = session.reconnected()
    hello, *rest = sent(frames)
    assert isinstance(hello.body, wire.Hello) and hello.body.client == session.client
    assert [request.no for request in rest[:2]] == [first.no, second.no]
    waits = [request.body for request in rest[2:]]
    assert [len(body.refs) for body in waits if isinstance(body, wire.WaitJobs)] == [10_000, 10_000, 5_000]
    assert ready == [] and not wait.ready
    assert session.outgoing() == [], "nothing is sent twice"


def test_a_reset_is_answered_like_a_new_connection_but_not_while_a_hello_is_under_way() -> None:
    session = welcomed()
    call = session.request(wire.Ping())
    session.outgoing()
    frames, _ = reply(session, 0, wire.Reset())
    assert [type(body) for body in bodies(frames)] == [wire.Hello, wire.Ping]
    assert reply(session, 0, wire.Reset()) == ([], []), "it crossed our Hello"
    reply(session, sent(frames)[0].no, wire.Welcome(1, 2, 1000, "~.events"))
    assert reply(session, 0, wire.Reset())[0], "forgotten once more"
    assert not call.ready


def test_the_welcome_of_an_earlier_connection_does_not_count() -> None:
    session = Session()
    session.greeting()
    first = sent(session.outgoing())[0].no
    second = sent(session.reconnected()[0])[0].no
    assert reply(session, first, wire.Welcome(1, 1, 1, "")) == ([], [])
    assert len(reply(session, second, wire.Welcome(1, 1, 1, ""))[1]) == 1


def test_silence_is_broken_by_a_ping_or_by_the_hello_that_nobody_answered() -> None:
    session = welcomed()
    assert [type(body) for body in bodies(session.silent()[0])] == [wire.Ping]
    session.reconnected()
    assert [type(body) for body in bodies(session.silent()[0])] == [wire.Hello]


def test_two_waits_for_a_job_are_one_registration_and_both_are_told() -> None:
    session = welcomed()
    first, second = session.watch([("q", "1"), ("q", "2")]), session.watch([("q", "1")])
    (registration,) = bodies(session.outgoing())
    assert isinstance(registration, wire.WaitJobs) and sorted(registration.refs) == [("q", "1"), ("q", "2")]
    session.watch([("q", "1")])
    assert session.outgoing() == []
    _, ready = reply(session, 0, wire.Ended([view("1")]))
    assert set(ready) >= {first, second}
    assert first.take() == [(("q", "1"), view("1"))] and list(first.refs) == [("q", "2")] and not first.ready
    assert second.take() == [(("q", "1"), view("1"))]


def test_waits_of_many_callers_travel_together() -> None:
    session = welcomed()
    for number in range(100):
        session.watch([("q", str(number))])
    (registration,) = bodies(session.outgoing())
    assert isinstance(registration, wire.WaitJobs) and len(registration.refs) == 100


def test_a_registration_tells_what_had_ended_and_what_is_missing() -> None:
    session = welcomed()
    wait = session.watch([("q", "1"), ("q", "2"), ("q", "3")])
    (request,) = sent(session.outgoing())
    _, ready = reply(session, request.no, wire.Registered([view("1")], [("q", "2")]))
    assert set(ready) == {wait}
    assert wait.take() == [(("q", "1"), view("1")), (("q", "2"), None)] and list(wait.refs) == [("q", "3")]


def test_an_overdue_wait_is_ready_once_it_was_told_of_all_its_jobs() -> None:
    session = welcomed()
    wait, other = session.watch([("q", "1"), ("q", "2")]), session.watch([("q", "3")])
    (request,) = sent(session.outgoing())
    session.overdue(wait)
    assert not wait.ready
    frames, ready = reply(session, request.no, wire.Registered([], [], left=2))
    assert ready == [], "there was no room to tell of the second"
    (again,) = sent(frames)
    assert reply(session, again.no, wire.Registered([], []))[1] == [wait]
    assert session.take(wait) == [] and not wait.ready
    assert not other.ready
    assert reply(session, 0, wire.Ended([view("2")]))[1] == [wait]
    assert session.take(wait) == [(("q", "2"), view("2"))]


def test_a_wait_that_was_told_of_its_jobs_is_overdue_at_once_whatever_becomes_of_the_connection() -> None:
    session = welcomed()
    wait = session.watch([("q", "1"), ("q", "2")])
    (request,) = sent(session.outgoing())
    reply(session, request.no, wire.Registered([view("1")], []))
    assert session.take(wait) == [(("q", "1"), view("1"))]
    session.reconnected()
    session.overdue(wait)
    assert wait.ready and session.take(wait) == []
    later = session.watch([("q", "2")])
    session.overdue(later)
    assert later.ready, "the job is watched already"


def test_an_overdue_wait_that_was_given_up_is_forgotten() -> None:
    session = welcomed()
    wait, unasked = session.watch([("q", "1")]), session.watch([("q", "2")])
    (request,) = sent(session.outgoing())
    session.overdue(wait)
    session.give_up(wait)
    session.give_up(unasked)
    assert reply(session, request.no, wire.Registered([], [])) == ([], [])
    assert (session._unanswered, session._overdue) == (set(), {})


def test_a_refused_registration_fails_only_its_waits() -> None:
    session = welcomed()
    refused = session.watch([("q", "1")])
    (request,) = sent(session.outgoing())
    other = session.watch([("q", "2")])
    _, ready = reply(session, request.no, wire.Refused("InternalError", "a defect"))
    assert ready == [refused] and not other.ready
    with pytest.raises(InternalError, match="a defect"):
        refused.check()


def test_a_wait_that_was_given_up_is_not_registered_again() -> None:
    session = welcomed()
    kept, dropped = session.watch([("q", "1")]), session.watch([("q", "1"), ("q", "2")])
    session.outgoing()
    session.give_up(dropped)
    (_, again) = bodies(session.reconnected()[0])
    assert again == wire.WaitJobs([("q", "1")])
    session.give_up(kept)
    assert len(session.reconnected()[0]) == 1


def test_a_request_that_was_given_up_is_not_sent_again_and_its_answer_is_ignored() -> None:
    session = welcomed()
    call, unsent = session.request(wire.Ping()), None
    session.outgoing()
    unsent = session.request(wire.Ping())
    session.give_up(call)
    session.give_up(unsent)
    assert len(session.reconnected()[0]) == 1
    assert reply(session, call.no, wire.Pong()) == ([], [])


def test_stop_is_never_sent_again_for_it_could_stop_the_successor() -> None:
    session = welcomed()
    call = session.request(wire.Stop())
    session.outgoing()
    frames, ready = session.reconnected()
    assert [type(body) for body in bodies(frames)] == [wire.Hello]
    assert ready == [call]
    with pytest.raises(OutcomeUnknown):
        call.check()


def test_only_a_change_that_was_sent_has_an_unknown_outcome() -> None:
    session = welcomed()
    change, question = session.request(wire.SetPaused("q", True)), session.request(wire.Ping())
    assert not change.outcome_unknown
    session.outgoing()
    assert change.outcome_unknown and not question.outcome_unknown


def test_another_version_fails_everybody_and_the_next_greeting_tries_again() -> None:
    session = welcomed()
    call, wait = session.request(wire.Ping()), session.watch([("q", "1")])
    hello = sent(session.reconnected()[0])[0]
    _, ready = reply(session, hello.no, wire.Refused("ProtocolError", "version 2"))
    assert set(ready) == {call, wait} and session.welcome is None
    for waiter in (call, wait):
        with pytest.raises(ProtocolError, match="version 2"):
            waiter.check()
    session.greeting()
    assert [type(body) for body in bodies(session.outgoing())] == [wire.Hello]


def test_what_the_supervisor_could_not_read_fails_the_requests_but_not_the_waits() -> None:
    session = welcomed()
    call, wait = session.request(wire.Ping()), session.watch([("q", "1")])
    session.outgoing()
    _, ready = reply(session, 0, wire.Refused("ProtocolError", "cannot be read"))
    assert ready == [call] and not wait.ready


def test_an_answer_that_cannot_be_read_fails_the_request_it_answers() -> None:
    session = welcomed()
    call: Call = session.request(wire.Ping())
    _, ready = session.received(wire.encode([call.no, ["NoSuchAnswer"]]))
    assert ready == [call]
    with pytest.raises(ProtocolError):
        call.check()
    assert session.received(b"\xc1 garbage") == ([], [])
    assert session.received(wire.encode([999, ["NoSuchAnswer"]])) == ([], [])


def test_an_error_of_an_unknown_name_is_still_an_error() -> None:
    session = welcomed()
    call = session.request(wire.Ping())
    reply(session, call.no, wire.Refused("Novelty", "of a later release"))
    with pytest.raises(RemoteError, match="Novelty: of a later release"):
        call.check()


def test_fifty_thousand_waits_are_cheap() -> None:
    session = welcomed()
    wait: Wait = session.watch([("q", str(number)) for number in range(50_000)])
    assert len(session.outgoing()) == 5
    for start in range(0, 50_000, 1000):
        reply(session, 0, wire.Ended([view(str(number)) for number in range(start, start + 1000)]))
    assert len(wait.take()) == 50_000 and not wait.refs


def test_who_is_pushed_much_says_now_and_then_that_it_arrives() -> None:
    session = welcomed()
    session.watch([("q", str(number)) for number in range(100)])
    session.outgoing()
    large = bytes(wire.PUSHED_BYTES_TOLD // 4)
    said = [
        bodies(reply(session, 0, wire.Ended([msgspec.structs.replace(view(str(number)), result=large)]))[0])
        for number in range(8)
    ]
    assert said == [[], [], [], [wire.Ping()]] * 2
