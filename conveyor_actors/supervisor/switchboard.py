"""The socket to the workers: tasks out, outcomes in.

Knows nothing of what a task is for. Invariant: a message counts only if it comes from an identity that was handed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import zmq

from conveyor_actors.data import UNREADABLE
from conveyor_actors.engine.inputs import Input, Outcomes
from conveyor_actors.errors import DataDirError
from conveyor_actors.packing import LIST_MARK
from conveyor_actors.supervisor.frames import readable, receive, send
from conveyor_actors.supervisor.logs import event
from conveyor_actors.supervisor.workers import WorkerProcess
from conveyor_actors.wire import Task, decode_outcomes, decode_ready, encode

log: Final = logging.getLogger("conveyor.workers")

#: How much is taken from the socket at a time.
_TAKEN_MESSAGES_MAX: Final = 256
_TAKEN_BYTES_MAX: Final = 8 * 1024 * 1024


class Switchboard:
    """One ROUTER for all workers of all pools."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.SNDHWM, 0)
        self.socket.setsockopt(zmq.RCVHWM, 0)
        try:
            self.socket.bind(address)
        except zmq.ZMQError as error:
            raise DataDirError(
                f"cannot make the workers' socket {address}: {error.strerror}; use a shorter data_dir"
            ) from error
        self._address = address
        self.garbage = 0

    def receive(self, find: Callable[[str], WorkerProcess | None], inputs: list[Input]) -> bool:
        """Takes what has arrived; tells whether there was something. `find` knows the workers that may speak."""
        socket = self.socket
        messages = size = 0
        while messages < _TAKEN_MESSAGES_MAX and size < _TAKEN_BYTES_MAX and readable(socket):
            messages += 1
            frames = receive(socket)
            size += sum(map(len, frames))
            worker = find(frames[0].partition(b":")[0].decode("utf-8", "replace"))
            if worker is None or worker.identity != frames[0] or len(frames) != 2:
                self.garbage += 1
                continue
            try:
                if frames[1][:1] and frames[1][0] == LIST_MARK:
                    inputs.append(Outcomes(worker.id, decode_outcomes(frames[1])))
                    worker.heard(frames[1])
                else:
                    worker.pool.worker_ready(worker, decode_ready(frames[1]))
            except UNREADABLE as error:
                self.garbage += 1
                event(log, "warning", f"worker {worker.id} sent what cannot be read: {error}")
        return messages > 0

    def send(self, worker: WorkerProcess, tasks: list[Task]) -> None:
        """A worker that is gone by now gets nothing; its death brings the jobs back."""
        try:
            send(self.socket, (worker.identity, encode(tasks)))
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise

    def close(self) -> None:
        self.socket.close(0)
        Path(self._address.removeprefix("ipc://")).unlink(missing_ok=True)
