"""The clients' socket: who is lost is told once, however it was lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from conveyor_actors.config import SupervisorConfig
from conveyor_actors.engine.inputs import ClientSays, Input
from conveyor_actors.packing import pack, unpack
from conveyor_actors.supervisor.gateway import Gateway, Question
from conveyor_actors.wire import (
    PAGE_BYTES_MAX,
    PROTOCOL_VERSION,
    UNREAD_BYTES_MAX,
    Ended,
    EventBatch,
    GetQueues,
    Hello,
    Jobs,
    JobView,
    Ping,
    Published,
    Reply,
    Request,
    Reset,
    decode_published,
    decode_reply,
    encode,
)

DEADLINE_S = 10.0


class Meeting:
    """A gateway and one client that it has welcomed."""

    def __init__(self, home: Path) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        address = f"ipc://{home}/s"
        self.gateway = Gateway(self.context, SupervisorConfig(data_dir=home, listen=(address,)), 1)
        self.client = self.context.socket(zmq.DEALER)
        self.client.connect(address)
        self.inputs: list[Input] = []
        self.questions: list[Question] = []
        self.say(*pack([encode(Request(1, 1, Hello(PROTOCOL_VERSION, 7)))]))
        assert self.client.poll(DEADLINE_S * 1000)
        self.say(*pack([encode(Request(2, 1, GetQueues()))]))
        (said,) = self.inputs
        assert isinstance(said, ClientSays)
        self.route = said.route

    def say(self, *frames: bytes) -> None:
        self.client.send_multipart(frames)
        assert self.gateway.socket.poll(DEADLINE_S * 1000)
        self.gateway.receive(self.inputs, self.questions)

    def received(self) -> int:
        """The bytes that are there to be read."""
        size = 0
        while self.client.poll(100):
            size += len(self.client.recv())
        return size

    def close(self) -> None:
        self.client.close(0)
        self.gateway.close()
        self.context.term()


@pytest.fixture
def meeting(home: Path) -> Iterator[Meeting]:
    meeting = Meeting(home)
    yield meeting
    meeting.close()


def test_a_client_that_is_there_is_not_told_as_gone(meeting: Meeting) -> None:
    meeting.gateway.forget_gone()
    assert meeting.gateway.gone == set()


def test_a_client_that_has_left_is_told_as_gone(meeting: Meeting) -> None:
    meeting.client.close(0)
    deadline = time.monotonic() + DEADLINE_S
    while not meeting.gateway.gone:
        assert time.monotonic() < deadline
        meeting.gateway.forget_gone()
    assert meeting.gateway.gone == {meeting.route}
    meeting.gateway.gone.clear()
    meeting.gateway.forget_gone()
    assert meeting.gateway.gone == set()


def test_a_client_that_sends_garbage_is_told_as_gone(meeting: Meeting) -> None:
    meeting.say(b"\xc1 garbage")
    assert meeting.gateway.gone == {meeting.route}


def large_jobs(count: int) -> list[JobView]:
    payload = bytes(1_000_000)
    return [
        JobView(no, str(no), "q", "n", 4, 0, 1, 1, 0, payload, b"", None, None, 0, None, None, 0, "", False)
        for no in range(count)
    ]


def test_the_ends_of_large_jobs_are_pushed_page_by_page(meeting: Meeting) -> None:
    jobs = large_jobs(10)
    meeting.gateway.push_ended({meeting.route: jobs, b"gone": jobs})
    meeting.client.recv()  # the welcome
    told = []
    while len(told) < len(jobs):
        assert meeting.client.poll(DEADLINE_S * 1000)
        message = meeting.client.recv()
        assert len(message) < PAGE_BYTES_MAX
        (pushed,) = [decode_reply(reply).body for reply in unpack(message)]
        assert isinstance(pushed, Ended)
        told += [job.number for job in pushed.jobs]
    assert told == list(range(10))


def test_a_client_that_reads_nothing_of_what_it_is_pushed_is_given_up(meeting: Meeting) -> None:
    pushed = large_jobs(4)
    for _ in range(UNREAD_BYTES_MAX // 4_000_000):
        meeting.gateway.push_ended({meeting.route: pushed})
    assert meeting.gateway.gone == set()
    for _ in range(10):
        meeting.gateway.push_ended({meeting.route: pushed})
    assert meeting.gateway.gone == {meeting.route}
    assert meeting.received() < UNREAD_BYTES_MAX + 2 * PAGE_BYTES_MAX


def test_nor_may_it_ask_on_and_on_without_reading_the_answers(meeting: Meeting) -> None:
    answer = encode(Reply(3, Jobs([large_jobs(1)[0]] * 4)))
    for no in range(3, 3 + 20):
        meeting.say(*pack([encode(Request(no, 3, GetQueues()))]))
        meeting.gateway.send_all([(meeting.route, answer)])
    assert meeting.gateway.gone == {meeting.route}
    assert meeting.received() < UNREAD_BYTES_MAX + 2 * PAGE_BYTES_MAX


def test_a_client_that_shows_that_it_reads_is_sent_any_amount(meeting: Meeting) -> None:
    pushed = large_jobs(4)
    for no in range(3, 7):
        for _ in range(UNREAD_BYTES_MAX // 4_000_000):
            meeting.gateway.push_ended({meeting.route: pushed})
        meeting.say(*pack([encode(Request(no, no, Ping()))]))
    assert meeting.gateway.gone == set()


def test_a_client_that_is_back_is_not_gone(meeting: Meeting) -> None:
    meeting.say(b"\xc1 garbage")
    meeting.say(*pack([encode(Request(3, 1, Hello(PROTOCOL_VERSION, 7)))]))
    assert meeting.gateway.gone == set()


# -- events -------------------------------------------------------------------------------------------------


@pytest.fixture
def follower(meeting: Meeting) -> Iterator[zmq.Socket[bytes]]:
    """Follows the events of all queues, by hand."""
    socket = meeting.context.socket(zmq.XSUB)
    socket.connect(meeting.gateway.events.getsockopt_string(zmq.LAST_ENDPOINT))
    socket.send(b"\1")
    _until_followed(meeting)
    yield socket
    socket.close(0)


def _until_followed(meeting: Meeting) -> None:
    assert meeting.gateway.events.poll(DEADLINE_S * 1000)
    meeting.gateway.take_subscriptions()


def _heard(follower: zmq.Socket[bytes]) -> Published:
    assert follower.poll(DEADLINE_S * 1000)
    return decode_published(follower.recv_multipart()[1])


def test_garbage_on_the_event_socket_ends_nobodys_subscription(meeting: Meeting, follower: zmq.Socket[bytes]) -> None:
    follower.send(b"X")
    follower.send(b"\1another")  # comes after it
    _until_followed(meeting)
    meeting.gateway.publish(EventBatch(1, 0, [(0, "q", 1, "n", None)]))
    assert [seq for seq, _ in _heard(follower).rows] == [1]


def test_events_that_are_too_many_to_be_published_are_announced(meeting: Meeting, follower: zmq.Socket[bytes]) -> None:
    rows = [(0, "q", number, "name", None) for number in range(10_000)]
    meeting.gateway.publish(EventBatch(1, 0, rows))
    meeting.gateway.publish(EventBatch(10_001, 0, rows[:1]))
    assert _heard(follower) == Published(10_000, 0, [])
    assert _heard(follower) == Published(10_000, 0, [(10_001, rows[0])])


def test_a_client_that_is_given_up_is_told_so_and_may_ask_again(meeting: Meeting) -> None:
    for _ in range(UNREAD_BYTES_MAX // 4_000_000 + 3):
        meeting.gateway.push_ended({meeting.route: large_jobs(4)})
    last = None
    while meeting.client.poll(100):
        last = meeting.client.recv()
    assert last is not None
    (told,) = [decode_reply(reply).body for reply in unpack(last)]
    assert isinstance(told, Reset)
