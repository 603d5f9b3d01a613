"""The socket to the clients, and the one on which events are published.

Knows nothing of jobs: requests go to the engine as they are. Invariant: whatever a client sends, nothing here
raises; garbage is counted, and who sent it has to say Hello again.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import os
from pathlib import Path
from typing import Final

import zmq

from conveyor_actors import ipc
from conveyor_actors.config import SupervisorConfig
from conveyor_actors.data import UNREADABLE
from conveyor_actors.engine.inputs import ClientSays, Input
from conveyor_actors.engine.reading import pages
from conveyor_actors.errors import InvalidConfig
from conveyor_actors.packing import pack, unpack
from conveyor_actors.supervisor.frames import NOWAIT, readable, receive, send
from conveyor_actors.supervisor.logs import event
from conveyor_actors.wire import (
    EVENTS_SUFFIX,
    PROTOCOL_VERSION,
    SYNC_PREFIX,
    UNREAD_BYTES_MAX,
    Body,
    Ended,
    EventBatch,
    EventRow,
    GetInfo,
    GetWorkers,
    Hello,
    JobView,
    Ping,
    Pong,
    Published,
    Refused,
    Reply,
    ReplyBody,
    Request,
    Reset,
    Stop,
    Welcome,
    decode_request,
    encode,
    events_address,
)

log: Final = logging.getLogger("conveyor.clients")

#: What a message may have beyond the users' data in it.
_ENVELOPE_BYTES: Final = 16 * 1024 * 1024
_HANDSHAKE_MS_MAX: Final = 5_000
#: How long the end waits for replies that are still on their way.
_LAST_WORDS_MS: Final = 200
#: How much is taken from the socket at a time. What stays there is taken from all clients in turn.
_TAKEN_MESSAGES_MAX: Final = 256
_TAKEN_BYTES_MAX: Final = 256 * 1024

#: A tick's events of a queue that are larger than this are only announced; who follows them reads the log.
_PUBLISHED_BYTES_MAX: Final = 64 * 1024
_PUBLISHED_MESSAGES_MAX: Final = 256

#: (route, number of the request, what is asked): answered by the supervisor, not by the engine.
Question = tuple[bytes, int, Body]


class _Peer:
    """A client on a connection. `unread`: bytes sent to it since it last showed that it reads what it is sent."""

    __slots__ = ("client", "low", "unread")

    def __init__(self, client: int, low: int) -> None:
        self.client = client
        self.low = low
        self.unread = 0


class Gateway:
    """One ROUTER for all clients, one XPUB for all who follow events."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], config: SupervisorConfig, incarnation: int) -> None:
        self._config = config
        self._incarnation = incarnation
        self._peers: dict[bytes, _Peer] = {}
        #: Routes on which a client was lost; for the loop to pass on.
        self.gone: set[bytes] = set()
        self._topics: set[bytes] = set()
        self._last_by_topic: dict[bytes, int] = {}
        self._published_from = 0
        self.garbage = 0
        self.socket = context.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.MAXMSGSIZE, max(config.max_payload, 64 * 1024 * 1024) + _ENVELOPE_BYTES)
        self.events = context.socket(zmq.XPUB)
        self.events.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.events.setsockopt(zmq.MAXMSGSIZE, 4096)
        self.events.setsockopt(zmq.SNDHWM, _PUBLISHED_MESSAGES_MAX)
        for socket in (self.socket, self.events):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS_MAX)
            socket.setsockopt(zmq.IPV6, 1)
        self.socket.setsockopt(zmq.SNDHWM, 10_000)
        self._paths: list[Path] = []
        try:
            for address in config.listen:
                self._bind(self.socket, address)
                self._bind(self.events, events_address(address))
        except BaseException:
            self.close()
            raise

    def _bind(self, socket: zmq.Socket[bytes], address: str) -> None:
        if address.startswith(ipc.SCHEME) and ipc.absence(address) is None:  # to bind it would steal it without a word
            raise InvalidConfig(f"another process listens on {address}: stop that one, or change supervisor.listen")
        before = os.umask(0o177)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise InvalidConfig(f"cannot listen on {address}: {error.strerror}; change supervisor.listen") from error
        finally:
            os.umask(before)
        if address.startswith(ipc.SCHEME):
            path = Path(address.removeprefix(ipc.SCHEME))
            self._paths.append(path)
            if self._config.socket_group is not None:
                _give_to_group(path, self._config.socket_group)
            path.chmod(self._config.socket_mode)

    # -- receiving --------------------------------------------------------------------------------------

    def receive(self, requests: list[Input], questions: list[Question], more: bool = False) -> bool:
        """Takes what has arrived, within bounds; tells whether there was something. `more`: there is, for sure."""
        socket = self.socket
        messages = size = 0
        while messages < _TAKEN_MESSAGES_MAX and size < _TAKEN_BYTES_MAX and (more or readable(socket)):
            more = False
            messages += 1
            route, *frames = receive(socket)
            size += sum(map(len, frames))
            if len(frames) != 1:
                self._drop(route, f"a message has {len(frames)} frames; it is to have one")
                continue
            try:
                for encoded in unpack(frames[0]):
                    self._take(route, decode_request(encoded), requests, questions)
            except UNREADABLE as error:
                self._drop(route, f"the message cannot be read: {error}")
        return messages > 0

    def _take(self, route: bytes, request: Request, requests: list[Input], questions: list[Question]) -> None:
        body = request.body
        if isinstance(body, Hello):
            self._welcome(route, request, body)
            return
        peer = self._peers.get(route)
        if peer is None:
            self._turn_away(route, 0, Reset())
            return
        if request.low > peer.low:  # all that was asked before was answered, and the answers were read
            peer.low, peer.unread = request.low, 0
        if isinstance(body, Ping):
            self.reply(route, request.no, Pong())
        elif isinstance(body, (GetInfo, GetWorkers, Stop)):
            questions.append((route, request.no, body))
        else:
            requests.append(ClientSays(route, peer.client, request.no, request.low, body))

    def _welcome(self, route: bytes, request: Request, hello: Hello) -> None:
        if hello.version != PROTOCOL_VERSION:
            told = (
                f"the client speaks version {hello.version} of the protocol, this supervisor {PROTOCOL_VERSION}: "
                "install the same release of conveyor-actors on both sides"
            )
            self._turn_away(route, request.no, Refused("ProtocolError", told))
            return
        self._peers[route] = _Peer(hello.client, request.low)
        self.gone.discard(route)
        welcome = Welcome(PROTOCOL_VERSION, self._incarnation, self._config.max_payload, "~" + EVENTS_SUFFIX)
        self.reply(route, request.no, welcome)

    def _drop(self, route: bytes, why: str) -> None:
        self.garbage += 1
        self._forget(route)
        event(log, "warning", "a client was dropped", reason=why[:500])
        self._turn_away(route, 0, Refused("ProtocolError", why[:500]))

    # -- sending ----------------------------------------------------------------------------------------

    def reply(self, route: bytes, no: int, body: ReplyBody) -> None:
        self.send(route, encode(Reply(no, body)))

    def send(self, route: bytes, *replies: bytes) -> None:
        """To a client that is known and reads: what others do not read would pile up here. They ask again."""
        peer = self._peers.get(route)
        if peer is None:
            return
        for message in pack(replies):
            if peer.unread > UNREAD_BYTES_MAX:
                self._forget(route)
                self._turn_away(route, 0, Reset())  # if it does read, it asks again at once
                return
            peer.unread += len(message)
            self._send(route, message)

    def _turn_away(self, route: bytes, no: int, body: ReplyBody) -> None:
        """Something short to somebody who is no client, or no longer."""
        for message in pack([encode(Reply(no, body))]):
            self._send(route, message)

    def _send(self, route: bytes, message: bytes) -> None:
        """Never waits. A client that is gone, or to whom nothing more can be sent, is forgotten."""
        try:
            send(self.socket, (route, message))
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self._forget(route)

    def _forget(self, route: bytes) -> None:
        if self._peers.pop(route, None) is not None:
            self.gone.add(route)

    def send_all(self, replies: list[tuple[bytes, bytes]]) -> None:
        """What goes to one client goes as one message, and wakes that client once."""
        if len(replies) == 1:
            self.send(*replies[0])
            return
        by_route: dict[bytes, list[bytes]] = {}
        for route, reply in replies:
            by_route.setdefault(route, []).append(reply)
        for route, encoded in by_route.items():
            self.send(route, *encoded)

    def forget_gone(self) -> None:
        """A ROUTER does not tell who has left; sending does."""
        for route in list(self._peers):
            self.reply(route, 0, Pong())

    def push_ended(self, ended: dict[bytes, list[JobView]]) -> None:
        for route, jobs in ended.items():
            for page in pages(jobs):
                if route in self._peers:
                    self.reply(route, 0, Ended(page))

    # -- events -----------------------------------------------------------------------------------------

    def take_subscriptions(self) -> None:
        while True:
            try:
                message = self.events.recv(NOWAIT)
            except zmq.Again:
                return
            topic = message[1:]
            if topic.startswith(SYNC_PREFIX):
                if message[:1] == b"\1":
                    self._publish(topic, b"")
            elif message[:1] == b"\1":
                self._topics.add(topic)
            elif message[:1] == b"\0":
                self._topics.discard(topic)

    def publish(self, batch: EventBatch) -> None:
        """One message for each queue. Nobody follows: nothing is done."""
        if not self._topics:
            self._last_by_topic.clear()
            self._published_from = batch.first + len(batch.rows) - 1
            return
        by_topic: dict[bytes, list[tuple[int, EventRow]]] = {}
        for seq, row in enumerate(batch.rows, batch.first):
            by_topic.setdefault((row[1] or "").encode() + b"\0", []).append((seq, row))
        for topic, rows in by_topic.items():
            before = self._last_by_topic.get(topic, self._published_from)
            self._last_by_topic[topic] = rows[-1][0]
            message = encode(Published(before, batch.at_ms, rows))
            if len(message) > _PUBLISHED_BYTES_MAX:
                message = encode(Published(rows[-1][0], batch.at_ms, []))
            self._publish(topic, message)

    def _publish(self, topic: bytes, message: bytes) -> None:
        with contextlib.suppress(zmq.Again):  # whoever is too slow reads the log
            send(self.events, (topic, message))

    def close(self) -> None:
        self.socket.close(_LAST_WORDS_MS)
        self.events.close(_LAST_WORDS_MS)
        for path in self._paths:
            path.unlink(missing_ok=True)


def _give_to_group(path: Path, group: str) -> None:
    try:
        os.chown(path, -1, grp.getgrnam(group).gr_gid)
    except (KeyError, PermissionError) as error:
        raise InvalidConfig(
            f"socket_group = {group!r}: no such group, or this user may not give files to it"
        ) from error
