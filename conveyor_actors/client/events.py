"""What happens, as an iterator: live from the event socket, and from the log whatever that did not bring.

Invariant: events come in rising `seq`, none twice; what is missing from the log itself is told by a `gap` event.
`position` is the event up to which everything asked for was delivered.
"""

from __future__ import annotations

import heapq
import secrets
import threading
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from time import monotonic
from types import TracebackType
from typing import Final

import zmq

from conveyor_actors import data as data_codec
from conveyor_actors import wire
from conveyor_actors.client.channel import Channel
from conveyor_actors.client.link import Link
from conveyor_actors.errors import Closed, SupervisorUnreachable, WaitTimeout
from conveyor_actors.model import EVENT_TYPES, Event, utc
from conveyor_actors.units import format_duration
from conveyor_actors.wire import EventPage, EventRow, Published, ReadEvents, decode_published

#: A message between two that came is still under way for so long; after that the log is read.
_HOLE_S: Final = 0.05
#: When nothing has come for so long after something did, the log tells whether that was all: the last of a burst may
#: have been dropped. One look, no more until something comes again.
_SETTLED_S: Final = 1.0


class Events(Iterator[Event]):
    """The iterator that `conveyor.events()` gives. Ends when it or its conveyor is closed."""

    def __init__(self, channel: Channel, queue: str | None, since: int | None, timeout_ms: int | None) -> None:
        self._channel = channel
        self._queue = queue
        self._timeout_ms = timeout_ms
        self._sync = wire.SYNC_PREFIX + secrets.token_bytes(8)
        self._ready: deque[Event] = deque()
        self._ahead: list[tuple[int, int, EventRow]] = []
        self._behind = False
        self._look_at: float | None = None
        self._closed = False
        self._lock = threading.Lock()
        address = events_address(channel.address, channel.connect().events)
        topic = b"" if queue is None else queue.encode() + b"\0"
        # The order matters: subscriptions are sent again in the order of their bytes, and `sync` must be the last.
        self._link = Link(zmq.SUB, address, (topic, self._sync))
        try:
            channel.take_along(self)
            with self._lock:
                self._await_sync(address)
                self.position = self._read(None).last if since is None else since
        except BaseException:
            self.close()
            raise
        self._behind = since is not None

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Event:
        self._channel.check_process()
        try:
            with self._lock:
                event = None if self._closed else self._next()
        except Closed:
            event = None
        if event is None or self._closed:
            self.close()
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Never blocks. A thread that waits in the iterator sees it end."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._link.close()
            finally:
                self._lock.release()
        else:
            self._link.wake()  # the thread that is in there closes it

    # -- one event ----------------------------------------------------------------------------------------

    def _next(self) -> Event | None:
        deadline = None if self._timeout_ms is None else monotonic() + self._timeout_ms / 1000
        while not self._ready:
            if self._closed:
                return None
            if self._behind:
                self._catch_up()
                continue
            now = monotonic()
            if deadline is not None and now >= deadline:
                raise WaitTimeout(f"no event came in {format_duration(self._timeout_ms or 0)}")
            if self._look_at is not None and now >= self._look_at:
                self._look_at = None
                self._behind = self._link.connected  # else `sync` tells when it is back
                continue
            until = min((moment for moment in (deadline, self._look_at) if moment is not None), default=None)
            if self._link.wait(None if until is None else until - now):
                self._receive()
        return self._ready.popleft()

    def _receive(self) -> None:
        try:
            topic, payload = self._link.socket.recv_multipart(zmq.NOBLOCK)
            published = None if topic == self._sync else decode_published(payload)
        except (zmq.Again, ValueError, *data_codec.UNREADABLE):
            return
        self._look_at = monotonic() + _SETTLED_S
        if published is None:
            self._behind = True  # connected anew: what happened meanwhile is in the log
        elif self._queue is None and published.rows:
            self._merge(published)
        elif published.before > self.position:
            self._behind = True
        else:
            for seq, row in published.rows:
                self._deliver(seq, published.at_ms, row)

    def _merge(self, published: Published) -> None:
        """Of all queues nothing may be missing: what is ahead waits for what is between."""
        for seq, row in published.rows:
            if seq > self.position:
                heapq.heappush(self._ahead, (seq, published.at_ms, row))
        while self._ahead and self._ahead[0][0] <= self.position + 1:
            self._deliver(*heapq.heappop(self._ahead))
        if self._ahead:
            self._look_at = monotonic() + _HOLE_S

    def _deliver(self, seq: int, at_ms: int, row: EventRow) -> None:
        if seq <= self.position:
            return
        code, queue, id, name, data = row
        if self._queue is None or queue == self._queue:
            type = EVENT_TYPES[code] if code < len(EVENT_TYPES) else f"unknown-{code}"
            job_id = None if id is None else str(id)
            decoded = None if data is None else data_codec.decode(data)
            self._ready.append(Event(seq, utc(at_ms), type, queue, job_id, name, decoded))
        self.position = seq

    # -- the log ------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """One page of the log. What is live meanwhile waits in the socket, or is dropped there and noticed."""
        try:
            page = self._read(self.position)
        except SupervisorUnreachable:
            self._behind = False
            self._look_at = monotonic() + _SETTLED_S
            return
        self._skip_to(page.kept_from)
        for batch in page.batches:
            self._skip_to(batch.first)
            for seq, row in enumerate(batch.rows, batch.first):
                self._deliver(seq, batch.at_ms, row)
        self._skip_to(page.upto + 1 if page.more else page.last + 1)
        if not page.more:
            self._behind = False
            self._ahead = [held for held in self._ahead if held[0] > self.position]
            heapq.heapify(self._ahead)

    def _skip_to(self, seq: int) -> None:
        """What is missing in the log before this event is told: it was trimmed, or cannot be read."""
        if self.position + 1 < seq:
            missing = {"missing_from": self.position + 1, "missing_to": seq - 1}
            self.position = seq - 1
            self._ready.append(Event(self.position, datetime.now(UTC), "gap", None, None, None, missing))

    def _read(self, after: int | None) -> EventPage:
        return self._channel.call(ReadEvents(after), EventPage)

    def _await_sync(self, address: str) -> None:
        deadline = monotonic() + self._channel.timeout_s
        while not self._closed:
            left = deadline - monotonic()
            if left <= 0:
                raise SupervisorUnreachable(f"{self._channel.address} answers, but its events at {address} do not")
            if self._link.wait(left) and self._link.socket.recv_multipart(zmq.NOBLOCK)[0] == self._sync:
                return


def events_address(url: str, told: str) -> str:
    """Where events are published: `~` and what follows stand for a place beside the address connected to."""
    if not told.startswith("~"):
        return told
    return wire.events_address(url, told[1:])
