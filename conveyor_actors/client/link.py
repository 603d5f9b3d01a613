"""A ZeroMQ socket with all that belongs to it: its context, a monitor that tells of connections, a way to be woken.

Knows nothing of messages. Invariant: one thread at a time; only `wake` may be called beside it.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
from typing import Final

import zmq

from conveyor_actors.errors import SupervisorUnreachable

_RECONNECT_MS: Final = 20
_RECONNECT_MS_MAX: Final = 500
_HEARTBEAT_MS: Final = 5_000
_POLL_MS_MAX: Final = 3_600_000
_EVENTS: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Link:
    """A connection that is made again whenever it is lost."""

    def __init__(self, kind: zmq.SocketType, address: str, subscriptions: tuple[bytes, ...] = ()) -> None:
        self.connected = False
        self._made_anew = False
        self._pid = os.getpid()
        self._wakeup = -1
        self._wakeup_lock = threading.RLock()
        self._closing = contextlib.ExitStack()
        try:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            self._closing.callback(context.term)
            self.socket = context.socket(kind)
            self._closing.callback(self.socket.close, 0)
            _configure(self.socket, address)
            for topic in subscriptions:
                self.socket.setsockopt(zmq.SUBSCRIBE, topic)
            self.socket.monitor("inproc://monitor", int(_EVENTS))
            self._monitor = context.socket(zmq.PAIR)
            self._closing.callback(self._monitor.close, 0)
            self._closing.callback(self.socket.disable_monitor)
            self._monitor.connect("inproc://monitor")
            self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._closing.callback(self._close_wakeup)
            self._poller = zmq.Poller()
            for each in (self.socket, self._monitor, self._wakeup):
                self._poller.register(each, zmq.POLLIN)
            self.socket.connect(address)
        except (zmq.ZMQError, OSError) as error:
            self._closing.close()
            raise SupervisorUnreachable(f"cannot connect to {address}: {error}") from error

    def wait(self, seconds: float | None) -> bool:
        """Waits for messages, a change of the connection or a wake-up; tells whether there are messages."""
        timeout_ms = _POLL_MS_MAX if seconds is None else min(_POLL_MS_MAX, max(0, math.ceil(seconds * 1000)))
        messages = False
        for each, _ in self._poller.poll(timeout_ms):
            if each is self.socket:
                messages = True
            elif each is self._monitor:
                self._note_changes()
            else:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._wakeup)
        return messages

    def made_anew(self) -> bool:
        """Whether a connection was made since this was last asked."""
        anew, self._made_anew = self._made_anew, False
        return anew and self.connected

    def wake(self) -> None:
        """Ends the `wait` of another thread, or the next one."""
        with self._wakeup_lock:
            if self._wakeup >= 0:
                os.eventfd_write(self._wakeup, 1)

    def close(self) -> None:
        """Never waits: what is unsent is dropped. In a forked child nothing is done, for nothing there is its own."""
        if os.getpid() == self._pid:
            self._closing.close()

    def __del__(self) -> None:
        self.close()

    def _close_wakeup(self) -> None:
        with self._wakeup_lock:  # the number may belong to another file a moment later
            os.close(self._wakeup)
            self._wakeup = -1

    def _note_changes(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                told = self._monitor.recv_multipart(zmq.NOBLOCK)[0]
                self.connected = int.from_bytes(told[:2], sys.byteorder) == zmq.EVENT_HANDSHAKE_SUCCEEDED
                self._made_anew |= self.connected


def _configure(socket: zmq.Socket[bytes], address: str) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX)
    socket.setsockopt(zmq.IPV6, 1)
    if socket.type == zmq.DEALER:
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, 0)
    if address.startswith("tcp://"):  # a host that is gone without a word is noticed all the same
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * _HEARTBEAT_MS)
