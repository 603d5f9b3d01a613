"""What must be true, derived only from what the engine said after each commit: replies, events, dispatches.

Knows nothing of the tables. Each job is followed through its events; whatever step is not allowed fails at once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import msgspec

from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.inputs import ClientSays, Moment
from conveyor_actors.model import (
    ACTIVE,
    COMPLETED,
    DELAYED,
    EVENT_TYPES,
    FAILED,
    NO_OPTIONS,
    STATE_NAMES,
    WAITING,
    KeepRule,
    RunOptions,
)
from conveyor_actors.wire import (
    OUTCOME_KINDS,
    SUCCESS,
    Added,
    AddJobs,
    EventRow,
    JobView,
    NewJob,
    Outcome,
    Refused,
    Registered,
    Task,
    WaitJobs,
    decode_reply,
)

from .catalogue import HANDLERS, Host

TRIMMED_MAX: Final = 100
ANSWERS_AFTER_REMOVAL_MS: Final = 60_000
#: Ends that a worker reports and that count as an attempt.
REPORTED: Final = frozenset(OUTCOME_KINDS) - {"completed"}


@dataclass
class Life:
    """A job from its acceptance to its end."""

    number: int
    queue: str
    id: str | None
    new: NewJob
    due_ms: int | None
    state: int | None = None
    arrival: int = 0
    token: int = 0
    tokens: list[int] = field(default_factory=list)
    attempts_made: int = 0
    stalls: int = 0
    #: How often a worker died in the middle of this job: each is charged once, as a stall or as an interruption.
    deaths: int = 0
    pending: str = ""
    failure_kind: str = ""
    finished_ms: int = 0
    filed_ms: int = 0
    removed_ms: int | None = None
    ends: int = 0

    @property
    def key(self) -> str | int:
        return self.id or self.number

    @property
    def ended(self) -> bool:
        return self.state in (COMPLETED, FAILED)

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands among the waiting jobs of its queue."""
        return (self.new.priority, 0, -self.arrival) if self.new.lifo else (self.new.priority, 1, self.arrival)

    @cached_property
    def options(self) -> RunOptions:
        """What `add` said, else the handler."""
        said = self.new.options or NO_OPTIONS
        return said.over(HANDLERS[self.new.name].options) if self.new.name in HANDLERS else said

    @property
    def attempts(self) -> int:
        return self.options.attempts or 1


class Expectations:
    """All jobs ever accepted, and what is still owed to clients."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.lives: dict[int, Life] = {}
        self.by_key: dict[tuple[str, str | int], list[Life]] = {}
        self.current: dict[tuple[str, str | int], Life] = {}
        self.by_token: dict[int, Life] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.recorded: set[int] = set()
        #: Of a death that the engine could not handle as it was: nobody knows that these had finished.
        self.lost: set[int] = set()
        self.paused: set[str] = set()
        self.answers: dict[tuple[int, int], bytes] = {}
        self.rows: list[EventRow] = []
        self.owed: set[tuple[bytes, int]] = set()
        self.kept: dict[tuple[str, int], set[int]] = {}
        self.arrivals = 0
        self.seen: Counter[str] = Counter()
        self._just_ended: list[Life] = []

    # -- what the simulated host tells -------------------------------------------------------------------

    def supervisor_died(self) -> None:
        self.owed.clear()

    def ran(self, outcome: Outcome) -> None:
        """A worker has come to the end of an attempt."""
        self.outcomes[outcome.token] = outcome

    def died_running(self, token: int) -> None:
        self.by_token[token].deaths += 1

    def is_current(self, token: int) -> bool:
        life = self.by_token.get(token)
        return life is not None and life.token == token

    # -- a commit -----------------------------------------------------------------------------------------

    def committed(
        self,
        said: list[ClientSays],
        gone: set[bytes],
        effects: Effects,
        moment: Moment,
        full: frozenset[tuple[bytes, int]],
    ) -> list[Life]:
        """Takes in one committed tick; gives the jobs that ended in it.

        `gone`: routes of clients that are; `full`: requests made while the disk was.
        """
        self._just_ended = []
        asked = {(message.route, message.no): message for message in said}
        waited: list[tuple[ClientSays, Registered]] = []
        for route, encoded in effects.replies:
            reply = decode_reply(encoded)
            message = asked[route, reply.no]
            if isinstance(message.body, AddJobs):
                accepted = isinstance(reply.body, Added) and (message.client, message.no) not in self.answers
                assert not accepted or (route, reply.no) not in full, "a job was accepted though the disk is full"
                self._add_answered(message, message.body, reply.body, encoded, moment)
            elif isinstance(message.body, WaitJobs) and not isinstance(reply.body, Refused):
                waited.append((message, reply.body))
        self._events(effects, moment)
        self._dispatches(effects)
        self._waits(waited, gone, effects, moment)
        return self._just_ended

    def _add_answered(self, said: ClientSays, body: AddJobs, reply: object, encoded: bytes, moment: Moment) -> None:
        if isinstance(reply, Refused):
            self.seen[f"refused {reply.error}"] += 1
            return
        assert isinstance(reply, Added)
        known = self.answers.setdefault((said.client, said.no), encoded)
        assert known == encoded, f"request {said.no} of client {said.client} was answered in two ways"
        if known is not encoded:
            self.seen["repeated request"] += 1
            return
        for index, new in enumerate(body.jobs):
            if reply.listed is None:
                number, created = reply.first + index, True
            else:
                number, created = msgspec.structs.astuple(reply.listed[index])
            if created:
                assert number not in self.lives, f"job {number} was accepted twice"
                due_ms = new.due_ms if new.delay_ms is None else moment.wall_ms + new.delay_ms
                life = Life(number, body.queue, new.id, new, due_ms)
                self.lives[number] = life
                self.by_key.setdefault((body.queue, life.key), []).append(life)
            else:
                self.seen["same id"] += 1
                assert self.lives[number].id == new.id and self.lives[number].queue == body.queue

    # -- events: every step of every job -----------------------------------------------------------------

    def _events(self, effects: Effects, moment: Moment) -> None:
        batch = effects.events
        if batch is None:
            return
        assert batch.first == len(self.rows) + 1, "event numbers are not contiguous"
        assert batch.at_ms == moment.wall_ms
        self.rows += batch.rows
        trimming: Life | None = None
        for row in batch.rows:
            kind = EVENT_TYPES[row[0]]
            if trimming is not None and kind != "removed":
                self._trimmed(trimming)
            if kind != "removed":
                trimming = None
            if row[2] is None:
                self.seen[kind] += 1
                self._note_pause(kind, row[1])
                continue
            life = self._life_of(kind, row)
            data = None if row[4] is None else msgspec.msgpack.decode(row[4])
            getattr(self, f"_{kind}")(life, data, moment)
            self.seen[kind] += 1
            if kind in ("completed", "failed"):
                trimming = life
        if trimming is not None:
            self._trimmed(trimming)

    def _note_pause(self, kind: str, queue: str | None) -> None:
        if queue is not None and kind == "paused":
            self.paused.add(queue)
        elif queue is not None and kind == "resumed":
            self.paused.remove(queue)

    def _life_of(self, kind: str, row: EventRow) -> Life:
        assert row[1] is not None and row[2] is not None
        key = (row[1], row[2])
        life = self.current.get(key)
        if kind in ("waiting", "delayed") and (life is None or life.removed_ms is not None):
            lives = self.by_key[key]
            life = self.current[key] = lives[0 if life is None else lives.index(life) + 1]
        assert life is not None, f"{kind} of a job {key} that nobody added"
        assert row[3] == life.new.name
        return life

    def _step(self, life: Life, before: tuple[int | None, ...], after: int) -> None:
        assert life.state in before, f"job {life.number} went from {life.state} to {STATE_NAMES[after]}"
        life.state = after
        if after != ACTIVE:
            life.token = 0

    def _waiting(self, life: Life, data: Any, moment: Moment) -> None:
        before = life.state
        self._step(life, (None, DELAYED, ACTIVE), WAITING)
        if before is None or before == DELAYED:
            assert life.due_ms is None or life.due_ms + (before == DELAYED) <= moment.wall_ms, (
                f"job {life.number} was promoted early"
            )
        if before != ACTIVE or life.pending == "retrying":
            self.arrivals += 1
            life.arrival = self.arrivals
        elif life.pending == "stalled":
            assert life.stalls <= self.host.settings.queue(life.queue).max_stalled_count
        else:
            self.seen["put back"] += 1
        life.pending = ""

    def _delayed(self, life: Life, data: Any, moment: Moment) -> None:
        if life.state is None:
            assert life.due_ms is not None and life.due_ms > moment.wall_ms
        else:
            assert life.pending == "retrying"
        self._step(life, (None, ACTIVE), DELAYED)
        life.pending = ""

    def _active(self, life: Life, data: Any, moment: Moment) -> None:
        self._step(life, (WAITING,), ACTIVE)

    def _completed(self, life: Life, data: Any, moment: Moment) -> None:
        assert self.outcomes[life.token].kind == SUCCESS, f"job {life.number} completed by what is not its result"
        self.recorded.add(life.token)
        life.attempts_made += 1
        self._end(life, (ACTIVE,), COMPLETED, moment)

    def _failed(self, life: Life, data: Any, moment: Moment) -> None:
        kind = life.failure_kind = data["kind"]
        if life.state == WAITING:
            assert kind == "unknown-handler" and not self.host.can_ever_run(life.queue, life.new.name)
        elif kind in REPORTED:
            assert OUTCOME_KINDS[self.outcomes[life.token].kind] == kind
            self.recorded.add(life.token)
            life.attempts_made += 1
            assert kind != "error" or life.attempts_made == life.attempts, f"job {life.number} gave up early"
        elif life.pending == "stalled":
            assert kind in ("crashed", "stalled")
            assert life.stalls == self.host.settings.queue(life.queue).max_stalled_count + 1
        else:
            assert kind == "crashed", f"job {life.number} failed as {kind} without a cause"
            self.seen["interrupted too often"] += 1
        assert life.attempts_made <= life.attempts
        self._end(life, (ACTIVE, WAITING), FAILED, moment)

    def _retrying(self, life: Life, data: Any, moment: Moment) -> None:
        assert life.state == ACTIVE
        assert OUTCOME_KINDS[self.outcomes[life.token].kind] == "error"
        self.recorded.add(life.token)
        life.attempts_made += 1
        assert data["attempts_made"] == life.attempts_made < life.attempts
        life.pending = "retrying"
        delay_ms, backoff = data["delay_ms"], life.options.backoff
        if backoff is None:
            assert delay_ms == 0
        else:
            factor = {"fixed": 1, "linear": life.attempts_made, "exponential": 2 ** (life.attempts_made - 1)}
            longest = min(backoff.delay_ms * factor[backoff.kind], backoff.max_ms or 2**62)
            assert longest * (1 - backoff.jitter) - 1 <= delay_ms <= longest
        life.due_ms = moment.wall_ms + delay_ms if delay_ms else life.due_ms

    def _stalled(self, life: Life, data: Any, moment: Moment) -> None:
        assert life.state == ACTIVE
        life.stalls += 1
        assert life.stalls <= life.deaths, f"job {life.number} was charged for a crash that did not hit it"
        known = life.token in self.outcomes and life.token not in self.lost
        assert not known, f"job {life.number} was charged though it had finished"
        assert data["stalled_count"] == life.stalls
        life.pending = "stalled"

    def _removed(self, life: Life, data: Any, moment: Moment) -> None:
        assert life.state is not None and life.ended and life.removed_ms is None
        kept = self.kept[life.queue, life.state]
        assert life.number in kept
        if self._keeps(life) != 0:  # trimmed for another one: then it is the oldest
            oldest = min(kept, key=lambda number: (self.lives[number].filed_ms, number))
            assert life.number == oldest, f"job {life.number} was removed, {oldest} is older"
        kept.remove(life.number)
        life.removed_ms = moment.wall_ms

    def _duplicated(self, life: Life, data: Any, moment: Moment) -> None:
        assert life.removed_ms is None

    def _end(self, life: Life, before: tuple[int, ...], after: int, moment: Moment) -> None:
        self._step(life, before, after)
        life.ends += 1
        assert life.ends == 1, f"job {life.number} ended twice"
        kept = self.kept.setdefault((life.queue, after), set())
        life.finished_ms = life.filed_ms = moment.wall_ms
        newest_ms = max((self.lives[number].filed_ms for number in kept), default=0)
        if self._keeps(life) != 0 and newest_ms > moment.wall_ms:  # filed in the order of the ends all the same
            life.filed_ms = newest_ms + 1
        life.pending = ""
        kept.add(life.number)
        self._just_ended.append(life)

    def _keeps(self, life: Life) -> int | None:
        """How many of its kind are kept when this one ends; None for all."""
        queue = self.host.settings.queue(life.queue)
        # A job that no pool has a handler for has nothing but its own options.
        options = life.new.options or NO_OPTIONS if life.failure_kind == "unknown-handler" else life.options
        said, default = (
            (options.remove_on_complete, queue.remove_on_complete)
            if life.state == COMPLETED
            else (options.remove_on_fail, queue.remove_on_fail)
        )
        return (said or default or KeepRule()).count

    def _trimmed(self, life: Life) -> None:
        """After its end and the removals that followed."""
        assert life.state is not None
        count, kept = self._keeps(life), self.kept[life.queue, life.state]
        if count == 0:
            assert life.removed_ms is not None, f"job {life.number} was not removed at its end"
        elif count is not None:
            assert len(kept) <= count, f"{len(kept)} jobs are kept, job {life.number} keeps {count}"

    # -- dispatches ----------------------------------------------------------------------------------------

    def _dispatches(self, effects: Effects) -> None:
        waiting = [life for life in self.lives.values() if life.state == WAITING] if effects.dispatches else []
        last: dict[tuple[str, str], Life] = {}
        for worker, tasks in effects.dispatches:
            pool = worker.partition("-")[0]
            for task in tasks:
                assert task.queue not in self.paused, f"job {task.id} was handed out though {task.queue} is paused"
                life = self._dispatched(task)
                before = last.get((pool, life.queue))
                assert before is None or before.place < life.place, f"{life.number} was passed by {before}"
                last[pool, life.queue] = life
        pools = {pool.name: pool for pool in self.host.pools}
        for (pool, queue), life in last.items():
            for other in waiting:
                if other.queue == queue and pools[pool].can_run(queue, other.new.name):
                    assert life.place < other.place, f"job {life.number} went before {other.number}"

    def _dispatched(self, task: Task) -> Life:
        life = self.current[task.queue, int(task.id) if task.id.isdecimal() else task.id]
        assert life.state == ACTIVE and life.token == 0, f"job {life.number} has two live leases"
        assert not life.tokens or task.token > life.tokens[-1]
        assert (task.name, task.payload) == (life.new.name, life.new.payload)
        assert (task.attempts_made, task.stalled_count) == (life.attempts_made, life.stalls)
        assert task.attempts == life.attempts
        life.token = task.token
        life.tokens.append(task.token)
        self.by_token[task.token] = life
        return life

    # -- waits ---------------------------------------------------------------------------------------------

    def _waits(
        self, waited: list[tuple[ClientSays, Registered]], gone: set[bytes], effects: Effects, moment: Moment
    ) -> None:
        """Whoever waits is told exactly once on its connection: in the answer, or by a push at the end.

        In the tick in which a client is found to be gone it may be told or not, and nothing after that.
        """
        pushed = {(route, view.number): view for route, views in effects.ended.items() for view in views}
        assert len(pushed) == sum(map(len, effects.ended.values())), "an end was pushed twice"
        for said, reply in waited:
            assert isinstance(said.body, WaitJobs)
            ended = {(view.queue, view.id): view for view in reply.ended}
            assert not reply.left or ended, "a wait was put off for ever"
            self.seen["waits put off"] += reply.left
            for ref in said.body.refs[: len(said.body.refs) - reply.left]:
                if ref in ended:
                    self._told(ended[ref])
                elif ref in reply.missing:
                    lives = self.by_key.get((ref[0], int(ref[1]) if ref[1].isdecimal() else ref[1]), [])
                    for life in lives:
                        removed = life.removed_ms is not None
                        assert removed and moment.wall_ms - (life.removed_ms or 0) >= ANSWERS_AFTER_REMOVAL_MS, (
                            f"job {life.number} is not known any more"
                        )
                elif said.route not in gone:
                    number = self._number_of(ref, pushed, said.route)
                    self.owed.add((said.route, number))
        for (route, number), view in pushed.items():
            assert (route, number) in self.owed or route in gone, (
                f"{route!r} was told of job {number}, which it did not ask for"
            )
            self.owed.discard((route, number))
            self._told(view)
        self.owed = {(route, number) for route, number in self.owed if route not in gone}
        for route, number in self.owed:
            assert not self.lives[number].ended, f"{route!r} was not told of the end of job {number}"

    def _number_of(self, ref: tuple[str, str], pushed: dict[tuple[bytes, int], JobView], route: bytes) -> int:
        """The job a wait was registered for: of those with that id the last one that had not ended."""
        lives = self.by_key[ref[0], int(ref[1]) if ref[1].isdecimal() else ref[1]]
        for life in reversed(lives):
            if not life.ended or (route, life.number) in pushed:
                return life.number
        raise AssertionError(f"the wait for {ref} was neither answered nor registered")

    def _told(self, view: JobView) -> None:
        life = self.lives[view.number]
        assert (view.state, view.payload) == (life.state, life.new.payload)
        if life.state == COMPLETED:
            assert view.result == self.outcomes[life.tokens[-1]].value
            assert view.failure is None
        else:
            assert view.failure is not None and view.failure.kind == life.failure_kind
