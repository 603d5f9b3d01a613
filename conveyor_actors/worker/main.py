"""A worker's life: connect, say ready, and run what comes until told to end.

Runs in a process that its spawner forked. Knows nothing of queues or states. Invariant: between two jobs everything
finished is in the box or sent; nothing waits longer than about a millisecond to be sent, unless a job runs.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

import zmq

from conveyor_actors.box import OUTCOMES_BYTES_MAX, TOKEN, Box
from conveyor_actors.handlers import registry
from conveyor_actors.packing import join
from conveyor_actors.wire import Fork, Outcome, Ready, Task, decode_tasks, encode
from conveyor_actors.worker import heartbeat
from conveyor_actors.worker.executor import Executor

_FLUSH_NS: Final = 1_000_000
_BEFORE_OURS: Final = "/proc/self/task"


def work(order: Fork, max_payload: int) -> None:
    """Never returns normally: a worker ends when it is killed, or when its supervisor closes the conversation."""
    box = Box.open(Path(order.box))
    if box is None:
        raise FileNotFoundError(f"the box {order.box} is not there")
    before = _threads()
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, order.identity)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.connect(order.address)
    heartbeat.start(box, order.beat_ms)
    ours = sorted(_threads() - before)
    socket.send(encode(Ready(os.getpid(), ours)))
    Mailbox(socket, box, Executor(box, registry, max_payload)).run()


def _threads() -> set[int]:
    return {int(name) for name in os.listdir(_BEFORE_OURS)} - {threading.get_native_id()}


class Mailbox:
    """Takes tasks from the socket and sends outcomes back."""

    def __init__(self, socket: zmq.Socket[bytes], box: Box, executor: Executor) -> None:
        self._socket = socket
        self._box = box
        self._executor = executor
        self._tasks: deque[Task] = deque()
        self._flushed_ns = 0

    def run(self) -> None:
        tasks, box = self._tasks, self._box
        while True:
            if not tasks:
                self._flush()
                self._receive(wait=True)
                continue
            task = tasks.popleft()
            if time.monotonic_ns() - self._flushed_ns > _FLUSH_NS:
                self._flush()
                self._receive(wait=False)
            if not box.claim(task.token):
                continue
            outcome = self._executor.run(task)
            self._keep(outcome)
            box.slots[TOKEN] = 0

    def _receive(self, *, wait: bool) -> None:
        flags = 0 if wait else zmq.NOBLOCK
        while True:
            try:
                self._tasks.extend(decode_tasks(self._socket.recv(flags)))
            except zmq.Again:
                return
            flags = zmq.NOBLOCK

    def _keep(self, outcome: Outcome) -> None:
        encoded = encode(outcome)
        box = self._box
        if box.add_outcome(encoded):
            return
        self._flush()
        if len(encoded) > OUTCOMES_BYTES_MAX:
            self._socket.send(join(1, encoded))
            box.mark_large_sent()
        else:
            box.turn_over()
            box.add_outcome(encoded)

    def _flush(self) -> None:
        message = self._box.unsent()
        if message is not None:
            self._socket.send(message)
            self._box.mark_sent()
        self._flushed_ns = time.monotonic_ns()
