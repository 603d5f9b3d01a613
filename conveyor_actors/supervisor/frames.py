"""ZeroMQ messages of one or more frames, sent and received without ever waiting.

Knows nothing of what they say. pyzmq's own `send_multipart` and `recv_multipart` compute with enums for each frame,
which costs more than the sending and receiving.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import zmq

Socket = zmq.Socket[bytes]

NOWAIT: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)


def readable(socket: Socket) -> bool:
    """Whether a message is there; costs half of what being told `zmq.Again` does."""
    return bool(int(socket.get(_EVENTS)) & _POLLIN)


def receive(socket: Socket) -> list[bytes]:
    """All frames of a message, or `zmq.Again`. Not where a signal handler may raise: an exception that meets the end of
    a `zmq.Frame` is lost.
    """
    frames = []
    while True:
        frame = socket.recv(NOWAIT, copy=False)
        frames.append(frame.bytes)
        if not frame.more:
            return frames


def send(socket: Socket, frames: Sequence[bytes]) -> None:
    """The frames as one message; `zmq.Again` or another error leaves none of them behind."""
    for frame in frames[:-1]:
        socket.send(frame, _MORE)
    socket.send(frames[-1], NOWAIT)
