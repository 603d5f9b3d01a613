"""The supervisor's loop: collect, decide, commit, release.

The shell around the engine: it has all the sockets, processes and clocks, and no opinion on jobs. Invariant:
nothing leaves this process before the commit it depends on.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Final

import zmq

from conveyor_actors.box import BEAT_NS, TOKEN
from conveyor_actors.config import WORKERS_SOCKET, Config
from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.engine import Engine
from conveyor_actors.engine.inputs import (
    ClientsGone,
    Drain,
    Moment,
    Recalled,
    SetFull,
)
from conveyor_actors.engine.memory import PoolSettings, QueueSettings, Settings
from conveyor_actors.errors import StoreError
from conveyor_actors.store.lmdb_store import LmdbStore
from conveyor_actors.supervisor import health, liveness, logs, processes
from conveyor_actors.supervisor.datadir import DataDir
from conveyor_actors.supervisor.gateway import Gateway, Question
from conveyor_actors.supervisor.logs import event
from conveyor_actors.supervisor.pools import Host, Pool
from conveyor_actors.supervisor.reactor import Reactor
from conveyor_actors.supervisor.shutdown import Phase, Shutdown
from conveyor_actors.supervisor.switchboard import Switchboard
from conveyor_actors.supervisor.takeover import store_id, sweep_run, take_over
from conveyor_actors.supervisor.ticker import Ticker
from conveyor_actors.supervisor.workers import WorkerProcess, read_outcomes
from conveyor_actors.units import format_duration
from conveyor_actors.wire import Done, GetInfo, GetWorkers, InfoReply, Stop, Workers

log: Final = logging.getLogger("conveyor.supervisor")

#: Room that is kept for what has to be recorded when the disk is full.
_RESERVE_BYTES: Final = 32 * 1024 * 1024
_SYNC_SECONDS: Final = 0.1
#: How often LMDB is brought up to the journal, and the disk and the log are looked at.
_HOST_SECONDS: Final = 1.0
_CLIENTS_SECONDS: Final = 60.0
#: A claim takes a microsecond, and so does a try.
_RECALL_TRIES: Final = 50
_RECALL_AGAIN_SECONDS: Final = 0.001
EXIT_KILLED: Final = 3


def engine_settings(config: Config) -> Settings:
    return Settings(
        {name: PoolSettings(pool.queues) for name, pool in config.pools.items()},
        {
            name: QueueSettings(queue.max_stalled_count, queue.remove_on_complete, queue.remove_on_fail)
            for name, queue in config.queues.items()
        },
        config.supervisor.max_payload,
    )


class Loop:
    """Owns the store, the engine, all sockets and all pools."""

    def __init__(self, config: Config, data_dir: DataDir, warnings: list[str], files: int) -> None:
        self._config = config
        self._warnings = warnings
        self._questions: list[Question] = []
        self._after_commit: list[Callable[[], None]] = []
        self._tick_us = 0
        self._full = SetFull(None)
        self._few_files: str | None = None
        self._children = set(processes.children_of(os.getpid()))
        self._started_ms = time.time_ns() // 1_000_000
        self._random = random.Random()
        self._shutdown = Shutdown(config.supervisor.shutdown_timeout_ms / 1000)
        self._on_ready: Callable[[], None] | None = None
        survivors, boxes = take_over(data_dir.path, data_dir.run)
        self._store = LmdbStore(
            data_dir.store,
            durability=config.supervisor.durability,
            reserve_bytes=min(_RESERVE_BYTES, config.supervisor.min_free_disk),
        )
        self._engine = Engine(engine_settings(config))
        self._log_alarms(self._engine.start(self._store.begin(), survivors, self._now()))
        self._store.checkpoint()  # the incarnation must survive a power cut, also with relaxed durability
        for box in boxes:
            box.remove()
        sweep_run(data_dir.run)
        self._ticker = Ticker(
            self._store, self._engine, collect=self._collect, now=self._now, clock_ns=time.monotonic_ns
        )
        self._reactor = Reactor()
        self._zmq = zmq.Context()
        self._zmq.setsockopt(zmq.MAX_SOCKETS, 65_000)
        self._gateway = Gateway(self._zmq, config.supervisor, self._engine.memory.incarnation)
        address = f"ipc://{data_dir.path / WORKERS_SOCKET}"
        self._switchboard = Switchboard(self._zmq, address)
        host = Host(
            config.root,
            data_dir.run,
            store_id(data_dir.path),
            self._engine.memory.incarnation,
            address,
            config.supervisor.max_payload,
            self._look_ms() // 2,
            files,
            self._children,
            self._ticker.inputs,
            self._reactor.watch,
            self._reactor.unwatch,
            self._reactor.later,
            self._job_of,
            self._after_commit.append,
        )
        self._pools = {name: Pool(pool, host) for name, pool in config.pools.items()}

    # -- the loop ---------------------------------------------------------------------------------------

    def run(self, on_ready: Callable[[], None]) -> int:
        """Until a shutdown is complete; gives the exit status."""
        self._on_ready = on_ready
        for socket in (self._switchboard.socket, self._gateway.socket, self._gateway.events):
            self._reactor.add_socket(socket)
        self._reactor.catch(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        for pool in self._pools.values():
            pool.start()
        self._look_after_the_host()
        self._look_again()
        self._forget_clients_again()
        if self._store.relaxed:
            self._sync_again()
        while not self._shutdown.finished(busy=self._busy()):
            self._turn()
        self._store.checkpoint()
        if self._shutdown.given_up:
            raise StoreError("jobs that were killed are still on record as running: the next start returns them")
        event(log, "info", "stopped", killed_jobs=self._shutdown.killed)
        return EXIT_KILLED if self._shutdown.killed else 0

    def _turn(self) -> None:
        engine = self._engine
        pending = self._ticker.inputs or self._ticker.requests
        ready = self._reactor.wait(0 if pending else engine.wake_ms, engine.wake_us)
        if self._gateway.events in ready:
            self._gateway.take_subscriptions()
        self._collect(self._gateway.socket in ready)
        if self._reactor.watched_ready:  # perhaps a death: what that worker has sent comes before it
            while self._switchboard.receive(self._worker, self._ticker.inputs):
                pass
        self._reactor.run_ready()
        for number in self._reactor.signals:
            self._signalled(number)
        self._reactor.signals.clear()
        self._step_down(self._shutdown.advance(time.monotonic(), busy=self._busy()))
        if self._gateway.gone:
            self._ticker.inputs.append(ClientsGone(frozenset(self._gateway.gone)))
            self._gateway.gone.clear()
        if self._ticker.inputs or self._ticker.requests or self._due():
            self._tick()
        self._answer_questions()
        if self._on_ready is not None and all(pool.settled for pool in self._pools.values()):
            on_ready, self._on_ready = self._on_ready, None
            event(log, "info", "ready", url=self._config.supervisor.listen[0], pools=list(self._pools))
            on_ready()

    def _collect(self, asked: bool = False) -> bool:
        """Takes what has arrived; tells whether there was something. New requests only when the old ones are done.

        `asked`: there are requests for sure.
        """
        something = self._switchboard.receive(self._worker, self._ticker.inputs)
        if not self._ticker.requests:
            something |= self._gateway.receive(self._ticker.requests, self._questions, asked)
        return something

    def _due(self) -> bool:
        engine = self._engine
        if engine.wake_us is not None and engine.wake_us <= time.monotonic_ns() // 1000:
            return True
        return engine.wake_ms is not None and engine.wake_ms <= time.time_ns() // 1_000_000

    def _now(self) -> Moment:
        return Moment(time.time_ns() // 1_000_000, time.monotonic_ns() // 1000, self._random.random(), self._tick_us)

    # -- the tick ---------------------------------------------------------------------------------------

    def _tick(self) -> None:
        moment = self._now()
        effects = self._ticker.run(moment)
        self._engine.committed()
        if not self._store.behind:  # it may have been too much for the journal, and LMDB's file may have grown
            self._check_disk()
        self._release(effects)
        self._end_distrusted()
        self._tick_us = time.monotonic_ns() // 1000 - moment.mono_us

    def _release(self, effects: Effects) -> None:
        gateway = self._gateway
        for id in effects.recalls:  # before it is said that a queue is paused
            self._recall(id)
        gateway.send_all(effects.replies)
        for id, tasks in effects.dispatches:
            worker = self._worker(id)
            if worker is not None:
                self._switchboard.send(worker, tasks)
        if effects.ended:
            gateway.push_ended(effects.ended)
        if effects.events is not None:
            gateway.publish(effects.events)
        self._log_alarms(effects)
        after, self._after_commit[:] = list(self._after_commit), []
        for call in after:
            call()

    def _log_alarms(self, effects: Effects) -> None:
        for alarm in effects.alarms:
            event(log, "error", alarm)

    def _end_distrusted(self) -> None:
        """Something they reported could not be handled: their death gives back what they hold, and charges nobody."""
        for id in self._ticker.distrusted:
            worker = self._worker(id)
            if worker is not None:
                worker.kill("stopped", "what it reported could not be handled")
        self._ticker.distrusted.clear()

    def _worker(self, id: str) -> WorkerProcess | None:
        pool = self._pools.get(id.rpartition("-")[0])
        return None if pool is None else pool.workers.get(id)

    def _job_of(self, token: int) -> str | None:
        lease = self._engine.memory.leases.get(token)
        return None if lease is None else f"{lease.queue.name}/{lease.record.id or lease.number}"

    def _recall(self, id: str) -> None:
        """Takes back what the worker has not claimed, whether or not it can listen."""
        worker, held = self._worker(id), self._engine.memory.workers.get(id)
        if worker is None or held is None or not held.leases:
            return
        upto = max(held.leases)
        for _ in range(_RECALL_TRIES):
            recalled = worker.box.recall(upto)
            if recalled is not None:
                break
        if recalled is None:  # it is claiming at this very moment, and is kept from going on
            self._reactor.later(_RECALL_AGAIN_SECONDS, lambda: self._recall(id))
        else:
            unsent = [] if recalled.unsent is None else read_outcomes([recalled.unsent])
            self._ticker.inputs.append(Recalled(id, recalled.claimed, upto, unsent))

    # -- answers of the shell's own ---------------------------------------------------------------------

    def _answer_questions(self) -> None:
        for route, no, question in self._questions:
            if isinstance(question, GetInfo):
                starting = self._on_ready is not None and self._shutdown.phase is Phase.RUNNING
                info = health.make_info(
                    "starting" if starting else self._shutdown.state,
                    self._started_ms,
                    self._engine.memory,
                    self._pools.values(),
                    self._store,
                    self._warnings,
                    self._gateway.garbage + self._switchboard.garbage,
                )
                self._gateway.reply(route, no, InfoReply(info))
            elif isinstance(question, GetWorkers):
                workers = [worker for pool in self._pools.values() for worker in pool.workers.values()]
                told = [health.make_worker(worker, self._engine.memory) for worker in workers]
                self._gateway.reply(route, no, Workers(told))
            elif isinstance(question, Stop):
                self._gateway.reply(route, no, Done())
                self._stop(None if question.timeout_ms is None else question.timeout_ms / 1000)
        self._questions.clear()

    # -- looking after the host -------------------------------------------------------------------------

    def _look_ms(self) -> int:
        queues = [self._config.queue(""), *self._config.queues.values()]
        return min(min(queue.lock_duration_ms // 4, queue.stalled_interval_ms) for queue in queues)

    def _look_again(self) -> None:
        now_ns = time.monotonic_ns()
        for pool in self._pools.values():
            for worker in list(pool.workers.values()):
                self._look_at(worker, now_ns)
        self._reactor.later(self._look_ms() / 1000, self._look_again)

    def _look_at(self, worker: WorkerProcess, now_ns: int) -> None:
        slots, memory = worker.box.slots, self._engine.memory
        lease = memory.leases.get(slots[TOKEN])
        if lease is None and worker.id in memory.workers:  # it has work, and ought to begin
            lease = next(iter(memory.workers[worker.id].leases.values()), None)
        if lease is None or not worker.ready or worker.cause is not None:
            worker.watch = None
            return
        lock_ms = self._config.queue(lease.queue.name).lock_duration_ms
        worker.watch, stalled = liveness.look(
            worker.watch, worker.pid, worker.threads, slots[BEAT_NS], lock_ms * 1_000_000, now_ns
        )
        if stalled:
            worker.kill("stalled", f"no heartbeat and no progress for {format_duration(lock_ms)} (lock_duration)")

    def _check_disk(self) -> None:
        full, before = health.fullness(self._store, self._config.supervisor.min_free_disk), self._full
        if full.message is None:
            self._store.reserve.restore()
        if (full.message is None, full.hold) != (before.message is None, before.hold):
            event(log, "warning" if full.message else "info", full.message or "there is room on the disk again")
            self._ticker.inputs.append(full)
            self._full = full

    def _look_after_the_host(self) -> None:
        if self._store.behind:
            self._store.checkpoint()
        self._check_disk()
        few_files, before = health.few_files_left(), self._few_files
        if few_files is not None and before is None:
            event(log, "warning", few_files)
        self._few_files = few_files
        processes.reap_strangers(self._children)
        logs.flush()
        self._reactor.later(_HOST_SECONDS, self._look_after_the_host)

    def _forget_clients_again(self) -> None:
        self._gateway.forget_gone()
        self._reactor.later(_CLIENTS_SECONDS, self._forget_clients_again)

    def _sync_again(self) -> None:
        if self._store.unsynced:
            self._store.sync()
        self._reactor.later(_SYNC_SECONDS, self._sync_again)

    # -- the way down -------------------------------------------------------------------------------------

    def _busy(self) -> bool:
        """Whether there is still something to be recorded."""
        return bool(self._engine.memory.leases or self._ticker.inputs)

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop(None)
        elif number == signal.SIGHUP:
            event(log, "warning", "SIGHUP: reload is not available in this version; restart the supervisor")

    def _stop(self, timeout_s: float | None) -> None:
        before = self._shutdown.phase
        phase = self._shutdown.request(time.monotonic(), timeout_s)
        if before is Phase.RUNNING:
            event(log, "info", "stopping: running jobs may finish", running=len(self._engine.memory.leases))
            self._ticker.inputs.append(Drain())
            self._schedule_step()
        elif phase is not before:
            self._step_down(phase)
        else:
            self._schedule_step()

    def _schedule_step(self) -> None:
        wakes_in = self._shutdown.wakes_in(time.monotonic())
        if wakes_in is not None:
            self._reactor.later(wakes_in + 0.001, lambda: None)

    def _step_down(self, phase: Phase | None) -> None:
        if phase is None:
            return
        workers = [worker for pool in self._pools.values() for worker in pool.workers.values()]
        busy = [worker for worker in workers if worker.box.slots[TOKEN]]
        if phase is Phase.ABORTING:
            event(log, "warning", "the time to stop is over: running jobs are asked to end", running=len(busy))
            for worker in workers:
                worker.box.ask_to_abort()
        elif phase is Phase.KILLING:
            event(log, "warning", "running jobs are killed and return to their queues", running=len(busy))
            for worker in workers:
                worker.kill("stopped")
        self._schedule_step()

    def close(self, *, properly: bool) -> None:
        """Ends everything that was started. Boxes stay for the next supervisor if this one did not come to its end."""
        for pool in self._pools.values():
            pool.stop()
        for pool in self._pools.values():
            pool.close(keep_boxes=not properly)
        self._gateway.close()
        self._switchboard.close()
        self._zmq.term()
        self._reactor.close()
        self._store.close()
