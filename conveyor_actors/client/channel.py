"""The synchronous way to the supervisor, shared by many threads and without a thread of its own.

Must not know what requests mean. Of those who wait one leads: it reads for all and hands on when it has its answer, so
that a lone caller pays for no hop. Invariant: the link is touched by the leader, or under the lock while there is none.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Collection
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final, Protocol, TypeVar
from weakref import WeakSet

import zmq
from msgspec import Raw

from conveyor_actors.client.link import Link
from conveyor_actors.client.session import Call, Session, Wait, Waiter
from conveyor_actors.data import UNREADABLE
from conveyor_actors.errors import Closed, OutcomeUnknown, ProtocolError, RemoteError, SupervisorUnreachable
from conveyor_actors.ipc import absence
from conveyor_actors.packing import pack, unpack
from conveyor_actors.units import format_duration
from conveyor_actors.wire import Body, JobView, Message, Ref, Welcome

#: After so long without a word the supervisor is asked whether it still knows this connection.
SILENCE_S: Final = 5.0
#: So long an answer may take that a caller did not want to wait for.
_ANSWER_S: Final = 2.0
#: So long a socket may be missing, as it is while a supervisor starts.
ABSENT_S: Final = 2.0
START_ONE: Final = "start one with: conveyor-supervisor --config conveyor.toml"

Answer = TypeVar("Answer", bound=Message)


class Closable(Protocol):
    def close(self) -> None: ...


class Channel:
    """Requests and answers, and the ends of jobs, over one connection."""

    def __init__(self, address: str, timeout_ms: int) -> None:
        self.address: Final = address
        self._timeout_ms: Final = timeout_ms
        self._pid: Final = os.getpid()
        self._session: Final = Session()
        self._link: Link | None = None
        # Reentrant: a signal handler may call close() while its own thread is in here.
        self._lock: Final = threading.RLock()
        self._leader: Waiter | None = None
        self._leader_thread = 0
        self._followers: Final[dict[Waiter, SimpleQueue[None]]] = {}
        self._given_up: Final[deque[Waiter]] = deque()
        self._woken = False
        # A signal handler may raise between any two steps in here, and what was just read or to be sent is lost: then
        # all that is unanswered is asked again.
        self._in_doubt = False
        self._ask_at = 0.0
        self._dependents: Final[WeakSet[Closable]] = WeakSet()
        self._closed = False

    # -- what callers use -------------------------------------------------------------------------------

    @property
    def timeout_s(self) -> float:
        return self._timeout_ms / 1000

    def connect(self) -> Welcome:
        """What the supervisor said on being greeted; the first caller greets it."""
        self._check_open()
        welcome = self._session.welcome
        return welcome if welcome is not None else self._greet()

    def call(self, body: Body, kind: type[Answer]) -> Answer:
        """Asks and waits for the answer."""
        return self.finish(self.start(body), kind)

    def start(self, body: Body) -> Call:
        """Asks without waiting: `finish` gives the answer."""
        self.connect()
        deadline = monotonic() + self.timeout_s
        while True:
            self.check_process()
            try:
                with self._lock:
                    self._check_open()
                    self._tidy()
                    room = self._session.room() if self._session.full else None
                    if room is None:
                        call = self._session.request(body)
                if room is None:
                    self._push()
                    return call
            except BaseException:
                self._doubt()
                raise
            if not self._await(room, deadline):
                self.give_up(room)
                raise SupervisorUnreachable(self._no_answer("the requests before this one were not answered"))

    def finish(self, call: Call, kind: type[Answer]) -> Answer:
        """The answer to what was asked by `start`. Its time begins now: the caller may have been busy elsewhere."""
        try:
            answered = self._await(call, monotonic() + self.timeout_s)
        except BaseException:
            self.give_up(call)
            raise
        if not answered:
            self.give_up(call)
            with self._lock:
                self._tidy()  # so that nobody sends it after it was told whether it was sent
            if not call.ready:
                raise self._unanswered(call)
        call.check()
        if not isinstance(call.answer, kind):
            raise ProtocolError(f"the supervisor answered {type(call.answer).__name__} and not {kind.__name__}")
        return call.answer

    def watch(self, refs: Collection[Ref]) -> Wait:
        """Begins to wait for the end of jobs: `take` gives them. To be ended by `give_up`."""
        self.connect()
        self.check_process()
        try:
            with self._lock:
                self._check_open()
                self._tidy()
                wait = self._session.watch(refs)
            self._push()
            return wait
        except BaseException:
            self._doubt()
            raise

    def take(self, wait: Wait, deadline: float | None) -> list[tuple[Ref, JobView | None]]:
        """Those that have ended since the last time, at least one; none at all if that takes beyond the deadline.

        Whether they had ended before the wait is a question, and its answer has a moment of its own to come.
        """
        answer_until = monotonic() + min(self.timeout_s, _ANSWER_S)
        if not self._await(wait, deadline):
            with self._lock:
                self._session.overdue(wait)
            self._await(wait, answer_until)
        with self._lock:
            wait.check()
            return self._session.take(wait)

    def give_up(self, waiter: Waiter) -> None:
        """Nobody will ask for this any more. Takes no lock: the garbage collector may call it, anywhere."""
        self._given_up.append(waiter)

    def take_along(self, dependent: Closable) -> None:
        """Closes it with this, in whatever thread that is."""
        self.check_process()
        with self._lock:
            self._check_open()
            self._dependents.add(dependent)

    def close(self) -> None:
        """Never blocks. Who waits gets `Closed`."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
            self._wake_followers()
            if self._link is not None:
                if self._leader is None:
                    self._link.close()
                else:
                    self._link.wake()
            dependents = list(self._dependents)
        for dependent in dependents:
            dependent.close()

    def check_process(self) -> None:
        """Raises `Closed` in a forked child."""
        if os.getpid() != self._pid:
            raise Closed(
                f"this conveyor belongs to process {self._pid}, in which it was made; make a new Conveyor after fork"
            )

    # -- greeting ---------------------------------------------------------------------------------------

    def _greet(self) -> Welcome:
        self.check_process()
        started = monotonic()
        with self._lock:
            self._check_open()
            if self._link is None:
                self._link = Link(zmq.DEALER, self.address)
            waiter = self._session.greeting()
        self._push()
        try:
            met = self._await(waiter, started + min(self.timeout_s, ABSENT_S))
            reason = None if met else absence(self.address)
            if not met and reason is None:
                met = self._await(waiter, started + self.timeout_s)
        finally:
            self.give_up(waiter)
        waiter.check()
        welcome = self._session.welcome
        if not met or welcome is None:
            raise SupervisorUnreachable(self._no_answer(reason))
        return welcome

    # -- waiting: one leads, the others follow ------------------------------------------------------------

    def _await(self, waiter: Waiter, deadline: float | None) -> bool:
        """Waits until it is ready; False if that takes beyond the deadline."""
        self.check_process()
        if waiter.ready and not self._closed:
            return True
        thread = threading.get_ident()
        interrupted: Waiter | None = None
        leaving = True
        try:
            while True:
                with self._lock:
                    self._check_open()
                    if waiter.ready:
                        return True
                    gate: SimpleQueue[None] | None = None
                    if self._leader is None or self._leader_thread == thread:
                        if self._leader is None:
                            if not self._followers:
                                self._ask_at = monotonic() + SILENCE_S
                        elif self._leader is not waiter:
                            interrupted = self._leader  # this is a signal handler inside a wait of its own thread
                        self._leader_thread = thread
                        self._leader = waiter
                        self._followers.pop(waiter, None)
                    else:
                        gate = self._followers[waiter] = SimpleQueue()
                if gate is None:
                    if not self._lead(waiter, deadline):
                        return waiter.ready
                else:
                    try:
                        gate.get(timeout=None if deadline is None else max(0.0, deadline - monotonic()))
                    except Empty:
                        return waiter.ready
                    if waiter.ready:  # somebody else leads, or has handed on: nothing to do under the lock
                        self._followers.pop(waiter, None)
                        leaving = False
                        return True
        except BaseException:
            self._doubt()
            raise
        finally:
            if leaving:
                try:
                    with self._lock:
                        self._leave(waiter, interrupted)
                except BaseException:
                    self._doubt()
                    with self._lock:
                        self._leave(waiter, interrupted)
                    raise

    def _lead(self, waiter: Waiter, deadline: float | None) -> bool:
        """Carries all traffic until this waiter is ready (or the channel closed), or the deadline has passed."""
        link = self._link
        assert link is not None, "nobody waits before there is a link"
        while True:
            now = monotonic()
            late = deadline is not None and now >= deadline  # then what has arrived is still taken
            with self._lock:
                self._woken = False
                self._tidy()
                if now >= self._ask_at:
                    self._ask_at = now + SILENCE_S
                    if link.connected:
                        self._carry(*self._session.silent())
                frames = self._outgoing()
            if frames:  # not under the lock: the others go on while this wakes ZeroMQ
                self._send(link, frames)
            until = self._ask_at if deadline is None else min(self._ask_at, deadline)
            messages = link.wait(until - now)
            if link.made_anew():
                with self._lock:
                    self._tidy()
                    self._carry(*self._session.reconnected())
            if messages:
                self._ask_at = monotonic() + SILENCE_S
                self._receive(link, waiter)
            if waiter.ready or self._closed:
                return True
            if late:
                return False

    def _receive(self, link: Link, waiter: Waiter) -> None:
        """Reads what there is; no more than needed if nobody else waits."""
        while True:
            try:
                message = link.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            with self._lock:
                self._tidy()
                for frame in _unpacked(message):
                    self._carry(*self._session.received(frame))
                if waiter.ready and not self._followers:
                    return

    def _leave(self, waiter: Waiter, interrupted: Waiter | None) -> None:
        """Goes, and wakes a follower to lead if nobody else does. May be repeated."""
        self._followers.pop(waiter, None)
        if self._leader is waiter:
            self._leader = interrupted
        if self._link is None:
            return
        if interrupted is not None:
            self._link.wake()  # its answer may have come meanwhile
        elif self._leader is None:
            # A copy: who has its answer leaves without the lock.
            follower = next((gate for other, gate in self._followers.copy().items() if not other.ready), None)
            if self._closed:
                self._link.close()
            elif follower is not None:
                follower.put(None)
            else:
                self._flush()

    # -- sending ------------------------------------------------------------------------------------------

    def _push(self) -> None:
        """Sees to it that what the session has to say is sent: by this thread, or by the leader."""
        with self._lock:
            if self._leader is None:
                self._flush()
                return
            link, wake = self._link, not self._woken
            self._woken = True
        if wake and link is not None:  # not under the lock, for it lets the other threads run
            link.wake()

    def _send(self, link: Link, frames: list[bytes]) -> None:
        for message in pack(frames):
            try:
                link.socket.send(message, zmq.NOBLOCK)
            except zmq.ZMQError:
                self._check_open()  # by another thread, or by a signal handler between any two steps in here
                raise

    def _doubt(self) -> None:
        """An exception came in the middle of something; takes no lock."""
        self._in_doubt = True
        self._woken = False

    # -- under the lock -----------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._tidy()
        self._carry(self._outgoing(), [])

    def _outgoing(self) -> list[bytes]:
        """What is to be sent now. Nothing is sent into the void: a new connection is told all that is unanswered."""
        if self._link is None or not self._link.connected:
            return []
        if self._in_doubt:
            self._in_doubt = False
            self._carry(*self._session.reconnected())
            self._wake_followers()
        return self._session.outgoing()

    def _carry(self, frames: list[bytes], ready: list[Waiter]) -> None:
        assert self._link is not None
        if frames:
            self._send(self._link, frames)
        for waiter in ready:
            gate = self._followers.get(waiter)
            if gate is not None:
                gate.put(None)

    def _wake_followers(self) -> None:
        for gate in self._followers.copy().values():
            gate.put(None)

    def _tidy(self) -> None:
        while self._given_up:
            try:
                waiter = self._given_up[0]
            except IndexError:  # a signal handler came in between, and did this
                return
            self._carry([], self._session.give_up(waiter))
            with contextlib.suppress(ValueError):  # likewise
                self._given_up.remove(waiter)  # not before: what an exception leaves half done is done again

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the conveyor to {self.address} was closed")

    # -- what went wrong ----------------------------------------------------------------------------------

    def _unanswered(self, call: Call) -> RemoteError:
        if call.outcome_unknown:
            return OutcomeUnknown(
                f"a request ({call.kind.__name__}) was sent to {self.address} and not answered in "
                f"{format_duration(self._timeout_ms)}: it may or may not have been carried out"
            )
        return SupervisorUnreachable(self._no_answer(absence(self.address)))

    def _no_answer(self, reason: str | None) -> str:
        waited = reason or f"waited {format_duration(self._timeout_ms)}"
        return f"no supervisor answers at {self.address} ({waited}); {START_ONE}"


def _unpacked(message: bytes) -> list[Raw]:
    try:
        return unpack(message)
    except UNREADABLE:
        return []  # who waits for an answer that was in it asks again, or gives up
