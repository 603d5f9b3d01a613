"""Waiting: sockets, file descriptors, timers and signals in one place.

Knows nothing of what it waits for. Invariant: nothing is polled; with nothing to do the process sleeps until the
next timer.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Final

import zmq

_SLEEP_MS_MAX: Final = 1_000


class Reactor:
    """One poller for ZeroMQ sockets; one epoll, inside it, for everything else."""

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._epoll = select.epoll()
        self._poller.register(self._epoll.fileno(), zmq.POLLIN)
        self._watched: dict[int, Callable[[], None]] = {}
        #: Whether some watched file descriptor was readable at the last `wait`.
        self.watched_ready = False
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.signals: list[int] = []
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch(self._wake_read, self._read_signals)
        self._wakeup_before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def add_socket(self, socket: zmq.Socket[bytes]) -> None:
        self._poller.register(socket, zmq.POLLIN)

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        self._watched[fd] = ready
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), call))

    def catch(self, *numbers: signal.Signals) -> None:
        """These signals are gathered in `signals` instead of having their effect."""
        for number in numbers:
            signal.signal(number, lambda number, frame: None)

    def _read_signals(self) -> None:
        self.signals += os.read(self._wake_read, 4096)

    def wait(self, wake_ms: int | None, wake_us: int | None) -> set[object]:
        """Sleeps until something is ready or due; gives the sockets that are ready.

        `wake_ms` is a wall time, `wake_us` a monotonic one. The sleep is bounded, so that a step of the clock is seen.
        """
        timeout = _SLEEP_MS_MAX
        if self._timers:
            timeout = min(timeout, _ms_until(self._timers[0][0] - time.monotonic()))
        if wake_ms is not None:
            timeout = min(timeout, _ms_until(wake_ms / 1000 - time.time()))
        if wake_us is not None:
            timeout = min(timeout, _ms_until(wake_us / 1_000_000 - time.monotonic()))
        ready = {each for each, _ in self._poller.poll(timeout)}
        self.watched_ready = self._epoll.fileno() in ready
        return ready

    def run_ready(self) -> None:
        """Calls whoever waits for a file descriptor that is readable, or for a time that has come."""
        if self.watched_ready:
            for fd, ready in [(fd, self._watched[fd]) for fd, _ in self._epoll.poll(0)]:
                if self._watched.get(fd) is ready:  # else its number may mean another file by now
                    ready()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def close(self) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _ms_until(seconds: float) -> int:
    return max(0, int(seconds * 1000) + 1) if seconds > 0 else 0
