"""Events: in order, none twice, none missed that the log still has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from beside import in_thread, joined
from fake_supervisor import AT_MS, DEADLINE_S, FakeSupervisor, row

from conveyor_actors import Closed, Conveyor, Event, InvalidOption, SupervisorUnreachable, WaitTimeout, wire
from conveyor_actors.client import events as events_module
from conveyor_actors.client.events import Events, events_address
from conveyor_actors.model import utc

Open = Callable[..., Events]


@pytest.fixture
def follow(conveyor: Conveyor) -> Iterator[Open]:
    opened: list[Events] = []

    def begin(**options: object) -> Events:
        opened.append(conveyor.events(**{"timeout": "20s", **options}))  # type: ignore[arg-type]
        return opened[-1]

    yield begin
    for events in opened:
        events.close()


def seqs(events: Events, count: int) -> list[int]:
    return [event.seq for event in islice(events, count)]


def test_events_from_now_on(fake: FakeSupervisor, follow: Open) -> None:
    fake.emit(row("waiting"))
    events = follow()
    fake.emit(row("active", id="cover", data={"worker": "w-1"}), row("worker-died", None, None))
    assert next(events) == Event(2, utc(AT_MS), "active", "images", "cover", "resize", {"worker": "w-1"})
    assert (next(events).queue, events.position) == (None, 3)


def test_events_since_are_replayed_and_then_go_on(fake: FakeSupervisor, follow: Open) -> None:
    for _ in range(10):
        fake.emit(row("waiting"), row("active"))
    events = follow(since=0)
    assert seqs(events, 20) == list(range(1, 21))
    fake.emit(row("completed"))
    assert seqs(events, 1) == [21]
    assert seqs(follow(since=15), 6) == list(range(16, 22))


def test_one_queue_is_followed_alone(fake: FakeSupervisor, follow: Open) -> None:
    fake.emit(row("waiting"), row("waiting", "videos"), row("active"))
    events = follow(queue="images", since=0)
    assert seqs(events, 2) == [1, 3]
    fake.emit(row("waiting", "videos"), row("waiting", "imagesque"), row("completed"))
    assert seqs(events, 1) == [6]


def test_events_of_several_queues_in_one_commit_come_in_order(fake: FakeSupervisor, follow: Open) -> None:
    events = follow()
    for _ in range(3):
        fake.emit(
            row("waiting", "a"),
            row("waiting", "b"),
            row("active", "a"),
            row("worker-started", None),
            row("active", "b"),
        )
    assert seqs(events, 15) == list(range(1, 16))


def test_what_was_trimmed_is_told_by_a_gap(fake: FakeSupervisor, follow: Open) -> None:
    for _ in range(5):
        fake.emit(row("waiting"))
    fake.store.kept_from = 4
    gap, *rest = islice(follow(since=1), 3)
    assert (gap.seq, gap.type, gap.data) == (3, "gap", {"missing_from": 2, "missing_to": 3})
    assert [event.seq for event in rest] == [4, 5]
    assert seqs(follow(since=3), 2) == [4, 5]


def test_a_message_that_was_missed_is_read_from_the_log(fake: FakeSupervisor, follow: Open) -> None:
    one, all = follow(queue="images"), follow()
    fake.emit(row("waiting"))
    fake.publishes = False
    fake.emit(row("active"))
    fake.publishes = True
    fake.emit(row("completed"))
    assert seqs(one, 3) == seqs(all, 3) == [1, 2, 3]


def test_the_last_of_a_burst_is_found_in_the_log_by_one_look(
    fake: FakeSupervisor, follow: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_SETTLED_S", 0.05)
    events = follow(queue="images", timeout="300ms")
    fake.emit(row("waiting"))
    fake.publishes = False
    fake.emit(row("active"))
    assert seqs(events, 2) == [1, 2]
    looks = fake.count(wire.ReadEvents)
    with pytest.raises(WaitTimeout, match="no event came in 300ms"):
        next(events)
    assert fake.count(wire.ReadEvents) <= looks + 1, "one look, then silence"
    fake.publishes = True
    fake.emit(row("completed"))
    assert seqs(events, 1) == [3], "it goes on after a timeout"


def test_what_happens_during_a_replay_comes_once(fake: FakeSupervisor, follow: Open) -> None:
    for _ in range(6):
        fake.emit(row("waiting"), row("waiting", "b"))
    events = follow(since=0)
    first = seqs(events, 1)
    for _ in range(6):
        fake.emit(row("active"), row("active", "b"))
    assert first + seqs(events, 23) == list(range(1, 25))


def test_a_restart_loses_nothing(start: Callable[..., FakeSupervisor], connect: Callable[..., Conveyor]) -> None:
    first = start()
    conveyor = connect()
    with conveyor.events(timeout="20s") as all, conveyor.events("images", timeout="20s") as one:
        first.emit(row("waiting"))
        assert seqs(all, 1) == seqs(one, 1) == [1]
        first.publishes = False
        first.emit(row("active"))
        first.kill()
        second = start(store=first.store)
        assert seqs(all, 1) == seqs(one, 1) == [2]
        second.emit(row("completed"))
        assert seqs(all, 1) == seqs(one, 1) == [3]


def test_a_supervisor_that_is_away_is_waited_for(
    start: Callable[..., FakeSupervisor], connect: Callable[..., Conveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_SETTLED_S", 0.01)
    first = start()
    with connect(timeout="200ms").events(timeout="300ms") as events:
        first.kill()
        with pytest.raises(WaitTimeout):
            next(events)
        events._timeout_ms = 20_000
        second = start(store=first.store)
        second.emit(row("waiting"))
        assert seqs(events, 1) == [1]


@pytest.mark.parametrize("what", ["events", "conveyor"])
def test_closing_ends_the_iterator_of_another_thread(fake: FakeSupervisor, conveyor: Conveyor, what: str) -> None:
    events = conveyor.events()
    got: list[list[Event]] = []
    thread = threading.Thread(target=lambda: got.append(list(events)))
    thread.start()
    fake.emit(row("waiting"))
    while events.position < 1:
        time.sleep(0.001)
    (events if what == "events" else conveyor).close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive() and [event.seq for event in got[0]] == [1]
    assert next(events, None) is None
    events.close()


def test_garbage_on_the_event_socket_is_passed_over(fake: FakeSupervisor, follow: Open) -> None:
    events = follow(queue="images")

    def publish() -> None:
        fake._events.send_multipart((b"images\0", b"garbage"))
        fake._events.send_multipart((b"images\0", b"three", b"frames"))

    fake.do(publish)
    fake.emit(row("waiting"))
    assert seqs(events, 1) == [1]


def test_an_event_socket_that_does_not_answer_is_told(
    fake: FakeSupervisor, connect: Callable[..., Conveyor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSupervisor, "_subscribed", lambda self, message: None)
    with pytest.raises(SupervisorUnreachable, match=r"events at ipc://.*\.events do not"):
        connect(timeout="100ms").events()


def test_closing_the_conveyor_ends_a_beginning_that_waits(
    fake: FakeSupervisor, conveyor: Conveyor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    monkeypatch.setattr(FakeSupervisor, "_subscribed", lambda self, message: asked.set())
    beginning = in_thread(conveyor.events)
    assert asked.wait(DEADLINE_S)
    conveyor.close()
    assert isinstance(joined(beginning), Closed)


def test_arguments_are_checked(conveyor: Conveyor) -> None:
    for wrong in ({"queue": ""}, {"since": -1}, {"since": True}, {"since": "1"}, {"timeout": "soon"}):
        with pytest.raises(InvalidOption):
            conveyor.events(**wrong)


def test_where_events_are_published() -> None:
    assert events_address("ipc:///run/c.sock", "~.events") == "ipc:///run/c.sock.events"
    assert events_address("tcp://127.0.0.1:7600", "~.events") == "tcp://127.0.0.1:7602"
    assert events_address("tcp://127.0.0.1:7600", "tcp://127.0.0.1:99") == "tcp://127.0.0.1:99"


def test_a_hole_in_the_log_is_told(fake: FakeSupervisor, follow: Open) -> None:
    for number in range(3):
        fake.emit(row("waiting", id=number))
    del fake.store.batches[1]
    events = follow(since=0)
    told = [next(events) for _ in range(3)]
    assert [event.type for event in told] == ["waiting", "gap", "waiting"]
    assert told[1].data == {"missing_from": 2, "missing_to": 2}
