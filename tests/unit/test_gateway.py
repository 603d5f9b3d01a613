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
    PUSHED_BYTES_MAX,
    Ended,
    GetQueues,
    Hello,
    JobView,
    Ping,
    Request,
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
    for _ in range(PUSHED_BYTES_MAX // 4_000_000):
        meeting.gateway.push_ended({meeting.route: pushed})
    assert meeting.gateway.gone == set()
    for _ in range(10):
        meeting.gateway.push_ended({meeting.route: pushed})
    assert meeting.gateway.gone == {meeting.route}
    received = 0
    while meeting.client.poll(100):
        received += len(meeting.client.recv())
    assert received < PUSHED_BYTES_MAX + 2 * PAGE_BYTES_MAX


def test_a_client_that_says_a_word_now_and_then_is_pushed_any_amount(meeting: Meeting) -> None:
    pushed = large_jobs(4)
    for _ in range(4):
        for _ in range(PUSHED_BYTES_MAX // 4_000_000):
            meeting.gateway.push_ended({meeting.route: pushed})
        meeting.say(*pack([encode(Request(3, 3, Ping()))]))
    assert meeting.gateway.gone == set()


def test_a_client_that_is_back_is_not_gone(meeting: Meeting) -> None:
    meeting.say(b"\xc1 garbage")
    meeting.say(*pack([encode(Request(3, 1, Hello(PROTOCOL_VERSION, 7)))]))
    assert meeting.gateway.gone == set()
