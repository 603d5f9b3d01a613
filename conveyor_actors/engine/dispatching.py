"""Handing waiting jobs to workers, and taking back what a worker has not begun.

Invariant: a job has at most one lease; it is out of `waiting` exactly while it has one.
"""

from __future__ import annotations

from conveyor_actors.engine.credits import QUIET_US_MAX, UNKNOWN_US, has_room, share
from conveyor_actors.engine.damage import set_aside
from conveyor_actors.engine.ending import fail
from conveyor_actors.engine.leasing import put_back, release
from conveyor_actors.engine.memory import Batch, Handler, Lease, PassedOver, Pool, Queue, Worker, effective_options
from conveyor_actors.engine.tick import Tick
from conveyor_actors.engine.transitions import CLAIM, RECALL, REFUSE, move
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import ACTIVE, EVENT_CODE, WAITING
from conveyor_actors.store.tables import JobRecord, queue_key, read_job, read_number
from conveyor_actors.wire import FailureRecord, Task

_ACTIVE_EVENT = EVENT_CODE["active"]
#: Jobs that a pool has to leave for another one are passed over, those that nobody can run are refused, and those that
#: cannot be read are set aside; a tick does so with this many of a queue at most, and the next one goes on from there.
_NOT_TAKEN_MAX = 500


def dispatch(tick: Tick) -> None:
    """Fills every worker that has room from the queues its pool serves."""
    memory = tick.memory
    if memory.draining or memory.hold or not memory.workers:
        return
    for pool in memory.pools.values():
        if not pool.ready or not pool.workers:
            continue
        queues = _queues_with_work(tick, pool)
        if queues:
            _fill(tick, pool, queues)


def _queues_with_work(tick: Tick, pool: Pool) -> list[Queue]:
    """In order of precedence; of the queues that `*` stands for the one that was served last comes last."""
    memory = tick.memory
    found: list[Queue] = []
    for pattern in pool.queues:
        if pattern == "*":
            named = memory.named_queues
            rest = [q for q in memory.queues.values() if q.counts[WAITING] and not q.paused and q.name not in named]
            if rest:
                rest.sort(key=lambda queue: queue.number)
                last = pool.served_last
                found += [queue for queue in rest if queue.number > last] + [
                    queue for queue in rest if queue.number <= last
                ]
        else:
            queue = memory.queues.get(pattern)
            if queue is not None and queue.counts[WAITING] and not queue.paused:
                found.append(queue)
    return found


def _open_workers(tick: Tick, pool: Pool) -> list[Worker]:
    """Those that can take something, the emptiest first."""
    workers = [
        w
        for w in pool.workers.values()
        if not w.leases or (not w.recalled and has_room(len(w.leases), w.load_us, 0, tick.window_us, w.held_bytes))
    ]
    workers.sort(key=lambda w: w.load_us)
    return workers


def _fill(tick: Tick, pool: Pool, queues: list[Queue]) -> None:
    for queue in queues:
        workers = _open_workers(tick, pool)
        if not workers:
            return
        jobs = _Waiting(tick, pool, queue)
        fair = share(queue.counts[WAITING], len(workers))
        for worker in workers:
            _fill_worker(tick, worker, jobs, fair)
            if jobs.exhausted:
                break


class _Waiting:
    """The waiting jobs of a queue that a pool can run, in order; refuses those that nobody can run."""

    __slots__ = (
        "cursor",
        "exhausted",
        "handler",
        "not_taken",
        "number",
        "passed",
        "pool",
        "prefix",
        "queue",
        "record",
        "tick",
    )

    def __init__(self, tick: Tick, pool: Pool, queue: Queue) -> None:
        self.tick = tick
        self.pool = pool
        self.queue = queue
        self.prefix = queue_key(queue.number)
        self.cursor = tick.tables.waiting.cursor()
        self.not_taken = 0
        self.number = 0
        self.record: JobRecord
        self.handler: Handler
        self.passed = queue.passed_over.get(pool.name)
        self._seek()
        self._settle()

    def take(self) -> None:
        """Takes the current job out of `waiting` and goes on to the next."""
        self._leave(taken=True)
        self._settle()

    def _seek(self) -> None:
        """To the next place at which the pool may have something to do."""
        start, passed = self.prefix, self.passed
        if passed is not None:
            start = passed.taken_since[0] if passed.taken_since else passed.upto + b"\0"
        self.exhausted = not self.cursor.set_range(start)

    def _leave(self, *, taken: bool) -> None:
        """On from a place: its row was taken, or is left to others."""
        cursor, passed = self.cursor, self.passed
        place = cursor.key()
        more = taken and self.tick.tables.waiting.delete_at(cursor)
        if passed is not None and passed.taken_since:
            del passed.taken_since[0]
            self._seek()
        elif taken:
            self.exhausted = not more
        else:
            if passed is None:
                self.passed = self.queue.passed_over[self.pool.name] = PassedOver(place)
            else:
                passed.upto = place
            self.exhausted = not cursor.next()

    def _settle(self) -> None:
        """Finds the first job at or after the cursor that the pool has a handler for."""
        tick, queue, cursor = self.tick, self.queue, self.cursor
        while not self.exhausted:
            place, passed = cursor.key(), self.passed
            if passed is not None and passed.taken_since and place != passed.taken_since[0]:
                del passed.taken_since[0]  # whoever had it is gone again
                self._seek()
                continue
            if place[:4] != self.prefix:
                self.exhausted = True
                return
            key = cursor.value()
            try:
                sealed = tick.tables.jobs.get(key)
                if sealed is None:
                    raise CorruptRecord("a waiting job has no record: the store is damaged, restore a backup")
                record = read_job(sealed)
            except CorruptRecord as error:
                if self.seen_enough():
                    return
                self._leave(taken=True)
                set_aside(tick, queue, read_number(key), WAITING, error)
                continue
            handler = self.pool.handler(queue.name, record.name)
            if handler is not None:
                self.number, self.record, self.handler = read_number(key), record, handler
                return
            if self.seen_enough():
                return
            nobody = _nobody_can_run(tick, queue, record.name)
            self._leave(taken=nobody)
            if nobody:
                _refuse(tick, queue, read_number(key), record)

    def seen_enough(self) -> bool:
        """Counts a job that is not taken; True if a tick does not go beyond so many."""
        if self.not_taken == _NOT_TAKEN_MAX:
            self.exhausted = self.tick.unfinished = True
            return True
        self.not_taken += 1
        return False


def _fill_worker(tick: Tick, worker: Worker, jobs: _Waiting, fair: int) -> None:
    memory, queue = tick.memory, jobs.queue
    tasks: list[Task] = []
    batch = Batch(worker.id)
    key = memory.next_token
    was_idle = not worker.leases
    while not jobs.exhausted and len(tasks) < fair:
        handler = jobs.handler
        if not has_room(len(worker.leases), worker.load_us, handler.estimate_us, tick.window_us, worker.held_bytes):
            break
        number, record = jobs.number, jobs.record
        try:
            payload = tick.payload(number, record)
        except CorruptRecord as error:
            jobs.take()
            set_aside(tick, queue, number, WAITING, error)
            if jobs.seen_enough():
                break
            continue
        token = memory.next_token
        memory.next_token = token + 1
        lease = Lease(token, number, record, queue, key, worker)
        lease.handler = handler
        lease.estimate_us = UNKNOWN_US if handler.estimate_us is None else handler.estimate_us
        move(record, CLAIM)
        record.worker = worker.id
        batch.members[token] = number
        memory.leases[token] = memory.active[number] = worker.leases[token] = lease
        worker.load_us += lease.estimate_us
        lease.held_bytes = len(payload) + handler.result_bytes
        worker.held_bytes += lease.held_bytes
        options = effective_options(record, handler)
        tasks.append(
            Task(
                token,
                record.id or str(number),
                queue.name,
                record.name,
                payload,
                record.attempts_made,
                record.stalled_count,
                options.attempts or 1,
            )
        )
        tick.count(queue, WAITING, ACTIVE)
        tick.emit(_ACTIVE_EVENT, queue, number, record)
        jobs.take()
    if tasks:
        memory.batches[key] = batch
        tick.dirty_batches.add(key)
        if was_idle:
            worker.quiet_since_us = tick.now_us
            worker.recalled = False
        worker.pool.served_last = queue.number
        tick.effects.dispatches.append((worker.id, tasks))


def _nobody_can_run(tick: Tick, queue: Queue, name: str) -> bool:
    """True if every pool that serves the queue has told its handlers, and none has this one."""
    pools = tick.memory.pools_of(queue.name)
    return all(pool.ready and pool.handler(queue.name, name) is None for pool in pools)


def _refuse(tick: Tick, queue: Queue, number: int, record: JobRecord) -> None:
    names = sorted(
        {
            name
            for pool in tick.memory.pools_of(queue.name)
            for (of_queue, name) in pool.handlers
            if of_queue in (None, queue.name)
        }
    )
    known = ", ".join(names[:50]) if names else "none"
    message = f"no pool has a handler {record.name!r} for the queue {queue.name!r}; there are: {known}"
    move(record, REFUSE)
    fail(tick, queue, number, record, FailureRecord("unknown-handler", message, "", tick.now_ms), before=WAITING)


# -- taking back ------------------------------------------------------------------------------------


def take_back(tick: Tick, worker: Worker, claimed: int, upto: int) -> None:
    """What the worker held up to the token `upto` and had not claimed is waiting again."""
    for lease in [lease for token, lease in worker.leases.items() if claimed < token <= upto]:
        release(tick, lease)
        put_back(tick, lease, RECALL)
    worker.recalled = bool(worker.leases)


def recall_from_quiet_workers(tick: Tick) -> None:
    """Asks for what lies behind a long job."""
    for worker in tick.memory.workers.values():
        if _holds_ahead(worker) and worker.quiet_since_us + QUIET_US_MAX <= tick.now_us:
            worker.recalled = True
            tick.effects.recalls.append(worker.id)


def next_recall_us(tick: Tick) -> int | None:
    """The monotonic time at which to look again, with what was dispatched in this tick."""
    quiet = [worker.quiet_since_us for worker in tick.memory.workers.values() if _holds_ahead(worker)]
    return min(quiet) + QUIET_US_MAX if quiet else None


def _holds_ahead(worker: Worker) -> bool:
    return len(worker.leases) > 1 and not worker.recalled


def recall_queue(tick: Tick, queue: Queue | None) -> None:
    """Takes back unbegun jobs of the queue (None: of all queues), with their neighbours at the same workers."""
    for worker in tick.memory.workers.values():
        if any(queue is None or lease.queue is queue for lease in worker.leases.values()):
            worker.recalled = True  # what this tick handed out to it would be taken back with the rest
            tick.effects.recalls.append(worker.id)
