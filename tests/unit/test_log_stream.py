"""Lines of the log: in order, whole or counted as dropped, and never waited for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from conveyor_actors.supervisor import log_stream
from conveyor_actors.supervisor.log_stream import LogStream
from conveyor_actors.supervisor.output import _stream


class Pipe:
    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)

    def read(self) -> bytes:
        parts = []
        try:
            while part := os.read(self.reading, 65_536):
                parts.append(part)
        except BlockingIOError:
            pass
        return b"".join(parts)

    def fill(self) -> int:
        """Bytes it takes until it is full."""
        os.set_blocking(self.writing, False)
        filled = 0
        try:
            while True:
                filled += os.write(self.writing, b"-" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writing, True)
        return filled

    def close(self) -> None:
        os.close(self.reading)
        os.close(self.writing)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_lines_are_written_at_once_and_however_long_they_are(pipe: Pipe) -> None:
    stream = LogStream(pipe.writing)
    stream.write("short\n")
    stream.write("x" * 20_000 + "ü\n")
    assert pipe.read().decode() == "short\n" + "x" * 20_000 + "ü\n"


def test_what_has_no_room_is_written_when_there_is_some(pipe: Pipe) -> None:
    stream = LogStream(pipe.writing)
    filled = pipe.fill()
    stream.write("one\n")
    stream.write("two\n")
    assert len(pipe.read()) == filled
    stream.flush()
    assert pipe.read() == b"one\ntwo\n"


def test_what_is_too_much_to_be_kept_is_counted(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_stream, "_KEPT_BYTES_MAX", 1_000)
    stream = LogStream(pipe.writing)
    filled = pipe.fill()
    for number in range(300):
        stream.write(f"line {number:04}\n")
    assert len(pipe.read()) == filled
    stream.flush()
    kept = pipe.read().decode().splitlines()
    assert kept == [f"line {number:04}" for number in range(100)]
    stream.write("after\n")
    assert pipe.read().decode() == "(200 lines of the log were dropped: nobody read them)\nafter\n"


def test_at_the_end_a_reader_gets_a_moment(pipe: Pipe) -> None:
    stream = LogStream(pipe.writing)
    filled = pipe.fill()
    stream.write("the end\n")
    reader = threading.Timer(0.05, lambda: os.read(pipe.reading, filled))
    reader.start()
    stream.finish()
    reader.join()
    assert pipe.read() == b"the end\n"


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    stream = LogStream(writing)
    os.close(reading)
    stream.write("to nobody\n")
    stream.finish()
    assert not stream._kept
    os.close(writing)


def test_a_terminal_that_shows_nothing_more_stops_nobody() -> None:
    leading, following = os.openpty()
    stream = LogStream(following)
    assert stream.isatty()
    for number in range(1_000):
        stream.write(f"line {number} " + "x" * 120 + "\n")
    os.close(leading)
    os.close(following)


def test_what_is_printed_where_nothing_can_be_is_lost_and_nobody_waits(pipe: Pipe) -> None:
    filled = pipe.fill()
    os.set_blocking(pipe.writing, False)
    printed = _stream(pipe.writing, "replace")
    for _ in range(100):
        printed.write("a line\n")
    os.set_blocking(pipe.writing, True)
    assert len(pipe.read()) == filled
