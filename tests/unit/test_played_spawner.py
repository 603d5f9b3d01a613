"""A pool and a spawner that the test plays: what comes late, twice or not at all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from conveyor_actors.box import BOX_BYTES, Box
from conveyor_actors.config import PoolConfig
from conveyor_actors.engine.inputs import Input, WorkerDied
from conveyor_actors.supervisor import processes
from conveyor_actors.supervisor.pools import Host, Pool
from conveyor_actors.supervisor.spawner_process import SpawnerProcess
from conveyor_actors.wire import Catalogue, Exited, Fork, Forked, ImportFailed, Outcome, Ready, decode_fork, encode

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


class PlayedSpawner(SpawnerProcess):
    """A process that does nothing; the test says what it would."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.id = "played"
        self.control = control
        self.pidfd = os.pidfd_open(process.pid)
        self._process = process

    def kill_descendants(self, others: Collection[int], seconds: float) -> bool:
        """The descendants of this process are others'."""
        return True


class Stage:
    """A pool of one worker without its spawner; timers and watched descriptors are run by hand."""

    def __init__(self, home: Path) -> None:
        self.inputs: list[Input] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.watched: dict[int, Callable[[], None]] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        host = Host(
            home,
            home,
            "store",
            1,
            "ipc://nowhere",
            1000,
            1000,
            1024,
            set(),
            self.inputs,
            self.watched.__setitem__,
            lambda fd: self.watched.pop(fd, None) and None,
            lambda seconds, call: self.timers.append((seconds, call)),
            lambda token: None,
            lambda call: call(),
        )
        self.pool = Pool(PoolConfig(name="p", workers=1), host)
        self.control, self.spawner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        self.pool._adopt(PlayedSpawner(self.control, self.sleeper()))

    def sleeper(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(SLEEPER)
        self.processes.append(process)
        return process

    def read(self) -> None:
        self.watched[self.control.fileno()]()

    def ordered(self) -> Fork:
        """The pool hears of its handlers and orders a worker."""
        self.spawner.send(encode(Catalogue([])))
        self.read()
        return decode_fork(self.spawner.recv(10_000))

    def forked(self, order: Fork) -> subprocess.Popen[bytes]:
        worker = self.sleeper()
        pidfd = os.pidfd_open(worker.pid)
        report = encode(Forked(order.worker, worker.pid, processes.start_ticks(worker.pid)))
        self.spawner.sendmsg([report], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [pidfd]))])
        os.close(pidfd)
        self.read()
        return worker

    def pass_time(self) -> None:
        """All that was to be done later is due."""
        timers, self.timers[:] = list(self.timers), []
        for _, call in timers:
            call()

    def close(self) -> None:
        self.spawner.close()
        for process in self.processes:
            process.kill()
            process.wait()
        self.pool.stop()
        self.pool.close(keep_boxes=False)


@pytest.fixture
def stage(home: Path) -> Iterator[Stage]:
    stage = Stage(home)
    yield stage
    stage.close()


def test_what_a_spawner_reported_before_it_died_is_read_also_behind_an_unread_order(stage: Stage) -> None:
    """The kernel tells of the lost order first, and of what was sent after that."""
    stage.spawner.send(encode(ImportFailed("tasks", "ModuleNotFoundError: no module", "")))
    stage.control.send(b"an order that nobody reads")
    stage.spawner.close()
    stage.read()
    assert stage.pool.state == "suspended"
    assert "ModuleNotFoundError" in stage.pool.reason


def test_a_worker_that_is_not_ready_in_time_is_killed_and_counted(stage: Stage) -> None:
    order = stage.ordered()
    hanging = stage.forked(order)
    stage.pass_time()
    assert hanging.wait(10) == -signal.SIGKILL
    stage.spawner.send(encode(Exited(order.worker, hanging.pid, signal.SIGKILL, 0, 0)))
    stage.read()
    (died,) = [told for told in stage.inputs if isinstance(told, WorkerDied)]
    assert "is not ready after 60 s" in died.message
    assert stage.pool._early_deaths_in_a_row == 1


def test_a_worker_that_is_ready_in_time_is_left_alone(stage: Stage) -> None:
    order = stage.ordered()
    worker = stage.forked(order)
    stage.pool.worker_ready(stage.pool.workers[order.worker], Ready(worker.pid, []))
    stage.pass_time()
    assert worker.poll() is None


def test_a_spawner_that_forks_nothing_is_killed(stage: Stage) -> None:
    stage.ordered()
    stage.pass_time()
    assert stage.processes[0].wait(10) == -signal.SIGKILL


def test_a_spawner_that_does_not_report_a_death_is_killed_and_the_death_is_told_all_the_same(stage: Stage) -> None:
    order = stage.ordered()
    worker = stage.forked(order)
    told = stage.pool.workers[order.worker]
    stage.pool.worker_ready(told, Ready(worker.pid, []))
    worker.kill()
    worker.wait()
    stage.watched[told.pidfd]()
    assert stage.pool.workers  # its end was not reported yet
    stage.pass_time()
    assert stage.processes[0].wait(10) == -signal.SIGKILL
    next(call for call in stage.watched.values() if call == stage.pool._spawner_died)()
    (died,) = [told for told in stage.inputs if isinstance(told, WorkerDied)]
    assert (died.worker, died.cause) == (order.worker, "orphaned")
    assert not stage.pool.workers


def test_a_worker_whose_pidfd_was_lost_on_the_way_is_reported_by_its_spawner(stage: Stage) -> None:
    order = stage.ordered()
    stage.spawner.send(encode(Forked(order.worker, 1, 1)))
    stage.spawner.send(encode(Exited(order.worker, 1, 0, 0, 0)))
    stage.read()
    assert [told.worker for told in stage.inputs if isinstance(told, WorkerDied)] == [order.worker]


class Worker:
    """A worker that is ready, and that the test plays to its end."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.order = stage.ordered()
        self.process = stage.forked(self.order)
        self.told = stage.pool.workers[self.order.worker]
        stage.pool.worker_ready(self.told, Ready(self.process.pid, []))
        stage.timers.clear()  # to wait for it, and the like
        box = Box.open(Path(self.order.box))
        assert box is not None
        self.box = box

    def sends(self, token: int) -> bytes:
        self.box.add_outcome(encode(Outcome(token, 0, 0, 0)))
        message = self.box.unsent()
        assert message is not None
        self.box.mark_sent()
        return message

    def dies(self) -> None:
        self.box.close()
        self.stage.spawner.send(encode(Exited(self.order.worker, self.process.pid, signal.SIGKILL, 0, 0)))
        self.stage.read()

    def death(self) -> WorkerDied | None:
        return next((told for told in self.stage.inputs if isinstance(told, WorkerDied)), None)


def test_a_death_waits_for_what_the_worker_had_sent_and_its_box_has_no_more(stage: Stage) -> None:
    worker = Worker(stage)
    first = worker.sends(1)
    worker.box.turn_over()
    worker.sends(2)
    worker.box.turn_over()
    worker.sends(3)
    worker.dies()
    stage.pass_time()
    assert worker.death() is None
    worker.told.heard(first)
    stage.pass_time()
    died = worker.death()
    assert died is not None
    assert [outcome.token for outcome in died.outcomes] == [2, 3]


def test_a_death_waits_for_a_large_outcome_that_was_on_its_way(stage: Stage) -> None:
    worker = Worker(stage)
    worker.box.mark_large_sent()
    worker.dies()
    assert worker.death() is None
    worker.told.heard(bytes(BOX_BYTES))
    stage.pass_time()
    assert worker.death() is not None


def test_a_death_does_not_wait_for_long(stage: Stage) -> None:
    worker = Worker(stage)
    for token in range(5):
        worker.sends(token)
        worker.box.turn_over()
    worker.dies()
    deadline = time.monotonic() + 10
    while worker.death() is None:
        assert time.monotonic() < deadline
        stage.pass_time()
    assert worker.death().outcomes  # type: ignore[union-attr]


def test_a_pool_that_is_suspended_keeps_its_reason_when_a_worker_comes_late(stage: Stage) -> None:
    order = stage.ordered()
    worker = stage.forked(order)
    stage.pool._suspend("too many deaths")
    stage.pool.worker_ready(stage.pool.workers[order.worker], Ready(worker.pid, []))
    assert stage.pool.info().reason == "too many deaths"
