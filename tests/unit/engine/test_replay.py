"""A tick that is aborted leaves no trace: done again it comes to the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conveyor_actors.engine.credits import UNKNOWN_US
from conveyor_actors.engine.effects import Effects
from conveyor_actors.engine.inputs import Input, Later, Outcomes, PoolReady, Recalled, SetFull, WorkerReady
from conveyor_actors.engine.memory import Settings
from conveyor_actors.model import Backoff, RunOptions
from conveyor_actors.wire import AddJobs, SetPaused, WaitJobs, encode

from .harness import Host, died, entry, failure, new, success

Scene = Callable[[Host], list[Input]]


def abort(host: Host, *messages: Input) -> None:
    """A tick that does not come to its commit, as when the map is full."""
    host.decide(*messages)
    host.store.abort()
    tables = host.store.begin()
    host.engine.reload(tables)
    host.store.abort()


def shown(effects: Effects) -> Any:
    return encode((effects.replies, sorted(effects.ended.items()), sorted(effects.recalls), effects.events)), [
        (worker, [(task.id, task.payload) for task in tasks]) for worker, tasks in effects.dispatches
    ]


def adding(host: Host) -> list[Input]:
    host.add("work")
    return [host.says(AddJobs("q", [new(), new(id="mine"), new(delay_ms=5)])), host.says(SetPaused("other", True))]


def completing(host: Host) -> list[Input]:
    ids = host.add("work", new(options=RunOptions(3, Backoff("fixed", 50, jitter=1.0))))
    return [Outcomes("w1", [success(host.token(ids[0]), bytes(500))])]


def failing(host: Host) -> list[Input]:
    (id,) = host.add(new(options=RunOptions(3, Backoff("fixed", 50, jitter=1.0))))
    return [Outcomes("w1", [failure(host.token(id))])]


def dying(host: Host) -> list[Input]:
    host.complete(host.add("work")[0])
    done, running, _ = host.add("work", "work", "work")
    return [died("w1", host.token(running), success(host.token(done))), WorkerReady("w2", "pool", 5)]


def reporting_and_dying(host: Host) -> list[Input]:
    """The outcome is in no box any more: only the message tells of it."""
    (id,) = host.add("work")
    return [Outcomes("w1", [success(host.token(id))]), died("w1", 0)]


def recalling(host: Host) -> list[Input]:
    host.complete(host.add("work")[0])
    running, behind = host.add("work", "work")
    return [Recalled("w1", host.token(running), host.token(behind), []), WorkerReady("w2", "pool", 5)]


def waiting(host: Host) -> list[Input]:
    (id,) = host.add("work")
    return [host.says(WaitJobs([("q", id)])), Outcomes("w1", [success(host.token(id))])]


def a_new_pool(host: Host) -> list[Input]:
    host.add("late")
    return [PoolReady("pool", [entry("work"), entry("late", attempts=4)]), WorkerReady("w2", "pool", 6)]


def going_on_for_a_while(host: Host) -> list[Input]:
    (id,) = host.add("work")
    after = host.moment._replace(wall_ms=host.now_ms + 30, mono_us=host.now_us + 30_000)
    later = host.says(AddJobs("q", [new(delay_ms=10)]))
    return [host.says(AddJobs("q", [new(delay_ms=20)])), Later(after), later, Outcomes("w1", [success(host.token(id))])]


SCENES = [going_on_for_a_while, adding, completing, failing, dying, reporting_and_dying, recalling, waiting, a_new_pool]


@pytest.mark.parametrize("scene", SCENES)
def test_a_tick_done_again_comes_to_the_same(make_host: Callable[[Settings | None], Host], scene: Scene) -> None:
    straight, replayed = make_host(None), make_host(None)
    for host in (straight, replayed):
        host.pool("work", "other")
        host.worker()
    said, again = scene(straight), scene(replayed)
    abort(replayed, *again)
    abort(replayed, *again)
    assert shown(replayed.tick(*again)) == shown(straight.tick(*said))
    left, right = straight.dump(), replayed.dump()
    left.pop("leases"), right.pop("leases")  # tokens of an aborted tick are not given out again
    assert left == right
    assert straight.engine.memory.waits == replayed.engine.memory.waits
    assert set(straight.engine.memory.workers) == set(replayed.engine.memory.workers)


@pytest.mark.parametrize("scene", SCENES)
def test_an_aborted_tick_changes_nothing_on_disk_or_in_memory(host: Host, scene: Scene) -> None:
    said = scene(host)
    before = host.dump()
    memory = host.engine.memory
    counts, leases, totals = host.counts(), set(memory.leases), encode(memory.totals)
    abort(host, *said)
    assert host.dump() == before
    assert (host.counts(), set(memory.leases), encode(memory.totals)) == (counts, leases, totals)
    assert memory.waits == {}


def test_what_is_left_out_of_the_replay_never_happened(host: Host) -> None:
    """Without the first add the second job gets its number; who waited for the second must not be told of another."""
    poison, good = host.says(AddJobs("q", [new("other")])), host.says(AddJobs("q", [new(id="x")]))
    wait = host.says(WaitJobs([("q", "x")]), route=b"waiting")
    abort(host, poison, good, wait)
    host.tick(good)
    assert host.job("x").number == 1
    assert host.engine.memory.waits == {}
    (other,) = host.add("other")
    host.complete("x")
    assert host.complete(other).ended == {}


def test_an_unmeasured_job_still_counts_as_long_after_an_abort(host: Host) -> None:
    """Or another one would be put behind it while somebody else is free."""
    host.complete(host.add("other")[0])
    (unmeasured,) = host.add("work")
    abort(host, host.says(AddJobs("q", [new()])))
    assert host.engine.memory.workers["w1"].load_us == UNKNOWN_US
    host.worker("w2")
    (quick,) = host.add("other")
    assert host.dispatched() == {"w2": [quick]}
    assert host.job(unmeasured).worker == "w1"


def test_a_dead_worker_is_dead_only_with_the_commit(host: Host) -> None:
    (id,) = host.add("work")
    abort(host, died("w1", host.token(id)))
    assert list(host.engine.memory.workers) == ["w1"]
    host.complete(id)
    assert host.job(id).state == 4


def test_a_full_disk_that_is_told_twice_takes_back_what_has_not_begun(host: Host) -> None:
    host.report(success(host.token(host.add("work")[0]), us=1))
    host.ask(SetPaused("q", True))
    host.add("work", "work", "work")
    host.ask(SetPaused("q", False))
    full = SetFull("the disk is full", hold=True)
    assert host.decide(full).recalls == ["w1"]
    host.store.abort()
    host.engine.reload(host.store.begin())
    assert host.tick(full).recalls == ["w1"]
