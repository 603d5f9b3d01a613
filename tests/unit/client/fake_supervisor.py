"""A supervisor that speaks the wire protocol on real sockets, in a thread, and can be made to misbehave.

A `FakeStore` outlives the fakes that are started on it, as a data directory outlives its supervisors.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import zmq

from conveyor_actors import wire
from conveyor_actors.model import COMPLETED, DELAYED, EVENT_CODE, FAILED, STATE_NAMES, WAITING, QueueInfo, Worker
from conveyor_actors.packing import pack, unpack

DEADLINE_S = 20.0
AT_MS = 1_700_000_000_000


class FakeStore:
    """What is on disk."""

    def __init__(self) -> None:
        self.jobs: dict[int, wire.JobView] = {}
        self.numbers: dict[tuple[str, str], int] = {}
        self.next_number = 1
        self.paused: set[str] = set()
        self.replies: dict[tuple[int, int], wire.ReplyBody] = {}
        self.carried_out: list[wire.Body] = []
        self.batches: list[wire.EventBatch] = []
        self.next_event = 1
        self.kept_from = 1

    def add(self, queue: str, new: wire.NewJob) -> wire.AddedJob:
        if new.id is not None and (queue, new.id) in self.numbers:
            return wire.AddedJob(self.numbers[queue, new.id], False)
        number = self.next_number
        self.next_number += 1
        id = new.id or str(number)
        due_ms = new.due_ms if new.delay_ms is None else AT_MS + new.delay_ms
        self.numbers[queue, id] = number
        self.jobs[number] = wire.JobView(
            number,
            id,
            queue,
            new.name,
            WAITING if due_ms is None else DELAYED,
            new.priority,
            (new.options and new.options.attempts) or 1,
            0,
            0,
            new.payload,
            None,
            None,
            new.metadata,
            AT_MS,
            due_ms,
            None,
            None,
            "",
            False,
            number.to_bytes(8, "big"),
        )
        return wire.AddedJob(number, True)

    def find(self, ref: wire.Ref) -> wire.JobView | None:
        queue, id = ref
        number = self.numbers.get(ref) if queue else int(id)
        return None if number is None else self.jobs.get(number)


class FakeSupervisor:
    """Serves at `url` from the moment it is made until `kill`."""

    def __init__(self, url: str, store: FakeStore | None = None, **settings: Any) -> None:
        self.url = url
        self.store = store or FakeStore()
        #: Kinds of requests that are dropped unread / carried out without an answer.
        self.ignored: set[type] = set()
        self.unanswered: set[type] = set()
        self.refused: dict[type, wire.Refused] = {}
        self.answers: dict[type, wire.ReplyBody] = {}
        self.page_jobs_max = 1000
        self.max_payload = 64 * 1024 * 1024
        self.version = wire.PROTOCOL_VERSION
        self.publishes = True
        self.hold_page_s = 0.0
        for name, value in settings.items():
            assert hasattr(self, name), name
            setattr(self, name, value)
        self.received: list[wire.Request] = []
        self.sessions: dict[bytes, int] = {}
        self._waits: dict[tuple[str, str], set[bytes]] = {}
        self._last_by_topic: dict[bytes, int] = {}
        self._heard = threading.Condition()
        self._tasks: list[Callable[[], None]] = []
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK)
        self._stopping = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._events = self._context.socket(zmq.XPUB)
        self._events.setsockopt(zmq.XPUB_VERBOSE, 1)
        self._router.setsockopt(zmq.SNDHWM, 0)
        for socket, address in ((self._router, url), (self._events, url + ".events")):
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind(address)
        self._thread = threading.Thread(target=self._serve, name="fake-supervisor")
        self._thread.start()

    # -- for tests ----------------------------------------------------------------------------------------

    def do(self, task: Callable[[], Any]) -> Any:
        """Runs it in the serving thread."""
        done = threading.Event()
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(task())
            finally:
                done.set()

        self._tasks.append(run)
        os.eventfd_write(self._wakeup, 1)
        assert done.wait(DEADLINE_S), "the fake supervisor is stuck"
        return outcome[0]

    def await_request(self, kind: type, count: int = 1) -> None:
        """Until so many requests of that kind have come."""
        with self._heard:
            assert self._heard.wait_for(lambda: self.count(kind) >= count, DEADLINE_S), f"no {kind.__name__} came"

    def count(self, kind: type) -> int:
        return sum(isinstance(request.body, kind) for request in self.received)

    def forget_clients(self) -> None:
        def forget() -> None:
            self.sessions.clear()
            self._waits.clear()

        self.do(forget)

    def end(self, refs: list[tuple[str, str]], result: Any = None, failure: wire.FailureRecord | None = None) -> None:
        self.do(lambda: self._end(refs, result, failure))

    def emit(self, *rows: wire.EventRow) -> None:
        """One commit's events: into the log, and published unless `publishes` is off."""
        self.do(lambda: self._emit(list(rows)))

    def kill(self) -> None:
        """The end, as abrupt as SIGKILL: nothing more is read or sent."""
        if self._thread.is_alive():
            self._stopping = True
            os.eventfd_write(self._wakeup, 1)
            self._thread.join(DEADLINE_S)
            assert not self._thread.is_alive()
            self._router.close(0)
            self._events.close(0)
            self._context.term()
            os.close(self._wakeup)

    # -- the serving thread -------------------------------------------------------------------------------

    def _serve(self) -> None:
        poller = zmq.Poller()
        for each in (self._router, self._events, self._wakeup):
            poller.register(each, zmq.POLLIN)
        while not self._stopping:
            for each, _ in poller.poll(1000):
                if each is self._router:
                    route, message = self._router.recv_multipart()
                    for frame in unpack(message):
                        self._take(route, frame)
                elif each is self._events:
                    self._subscribed(self._events.recv())
                else:
                    os.eventfd_read(self._wakeup)
                    while self._tasks:
                        self._tasks.pop(0)()

    def _take(self, route: bytes, frame: msgspec.Raw) -> None:
        try:
            request = wire.decode_request(frame)
        except msgspec.ValidationError as error:
            self._send(route, 0, wire.Refused("ProtocolError", str(error)))
            return
        body = request.body
        with self._heard:
            self.received.append(request)
            self._heard.notify_all()
        if not isinstance(body, wire.Hello) and route not in self.sessions:
            self._send(route, 0, wire.Reset())
        elif type(body) not in self.ignored:
            self._handle(route, request)

    def _handle(self, route: bytes, request: wire.Request) -> None:
        body = request.body
        if type(body) in self.refused:
            answer: wire.ReplyBody = self.refused[type(body)]
        elif type(body) in self.answers:
            answer = self.answers[type(body)]
        elif isinstance(body, wire.Hello):
            answer = self._hello(route, body)
        elif isinstance(body, wire.MUTATIONS):
            key = (self.sessions[route], request.no)
            if key not in self.store.replies:
                self.store.carried_out.append(body)
                self.store.replies[key] = self._carry_out(route, body)
            answer = self.store.replies[key]
        else:
            answer = self._carry_out(route, body)
        if type(body) not in self.unanswered:
            self._send(route, request.no, answer)

    def _hello(self, route: bytes, hello: wire.Hello) -> wire.ReplyBody:
        if hello.version != self.version:
            return wire.Refused("ProtocolError", f"the client speaks version {hello.version}")
        self.sessions[route] = hello.client
        return wire.Welcome(self.version, 1, self.max_payload, "~.events")

    def _carry_out(self, route: bytes, body: wire.Body) -> wire.ReplyBody:
        store = self.store
        match body:
            case wire.AddJobs(queue, jobs):
                first = store.next_number
                added = [store.add(queue, new) for new in jobs]
                return wire.Added(first, AT_MS, added if any(new.id for new in jobs) else None)
            case wire.SetPaused(queue, paused):
                (store.paused.add if paused else store.paused.discard)(queue)
                return wire.Done()
            case wire.GetJobs(refs):
                return wire.Jobs([store.find(ref) for ref in refs[: self.page_jobs_max]])
            case wire.WaitJobs(refs):
                return self._register(route, refs)
            case wire.ListJobs(queue, states, after, limit):
                return self._list(queue, states, after, min(limit, self.page_jobs_max))
            case wire.GetHistory(ref):
                found = store.find(ref)
                entry = wire.HistoryEntry("failed", AT_MS, "w-1", "ValueError: no", "Traceback")
                return wire.History(None if found is None else [entry])
            case wire.GetCounts(queue):
                counts = [0] * len(STATE_NAMES)
                for view in store.jobs.values():
                    counts[view.state] += view.queue == queue
                return wire.Counts(counts, queue in store.paused)
            case wire.GetQueues():
                return wire.Queues([QueueInfo("images", False, dict.fromkeys(STATE_NAMES, 0))])
            case wire.GetWorkers():
                return wire.Workers([Worker("w-1", "default", 7, "idle")])
            case wire.ReadEvents(after):
                return self._read_events(after)
            case wire.Ping():
                return wire.Pong()
            case _:
                return wire.Done()

    def _register(self, route: bytes, refs: list[wire.Ref]) -> wire.Registered:
        ended, missing = [], []
        for ref in refs:
            view = self.store.find(ref)
            if view is None:
                missing.append(ref)
            elif view.state >= COMPLETED:
                ended.append(view)
            else:
                self._waits.setdefault(ref, set()).add(route)
        return wire.Registered(ended, missing)

    def _list(self, queue: str, states: list[int], after: bytes | None, limit: int) -> wire.Page:
        found = [view for view in self.store.jobs.values() if view.queue == queue and view.state in states]
        rest = [view for view in found if after is None or view.cursor > after]
        return wire.Page(rest[:limit], rest[limit - 1].cursor if len(rest) > limit else None)

    def _end(self, refs: list[tuple[str, str]], result: Any, failure: wire.FailureRecord | None) -> None:
        told: dict[bytes, list[wire.JobView]] = {}
        encoded = None if failure is not None else msgspec.msgpack.encode(result)
        for ref in refs:
            view = self.store.find(ref)
            assert view is not None, ref
            view = msgspec.structs.replace(
                view,
                state=COMPLETED if failure is None else FAILED,
                result=encoded,
                failure=failure,
                finished_ms=AT_MS + 1,
                worker="w-1",
            )
            self.store.jobs[view.number] = view
            for route in self._waits.pop(ref, ()):
                told.setdefault(route, []).append(view)
        for route, views in told.items():
            self._send(route, 0, wire.Ended(views))

    def _read_events(self, after: int | None) -> wire.EventPage:
        store = self.store
        last = store.next_event - 1
        if after is None:
            return wire.EventPage([], store.kept_from, last, False)
        time.sleep(self.hold_page_s)
        batches = [b for b in store.batches if b.first + len(b.rows) > after + 1 and b.first >= store.kept_from]
        return wire.EventPage(batches[:2], store.kept_from, last, len(batches) > 2)

    def _emit(self, rows: list[wire.EventRow]) -> None:
        batch = wire.EventBatch(self.store.next_event, AT_MS, rows)
        self.store.next_event += len(rows)
        self.store.batches.append(batch)
        by_topic: dict[bytes, list[tuple[int, wire.EventRow]]] = {}
        for seq, row in enumerate(rows, batch.first):
            by_topic.setdefault((row[1] or "").encode() + b"\0", []).append((seq, row))
        for topic, numbered in by_topic.items():
            before = self._last_by_topic.get(topic, 0)
            self._last_by_topic[topic] = numbered[-1][0]
            if self.publishes:
                message = wire.encode(wire.Published(before, AT_MS, numbered))
                self._events.send_multipart((topic, message))

    def _subscribed(self, message: bytes) -> None:
        if message[:2] == b"\1\xff":
            self._events.send_multipart((message[1:], b""))

    def _send(self, route: bytes, no: int, body: wire.ReplyBody) -> None:
        for message in pack([wire.encode(wire.Reply(no, body))]):
            self._router.send_multipart((route, message))


def row(type: str, queue: str | None = "images", id: int | str | None = 1, data: Any = None) -> wire.EventRow:
    return EVENT_CODE[type], queue, id, "resize", None if data is None else msgspec.msgpack.encode(data)
