"""One tick: the open transaction, the time, the memory, and what is gathered to be written once at its end.

Knows no policy. Invariant: counts change together with the rows they count; each transition emits its events here.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from conveyor_actors.engine.credits import WINDOW_US
from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.inputs import Moment
from conveyor_actors.engine.memory import Memory, Queue, Settings
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import EVENT_CODE
from conveyor_actors.store.tables import (
    HAS_PAYLOAD,
    TOTALS_KEY,
    JobRecord,
    LeaseRecord,
    QueueRecord,
    RequestRecord,
    Tables,
    number_key,
    queue_key,
    read_job,
    read_number,
    unseal,
    write,
)
from conveyor_actors.wire import EventBatch, EventRow

_encode: Final = msgspec.msgpack.Encoder().encode
#: How many records of the event log one tick drops at most: as many as it adds events, since a record has one at least.
_EVENT_RECORDS_TRIMMED_MIN: Final = 8
_EVENT_RECORDS_TRIMMED_MAX: Final = 500


class Tick:
    """What the functions of the engine work on."""

    __slots__ = (
        "answered",
        "dirty_batches",
        "dirty_clients",
        "dirty_queues",
        "draw",
        "effects",
        "memory",
        "now_ms",
        "now_us",
        "rows",
        "settings",
        "tables",
        "trimmed",
        "unfinished",
        "window_us",
    )

    def __init__(self, tables: Tables, memory: Memory, settings: Settings, moment: Moment) -> None:
        self.tables = tables
        self.memory = memory
        self.settings = settings
        self.now_ms, self.now_us, self.draw, tick_us = moment
        self.window_us = max(WINDOW_US, 2 * tick_us)
        self.effects = Effects()
        #: Jobs whose end is told to all who wait for it.
        self.answered: list[int] = []
        self.rows: list[EventRow] = []
        self.dirty_queues: set[Queue] = set()
        self.dirty_batches: set[int] = set()
        self.dirty_clients: set[int] = set()
        #: How many older jobs were removed for the sake of newer ones.
        self.trimmed = 0
        #: There is more to be done now than one tick should do.
        self.unfinished = False

    # -- events -------------------------------------------------------------------------------------

    def emit(self, code: int, queue: Queue, number: int, record: JobRecord, data: Any = None) -> None:
        """An event of a job."""
        encoded = None if data is None else _encode(data)
        self.rows.append((code, queue.name, record.id or number, record.name, encoded))

    def emit_other(self, type: str, queue: str | None, data: Any = None) -> None:
        """An event of a queue or a worker."""
        self.rows.append((EVENT_CODE[type], queue, None, None, None if data is None else _encode(data)))

    # -- jobs and queues ------------------------------------------------------------------------------

    def new_number(self) -> int:
        totals = self.memory.totals
        number = totals.next_number
        totals.next_number = number + 1
        return number

    def job(self, number: int) -> JobRecord | None:
        """The job's record as it is now, with state ACTIVE if it is."""
        lease = self.memory.active.get(number)
        if lease is not None:
            return lease.record
        sealed = self.tables.jobs.get(number_key(number))
        return None if sealed is None else read_job(sealed)

    def indexed_job(self, number: int) -> JobRecord:
        """The job of a row in an index, which has to be there."""
        record = self.job(number)
        if record is None:
            raise CorruptRecord("a job in an index has no record: the store is damaged, restore a backup")
        return record

    def save(self, number: int, record: JobRecord) -> None:
        self.tables.jobs.put(number_key(number), write(record))

    def payload(self, number: int, record: JobRecord) -> bytes:
        if not record.flags & HAS_PAYLOAD:
            return record.payload
        sealed = self.tables.payloads.get(number_key(number))
        if sealed is None:
            raise CorruptRecord("a job has no payload: the store is damaged, restore a backup")
        return unseal(sealed, "a payload")

    def queue(self, name: str) -> Queue:
        """The queue of that name, made if it is new."""
        memory = self.memory
        found = memory.queues.get(name)
        if found is None:
            number = len(memory.queues) + 1
            found = Queue(name, number, False, [0] * 6, self.settings.queue(name))
            memory.queues[name] = memory.queue_by_number[number] = found
            self.save_queue(found)
            self.dirty_queues.add(found)
        return found

    def save_queue(self, queue: Queue) -> None:
        self.tables.queues.put(queue.name.encode(), write(QueueRecord(queue.number, queue.paused)))

    def count(self, queue: Queue, before: int | None, after: int | None) -> None:
        """One job of the queue went from a state to another; None for none."""
        if before is not None:
            queue.counts[before] -= 1
        if after is not None:
            queue.counts[after] += 1
        self.dirty_queues.add(queue)

    # -- the end ----------------------------------------------------------------------------------------

    def write_gathered(self) -> None:
        """Writes what folds to one row a tick."""
        tables, memory = self.tables, self.memory
        for key in self.dirty_batches:
            batch = memory.batches[key]
            if batch.members:
                tables.leases.put(number_key(key), write(LeaseRecord(batch.worker, list(batch.members.items()))))
            else:
                tables.leases.delete(number_key(key))
                del memory.batches[key]
        for client_id in self.dirty_clients:
            client = memory.clients[client_id]
            tables.requests.put(number_key(client_id), write(RequestRecord(client.seen_ms, client.replies, client.low)))
        for queue in self.dirty_queues:
            tables.counters.put(queue_key(queue.number), write(queue.counts))
        if self.rows:
            self._write_events()
        if self.rows or self.dirty_queues or self.dirty_batches:
            tables.counters.put(TOTALS_KEY, write(memory.totals))

    def _write_events(self) -> None:
        totals, memory = self.memory.totals, self.memory
        batch = EventBatch(totals.next_event, self.now_ms, self.rows)
        totals.next_event += len(self.rows)
        self.tables.events.put(number_key(batch.first), write(batch), append=True)
        self.effects.events = batch
        if totals.next_event - memory.events_from > self.settings.events_kept_max:
            self._trim_events()

    def _trim_events(self) -> None:
        """Drops whole records from the old end, a few at a time."""
        cursor = self.tables.events.cursor()
        oldest = self.memory.totals.next_event - self.settings.events_kept_max
        for _ in range(max(_EVENT_RECORDS_TRIMMED_MIN, min(len(self.rows), _EVENT_RECORDS_TRIMMED_MAX))):
            if not (cursor.first() and cursor.next()):
                return
            second = read_number(cursor.key())
            if second > oldest:
                return
            cursor.first()
            self.tables.events.delete_at(cursor)
            self.memory.events_from = second
