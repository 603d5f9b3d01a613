"""The engine: takes what the shell reports inside one transaction and says what to do after its commit.

Deterministic: the same tables, inputs and moments give the same tables and effects. `handle` changes the transaction
and memory; after an aborted transaction `reload` makes memory such that the inputs can be handled once more.
"""

from __future__ import annotations

from typing import Any, Final

from conveyor_actors.engine.dispatching import (
    dispatch,
    next_recall_us,
    recall_from_quiet_workers,
    recall_queue,
    take_back,
)
from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.ending import interrupt, stall, take_outcomes, unrecorded
from conveyor_actors.engine.inputs import (
    ClientSays,
    ClientsGone,
    Drain,
    Input,
    Later,
    Moment,
    Outcomes,
    PoolDown,
    PoolReady,
    Recalled,
    SetFull,
    Survivor,
    WorkerDied,
    WorkerReady,
)
from conveyor_actors.engine.leasing import put_back, release
from conveyor_actors.engine.memory import Memory, Settings, Worker
from conveyor_actors.engine.recovery import begin_incarnation, load, load_handlers, recover
from conveyor_actors.engine.requests import answer, refuse
from conveyor_actors.engine.tick import Tick
from conveyor_actors.engine.timers import fire_due, next_due_ms
from conveyor_actors.engine.transitions import RECALL
from conveyor_actors.store.tables import Tables, write


class Engine:
    """`start` once, then for each tick `begin`, `handle` for each input, `finish`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.memory = Memory(settings)
        self._tick: Tick
        #: When to tick again if nothing happens before: wall and monotonic.
        self.wake_ms: int | None = None
        self.wake_us: int | None = None

    def start(self, tables: Tables, survivors: list[Survivor], moment: Moment) -> Effects:
        """Takes over the store from an earlier supervisor, all of whose workers are dead."""
        begin_incarnation(tables, moment.wall_ms)
        load_handlers(tables, self.memory)
        load(tables, self.memory, self.settings)
        self.begin(tables, moment)
        recover(self._tick, survivors)
        return self.finish()

    def begin(self, tables: Tables, moment: Moment) -> None:
        self.memory.just_died, self.memory.just_registered = [], []
        self._tick = Tick(tables, self.memory, self.settings, moment)
        self._tick.effects.alarms += self.memory.alarms
        self.memory.alarms.clear()

    def handle(self, message: Input) -> None:
        _HANDLERS[type(message)](self._tick, message)

    def finish(self) -> Effects:
        """Time-driven work, dispatch, and the rows that fold to one a tick."""
        tick = self._tick
        fire_due(tick)
        recall_from_quiet_workers(tick)
        dispatch(tick)
        self.wake_us = tick.now_us if tick.unfinished else next_recall_us(tick)
        tick.write_gathered()
        self.wake_ms = next_due_ms(tick)
        return tick.effects

    def committed(self) -> None:
        """After the commit: waits that are answered end here, since a tick that is replayed must find them."""
        for number in self._tick.answered:
            self.memory.waits.pop(number, None)

    def reload(self, tables: Tables) -> None:
        """After an aborted transaction."""
        load(tables, self.memory, self.settings)

    def refuse(self, said: ClientSays, message: str) -> None:
        refuse(self._tick, said, message)


def _pool_ready(tick: Tick, message: PoolReady) -> None:
    pool = tick.memory.pools[message.pool]
    pool.ready = True
    pool.learn_handlers(message.handlers)
    for queue in tick.memory.queues.values():
        queue.passed_over.clear()
    tick.tables.handlers.put(message.pool.encode(), write(message.handlers))


def _pool_down(tick: Tick, message: PoolDown) -> None:
    tick.memory.pools[message.pool].ready = False


def _worker_ready(tick: Tick, message: WorkerReady) -> None:
    memory = tick.memory
    if message.worker not in memory.workers:
        pool = memory.pools[message.pool]
        memory.workers[message.worker] = pool.workers[message.worker] = Worker(message.worker, pool, message.pid)
    told = {"worker": message.worker, "pool": message.pool, "pid": message.pid}
    tick.emit_other("worker-started", None, told)


def _outcomes(tick: Tick, message: Outcomes) -> None:
    worker = tick.memory.workers.get(message.worker)
    if worker is None:
        tick.memory.totals.outdated_results += len(message.outcomes)
    else:
        take_outcomes(tick, worker, message.outcomes)


def _recalled(tick: Tick, message: Recalled) -> None:
    worker = tick.memory.workers.get(message.worker)
    if worker is not None:
        take_outcomes(tick, worker, unrecorded(tick, message.outcomes))
        take_back(tick, worker, message.claimed, message.upto)


def _worker_died(tick: Tick, message: WorkerDied) -> None:
    """Its finished jobs are recorded, the running one pays, its neighbours pay nothing."""
    memory = tick.memory
    told = {"worker": message.worker, "pool": message.pool, "pid": message.pid, "message": message.message}
    tick.emit_other("worker-died", None, told)
    worker = memory.workers.pop(message.worker, None)
    if worker is not None:
        worker.pool.workers.pop(worker.id)
        memory.just_died.append(worker)
    take_outcomes(tick, worker, unrecorded(tick, message.outcomes))
    for lease in [lease for lease in memory.leases.values() if memory.batches[lease.batch].worker == message.worker]:
        release(tick, lease)
        if lease.token in message.unheard:
            interrupt(tick, lease, "how it ended could not be recorded")
            continue
        if lease.token != message.running or message.cause == "stopped":
            put_back(tick, lease, RECALL)
            continue
        lease.record.processed_ms = message.started_ms
        if message.cause == "orphaned":
            interrupt(tick, lease, message.message)
        else:
            stall(tick, lease, message.cause, message.message)


def _clients_gone(tick: Tick, message: ClientsGone) -> None:
    waits = tick.memory.waits
    for number in [number for number, routes in waits.items() if not routes.isdisjoint(message.routes)]:
        waits[number] -= message.routes
        if not waits[number]:
            del waits[number]


def _drain(tick: Tick, message: Drain) -> None:
    tick.memory.draining = True
    recall_queue(tick, None)


def _set_full(tick: Tick, message: SetFull) -> None:
    tick.memory.full, tick.memory.hold = message.message, message.hold
    if message.hold:
        recall_queue(tick, None)


def _later(tick: Tick, message: Later) -> None:
    tick.now_ms, tick.now_us = message.moment.wall_ms, message.moment.mono_us


_HANDLERS: Final[dict[type, Any]] = {
    ClientSays: answer,
    PoolReady: _pool_ready,
    PoolDown: _pool_down,
    WorkerReady: _worker_ready,
    Outcomes: _outcomes,
    Recalled: _recalled,
    WorkerDied: _worker_died,
    ClientsGone: _clients_gone,
    Drain: _drain,
    SetFull: _set_full,
    Later: _later,
}
