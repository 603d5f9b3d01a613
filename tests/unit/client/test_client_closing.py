"""The end: never in the way of a closing program, and nothing is left."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from beside import in_thread, joined, settled
from fake_supervisor import DEADLINE_S, FakeSupervisor

from conveyor_actors import (
    Closed,
    Conveyor,
    wire,
)

Connect = Callable[..., Conveyor]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def fake_connections(url: str) -> list[str]:
    """Connections that the fake, in this same process, has accepted and not yet seen closed."""
    path = url.removeprefix("ipc://")
    lines = Path("/proc/net/unix").read_text().splitlines()
    return [line for line in lines if path in line and line.split()[5] == "03"]


def test_close_wakes_all_who_wait_and_everything_after_it_is_refused(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    queue = conveyor.queue("images")
    jobs = queue.add_many([("resize", number) for number in range(4)])
    waiting = [in_thread(job.result) for job in jobs]
    while len(fake._waits) < 4:
        fake.await_request(wire.WaitJobs, fake.count(wire.WaitJobs))
    conveyor.close()
    conveyor.close()
    assert [type(joined(one)) for one in waiting] == [Closed] * 4
    for use in (conveyor.ping, jobs[0].refresh, jobs[0].result, lambda: queue.add("resize"), conveyor.events):
        with pytest.raises(Closed, match="was closed"):
            use()


def test_close_in_the_middle_of_the_first_contact_ends_it(connect: Connect) -> None:
    conveyor = connect()
    running = in_thread(conveyor.ping)
    while conveyor._channel._leader is None and not running[1]:
        time.sleep(0.001)
    conveyor.close()
    assert isinstance(joined(running), Closed)


@pytest.mark.parametrize("use", ["add", "result", "ping"])
def test_close_between_asking_and_sending_is_told_as_such(
    fake: FakeSupervisor, conveyor: Conveyor, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    queue = conveyor.queue("images")
    job = queue.add("resize", 1)
    push = conveyor._channel._push

    def close_first() -> None:
        joined(in_thread(conveyor.close))
        push()

    monkeypatch.setattr(conveyor._channel, "_push", close_first)
    with pytest.raises(Closed, match="was closed"):
        {"add": lambda: queue.add("resize", 2), "result": job.result, "ping": conveyor.ping}[use]()


def test_nothing_is_left_open(fake: FakeSupervisor, url: str) -> None:
    with Conveyor(url) as conveyor:
        conveyor.ping()
    gc.collect()
    settled(lambda: not fake_connections(url))  # the fake closes its ends a moment after the client did
    before = descriptors(), threads()
    for _ in range(20):
        with Conveyor(url) as conveyor, conveyor.events():
            conveyor.ping()
        forgotten = Conveyor(url)
        forgotten.ping()
        forgotten.events()
        del forgotten
    gc.collect()
    settled(lambda: (descriptors(), threads()) == before)


def test_in_a_forked_child_it_is_refused_and_the_parent_goes_on(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    job = conveyor.queue("images").add("resize", 1)
    events = conveyor.events()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for use in (conveyor.ping, job.result, job.refresh, events.__next__, conveyor.events):
                try:
                    use()
                except Closed as error:
                    os.write(writing, f"{error}\n".encode())
            conveyor.close()
            events.close()
            del conveyor, job, events
            gc.collect()
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading) as told:
        lines = told.read().splitlines()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(lines) == 5 and all("make a new Conveyor after fork" in line for line in lines)
    assert conveyor.ping() < DEADLINE_S
    events.close()


def test_a_program_that_forgets_to_close_ends_all_the_same(fake: FakeSupervisor, url: str) -> None:
    program = (
        "import os, sys\n"
        "from conveyor_actors import Conveyor\n"
        f"conveyor = Conveyor({url!r})\n"
        "conveyor.ping()\n"
        "events = conveyor.events()\n"
        "if os.fork() == 0:\n"
        "    sys.exit(0)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    root = Path(__file__).parents[3]
    # ZeroMQ has threads, and from Python 3.12 on a fork beside threads is warned of.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, cwd=root, timeout=DEADLINE_S, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_conveyor_that_was_closed_is_not_entered_again(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    conveyor.ping()
    conveyor.close()
    with pytest.raises(Closed), conveyor:
        pass
