"""An engine with a store of its own, a clock that stands still, and short words for what the shell would say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.engine import Engine
from conveyor_actors.engine.inputs import (
    ClientSays,
    Input,
    Moment,
    Outcomes,
    PoolReady,
    Recalled,
    Survivor,
    WorkerDied,
    WorkerReady,
)
from conveyor_actors.engine.memory import PoolSettings, QueueSettings, Settings
from conveyor_actors.model import EVENT_TYPES, NO_OPTIONS, STATE_NAMES, WAITING, RunOptions
from conveyor_actors.store import tables as t
from conveyor_actors.store.lmdb_store import LmdbStore
from conveyor_actors.wire import (
    OUTCOME_KINDS,
    Added,
    AddJobs,
    Body,
    CatalogueEntry,
    GetJobs,
    JobView,
    ListJobs,
    NewJob,
    Outcome,
    Page,
    ReplyBody,
    Task,
    decode_reply,
)

BEGIN_MS = 1_700_000_000_000
RunQueues = tuple[str, ...]


def settings(
    pools: dict[str, RunQueues] | None = None, queues: dict[str, QueueSettings] | None = None, **others: Any
) -> Settings:
    named = {name: PoolSettings(served) for name, served in (pools or {"pool": ("*",)}).items()}
    return Settings(named, queues or {}, others.pop("max_payload", 1_000_000), **others)


def success(token: int, value: bytes = b"\xc0", *, us: int = 1_000) -> Outcome:
    return Outcome(token, 0, BEGIN_MS, us, value)


def failure(token: int, kind: str = "error", message: str = "ValueError: no") -> Outcome:
    return Outcome(token, OUTCOME_KINDS.index(kind), BEGIN_MS, 1_000, b"", message, "Traceback ...")


class Host:
    """Every word is one committed tick, unless it is said together with others in `tick`."""

    def __init__(self, path: Path, chosen: Settings | None = None) -> None:
        self.store = LmdbStore(path / "store", durability="relaxed")
        self.settings = chosen or settings()
        self.now_ms = BEGIN_MS
        self.now_us = 0
        self.draw = 0.5
        self.next_no = 1
        #: All tasks ever dispatched, by the job's id.
        self.tasks: dict[str, list[Task]] = {}
        #: All events ever, as (type, job id or None).
        self.events: list[tuple[str, str | None]] = []
        self.effects = Effects()
        self.engine: Engine
        self.start()

    # -- time and transactions ----------------------------------------------------------------------------------

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_us, self.draw)

    def later(self, ms: int) -> Effects:
        """Lets time pass, and looks what is due."""
        self.now_ms += ms
        self.now_us += ms * 1000
        return self.tick()

    def start(self, *survivors: Survivor) -> Effects:
        """A new supervisor on the same store."""
        self.engine = Engine(self.settings)
        effects = self.engine.start(self.store.begin(), list(survivors), self.moment)
        return self._commit(effects)

    def tick(self, *messages: Input) -> Effects:
        return self._commit(self.decide(*messages))

    def decide(self, *messages: Input) -> Effects:
        """All but the commit."""
        self.engine.begin(self.store.begin(), self.moment)
        for message in messages:
            self.engine.handle(message)
        return self.engine.finish()

    def _commit(self, effects: Effects) -> Effects:
        self.store.commit()
        self.engine.committed()
        self.effects = effects
        for _, tasks in effects.dispatches:
            for task in tasks:
                self.tasks.setdefault(task.id, []).append(task)
        if effects.events is not None:
            self.events += [
                (EVENT_TYPES[row[0]], None if row[2] is None else str(row[2])) for row in effects.events.rows
            ]
        return effects

    def read(self, look: Callable[[Any], Any]) -> Any:
        """What `look` finds in the tables."""
        tables = self.store.begin()
        try:
            return look(tables)
        finally:
            self.store.abort()

    def dump(self) -> dict[str, dict[bytes, bytes]]:
        """Every row of every table, but for what is drawn at each opening."""
        rows = self.read(lambda tables: {name: dict(getattr(tables, name).cursor().iternext()) for name in t.TABLES})
        del rows["meta"][t.LIFE_KEY]
        return rows

    def rows(self, table: str) -> int:
        return len(self.dump()[table])

    # -- clients ------------------------------------------------------------------------------------------------

    def says(
        self, body: Body, *, client: int = 1, no: int | None = None, low: int = 0, route: bytes = b"r"
    ) -> ClientSays:
        if no is None:
            no = self.next_no
            self.next_no += 1
        return ClientSays(route, client, no, low, body)

    def ask(self, body: Body, **how: Any) -> ReplyBody:
        return self.reply(self.tick(self.says(body, **how)))

    @staticmethod
    def reply(effects: Effects) -> ReplyBody:
        ((_, encoded),) = effects.replies
        return decode_reply(encoded).body

    def add(self, *jobs: NewJob | str, queue: str = "q") -> list[str]:
        """Adds jobs, given or by name, and gives their ids."""
        given = [job if isinstance(job, NewJob) else new(job) for job in jobs]
        added = self.ask(AddJobs(queue, given))
        assert isinstance(added, Added), added
        numbers = [job.number for job in added.listed or ()] or range(added.first, added.first + len(given))
        return [job.id or str(number) for job, number in zip(given, numbers, strict=True)]

    def job(self, id: str, queue: str = "q") -> JobView:
        (job,) = self.ask(GetJobs([(queue, id)])).jobs  # type: ignore[union-attr]
        assert job is not None, f"there is no job {id}"
        return job

    def waiting(self, queue: str = "q") -> list[str]:
        """Who waits, in order."""
        page = self.ask(ListJobs(queue, [WAITING], None, 1_000))
        assert isinstance(page, Page)
        return [job.id for job in page.jobs]

    def record(self, id: str) -> t.JobRecord:
        """The record of a job with a generated id, also one that is gone."""
        return self.read(lambda tables: t.read_job(tables.jobs.get(t.number_key(int(id)))))

    def counts(self, queue: str = "q") -> dict[str, int]:
        counts = self.engine.memory.queues[queue].counts
        return {name: count for name, count in zip(STATE_NAMES, counts, strict=True) if count}

    # -- pools and workers --------------------------------------------------------------------------------------

    def pool(self, *handlers: str | CatalogueEntry, name: str = "pool") -> Effects:
        entries = [h if isinstance(h, CatalogueEntry) else CatalogueEntry(h, None, NO_OPTIONS) for h in handlers]
        return self.tick(PoolReady(name, entries))

    def worker(self, id: str = "w1", pool: str = "pool") -> Effects:
        return self.tick(WorkerReady(id, pool, 100))

    def token(self, id: str) -> int:
        """Of the job's latest dispatch."""
        return self.tasks[id][-1].token

    def report(self, *outcomes: Outcome, worker: str = "w1") -> Effects:
        return self.tick(Outcomes(worker, list(outcomes)))

    def complete(self, id: str, worker: str = "w1") -> Effects:
        return self.report(success(self.token(id)), worker=worker)

    def fail(self, id: str, kind: str = "error", worker: str = "w1") -> Effects:
        return self.report(failure(self.token(id), kind), worker=worker)

    def kill(
        self,
        running: str | None = None,
        *outcomes: Outcome,
        worker: str = "w1",
        pool: str = "pool",
        cause: Any = "crashed",
    ) -> Effects:
        token = 0 if running is None else self.token(running)
        return self.tick(died(worker, token, *outcomes, pool=pool, cause=cause))

    def recalled(self, claimed: int, upto: int, *outcomes: Outcome, worker: str = "w1") -> Effects:
        return self.tick(Recalled(worker, claimed, upto, list(outcomes)))

    def dispatched(self) -> dict[str, list[str]]:
        """What the last tick handed out: worker to job ids."""
        handed: dict[str, list[str]] = {}
        for worker, tasks in self.effects.dispatches:
            handed.setdefault(worker, []).extend(task.id for task in tasks)
        return handed

    def history_of(self, id: str) -> list[str]:
        """The events of one job."""
        return [kind for kind, of in self.events if of == id]

    def close(self) -> None:
        self.store.close()


def died(worker: str, running: int, *outcomes: Outcome, pool: str = "pool", cause: Any = "crashed") -> WorkerDied:
    return WorkerDied(worker, pool, 100, running, BEGIN_MS, list(outcomes), cause, "killed by SIGKILL")


def new(name: str = "work", payload: bytes = b"\xc0", options: RunOptions | None = None, **others: Any) -> NewJob:
    return NewJob(name, payload, options, **others)


def entry(name: str, queue: str | None = None, **options: Any) -> CatalogueEntry:
    return CatalogueEntry(name, queue, RunOptions(**options))
