"""The client's side of the protocol: numbers requests, remembers what is unanswered, knows which jobs are waited for.

Knows no sockets, clocks or threads: its caller carries the frames (an encoded request or reply each) and wakes who is
`ready`. Invariant: whatever was not answered is in the frames of `reconnected`, in the order in which it was asked,
after a new Hello; nothing is forgotten before it is marked as ready, so that an exception between two steps (Ctrl-C)
costs a repetition and no more.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

import msgspec

from conveyor_actors import errors
from conveyor_actors.data import UNREADABLE
from conveyor_actors.errors import ConveyorError, OutcomeUnknown, ProtocolError, RemoteError
from conveyor_actors.wire import (
    MUTATIONS,
    PROTOCOL_VERSION,
    PUSHED_BYTES_TOLD,
    REFS_MAX,
    UNANSWERED_REQUESTS_MAX,
    Body,
    Ended,
    Hello,
    JobView,
    Message,
    Ping,
    Ref,
    Refused,
    Registered,
    Reply,
    ReplyBody,
    Request,
    Reset,
    Stop,
    WaitJobs,
    Welcome,
    decode_reply,
    encode,
)

_decode_number: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw]).decode


class Waiter:
    """Something a caller waits for: `ready` when there is an answer to take, or an `error` to raise."""

    __slots__ = ("error", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.error: tuple[type[ConveyorError], str] | None = None

    def fail(self, error: tuple[type[ConveyorError], str]) -> None:
        self.error = error
        self.ready = True

    def check(self) -> None:
        if self.error is not None:
            kind, message = self.error
            raise kind(message)


class Call(Waiter):
    """A request on its way to its answer."""

    __slots__ = ("answer", "frame", "kind", "no", "sent")

    def __init__(self, no: int, kind: type[Message], frame: bytes) -> None:
        super().__init__()
        self.no = no
        self.kind = kind
        self.frame = frame
        self.sent = False
        self.answer: ReplyBody | None = None

    @property
    def outcome_unknown(self) -> bool:
        """Whether something may have been changed by it, for all that is known here."""
        return self.sent and issubclass(self.kind, MUTATIONS)


class Wait(Waiter):
    """Jobs whose end a caller waits for. `ended` has those that did, with None for one that does not exist."""

    __slots__ = ("ended", "refs")

    def __init__(self, refs: Iterable[Ref]) -> None:
        super().__init__()
        self.refs = dict.fromkeys(refs)
        self.ended: list[tuple[Ref, JobView | None]] = []

    def take(self) -> list[tuple[Ref, JobView | None]]:
        taken, self.ended = self.ended, []
        self.ready = False
        return taken


class Session:
    """One client across all its connections."""

    def __init__(self) -> None:
        self.client: Final = secrets.randbits(63)
        self.welcome: Welcome | None = None
        self._next_no = 1
        self._hello_no: int | None = None
        self._calls: dict[int, Call] = {}
        self._unsent: list[Call] = []
        self._watched: dict[Ref, list[Wait]] = {}
        self._unregistered: dict[Ref, None] = {}
        self._registering: dict[int, list[Ref]] = {}
        # Watched jobs of which the supervisor has never told yet whether they had ended before.
        self._unanswered: set[Ref] = set()
        self._overdue: dict[Wait, None] = {}
        #: Bytes that were pushed since the supervisor was last told that they arrive.
        self._pushed = 0
        self._greeters: list[Waiter] = []
        self._crowd: list[Waiter] = []

    # -- asking -----------------------------------------------------------------------------------------

    @property
    def low(self) -> int:
        """The lowest unanswered number: what is below needs no keeping at the other end."""
        return next(iter(self._calls), self._next_no)

    @property
    def full(self) -> bool:
        # By number, not by count: replies from `low` on are kept by the supervisor, however many were answered since.
        return self._next_no - self.low >= UNANSWERED_REQUESTS_MAX

    def request(self, body: Body) -> Call:
        """A new request; `outgoing` gives its frame. Not while `full`."""
        no, frame = self._numbered(body)
        call = Call(no, type(body), frame)
        self._calls[no] = call
        self._unsent.append(call)
        return call

    def greeting(self) -> Waiter:
        """Ready when the supervisor has welcomed this client."""
        waiter = Waiter()
        waiter.ready = self.welcome is not None
        self._greeters.append(waiter)
        return waiter

    def room(self) -> Waiter:
        """Ready when the session is not `full` any more."""
        waiter = Waiter()
        self._crowd.append(waiter)
        return waiter

    def watch(self, refs: Iterable[Ref]) -> Wait:
        """Ready whenever some of these jobs have ended."""
        wait = Wait(refs)
        for ref in wait.refs:
            waits = self._watched.get(ref)
            if waits is None:
                self._watched[ref] = [wait]
                self._unregistered[ref] = None
                self._unanswered.add(ref)
            else:
                waits.append(wait)
        return wait

    def overdue(self, wait: Wait) -> None:
        """Its time is over: until `take` it is ready, if with nothing, once all its jobs were told of."""
        self._overdue[wait] = None
        self._answered()

    def take(self, wait: Wait) -> list[tuple[Ref, JobView | None]]:
        """What has ended since the last time."""
        self._overdue.pop(wait, None)
        return wait.take()

    def give_up(self, waiter: Waiter) -> list[Waiter]:
        """Nobody waits for this any more. Gives who is ready because of that."""
        if isinstance(waiter, Call):
            self._calls.pop(waiter.no, None)
            if not waiter.sent and waiter in self._unsent:
                self._unsent.remove(waiter)
        elif isinstance(waiter, Wait):
            self._overdue.pop(waiter, None)
            for ref in waiter.refs:
                waits = self._watched.get(ref, [])
                if waiter in waits:
                    waits.remove(waiter)
                    if not waits:
                        del self._watched[ref]
                        self._unregistered.pop(ref, None)
                        self._unanswered.discard(ref)
        else:
            for waiting in (self._greeters, self._crowd):
                if waiter in waiting:
                    waiting.remove(waiter)
        return self._admitted()

    # -- frames to send ---------------------------------------------------------------------------------

    def hello(self) -> bytes:
        self._hello_no, frame = self._numbered(Hello(PROTOCOL_VERSION, self.client))
        return frame

    def outgoing(self) -> list[bytes]:
        """What has come up since the last time, for a connection that is up."""
        frames = []
        if self.welcome is None and self._hello_no is None and self._greeters:
            frames.append(self.hello())
        for call in self._unsent:
            call.sent = True
            frames.append(call.frame)
        self._unsent.clear()
        if self._unregistered:
            frames += self._registrations()
        return frames

    def reconnected(self) -> tuple[list[bytes], list[Waiter]]:
        """All that a new connection, or a supervisor that has forgotten this one, must be told; and who is ready."""
        lost = [call for call in self._calls.values() if call.sent and call.kind is Stop]
        for call in lost:  # sent again it could stop the successor of the one that was meant
            del self._calls[call.no]
            call.fail((OutcomeUnknown, "the connection was lost before the supervisor confirmed that it stops"))
        self._registering.clear()
        self._unregistered = dict.fromkeys(self._watched)
        self._unsent = list(self._calls.values())
        return [self.hello(), *self.outgoing()], [*lost, *self._admitted()]

    def silent(self) -> tuple[list[bytes], list[Waiter]]:
        """What to say when nothing was heard for a while: a supervisor that forgot this connection answers Reset."""
        if self._hello_no is not None:
            return self.reconnected()
        return [self._numbered(Ping())[1]], []

    def _numbered(self, body: Body) -> tuple[int, bytes]:
        no = self._next_no
        frame = encode(Request(no, self.low, body))
        self._next_no = no + 1
        return no, frame

    def _registrations(self) -> list[bytes]:
        frames = []
        refs = iter(self._unregistered)
        while chunk := list(islice(refs, REFS_MAX)):
            no, frame = self._numbered(WaitJobs(chunk))
            self._registering[no] = chunk
            frames.append(frame)
        self._unregistered.clear()
        return frames

    def _register_again(self, refs: list[Ref]) -> list[bytes]:
        """What the supervisor had no room for, unless nobody waits for it any more."""
        again = [ref for ref in refs if ref in self._watched]
        self._unregistered.update(dict.fromkeys(again))
        return self._registrations() if again else []

    # -- frames received --------------------------------------------------------------------------------

    def received(self, frame: bytes | msgspec.Raw) -> tuple[list[bytes], list[Waiter]]:
        """What to send now, and who is ready because of this frame."""
        try:
            reply = decode_reply(frame)
        except UNREADABLE as error:
            return [], self._unreadable(frame, error)
        body = reply.body
        call = self._calls.get(reply.no)
        if call is not None:
            call.answer = body
            if isinstance(body, Refused):
                call.fail(error_of(body))
            call.ready = True
            del self._calls[reply.no]
            return [], [call, *self._admitted()]
        if isinstance(body, Ended):
            return self._note_pushed(len(frame)), self._ended((view.queue, view.id, view) for view in body.jobs)
        if isinstance(body, Registered):
            refs = self._registering.pop(reply.no, [])
            ended = self._ended((view.queue, view.id, view) for view in body.ended)
            ended += self._ended((queue, id, None) for queue, id in body.missing)
            told = len(refs) - body.left
            self._unanswered.difference_update(refs[:told])
            return self._register_again(refs[told:]), [*ended, *self._answered()]
        if isinstance(body, Welcome):
            return [], self._welcomed(reply.no, body)
        if isinstance(body, Refused):
            return [], self._refused(reply, body)
        if isinstance(body, Reset) and self._hello_no is None:
            return self.reconnected()
        return [], []  # of what was given up, or a Reset that crossed our Hello

    def _note_pushed(self, size: int) -> list[bytes]:
        """A word to the supervisor now and then, which shows that what it pushes is read."""
        self._pushed += size
        if self._pushed < PUSHED_BYTES_TOLD:
            return []
        self._pushed = 0
        return [self._numbered(Ping())[1]]

    def _welcomed(self, no: int, welcome: Welcome) -> list[Waiter]:
        if no != self._hello_no:
            return []  # of an earlier connection
        self._hello_no = None
        self.welcome = welcome
        greeters = self._greeters
        for waiter in greeters:
            waiter.ready = True
        self._greeters = []
        return greeters

    def _ended(self, jobs: Iterable[tuple[str, str, JobView | None]]) -> list[Waiter]:
        touched: dict[Waiter, None] = {}
        for queue, id, view in jobs:
            ref = (queue, id)
            for wait in self._watched.get(ref, ()):
                wait.ended.append((ref, view))
                wait.ready = True
                wait.refs.pop(ref, None)
                touched[wait] = None
            self._watched.pop(ref, None)
            self._unanswered.discard(ref)
        return list(touched)

    def _answered(self) -> list[Waiter]:
        answered = [wait for wait in self._overdue if self._unanswered.isdisjoint(wait.refs)]
        for wait in answered:
            wait.ready = True
            del self._overdue[wait]
        return list(answered)

    def _refused(self, reply: Reply, refused: Refused) -> list[Waiter]:
        error = error_of(refused)
        refs = self._registering.pop(reply.no, None)
        if refs is not None:
            return self._fail_waits(refs, error)
        if reply.no == self._hello_no:
            self._hello_no = self.welcome = None
            return self._fail_calls(error) + self._fail_waits(list(self._watched), error)
        # Number 0: one of our requests could not be read, and sent again it could not either.
        return self._fail_calls(error) if reply.no == 0 else []

    def _fail_calls(self, error: tuple[type[ConveyorError], str]) -> list[Waiter]:
        failed: list[Waiter] = [*self._calls.values(), *self._greeters]
        for waiter in failed:
            waiter.fail(error)
        self._calls.clear()
        self._unsent.clear()
        self._greeters.clear()
        return failed + self._admitted()

    def _fail_waits(self, refs: Collection[Ref], error: tuple[type[ConveyorError], str]) -> list[Waiter]:
        failed = {wait: None for ref in refs for wait in self._watched.get(ref, ())}
        for wait in failed:
            self.give_up(wait)
            wait.fail(error)
        return list(failed)

    def _unreadable(self, frame: bytes | msgspec.Raw, error: Exception) -> list[Waiter]:
        try:
            call = self._calls.pop(_decode_number(frame)[0], None)
        except UNREADABLE:
            call = None
        if call is None:
            return []
        call.fail((ProtocolError, f"the supervisor's answer cannot be read: {error}"))
        return [call, *self._admitted()]

    def _admitted(self) -> list[Waiter]:
        if not self._crowd or self.full:
            return []
        admitted = self._crowd
        for waiter in admitted:
            waiter.ready = True
        self._crowd = []
        return admitted


def error_of(refused: Refused) -> tuple[type[ConveyorError], str]:
    """The exception that a refusal stands for."""
    kind = errors.BY_NAME.get(refused.error)
    return (kind, refused.message) if kind is not None else (RemoteError, f"{refused.error}: {refused.message}")
