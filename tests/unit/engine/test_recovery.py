"""A new supervisor takes over what is on disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conveyor_actors.engine.engine import Engine
from conveyor_actors.engine.inputs import Survivor
from conveyor_actors.engine.memory import Settings
from conveyor_actors.errors import StoreError
from conveyor_actors.model import Backoff, KeepRule, RunOptions
from conveyor_actors.store import tables as t

from .harness import BEGIN_MS, Host, entry, failure, new, settings, success


def test_every_start_is_a_new_incarnation(empty: Host) -> None:
    first = empty.engine.memory.incarnation
    empty.start()
    assert empty.engine.memory.incarnation == first + 1


def test_nothing_that_was_accepted_is_lost(host: Host) -> None:
    active = host.add("work")
    waiting = host.add("work", new(priority=3))
    delayed = host.add(new(delay_ms=500))
    before = {id: host.job(id) for id in active + waiting + delayed}
    host.start()
    for id, job in before.items():
        now = host.job(id)
        assert (now.payload, now.priority, now.created_ms, now.due_ms) == (
            job.payload, job.priority, job.created_ms, job.due_ms,
        )  # fmt: skip
    assert host.counts() == {"waiting": 3, "delayed": 1}


def test_a_second_start_without_work_in_between_changes_nothing_but_its_number(host: Host) -> None:
    host.add("work", "work")
    host.start()
    before = host.dump()
    host.start()
    after = host.dump()
    assert {name for name in after if after[name] != before[name]} == {"meta"}


def test_numbers_and_totals_go_on(host: Host) -> None:
    host.complete(host.add("work")[0])
    host.start()
    assert host.add("work") == ["2"]
    assert (host.engine.memory.totals.added, host.engine.memory.totals.completed) == (2, 1)


def test_what_the_handler_said_binds_what_its_jobs_came_to_meanwhile(empty: Host) -> None:
    """An attempt that failed while the supervisor was dying is repeated as its handler's options say."""
    empty.pool(entry("work", attempts=3, backoff=Backoff("fixed", 70)), entry("tidy", remove_on_complete=KeepRule(0)))
    empty.worker("w1")
    empty.worker("w2")
    failed, tidy = empty.add("work", "tidy")
    outcomes = [failure(empty.token(failed)), success(empty.token(tidy))]
    empty.start(Survivor("w1", 0, 0, outcomes[:1]), Survivor("w2", 0, 0, outcomes[1:]))
    assert (empty.job(failed).state, empty.job(failed).due_ms) == (2, BEGIN_MS + 70)
    assert (empty.job(failed).attempts, empty.job(failed).attempts_made) == (3, 1)
    assert empty.history_of(tidy)[-2:] == ["completed", "removed"]


def test_a_catalogue_of_old_lets_nobody_run_before_the_pool_is_ready(empty: Host) -> None:
    empty.pool("work")
    empty.start()
    (id,) = empty.add("work")
    empty.worker()
    assert empty.job(id).state == 0
    empty.pool("work")
    assert empty.job(id).state == 3


def test_a_handler_that_is_gone_is_gone_when_the_pool_is_ready(empty: Host) -> None:
    empty.pool("work", "old")
    empty.start()
    empty.pool("work")
    empty.worker()
    job = empty.job(empty.add("old")[0])
    assert job.failure is not None
    assert job.failure.kind == "unknown-handler"


def test_a_pool_that_is_no_longer_configured_is_forgotten(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"one": ("*",), "two": ("q",)}))
    host.pool("work", name="two")
    host.worker("two-1", pool="two")
    (id,) = host.add(new(options=RunOptions(attempts=2)))
    host.settings = settings({"one": ("*",)})
    host.start(Survivor("two-1", 0, 0, [failure(host.token(id))]))
    assert (host.job(id).state, host.job(id).attempts_made) == (0, 1)


def test_a_store_of_another_layout_is_refused(empty: Host) -> None:
    tables = empty.store.begin()
    tables.meta.put(t.META_KEY, t.write(t.Meta(99, 1, 0)))
    empty.store.commit()
    tables = empty.store.begin()
    with pytest.raises(StoreError, match="schema 99"):
        Engine(empty.settings).start(tables, [], empty.moment)
    empty.store.abort()


def test_a_start_that_was_aborted_can_be_done_again(host: Host) -> None:
    (id,) = host.add("work")
    survivor = Survivor("w1", host.token(id), BEGIN_MS, [])
    engine = Engine(host.settings)
    engine.start(host.store.begin(), [survivor], host.moment)
    host.store.abort()
    engine.start(host.store.begin(), [survivor], host.moment)
    host.store.commit()
    assert engine.memory.incarnation == 2
    host.engine = engine
    assert host.record(id).interruptions == 1
