"""Reading: by id, in pages, counts and history."""

from __future__ import annotations

import pytest

from conveyor_actors.model import RunOptions
from conveyor_actors.wire import GetHistory, GetJobs, GetQueues, History, Jobs, ListJobs, Page, Queues, SetPaused

from .harness import Host, new

ALL = [0, 1, 2, 3, 4, 5]


def some_of_each(host: Host) -> dict[str, list[str]]:
    """Two jobs in each state there is."""
    completed, failed = [], []
    for _ in range(2):
        (id,) = host.add("work")
        host.complete(id)
        completed.append(id)
    for _ in range(2):
        (id,) = host.add("other")
        host.fail(id)
        failed.append(id)
    host.worker("w2")
    active = host.add(new("work", priority=1), new("work", priority=2))
    host.ask(SetPaused("q", True))
    delayed = host.add(new(delay_ms=200), new(delay_ms=100))
    waiting = host.add("work", new(priority=-1))
    return {
        "waiting": waiting[::-1],
        "delayed": delayed[::-1],
        "active": active,
        "completed": completed,
        "failed": failed,
    }


def pages(host: Host, states: list[int], limit: int) -> list[list[str]]:
    found, after = [], None
    while True:
        page = host.ask(ListJobs("q", states, after, limit))
        assert isinstance(page, Page)
        found.append([job.id for job in page.jobs])
        after = page.next
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1_000])
def test_pages_of_any_size_list_every_job_once_in_order(host: Host, limit: int) -> None:
    of_state = some_of_each(host)
    found = pages(host, ALL, limit)
    assert [id for page in found for id in page] == [id for ids in of_state.values() for id in ids]
    assert all(len(page) <= limit for page in found)


@pytest.mark.parametrize(
    ("state", "code"), [("waiting", 0), ("delayed", 2), ("active", 3), ("completed", 4), ("failed", 5)]
)
def test_each_state_can_be_listed_by_itself(host: Host, state: str, code: int) -> None:
    of_state = some_of_each(host)
    assert pages(host, [code], 100) == [of_state[state]]


def test_states_are_listed_once_however_they_are_asked_for(host: Host) -> None:
    of_state = some_of_each(host)
    assert pages(host, [5, 0, 5], 100) == [of_state["waiting"] + of_state["failed"]]


def test_a_cursor_is_good_though_its_job_is_gone(host: Host) -> None:
    host.ask(SetPaused("q", True))
    ids = host.add(*["work"] * 4)
    page = host.ask(ListJobs("q", [0], None, 2))
    assert isinstance(page, Page)
    host.ask(SetPaused("q", False))  # takes the first job
    host.ask(SetPaused("q", True))
    rest = host.ask(ListJobs("q", [0], page.next, 10))
    assert isinstance(rest, Page)
    assert [job.id for job in rest.jobs] == ids[2:]


@pytest.mark.parametrize("cursor", [b"", b"\x00", b"\x02garbage", b"\xff" * 600, b"\x04" + bytes(600)])
def test_a_cursor_that_never_was_gives_a_page_all_the_same(host: Host, cursor: bytes) -> None:
    some_of_each(host)
    assert isinstance(host.ask(ListJobs("q", ALL, cursor, 100)), Page)


def test_a_page_is_never_larger_than_its_bound(host: Host) -> None:
    host.ask(SetPaused("q", True))
    host.add(*[new(payload=bytes(900_000))] * 10)
    found = pages(host, [0], 1_000)
    assert sum(map(len, found)) == 10
    assert max(map(len, found)) <= 5


def test_a_queue_that_is_not_there_has_an_empty_page(empty: Host) -> None:
    assert empty.ask(ListJobs("nowhere", ALL, None, 10)) == Page([], None)


def test_jobs_are_found_by_queue_and_id_and_generated_ids_by_themselves(empty: Host) -> None:
    one, two = empty.add("work", new(id="mine"))
    jobs = empty.ask(GetJobs([("q", one), ("", one), ("q", two), ("", two), ("else", one), ("q", "no"), ("q", "2")]))
    assert isinstance(jobs, Jobs)
    assert [job and job.id for job in jobs.jobs] == [one, one, two, None, None, None, None]


@pytest.mark.parametrize("id", ["9" * 30, "é" * 200, "日" * 200, "18446744073709551616", "0"])
def test_an_id_that_cannot_exist_is_simply_not_there(empty: Host, id: str) -> None:
    empty.add("work")
    assert empty.ask(GetJobs([("q", id)])) == Jobs([None])
    assert empty.ask(GetHistory(("q", id))) == History(None)


def test_large_jobs_asked_for_together_come_in_parts(empty: Host) -> None:
    ids = empty.add(*[new(payload=bytes(900_000))] * 8)
    jobs = empty.ask(GetJobs([("q", id) for id in ids]))
    assert isinstance(jobs, Jobs)
    assert 1 <= len(jobs.jobs) < 8
    assert [job and job.id for job in jobs.jobs] == ids[: len(jobs.jobs)]


def test_queues_are_told_with_their_counts(host: Host) -> None:
    some_of_each(host)
    host.add("work", queue="another")
    queues = host.ask(GetQueues())
    assert isinstance(queues, Queues)
    assert [(queue.name, queue.paused) for queue in queues.queues] == [("another", False), ("q", True)]
    assert queues.queues[1].counts == {
        "waiting": 2, "waiting-children": 0, "delayed": 2, "active": 2, "completed": 2, "failed": 2,
    }  # fmt: skip


def test_an_active_job_is_told_with_its_worker(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(attempts=2)))
    assert (host.job(id).state, host.job(id).worker) == (3, "w1")
    host.fail(id)
    host.fail(id)
    assert host.job(id).worker == "w1"


def test_a_job_without_a_history_has_an_empty_one(empty: Host) -> None:
    (id,) = empty.add("work")
    assert empty.ask(GetHistory(("q", id))) == History([])
