"""Garbage on the socket harms nobody but its sender: the supervisor goes on serving the others."""

import contextlib
import random
import socket
import subprocess
import sys

import msgspec
import pytest
import zmq
from processes import is_alive
from waiting import until

from conveyor_actors import CorruptRecord, InvalidPayload
from conveyor_actors.packing import pack, unpack
from conveyor_actors.wire import AddJobs, GetInfo, Hello, NewJob, Request, WaitJobs, decode_reply, encode

ANSWER_MS_MAX = 10_000
NONSENSE = [
    None,
    [],
    {},
    [1],
    [1, 1, ["NoSuchMessage"]],
    [1, 1, ["AddJobs", "q", []]],
    [1, 1, ["AddJobs", "", [["echo", b""]]]],
    [1, 1, ["AddJobs", "q", [["echo", b"", None, "x" * 1_000]]]],
    [1, 1, ["AddJobs", "q", [["echo", b"", None, None, -5]]]],
    [1, 1, ["AddJobs", "q", [["echo", b"", None, None, 2**63]]]],
    [1, 1, ["AddJobs", "q", [["echo", b"", None, None, None, 2**64 - 1]]]],
    [1, 1, ["AddJobs", "q", [["echo", b"", None, None, 2**64 - 1]]]],
    [1, 1, ["AddJobs", "q", [["fail", b"\x80", [3, ["linear", -(2**63)]]]]]],
    [1, 1, ["AddJobs", "q", [["echo", b"", [2**64 - 1, None, [-1]]]]]],
    [-1, 1, ["Ping"]],
    [1, 2**64 - 1, ["Ping"]],
    [1, 1, ["ReadEvents", 2**64 - 1]],
    [1, 1, ["ListJobs", "q", [0], b"\xff" * 1_000, 10]],
    [1, 1, ["ListJobs", "q", [9], None, 10]],
]


@pytest.fixture
def supervisor(start):
    return start(supervisor={"max_payload": "1MiB"})


@pytest.fixture
def raw(supervisor):
    """A bare socket, connected as a client is."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(supervisor.url)
        yield dealer


def assert_serves(supervisor, connect):
    conveyor = connect(supervisor)
    assert is_alive(supervisor.pid)
    assert conveyor.queue("q").add("echo", "unharmed").result("20s") == "unharmed"
    assert conveyor.info().pid == supervisor.pid


def said(no, low, body):
    """A message with one request, as a client sends it."""
    (message,) = pack([encode(Request(no, low, body))])
    return message


def answer(dealer):
    assert dealer.poll(ANSWER_MS_MAX), "no answer came"
    return decode_reply(unpack(dealer.recv())[-1])


def test_random_bytes(supervisor, connect, raw):
    draw = random.Random(1)
    for size in [0, 1, 2, 3, 10, 100, 1_000, 10_000] * 25:
        raw.send(draw.randbytes(size))
    assert_serves(supervisor, connect)


def test_empty_frames_and_far_too_many_of_them(supervisor, connect, raw):
    raw.send_multipart([b""])
    raw.send_multipart([b"", b""])
    raw.send_multipart([b"", said(1, 1, Hello(1, 5))])
    raw.send_multipart([b"x"] * 1_000)
    raw.send_multipart([b""] * 1_000)
    assert_serves(supervisor, connect)


def test_messages_cut_off_anywhere(supervisor, connect, raw):
    job = NewJob("echo", b"\xc0", id="cut")
    whole = said(1, 1, AddJobs("q", [job]))
    raw.send(said(0, 0, Hello(1, 77)))
    for size in range(len(whole)):
        raw.send(whole[:size])
    assert_serves(supervisor, connect)
    assert connect(supervisor).queue("q").get("cut") is None


def test_text_that_is_not_utf8(supervisor, connect, raw):
    raw.send(said(1, 1, Hello(1, 76)))
    answer(raw)
    whole = said(2, 1, AddJobs("q", [NewJob("echo", b"\xc0")]))
    raw.send(whole.replace(b"echo", b"\xff\xfe\xfd\xfc"))
    raw.send(whole.replace(b"AddJobs", b"\xff" * 7))
    assert_serves(supervisor, connect)


def test_messages_with_bits_turned_over(supervisor, connect, raw):
    draw = random.Random(2)
    messages = [
        said(1, 1, Hello(1, 78)),
        said(2, 1, GetInfo()),
        said(3, 1, AddJobs("q", [NewJob("echo", b"\xc0")])),
        said(4, 1, WaitJobs([("q", "1")])),
    ]
    for _ in range(500):
        damaged = bytearray(draw.choice(messages))
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        raw.send(bytes(damaged))
    assert_serves(supervisor, connect)


def test_well_formed_nonsense(supervisor, connect, raw):
    conveyor = connect(supervisor)
    for number, value in enumerate(NONSENSE):
        for message in (value, [value]):
            raw.send(said(1, 1, Hello(1, 1_000 + number)))
            raw.send(msgspec.msgpack.encode(message))
        assert conveyor.queue("q").add("echo", number).result("20s") == number, f"after {value}"
    assert conveyor.info().pid == supervisor.pid
    assert conveyor.info().totals["added"] <= 2 * len(NONSENSE)


def test_deep_nesting(supervisor, connect, raw):
    raw.send(b"\x91" * 500_000)
    raw.send(b"\x81\xa1a" * 200_000)
    assert_serves(supervisor, connect)


def test_another_version_of_the_protocol_is_told_so(supervisor, connect, raw):
    raw.send(said(1, 1, Hello(999, 80)))
    refused = answer(raw).body
    assert refused.error == "ProtocolError"
    assert "999" in refused.message
    assert_serves(supervisor, connect)


def test_requests_without_a_greeting_change_nothing(supervisor, connect, raw):
    raw.send(said(1, 1, AddJobs("q", [NewJob("echo", b"\xc0", id="rude")])))
    assert answer(raw)
    assert connect(supervisor).queue("q").get("rude") is None


def test_bytes_that_are_no_zeromq_at_all(supervisor, connect):
    path = supervisor.url.removeprefix("ipc://")
    draw = random.Random(3)
    for size in (0, 1, 64, 100_000):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stranger.sendall(draw.randbytes(size))
    assert_serves(supervisor, connect)


def test_peers_that_connect_and_say_nothing(supervisor, connect):
    path = supervisor.url.removeprefix("ipc://")
    with contextlib.ExitStack() as silent:
        for _ in range(50):
            silent.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        assert_serves(supervisor, connect)


def test_a_message_larger_than_any_may_be(supervisor, connect, raw):
    raw.send(b"\xc4" * (200 * 1024 * 1024))
    assert_serves(supervisor, connect)


def test_garbage_is_counted(supervisor, connect, raw):
    conveyor = connect(supervisor)
    assert conveyor.info().garbage == 0
    raw.send(b"\xc1 garbage")
    until(lambda: conveyor.info().garbage == 1)


def test_garbage_on_the_workers_own_socket(supervisor, connect, start):
    paths = [path for path in start.data_dir.rglob("*") if path.is_socket()]
    assert len(paths) > 1
    draw = random.Random(4)
    for path in paths:
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.LINGER, 1_000)
            dealer.connect(f"ipc://{path}")
            dealer.send(b"\x91\xa2\xff\xff")
            dealer.send(b"\xdd\x00\x00\x00\x01\x91\xa2\xff\xff")
            for size in (0, 1, 10, 1_000):
                dealer.send(draw.randbytes(size))
                dealer.send_multipart([draw.randbytes(size)] * 5)
    assert_serves(supervisor, connect)


def test_data_larger_than_allowed_is_refused_at_the_client(supervisor, connect):
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    with pytest.raises(InvalidPayload, match="max_payload"):
        queue.add("echo", b"x" * (1024 * 1024 + 1))
    with pytest.raises(InvalidPayload, match="max_payload"):
        queue.add_many([("echo", 1), ("echo", b"x" * (1024 * 1024 + 1))])
    assert conveyor.info().totals["added"] == 0
    assert len(queue.add("echo", b"x" * (1024 * 1024 - 100)).result("20s")) == 1024 * 1024 - 100


def test_a_client_that_lies_about_the_size_is_refused_by_the_supervisor(supervisor, connect, raw):
    raw.send(said(1, 1, Hello(1, 81)))
    answer(raw)
    raw.send(said(2, 1, AddJobs("q", [NewJob("echo", b"x" * (2 * 1024 * 1024), id="huge")])))
    assert_serves(supervisor, connect)
    assert connect(supervisor).queue("q").get("huge") is None


def test_data_that_cannot_be_read_fails_its_job_and_is_told_as_such(raw, supervisor, connect):
    raw.send(said(1, 1, Hello(1, 5)))
    answer(raw)
    raw.send(said(2, 1, AddJobs("q", [NewJob("echo", b"\xc1")])))
    answer(raw)
    queue = connect(supervisor).queue("q")
    (job,) = queue.jobs()
    assert job.wait("20s") == "failed"
    assert job.failure.kind == "invalid-payload"
    with pytest.raises(CorruptRecord, match=rf"the data of {job.ref} cannot be read"):
        _ = job.data
    command = [sys.executable, "-m", "conveyor_actors.cli.main", "ls", "q", "--json", "--url", supervisor.url]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert f"the data of {job.ref} cannot be read" in listed.stdout
