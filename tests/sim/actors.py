"""The simulated workers and clients. A worker shares a real box with its supervisor."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from conveyor_actors.box import OUTCOMES_BYTES_MAX, STARTED_WALL_MS, TOKEN, Box
from conveyor_actors.engine.inputs import ClientSays, Outcomes
from conveyor_actors.model import Backoff, KeepRule, RunOptions
from conveyor_actors.wire import (
    SUCCESS,
    Added,
    AddJobs,
    Body,
    Ended,
    GetCounts,
    GetHistory,
    GetJobs,
    GetQueues,
    ListJobs,
    NewJob,
    Outcome,
    ReadEvents,
    Ref,
    Registered,
    SetPaused,
    Task,
    WaitJobs,
    decode_outcomes,
    decode_reply,
    encode,
)

from .catalogue import HANDLERS, NOBODY, QUEUES

if TYPE_CHECKING:
    from .world import World

FLUSH_US = 1_000
QUICK_US = (100, 8_000)
SLOW_US = (60_000, 900_000)
IDS_PER_QUEUE = 6
JOBS_MAX = 120


class SimWorker:
    """Follows the loop of a real worker, step by step; each step may be its last."""

    def __init__(self, world: World, id: str, pool: str, pid: int, path: Path) -> None:
        self.world = world
        self.id = id
        self.pool = pool
        self.pid = pid
        #: The supervisor's end.
        self.box = Box.create(path)
        own = Box.open(path)
        assert own is not None
        self.own = own
        self.alive = True
        self.busy = False
        self.running_since_us = 0
        self.stopped_with = 0
        self.tasks: deque[Task] = deque()
        self.arrived_us: dict[int, int] = {}
        #: What is in the box: this half, and the one before.
        self.half: list[Outcome] = []
        self.half_before: list[Outcome] = []
        self.flushed_us = 0

    # -- its loop -------------------------------------------------------------------------------------------

    def receive(self, tasks: list[Task]) -> None:
        if not self.alive:
            return
        self.tasks.extend(tasks)
        self.arrived_us.update((task.token, self.world.now_us) for task in tasks)
        if not self.busy:
            self.busy = True
            self.step()

    def step(self) -> None:
        """Takes the next task, or sends what is finished and waits."""
        while self.alive and self.tasks:
            task = self.tasks.popleft()
            if self.world.now_us - self.flushed_us > FLUSH_US:
                self.flush()
            if self.alive and self.own.claim(task.token):
                self.start(task)
                return
            self.world.seen["found its task taken back"] += self.alive
        if self.alive:
            self.flush()
        self.busy = False

    def start(self, task: Task) -> None:
        world, draw = self.world, self.world.draw
        if world.strikes(0.01):
            self.die("after a claim")
            return
        world.job_starts(self, task)
        self.own.slots[STARTED_WALL_MS] = world.wall_ms
        self.own.slots[TOKEN] = task.token
        self.running_since_us = world.now_us
        behaviour = HANDLERS[task.name]
        shortest_us, longest_us = SLOW_US if draw.random() < behaviour.slow else QUICK_US
        took_us = draw.randint(shortest_us, longest_us)
        if draw.random() < behaviour.deadly:
            world.after(took_us, lambda: self.die("killed by its job"))
        else:
            world.after(took_us, lambda: self.finish(task, took_us))

    def finish(self, task: Task, took_us: int) -> None:
        if not self.alive:
            return
        world, draw, behaviour = self.world, self.world.draw, HANDLERS[task.name]
        kind = draw.choice(behaviour.kinds)
        value = b"" if kind != SUCCESS else encode(task.token).rjust(behaviour.result_bytes, b"\0")
        started_ms = self.own.slots[STARTED_WALL_MS]
        outcome = Outcome(task.token, kind, started_ms, took_us, value, "" if kind == SUCCESS else "it failed")
        self.keep(outcome)
        if self.alive and world.strikes(0.01):
            self.die("with its outcome in the box")
        if self.alive:
            self.own.slots[TOKEN] = 0
            self.step()

    def keep(self, outcome: Outcome) -> None:
        encoded = encode(outcome)
        if not self.own.add_outcome(encoded):
            self.flush()
            if not self.alive:
                return
            if len(encoded) > OUTCOMES_BYTES_MAX:
                self.world.seen["larger than the box"] += 1
                self.own.slots[TOKEN] = 0
                self.world.from_worker(self, Outcomes(self.id, [outcome]))
                self.world.expected.ran(outcome)
                return
            self.own.turn_over()
            assert self.own.add_outcome(encoded)
            self.half_before, self.half = self.half, []
            self.world.seen["turned its box over"] += 1
        self.half.append(outcome)
        self.world.expected.ran(outcome)

    def flush(self) -> None:
        message = self.own.unsent()
        if message is not None:
            self.world.from_worker(self, Outcomes(self.id, decode_outcomes(message)))
            if self.world.strikes(0.01):
                self.die("after sending")
                return
            self.own.mark_sent()
        self.flushed_us = self.world.now_us

    # -- its end --------------------------------------------------------------------------------------------

    def die(self, when: str) -> None:
        if self.alive:
            self.world.seen[f"died {when}"] += 1
            self.world.worker_dies(self, "crashed")

    def outcomes(self) -> list[Outcome]:
        """What the box holds, as the supervisor reads it after a death."""
        return [outcome for half in self.box.read().outcomes for outcome in decode_outcomes(half)]

    def close(self) -> None:
        self.own.close()
        self.box.close()
        self.box.path.unlink()


class SimClient:
    """A producer that never forgets an unanswered request."""

    def __init__(self, world: World, id: int) -> None:
        self.world = world
        self.id = id
        self.connection = 0
        self.connected = False
        self.next_no = 1
        self.unanswered: dict[int, Body] = {}
        self.jobs: list[Ref] = []
        self.waiting: set[Ref] = set()
        self.read_upto = 0

    @property
    def route(self) -> bytes:
        return b"client%d.%d" % (self.id, self.connection)

    # -- asking -----------------------------------------------------------------------------------------------

    def act(self) -> None:
        draw = self.world.draw
        if not self.connected or len(self.unanswered) > 20:
            return
        choice = draw.random()
        if choice < 0.55 and len(self.world.expected.lives) < JOBS_MAX:
            self.ask(self.some_jobs())
        elif choice < 0.70 and self.jobs:
            self.wait([ref for ref in draw.sample(self.jobs, min(3, len(self.jobs))) if ref not in self.waiting])
        elif choice < 0.80:
            self.ask(SetPaused(draw.choice(QUEUES), draw.random() < 0.5))
        elif choice < 0.90:
            self.ask(self.some_question())
        elif choice < 0.94 and self.world.faults:
            self.reconnect()

    def ask(self, body: Body) -> None:
        no = self.next_no
        self.next_no += 1
        self.unanswered[no] = body
        self.send(no, body)

    def wait(self, refs: list[Ref]) -> None:
        if refs:
            self.waiting.update(refs)
            self.ask(WaitJobs(refs))

    def send(self, no: int, body: Body) -> None:
        self.world.from_client(self, ClientSays(self.route, self.id, no, min(self.unanswered), body))

    def some_question(self) -> Body:
        draw = self.world.draw
        questions: list[Body] = [
            GetCounts(draw.choice(QUEUES)),
            GetQueues(),
            ListJobs(draw.choice(QUEUES), sorted(draw.sample(range(6), 3)), None, 5),
            ReadEvents(self.read_upto),
        ]
        if self.jobs:
            questions += [GetJobs([draw.choice(self.jobs)]), GetHistory(draw.choice(self.jobs))]
        return draw.choice(questions)

    def some_jobs(self) -> AddJobs:
        draw = self.world.draw
        count = draw.choice((1, 1, 1, 2, 5, 10))
        size = draw.choice((0, 0, 400))
        alike = draw.choice(list(HANDLERS)) if draw.random() < 0.5 else None
        payloads = [encode((self.id, self.next_no, index, bytes(size))) for index in range(count)]
        return AddJobs(draw.choice(QUEUES), [self.some_job(payload, alike) for payload in payloads])

    def some_job(self, payload: bytes, name: str | None) -> NewJob:
        draw = self.world.draw
        if name is None:
            name = NOBODY if draw.random() < 0.05 else draw.choice(list(HANDLERS))
        delay_ms = due_ms = None
        if draw.random() < 0.2:
            delay_ms = draw.choice((0, 1, 5, 50, 300, 70_000))
        elif draw.random() < 0.1:
            due_ms = max(0, self.world.wall_ms + draw.choice((-1000, 5, 5, 100)))
        id = None
        if draw.random() < 0.2:
            id = "7" if draw.random() < 0.05 else f"id{draw.randrange(IDS_PER_QUEUE)}"
        return NewJob(
            name,
            payload,
            self.some_options() if draw.random() < 0.3 else None,
            id,
            delay_ms,
            due_ms,
            draw.choice((0, 0, 0, 0, 1, -5, 2**31 - 1)),
            draw.random() < 0.15,
        )

    def some_options(self) -> RunOptions:
        draw = self.world.draw
        keeps = (None, None, KeepRule(), KeepRule(0), KeepRule(1), KeepRule(3))
        backoffs = (
            None,
            Backoff("fixed", draw.choice((0, 3, 40))),
            Backoff("linear", 5, jitter=1.0),
            Backoff("exponential", 4, 25, 0.3),
        )
        return RunOptions(draw.choice((None, 1, 2, 4)), draw.choice(backoffs), draw.choice(keeps), draw.choice(keeps))

    # -- being told --------------------------------------------------------------------------------------------

    def receive(self, encoded: bytes) -> None:
        reply = decode_reply(encoded)
        if isinstance(reply.body, Ended):
            self.waiting -= {(view.queue, view.id) for view in reply.body.jobs}
            return
        body = self.unanswered.pop(reply.no, None)
        if isinstance(body, AddJobs) and isinstance(reply.body, Added):
            added = reply.body
            numbers = [job.number for job in added.listed or ()] or range(added.first, added.first + len(body.jobs))
            ids = [new.id or str(number) for new, number in zip(body.jobs, numbers, strict=True)]
            self.jobs += [(body.queue, id) for id in ids if (body.queue, id) not in self.jobs]
        elif isinstance(body, WaitJobs) and isinstance(reply.body, Registered):
            self.waiting -= {(view.queue, view.id) for view in reply.body.ended}
            self.waiting -= set(reply.body.missing)
            left = body.refs[len(body.refs) - reply.body.left :]
            if left and self.connected:
                self.ask(WaitJobs(left))
        elif isinstance(body, WaitJobs):  # refused
            self.waiting -= set(body.refs)

    def disconnect(self) -> None:
        self.connected = False
        self.world.connection_lost(self)

    def reconnect(self) -> None:
        """On a new connection all that is unanswered is sent again, and all waits."""
        if self.connected:
            self.disconnect()
        self.connection += 1
        self.connected = True
        self.world.seen["reconnected"] += 1
        for no, body in list(self.unanswered.items()):
            if isinstance(body, WaitJobs):
                del self.unanswered[no]
        for no, body in self.unanswered.items():
            self.send(no, body)
        refs = sorted(self.waiting)
        self.waiting = set()
        self.wait(refs)
