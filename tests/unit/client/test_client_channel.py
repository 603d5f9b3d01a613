"""The connection: made late, made again, and what is said when nobody answers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from beside import in_thread, joined, settled
from fake_supervisor import DEADLINE_S, FakeStore, FakeSupervisor

from conveyor_actors import (
    Conveyor,
    OutcomeUnknown,
    ProtocolError,
    RemoteError,
    StoreFull,
    SupervisorUnreachable,
    wire,
)
from conveyor_actors.client import channel as channel_module

Start = Callable[..., FakeSupervisor]
Connect = Callable[..., Conveyor]


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


# -- first contact ------------------------------------------------------------------------------------------


def test_nothing_is_connected_before_the_first_question(fake: FakeSupervisor, connect: Connect) -> None:
    conveyor = connect()
    before = threads()
    conveyor.queue("images")
    assert threads() == before
    assert conveyor.ping() < DEADLINE_S
    assert fake.count(wire.Hello) == 1


def test_entering_the_context_makes_the_first_contact(fake: FakeSupervisor, connect: Connect) -> None:
    with connect() as conveyor:
        assert fake.count(wire.Hello) == 1
        conveyor.ping()
    assert fake.count(wire.Hello) == 1


def test_where_nothing_listens_it_is_said_soon_and_how_to_start_one(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "ABSENT_S", 0.1)
    started = time.monotonic()
    with pytest.raises(SupervisorUnreachable) as caught:
        connect().ping()
    assert time.monotonic() - started < 5
    assert url in str(caught.value) and "conveyor-supervisor --config conveyor.toml" in str(caught.value)
    assert "no such socket" in str(caught.value)


def test_a_socket_that_was_left_behind_counts_as_nothing(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "ABSENT_S", 0.1)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(url.removeprefix("ipc://"))
    with pytest.raises(SupervisorUnreachable, match="nobody listens"):
        connect().queue("images").add("resize")


def test_a_listener_that_never_answers_is_given_the_whole_timeout(
    url: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "ABSENT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(url.removeprefix("ipc://"))
        listener.listen()
        started = time.monotonic()
        with pytest.raises(SupervisorUnreachable, match="waited 400ms"):
            connect(timeout="400ms").ping()
    assert time.monotonic() - started >= 0.4


def test_a_supervisor_that_starts_late_is_found(start: Start, connect: Connect) -> None:
    conveyor = connect()
    running = in_thread(conveyor.ping)
    store = FakeStore()
    start(store=store)
    assert isinstance(joined(running), float)


def test_another_version_is_refused_by_name(start: Start, connect: Connect) -> None:
    fake = start(version=2)
    conveyor = connect()
    with pytest.raises(ProtocolError, match="version 1"):
        conveyor.ping()
    fake.version = wire.PROTOCOL_VERSION
    conveyor.ping()


# -- lost connections ---------------------------------------------------------------------------------------


def test_what_was_unanswered_is_sent_again_to_the_next_supervisor(start: Start, connect: Connect) -> None:
    first = start(ignored={wire.AddJobs})
    queue = connect().queue("images")
    running = in_thread(lambda: queue.add("resize", 1))
    first.await_request(wire.AddJobs)
    first.kill()
    second = start(store=first.store)
    assert joined(running).id == "1"
    assert len(second.store.carried_out) == 1


def test_what_was_carried_out_but_not_answered_is_not_carried_out_twice(start: Start, connect: Connect) -> None:
    first = start(unanswered={wire.AddJobs})
    queue = connect().queue("images")
    running = in_thread(lambda: queue.add("resize", 1))
    first.await_request(wire.AddJobs)
    first.kill()
    second = start(store=first.store)
    assert joined(running).id == "1"
    assert len(second.store.carried_out) == 1 and len(second.store.jobs) == 1


def test_a_request_made_while_nobody_is_there_reaches_the_next_supervisor(start: Start, connect: Connect) -> None:
    first = start()
    queue = connect().queue("images")
    queue.add("resize", 1)
    first.kill()
    running = in_thread(lambda: queue.add("resize", 2))
    second = start(store=first.store)
    assert joined(running).id == "2"
    assert len(second.store.carried_out) == 2


def test_many_requests_under_way_survive_a_restart_each_once(start: Start, connect: Connect) -> None:
    first = start(unanswered={wire.AddJobs})
    queue = connect().queue("images")
    with ThreadPoolExecutor(20) as pool:
        adding = [pool.submit(queue.add, "resize", number) for number in range(20)]
        first.await_request(wire.AddJobs, 20)
        first.kill()
        second = start(store=first.store)
        ids = {future.result(DEADLINE_S).id for future in adding}
    assert ids == {str(number) for number in range(1, 21)}
    assert len(second.store.carried_out) == 20


def test_a_wait_goes_on_across_a_restart(start: Start, connect: Connect) -> None:
    first = start()
    job = connect().queue("images").add("resize", 1)
    running = in_thread(job.result)
    first.await_request(wire.WaitJobs)
    first.kill()
    second = start(store=first.store)
    second.await_request(wire.WaitJobs)
    second.end([("images", job.id)], {"thumb": "t.jpg"})
    assert joined(running) == {"thumb": "t.jpg"}


def test_a_client_that_was_forgotten_says_hello_again(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    conveyor.ping()
    fake.forget_clients()
    assert conveyor.queue("images").add("resize", 1).id == "1"
    assert fake.count(wire.Hello) == 2 and len(fake.store.carried_out) == 1


def test_a_wait_of_a_forgotten_client_is_registered_again_after_a_silence(
    fake: FakeSupervisor, conveyor: Conveyor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "SILENCE_S", 0.05)
    job = conveyor.queue("images").add("resize", 1)
    running = in_thread(job.result)
    fake.await_request(wire.WaitJobs)
    fake.forget_clients()
    fake.await_request(wire.WaitJobs, 2)
    fake.end([("images", job.id)], 7)
    assert joined(running) == 7


# -- no answer ----------------------------------------------------------------------------------------------


def test_a_change_without_an_answer_has_an_unknown_outcome(start: Start, connect: Connect) -> None:
    start(ignored={wire.AddJobs})
    with pytest.raises(OutcomeUnknown, match=r"AddJobs. .* not answered in 100ms"):
        connect(timeout="100ms").queue("images").add("resize")


def test_a_question_without_an_answer_means_unreachable(start: Start, connect: Connect, url: str) -> None:
    start(ignored={wire.GetCounts})
    with pytest.raises(SupervisorUnreachable, match=url):
        connect(timeout="100ms").queue("images").counts()


def test_a_change_that_was_never_sent_has_no_unknown_outcome(start: Start, connect: Connect) -> None:
    fake = start()
    conveyor = connect(timeout="200ms")
    conveyor.ping()
    fake.kill()
    with pytest.raises(RemoteError):
        conveyor.ping()
    with pytest.raises(SupervisorUnreachable, match="nobody listens"):
        conveyor.queue("images").pause()


def test_a_change_that_was_told_as_never_sent_is_not_sent_later_either(start: Start, connect: Connect) -> None:
    first = start()
    conveyor = connect(timeout="1s")
    queue = conveyor.queue("images")
    job = queue.add("resize", 1)
    leading = in_thread(job.result)
    first.await_request(wire.WaitJobs)
    first.kill()
    link = conveyor._channel._link
    settled(lambda: link is not None and not link.connected)
    with pytest.raises(SupervisorUnreachable):
        queue.add("resize", 2)
    second = start(store=first.store)
    second.await_request(wire.WaitJobs)  # it comes after all the requests that are repeated
    second.end([("images", job.id)], "done")
    assert joined(leading) == "done"
    assert second.count(wire.AddJobs) == 0 and len(second.store.jobs) == 1


def test_what_was_given_up_is_not_repeated_to_a_supervisor_that_forgot_this_client(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = start(ignored={wire.AddJobs})
    conveyor = connect()
    channel = conveyor._channel
    given_up = channel.start(wire.AddJobs("images", [wire.NewJob("resize", b"\xc0")]))
    fake.await_request(wire.AddJobs)
    fake.forget_clients()
    send = fake._send

    def give_up_first(route: bytes, no: int, body: wire.ReplyBody) -> None:
        if isinstance(body, wire.Reset):
            channel.give_up(given_up)
        send(route, no, body)

    monkeypatch.setattr(fake, "_send", give_up_first)
    assert conveyor.ping() < DEADLINE_S
    assert (fake.count(wire.Hello), fake.count(wire.AddJobs)) == (2, 1)


def test_an_answer_that_comes_too_late_disturbs_nobody(start: Start, connect: Connect) -> None:
    fake = start(ignored={wire.GetCounts})
    conveyor = connect(timeout="100ms")
    with pytest.raises(SupervisorUnreachable):
        conveyor.queue("images").counts()
    route = next(iter(fake.sessions))
    late = fake.received[-1].no
    fake.do(lambda: fake._send(route, late, wire.Counts([0] * 6, False)))
    assert conveyor.queue("images").add("resize").id == "1"


def test_a_refusal_is_raised_as_the_error_it_names(start: Start, connect: Connect) -> None:
    start(refused={wire.AddJobs: wire.Refused("StoreFull", "900 MiB left")})
    with pytest.raises(StoreFull, match="900 MiB left"):
        connect().queue("images").add("resize")


def test_an_answer_of_the_wrong_kind_is_a_protocol_error(start: Start, connect: Connect) -> None:
    start(answers={wire.GetCounts: wire.Pong()})
    with pytest.raises(ProtocolError, match="Pong and not Counts"):
        connect().queue("images").counts()


def test_beyond_256_unanswered_requests_a_caller_waits(start: Start, connect: Connect) -> None:
    fake = start(ignored={wire.GetCounts})
    conveyor = connect()
    channel = conveyor._channel
    calls = [channel.start(wire.GetCounts("images")) for _ in range(wire.UNANSWERED_REQUESTS_MAX)]
    running = in_thread(conveyor.ping)
    fake.await_request(wire.GetCounts, len(calls))
    assert fake.count(wire.Ping) == 0
    route = next(iter(fake.sessions))
    fake.do(lambda: fake._send(route, calls[0].no, wire.Counts([0] * 6, False)))
    assert isinstance(joined(running), float)
    assert fake.count(wire.Ping) == 1
    for call in calls:
        channel.give_up(call)
