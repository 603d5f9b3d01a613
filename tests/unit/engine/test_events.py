"""The log of events: every transition once, in order, resumable, bounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conveyor_actors.engine.memory import Settings
from conveyor_actors.wire import EventPage, ReadEvents

from .harness import BEGIN_MS, Host, settings


def read(host: Host, after: int | None) -> EventPage:
    page = host.ask(ReadEvents(after))
    assert isinstance(page, EventPage)
    return page


def numbers(page: EventPage) -> list[int]:
    return [batch.first + index for batch in page.batches for index in range(len(batch.rows))]


def test_a_tick_writes_one_record_and_numbers_rise_without_a_hole(host: Host) -> None:
    host.add("work", "work", "work")
    page = read(host, 0)
    assert numbers(page) == list(range(1, 6))  # the worker, three waiting, one active
    assert [len(batch.rows) for batch in page.batches] == [1, 4]
    assert page.batches[1].at_ms == BEGIN_MS
    assert (page.kept_from, page.last, page.more) == (1, 5, False)


def test_what_is_published_is_what_is_logged(host: Host) -> None:
    host.add("work")
    published = host.effects.events
    assert read(host, 1).batches == [published]


def test_a_tick_without_events_writes_none(host: Host) -> None:
    before = host.rows("events")
    assert host.tick().events is None
    assert host.rows("events") == before


@pytest.mark.parametrize("after", range(6))
def test_reading_resumes_after_any_event(host: Host, after: int) -> None:
    host.add("work", "work")
    host.add("work")
    wanted = [number for number in range(1, 6) if number > after]
    got = numbers(read(host, after))
    assert got[len(got) - len(wanted) :] == wanted  # whole records come, the reader drops what it has
    assert len(got) - len(wanted) < 3


def test_the_end_of_the_log_is_told_to_who_asks_for_nothing_else(host: Host) -> None:
    host.add("work")
    page = read(host, None)
    assert (page.batches, page.kept_from, page.last, page.more) == ([], 1, 3, False)
    assert read(host, 3).batches == []
    assert read(host, 999).batches == []


def test_an_empty_log_can_be_read(empty: Host) -> None:
    assert read(empty, 0) == EventPage([], 1, 0, False)


def test_old_events_are_trimmed_and_the_gap_can_be_told(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(events_kept_max=10))
    for _ in range(40):
        host.add("work")
    page = read(host, 5)
    assert page.last == 40
    assert 30 <= page.kept_from <= 31
    assert numbers(page) == list(range(page.kept_from, 41))
    assert host.rows("events") <= 11


def test_what_is_kept_is_known_after_a_restart(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(events_kept_max=10))
    for _ in range(40):
        host.add("work")
    before = read(host, None)
    host.start()
    assert read(host, None) == before
    host.add("work")
    assert read(host, None).last == 41


def test_a_long_log_comes_in_pages(host: Host) -> None:
    for _ in range(30):
        host.add(*["x" * 190] * 500, queue="unknown-to-the-pool")
        host.tick()
    seen: list[int] = []
    page = read(host, 0)
    assert page.more
    while True:
        seen += numbers(page)
        if not page.more:
            break
        page = read(host, seen[-1])
    assert seen == list(range(1, page.last + 1))


def test_the_life_of_a_worker_is_told(host: Host) -> None:
    host.kill(None)
    assert [kind for kind, _ in host.events] == ["worker-started", "worker-died"]


def test_a_busy_time_after_a_quiet_one_does_not_let_the_log_grow(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(events_kept_max=500))
    for _ in range(190):
        host.add("work")
    kept = []
    for _ in range(60):
        host.add(*["work"] * 200)
        kept.append(host.engine.memory.totals.next_event - host.engine.memory.events_from)
    assert max(kept) < 1_500
