"""A pool's spawner as its supervisor sees it: a process, and a conversation with it.

Knows nothing of workers or of when to start one. Invariant: all that a spawner has reported is read before its end is
acted on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from conveyor_actors.supervisor import processes
from conveyor_actors.supervisor.spawner import MESSAGE_BYTES_MAX
from conveyor_actors.wire import Fork, Report, Setup, decode_report, encode

_STOP_SECONDS_MAX: Final = 5.0
_STRAYS_SECONDS_MAX: Final = 0.5


def _hard_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


class SpawnerProcess:
    """One that runs. `control` is readable when it has reported something, `pidfd` when it has ended."""

    def __init__(self, environment: Mapping[str, str], files: int) -> None:
        """Starts it by exec, so that it shares no memory, no store and no sockets with us. Raises OSError.

        `files`: how many it may open, as whoever started us had it.
        """
        self.id = secrets.token_hex(8)
        marked = {**environment, processes.SPAWNER_VARIABLE: self.id}
        with contextlib.ExitStack() as unless_started:
            self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            unless_started.callback(self.control.close)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "conveyor_actors.supervisor.spawner", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env=marked,
                    start_new_session=True,  # what a terminal sends reaches the supervisor alone
                )
            unless_started.callback(self._process.wait)
            unless_started.callback(self._process.kill)
            self.pidfd = os.pidfd_open(self._process.pid)
            resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (files, _hard_limit()))
            unless_started.pop_all()
        self.control.setblocking(False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, order: Setup | Fork) -> bool:
        """False if it takes nothing: it is gone, which its pidfd tells, or has too much to do."""
        try:
            self.control.send(encode(order))
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return False
        return True

    def reports(self) -> Iterator[tuple[Report, int]]:
        """What it has reported, each with the descriptor that came with it, or -1. EOFError if no more will come."""
        while True:
            try:
                message, rights, _, _ = self.control.recvmsg(MESSAGE_BYTES_MAX, socket.CMSG_SPACE(4))
            except BlockingIOError:
                return
            except ConnectionResetError:  # it died with an order unread; its own reports come after this
                continue
            if not message:
                raise EOFError
            fds = array("i")
            for _, kind, raw in rights:
                if kind == socket.SCM_RIGHTS:
                    fds.frombytes(raw)
            yield decode_report(message), fds[0] if fds else -1

    def kill(self) -> None:
        self._process.kill()

    def ended(self) -> str:
        """Takes its end, and says how it came to it."""
        code = self._process.wait()
        if code < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-code).name
        return f"status {code}"

    def let_go(self, *, at_once: bool) -> None:
        """Begins its end: it kills what is left of its workers, and goes."""
        self.control.close()
        if at_once:
            self._process.kill()

    def await_end(self, others: Collection[int]) -> None:
        """After `let_go`. If it cannot, we do."""
        try:
            if self._process.wait(_STOP_SECONDS_MAX) == 0:
                return
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.kill_descendants(others, _STRAYS_SECONDS_MAX)

    def kill_descendants(self, others: Collection[int], seconds: float) -> bool:
        """After its end: kills all that it has started and that was started by those. False if some is alive after
        this time.

        All carry its mark but those that were given another environment. And those whose parents are dead are children
        of ours now, beside `others` that are none of its.
        """
        deadline = time.monotonic() + seconds
        marked = processes.kill_marked(processes.SPAWNER_VARIABLE, self.id, deadline)
        if os.getpid() == 1:  # everybody's orphans come to us
            return not marked
        return not marked and processes.kill_children(others, deadline).none_left

    def close(self) -> None:
        """After its end."""
        self.control.close()
        os.close(self.pidfd)
