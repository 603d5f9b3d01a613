"""A host in one thread: time, the network, the supervisor's shell and all that can go wrong, from one seed.

Inside are the real engine, the real store and the real boxes. The shell here does what the real one does: it collects,
decides in one transaction, commits, and only then lets anything out.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conveyor_actors.box import REVOKED
from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.engine import Engine
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
from conveyor_actors.model import WAITING
from conveyor_actors.store.lmdb_store import LmdbStore, MapFull
from conveyor_actors.supervisor.ticker import Ticker
from conveyor_actors.wire import OUTCOME_KINDS, Ended, Outcome, SetPaused, Task, decode_outcomes, encode, encode_reply

from . import tables_check
from .actors import SimClient, SimWorker
from .catalogue import QUEUES, Pool, draw_host
from .expectations import Expectations, Life
from .faults import POISONOUS, Faults, FaultyStore, PoisonedEngine, SupervisorCrash

BEGIN_MS: Final = 1_700_000_000_000
CHAOS_US: Final = 700_000
CHECK_EVERY_TICKS: Final = 10
EVENTS_MAX: Final = 50_000
FORGED: Final = OUTCOME_KINDS.index("invalid-payload")
#: A job may lie behind one that runs for long no longer than this while someone else is free.
HELD_UP_US_MAX: Final = 120_000


@dataclass
class Flight:
    """A message on its way."""

    lost: bool = False
    arrives_us: int = 0


class World:
    """One run."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.draw = random.Random(seed)
        self.directory = directory
        self.host = draw_host(self.draw)
        self.rates = Faults.draw(self.draw)
        #: In a slow run little happens for long, so that whoever relies on the next event has to wait for it.
        self.pace = self.draw.choice((1, 1, 8, 25))
        self.faults = True
        self.now_us = 0
        self.clock_off_ms = 0
        self.seen: Counter[str] = Counter()
        self.trace = hashlib.sha256()
        self.expected = Expectations(self.host)
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._flights: dict[object, list[Flight]] = {}
        self._next_worker = 1
        self.map_bytes = self.draw.choice((1 << 16, 1 << 26))
        self.store = LmdbStore(directory / "store", durability="relaxed", map_bytes=self.map_bytes)
        self.engine = Engine(self.host.settings)
        self.up = False
        self.stopping = False
        self.life_of_supervisor = 0
        self.inbox: list[Input] = []
        self.full = False
        self.pools_up: set[str] = set()
        #: Those that the engine has heard of as ready.
        self.pools_told: set[str] = set()
        self.workers: dict[str, SimWorker] = {}
        self.left_behind: list[SimWorker] = []
        self.clients = [SimClient(self, id) for id in range(1, self.draw.randint(2, 4))]
        #: What the engine was made to fail at in this tick.
        self._poison: Input | None = None
        self._tick_at: int | None = None
        self._ticks = 0
        self._last_tick_us = 0

    # -- time -------------------------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        return BEGIN_MS + self.clock_off_ms + self.now_us // 1000

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._agenda, (self.now_us + delay_us, self._scheduled, action))

    def while_up(self, delay_us: int, action: Callable[[], None]) -> None:
        """What this supervisor wants to do later; it dies with it."""
        life = self.life_of_supervisor
        self.after(delay_us, lambda: action() if self.up and life == self.life_of_supervisor else None)

    def strikes(self, rate: float) -> bool:
        return self.faults and self.draw.random() < rate

    # -- a run ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Chaos, then calm until nothing is left to happen."""
        self.start_supervisor()
        for client in self.clients:
            self._keep_acting(client)
        self._keep_hurting()
        self._keep_looking()
        self._run_until(CHAOS_US * self.pace)
        self._calm_down()
        self._run_until(None)
        self._check_end()

    def _run_until(self, end_us: int | None) -> None:
        for _ in range(EVENTS_MAX):
            if not self._agenda or (end_us is not None and self._agenda[0][0] > end_us):
                return
            self.now_us, _, action = heapq.heappop(self._agenda)
            action()
        raise AssertionError("the run does not come to an end")

    def _keep_acting(self, client: SimClient) -> None:
        if self.faults:
            client.act()
            self.after(self.pace * self.draw.randint(1_000, 25_000), lambda: self._keep_acting(client))

    def _keep_hurting(self) -> None:
        """What strikes from outside, at any moment."""
        if not self.faults:
            return
        alive = [worker for worker in self.workers.values() if worker.alive]
        if alive and self.strikes(self.rates.worker_crash):
            self.seen["killed"] += 1
            self.worker_dies(self.draw.choice(alive), self.draw.choice(("crashed", "crashed", "stalled")))
        if self.up and not self.stopping:
            if self.strikes(self.rates.crash):
                self.crash_supervisor("between ticks")
            elif self.pools_up and self.strikes(self.rates.pool_down):
                self._pool_dies(self.draw.choice(sorted(self.pools_up)))
            elif self.strikes(self.rates.shutdown):
                self._shut_down()
            elif self.strikes(self.rates.full):
                self._disk_full()
        if self.strikes(self.rates.clock_step):
            self.seen["clock stepped"] += 1
            self.clock_off_ms += self.draw.choice((-3_000, -50, 50, 2_000, 90_000))
            self.request_tick(0)
        self.after(self.pace * self.draw.randint(5_000, 30_000), self._keep_hurting)

    def _keep_looking(self) -> None:
        if self.faults:
            self._check_nobody_is_held_up()
            self.after(20_000, self._keep_looking)

    def _calm_down(self) -> None:
        """No more faults, no more jobs; all that was stopped goes on."""
        self.faults = False
        if not self.up:
            self.start_supervisor()
        for client in self.clients:
            client.reconnect()
        if not self.stopping:
            for pool in self.host.pools:
                if pool.name not in self.pools_up:
                    self._pool_ready(pool)
        self.post(SetFull(None))
        self.after(1_000_000, self._resume_all)  # when all that was asked before has arrived

    def _resume_all(self) -> None:
        for queue in QUEUES:
            self.clients[0].ask(SetPaused(queue, False))

    # -- the network --------------------------------------------------------------------------------------------

    def _send(self, link: object, action: Callable[[], None]) -> None:
        """Messages on one link arrive in the order in which they were sent."""
        flights = self._flights.setdefault(link, [])
        flights[:] = [flight for flight in flights if flight.arrives_us > self.now_us]
        flight = Flight()
        earliest = flights[-1].arrives_us - self.now_us if flights else 0
        delay_us = max(self.draw.randint(20, 400), earliest)
        flight.arrives_us = self.now_us + delay_us
        flights.append(flight)
        self.after(delay_us, lambda: None if flight.lost else action())

    def _lose(self, link: object, action_late: Callable[[], None] | None = None) -> None:
        """An end of the link died: what is on its way is lost from some message on."""
        flights = [flight for flight in self._flights.pop(link, []) if flight.arrives_us > self.now_us]
        for flight in flights[self.draw.randint(0, len(flights)) :]:
            flight.lost = True

    def from_worker(self, worker: SimWorker, message: Outcomes) -> None:
        life = self.life_of_supervisor

        def deliver() -> None:
            if life == self.life_of_supervisor:
                self.post(message)

        self._send(("from", worker.id), deliver)
        if self.strikes(self.rates.repeat):
            self.seen["repeated outcomes"] += 1
            self.after(self.draw.randint(0, 500_000), deliver)
        if self.strikes(self.rates.repeat):
            self._forge(worker)

    def _forge(self, worker: SimWorker) -> None:
        """A worker that reports what was given to others, and what never was."""
        others = [life.token for life in self.expected.lives.values() if life.token]
        tokens = [token for token in others if token not in self._tokens_of(worker)]
        forged = [Outcome(token, FORGED, 0, 0, b"forged") for token in (*tokens, 1, 2**63)]
        self.seen["forged outcomes"] += 1
        self.post(Outcomes(worker.id, forged))

    def _tokens_of(self, worker: SimWorker) -> set[int]:
        held = self.engine.memory.workers.get(worker.id)
        return set() if held is None else set(held.leases)

    def from_client(self, client: SimClient, said: ClientSays) -> None:
        life = self.life_of_supervisor

        def deliver() -> None:
            if life == self.life_of_supervisor:
                self.post(said)

        self._send(("from", said.route), deliver)
        if self.strikes(self.rates.repeat) and not isinstance(said.body, SetPaused):
            # A copy that was stuck in a connection given up long ago.
            self.seen["late copy of a request"] += 1
            stale = ClientSays(b"stale %d %d " % (self._scheduled, said.no) + said.route, said.client, said.no,
                               said.low, said.body)  # fmt: skip
            self.after(self.draw.randint(0, 300_000), lambda: life == self.life_of_supervisor and self.post(stale))

    def connection_lost(self, client: SimClient) -> None:
        self._lose(("from", client.route))
        self._lose(("to", client.route))
        life, gone = self.life_of_supervisor, ClientsGone(frozenset({client.route}))
        # The supervisor notices when it next says something to that client, or when it looks.
        self.after(self.draw.randint(1_000, 200_000), lambda: life == self.life_of_supervisor and self.post(gone))

    def _to_client(self, route: bytes, encoded: bytes) -> None:
        client = next((client for client in self.clients if client.route == route and client.connected), None)
        if client is not None:
            self._send(("to", route), lambda: client.receive(encoded) if client.route == route else None)

    def _to_worker(self, id: str, tasks: list[Task]) -> None:
        worker = self.workers[id]
        self._send(("to", id), lambda: worker.receive(tasks))

    # -- workers ------------------------------------------------------------------------------------------------

    def job_starts(self, worker: SimWorker, task: Task) -> None:
        """No job runs twice at one time, and none without its current lease."""
        assert self.expected.is_current(task.token), f"a job was started with the token {task.token}, which is stale"
        number = self.expected.by_token[task.token].number
        for other in self.workers.values():
            if other is not worker and other.alive:
                running = other.box.read().token
                assert not running or self.expected.by_token[running].number != number, "a job runs twice at one time"

    def worker_dies(self, worker: SimWorker, cause: str) -> None:
        """Dead, with all that its box says; the supervisor hears of it a little later."""
        worker.alive = False
        running = worker.box.read().token
        if running:
            if cause == "stopped":
                self.seen["stopped while running"] += 1
                worker.stopped_with = running
            elif running not in {outcome.token for outcome in worker.outcomes()}:
                self.expected.died_running(running)
                self.seen["died while running"] += 1
        self._lose(("from", worker.id))
        self._lose(("to", worker.id))
        in_flight = self._flights.get(("from", worker.id), [])
        last_us = max([flight.arrives_us for flight in in_flight], default=self.now_us)
        self.while_up(last_us - self.now_us + self.draw.randint(100, 3_000), lambda: self._report_death(worker, cause))

    def _report_death(self, worker: SimWorker, cause: Any) -> None:
        state = worker.box.read()
        self.post(
            WorkerDied(
                worker.id, worker.pool, worker.pid, state.token, state.started_wall_ms, worker.outcomes(), cause,
                "killed by signal 9",
            )
        )  # fmt: skip

    def _bury(self, worker: SimWorker) -> None:
        del self.workers[worker.id]
        worker.close()

    def _spawn(self, pool: Pool) -> None:
        if pool.name not in self.pools_up:
            return
        held = sum(worker.pool == pool.name for worker in self.workers.values())
        if held >= pool.workers:
            return
        number = self._next_worker
        self._next_worker += 1
        id = f"{pool.name}-{number}"
        self.workers[id] = SimWorker(self, id, pool.name, number, self.directory / f"{id}.box")
        self.post(WorkerReady(id, pool.name, number))

    def _pool_ready(self, pool: Pool) -> None:
        if self.stopping:
            return
        self.pools_up.add(pool.name)
        self.post(PoolReady(pool.name, pool.entries()))
        for _ in range(pool.workers):
            self.while_up(self.draw.randint(100, 5_000), lambda: self._spawn(pool))

    def _pool_dies(self, name: str) -> None:
        """A spawner takes its workers along."""
        self.seen["pool down"] += 1
        self.pools_up.discard(name)
        self.post(PoolDown(name))
        for worker in list(self.workers.values()):
            if worker.pool == name and worker.alive:
                self.worker_dies(worker, "orphaned")
        pool = next(pool for pool in self.host.pools if pool.name == name)
        self.while_up(self.draw.randint(1_000, 60_000), lambda: self._pool_ready(pool))

    # -- the supervisor -----------------------------------------------------------------------------------------

    def post(self, message: Input) -> None:
        if self.up:
            self.inbox.append(message)
            self.request_tick(self.draw.choice((0, 0, 100, 2_000)))

    def request_tick(self, delay_us: int) -> None:
        at_us = self.now_us + max(0, delay_us)
        if self.up and (self._tick_at is None or at_us < self._tick_at):
            self._tick_at = at_us
            self.while_up(at_us - self.now_us, lambda: self.tick() if self._tick_at == at_us else None)

    def start_supervisor(self) -> None:
        """Takes over the store; every worker of the one before is dead by then."""
        for worker in self.workers.values():
            if worker.alive:
                self.worker_dies(worker, "killed at restart")
            elif worker.stopped_with:  # the supervisor that stopped it did not live to record that
                self.expected.died_running(worker.stopped_with)
                worker.stopped_with = 0
        self.life_of_supervisor += 1
        survivors = [self._survivor(worker) for worker in (*self.workers.values(), *self.left_behind)]
        self.draw.shuffle(survivors)
        self.store.close()
        self.store = LmdbStore(self.directory / "store", durability="relaxed", map_bytes=self.map_bytes)
        moment = self._moment()
        self.engine = Engine(self.host.settings)
        self.full = False
        effects = self._recover(survivors, moment)
        if effects is None:
            self.seen["crashed during recovery"] += 1
            self.after(self.draw.randint(1_000, 20_000), self._start_again)
            return
        self.up = True
        self.stopping = False
        self.inbox = []
        self._tick_at = None
        self.pools_up, self.pools_told = set(), set()
        self._take_in([], effects, moment)
        for worker in list(self.workers.values()):
            self._check_box_recorded(worker)
            if self.strikes(0.2):  # a box may stay behind, and be found again
                self.left_behind.append(self.workers.pop(worker.id))
            else:
                self._bury(worker)
        self.engine.committed()
        self._check()
        self._release(effects)
        self._plan_wake()
        for pool in self.host.pools:
            self.while_up(self.draw.randint(100, 60_000), lambda pool=pool: self._pool_ready(pool))  # type: ignore[misc]
        for client in self.clients:
            self.while_up(self.draw.randint(100, 20_000), client.reconnect)

    def _recover(self, survivors: list[Survivor], moment: Moment) -> Effects | None:
        store = FaultyStore(self)
        while True:
            try:
                effects = self.engine.start(store.begin(), survivors, moment)
                store.commit()
                return effects
            except MapFull:
                store.abort()
                store.grow()
            except SupervisorCrash:
                return None

    def _start_again(self) -> None:
        if not self.up:
            self.start_supervisor()

    @staticmethod
    def _survivor(worker: SimWorker) -> Survivor:
        state = worker.box.read()
        return Survivor(worker.id, state.token, state.started_wall_ms, worker.outcomes())

    def crash_supervisor(self, when: str) -> None:
        """Its memory and its sockets are gone; its workers go on until the next one comes."""
        self.seen[f"supervisor crashed {when}"] += 1
        self.up = False
        self.expected.supervisor_died()
        self.inbox = []
        for client in self.clients:
            if client.connected:
                client.disconnect()
        for worker in self.workers.values():
            self._lose(("to", worker.id))
        self.after(self.draw.randint(500, 80_000), self._start_again)

    def _shut_down(self) -> None:
        """Dispatch ends, workers are given a moment and stopped, and another supervisor comes."""
        self.seen["shutdown"] += 1
        self.stopping = True
        self.post(Drain())
        self.while_up(self.draw.randint(1_000, 50_000), self._stop_workers)

    def _stop_workers(self) -> None:
        self.pools_up, self.pools_told = set(), set()
        for worker in self.workers.values():
            if worker.alive:
                self.worker_dies(worker, "stopped")
        self._exit_when_buried()

    def _exit_when_buried(self) -> None:
        if self.workers or self.inbox:
            self.while_up(1_000, self._exit_when_buried)
        else:
            self.up = False
            self.expected.supervisor_died()
            for client in self.clients:
                if client.connected:
                    client.disconnect()
            self.start_supervisor()

    def _disk_full(self) -> None:
        self.seen["disk full"] += 1
        self.post(SetFull("the disk is full", hold=self.draw.random() < 0.5))
        self.while_up(30_000, lambda: self.post(SetFull(None)))

    # -- a tick -------------------------------------------------------------------------------------------------

    def _moment(self) -> Moment:
        return Moment(self.wall_ms, self.now_us, self.draw.random(), self.draw.randint(50, 3_000))

    def tick(self) -> None:
        self._tick_at = None
        self._ticks += 1
        taken = self.inbox[: self.draw.randint(1, 40)]
        self.inbox = self.inbox[len(taken) :]
        moment = self._moment()
        if self.now_us - self._last_tick_us > 3_000 and self.draw.random() < 0.3:
            # The tick began a while ago and has gone on taking what came in.
            taken.insert(self.draw.randint(0, len(taken)), Later(moment))
            moment = moment._replace(mono_us=self.now_us - 2_000)
        self._last_tick_us = self.now_us
        effects = self._decide(taken, moment)
        if effects is None:
            return self.crash_supervisor("before the commit")
        self._take_in(taken, effects, moment)
        for message in taken:
            if isinstance(message, WorkerDied):
                self._bury(self.workers[message.worker])
                pool = next(pool for pool in self.host.pools if pool.name == message.pool)
                self.while_up(self.draw.randint(500, 5_000), lambda pool=pool: self._spawn(pool))  # type: ignore[misc]
        if self.strikes(self.rates.crash / 2):
            return self.crash_supervisor("after the commit")
        self.engine.committed()
        if not self._release(effects):
            return self.crash_supervisor("in the middle of sending")
        if self._ticks % CHECK_EVERY_TICKS == 0:
            self._check()
        if self.strikes(self.rates.checkpoint):
            self.seen["checkpoint"] += 1
            self.store.checkpoint()
        self._check_no_worker_idles()
        return self._plan_wake()

    def _decide(self, taken: list[Input], moment: Moment) -> Effects | None:
        """One transaction of the real shell's; None for a crash before the commit."""
        poison: Input | None = None
        kinds = [kind for kind in POISONOUS if any(isinstance(message, kind) for message in taken)]
        if kinds and self.strikes(self.rates.poison):
            kind = self.draw.choice(kinds)
            poison = self.draw.choice([message for message in taken if isinstance(message, kind)])
        self._poison = poison
        engine = PoisonedEngine(self, poison)
        store = FaultyStore(self)
        ticker = Ticker(store, engine, collect=lambda: False, now=self._moment, clock_ns=lambda: 0)  # type: ignore[arg-type]
        ticker.inputs += taken
        try:
            effects = ticker.run(moment)
        except SupervisorCrash:
            return None
        if ticker.inputs:  # what came behind a message that raised is for the next tick
            del taken[-len(ticker.inputs) :]
            self.inbox[:0] = [message for message in ticker.inputs if not isinstance(message, Later)]
        if poison is not None:
            self._note_poisoned(poison, engine.bad, taken)
        for id in sorted(ticker.distrusted & self.workers.keys()):
            if self.workers[id].alive:
                self.seen["distrusted"] += 1
                self.worker_dies(self.workers[id], "crashed")
        return effects

    def _note_poisoned(self, poison: Any, bad: int, taken: list[Input]) -> None:
        """What the engine could not handle it has not heard of."""
        self.seen[f"poisoned {type(poison).__name__}"] += 1
        if bad:
            self.expected.lost.add(bad)
            died = any(isinstance(message, WorkerDied) and message.worker == poison.worker for message in taken)
            if died and self.expected.is_current(bad):
                self.expected.by_token[bad].deaths += 1  # it is charged an interruption
        elif isinstance(poison, WorkerDied) and poison.cause != "stopped" and self.expected.is_current(poison.running):
            self.expected.by_token[poison.running].deaths -= 1  # taken for a death between two jobs

    def _release(self, effects: Effects) -> bool:
        """Sends what the tick wants sent; False if the supervisor died half way."""
        sends = list(self._sends(effects))
        upto = self.draw.randint(0, len(sends)) if sends and self.strikes(self.rates.crash / 2) else None
        for send in sends[:upto]:
            send()
        return upto is None

    def _sends(self, effects: Effects) -> Iterator[Callable[[], None]]:
        for id in effects.recalls:
            yield lambda id=id: self._recall(id)  # type: ignore[misc]
        for route, encoded in effects.replies:
            yield lambda route=route, encoded=encoded: self._to_client(route, encoded)  # type: ignore[misc]
        for id, tasks in effects.dispatches:
            yield lambda id=id, tasks=tasks: self._to_worker(id, tasks)  # type: ignore[misc]
        for route, views in sorted(effects.ended.items()):
            pushed = encode_reply(0, encode(Ended(views)))
            yield lambda route=route, pushed=pushed: self._to_client(route, pushed)  # type: ignore[misc]

    def _recall(self, id: str) -> None:
        worker, held = self.workers.get(id), self.engine.memory.workers.get(id)
        if worker is None or held is None or not held.leases:
            return
        if self.strikes(0.1):  # the worker holds the lock
            self.while_up(1_000, lambda: self._recall(id))
            return
        self.seen["recalled"] += 1
        upto = max(held.leases)
        recalled = worker.box.recall(upto)
        assert recalled is not None
        unsent = [] if recalled.unsent is None else decode_outcomes(recalled.unsent)
        message = Recalled(id, recalled.claimed, upto, unsent)
        self.while_up(self.draw.choice((0, 0, 5_000)), lambda: self.post(message))

    def _plan_wake(self) -> None:
        """Nothing but an input or the times the engine asked for wakes the supervisor."""
        if self.inbox:
            self.request_tick(self.draw.randint(0, 300))
        if self.engine.wake_ms is not None:
            self.request_tick((self.engine.wake_ms - self.wall_ms) * 1000)
        if self.engine.wake_us is not None:
            self.request_tick(self.engine.wake_us - self.now_us)

    # -- looking ------------------------------------------------------------------------------------------------

    def _take_in(self, taken: list[Input], effects: Effects, moment: Moment) -> None:
        """What is on disk now must be as was promised."""
        said, full = self._asked(taken)
        self.trace.update(
            encode(
                (moment, effects.replies, sorted(effects.ended.items()), effects.dispatches, effects.recalls,
                 effects.events)
            )
        )  # fmt: skip
        gone = {route for message in taken if isinstance(message, ClientsGone) for route in message.routes}
        self.seen["clients gone"] += len(gone)
        ended: list[Life] = self.expected.committed(said, gone, effects, moment, full)
        if ended:
            tables_check.check_ends(self.store.begin(), ended, self.expected)
            self.store.abort()
        self._check_recorded(taken)
        for message in taken:
            if isinstance(message, PoolReady):
                self.pools_told.add(message.pool)
            elif isinstance(message, PoolDown):
                self.pools_told.discard(message.pool)
        for id, _ in effects.dispatches:
            assert id in self.workers, "a job was handed to a worker that is dead and buried"
            assert self.workers[id].pool in self.pools_told, "a job was handed to a pool that is down"
        assert not (effects.dispatches and self.engine.memory.draining), "a job was handed out during a shutdown"
        assert not (effects.dispatches and self.engine.memory.hold), "a job was handed out while the disk was full"

    def _asked(self, taken: list[Input]) -> tuple[list[ClientSays], frozenset[tuple[bytes, int]]]:
        """The requests of a tick, and those that came while the disk was full."""
        said: list[ClientSays] = []
        refused = set()
        for message in taken:
            if isinstance(message, SetFull):
                self.full = message.message is not None
            elif isinstance(message, ClientSays):
                said.append(message)
                if self.full:
                    refused.add((message.route, message.no))
        return said, frozenset(refused)

    def _check_recorded(self, taken: list[Input]) -> None:
        """What a worker reports, and what the box of a dead one holds, is on record."""
        dead: set[str] = set()
        for message in taken:
            if (
                isinstance(message, (Outcomes, Recalled))
                and message.worker in self.workers
                and message.worker not in dead
            ):
                for outcome in message.outcomes:
                    known = outcome.token in self.expected.recorded | self.expected.lost
                    assert known or outcome.kind == FORGED, "an outcome was dropped"
            elif isinstance(message, WorkerDied):
                dead.add(message.worker)
                self._check_box_recorded(self.workers[message.worker])

    def _check_box_recorded(self, worker: SimWorker) -> None:
        for outcome in (*worker.half_before, *worker.half):
            known = outcome.token in self.expected.recorded | self.expected.lost
            assert known, f"{worker.id} finished what is not on record"

    def _check(self) -> None:
        tables_check.check(self.store.begin(), self.engine, self.expected)
        self.store.abort()

    def _check_no_worker_idles(self) -> None:
        """Whoever has nothing to do gets what there is."""
        memory = self.engine.memory
        if memory.draining or memory.hold:
            return
        for pool in self.host.pools:
            known = memory.pools[pool.name]
            if known.ready and any(not worker.leases for worker in known.workers.values()):
                for life in self.expected.lives.values():
                    if life.state == WAITING and pool in self.host.serving(life.queue):
                        runnable = pool.can_run(life.queue, life.new.name) and not memory.queues[life.queue].paused
                        assert not runnable, f"job {life.number} waits while {pool.name} has a free worker"

    def _check_nobody_is_held_up(self) -> None:
        """No job waits behind a slow one while a worker is free."""
        if not self.up or self.stopping:
            return
        memory = self.engine.memory
        free = [worker for worker in memory.workers.values() if not worker.leases and worker.pool.ready]
        for worker in self.workers.values():
            if not worker.alive:
                continue
            for task in worker.tasks:
                since_us = max(worker.arrived_us[task.token], worker.running_since_us)
                if self.now_us - since_us > HELD_UP_US_MAX and task.token > worker.box.slots[REVOKED]:
                    pools = [pool.name for pool in self.host.serving(task.queue) if pool.can_run(task.queue, task.name)]
                    idle = [other.id for other in free if other.pool.name in pools]
                    assert not idle, f"{task.id} lies at {worker.id}, which is busy, and {idle} are free"

    def _check_end(self) -> None:
        """All is said and done: a day has passed since the last request."""
        self._check()
        for life in self.expected.lives.values():
            served = bool(self.host.serving(life.queue))
            assert life.ended if served else life.state == WAITING, f"job {life.number} never ended"
        snapshot = tables_check.read(self.store.begin())
        self.store.abort()
        self.trace.update(encode(sorted(snapshot.raw.items())))
        totals = snapshot.totals
        assert totals.stalled + totals.interrupted == sum(life.deaths for life in self.expected.lives.values())
        assert not snapshot.leases and not snapshot.raw["timers"] and not snapshot.raw["requests"]
        for client in self.clients:
            assert not client.unanswered, f"client {client.id} has no answer to {client.unanswered}"
            assert all(not self.host.serving(queue) for queue, _ in client.waiting), "a wait was never answered"
        assert not self.expected.owed or not all(map(self.host.serving, QUEUES))

    def close(self) -> None:
        for worker in (*self.workers.values(), *self.left_behind):
            worker.close()
        self.store.close()
