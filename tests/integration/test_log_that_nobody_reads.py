"""A closed, full or forgotten log stops neither the supervisor nor a job; what handlers print is there at once."""

import contextlib
import os
import socket

import pytest
from waiting import until

from conveyor_actors import Conveyor


@pytest.fixture(autouse=True)
def buffered(monkeypatch):
    """As a user has it."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


@contextlib.contextmanager
def full_pipe():
    """The writing end of a pipe that has no room, and that nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(65_536))
    os.set_blocking(writing, True)
    yield writing
    os.close(reading)
    os.close(writing)


@contextlib.contextmanager
def full_socket():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                theirs.send(bytes(65_536))
        theirs.setblocking(True)
        yield theirs.fileno()


@pytest.mark.parametrize("full", [full_pipe, full_socket])
def test_jobs_run_and_the_supervisor_stops_while_its_log_has_no_room(start, full):
    with full() as log, start.process(stderr=log) as process:
        with Conveyor(start.url) as conveyor:
            queue = conveyor.queue("q")
            crashed = queue.add("crash", {"how": "kill"})
            assert crashed.result("20s") == "survived"
            assert queue.add("echo", "on").result("20s") == "on"
        process.terminate()
        assert process.wait(timeout=20) == 0


@contextlib.contextmanager
def full_disk():
    with open("/dev/full", "wb") as file:
        yield {"stdout": file, "stderr": file}


@contextlib.contextmanager
def nobody():
    reading, writing = os.pipe()
    os.close(reading)
    yield {"stdout": writing, "stderr": writing}
    os.close(writing)


@contextlib.contextmanager
def closed():
    yield {"prepare": lambda: os.closerange(0, 3)}


@pytest.mark.parametrize("streams", [full_disk, nobody, closed])
def test_modules_may_print_where_nothing_can_be_printed(start, streams):
    pools = {"default": {"imports": ["jobs", "prints_when_imported"]}}
    with streams() as given, start.process(pools=pools, **given) as process:
        with Conveyor(start.url) as conveyor:
            assert conveyor.queue("q").add("echo", "ran").result("20s") == "ran"
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_what_a_handler_prints_is_in_the_log_when_its_job_has_ended(start, home):
    with open(home / "log", "wb") as log, start.process(stdout=log, stderr=log) as process:
        with Conveyor(start.url) as conveyor:
            conveyor.queue("q").add("prints", "a line of a job").result("20s")
        until(lambda: b"a line of a job\n" in (home / "log").read_bytes())
        process.terminate()
        process.wait()
