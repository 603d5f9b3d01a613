"""Requests are idempotent: what is sent again is answered from the record."""

from __future__ import annotations

import pytest

from conveyor_actors.engine.requests import CLIENT_KEPT_MS
from conveyor_actors.store import tables as t
from conveyor_actors.wire import Added, AddJobs, Body, Done, GetCounts, GetQueues, Queues, Refused, SetPaused

from .harness import Host, new

ADD = AddJobs("q", [new()])


def stored(host: Host, client: int) -> t.RequestRecord | None:
    sealed = host.dump()["requests"].get(t.number_key(client))
    return None if sealed is None else t.read_requests(sealed)


@pytest.mark.parametrize("body", [ADD, SetPaused("q", True), AddJobs("q", [new(id="7")])])
def test_a_change_sent_again_is_answered_the_same_and_not_carried_out(empty: Host, body: Body) -> None:
    first = empty.ask(body, no=5)
    before = empty.dump()
    assert empty.ask(body, no=5, route=b"another connection") == first
    assert empty.dump() == before


def test_also_after_a_restart(empty: Host) -> None:
    first = empty.ask(ADD, no=5)
    empty.start()
    assert empty.ask(ADD, no=5) == first
    assert empty.counts() == {"waiting": 1}


def test_also_within_one_tick(empty: Host) -> None:
    effects = empty.tick(empty.says(ADD, no=5), empty.says(ADD, no=5, route=b"b"))
    replies = [reply for _, reply in effects.replies]
    assert replies[0] == replies[1]
    assert [route for route, _ in effects.replies] == [b"r", b"b"]
    assert empty.counts() == {"waiting": 1}


def test_numbers_belong_to_a_client(empty: Host) -> None:
    empty.ask(ADD, no=5, client=1)
    empty.ask(ADD, no=5, client=2)
    assert empty.counts() == {"waiting": 2}


def test_low_drops_the_replies_below_it(empty: Host) -> None:
    for no in (1, 2, 3):
        empty.ask(ADD, no=no, low=1)
    empty.ask(ADD, no=4, low=3)
    record = stored(empty, 1)
    assert record is not None
    assert sorted(record.replies) == [3, 4]


def test_a_copy_that_comes_after_its_answer_was_dropped_is_not_carried_out(empty: Host) -> None:
    empty.ask(ADD, no=1, low=1)
    empty.ask(ADD, no=2, low=2)  # says that 1 was answered
    late = empty.ask(ADD, no=1, low=1, route=b"a connection given up long ago")
    assert late == Refused("ProtocolError", "request 1 was answered before")
    empty.start()
    assert isinstance(empty.ask(ADD, no=1, low=1), Refused)
    assert empty.counts() == {"waiting": 2}


def test_a_low_beyond_its_own_number_does_not_lose_the_answer(empty: Host) -> None:
    first = empty.ask(ADD, no=3, low=99)
    assert isinstance(first, Added)
    assert empty.ask(ADD, no=3, low=99) == first


def test_questions_are_asked_anew_each_time(empty: Host) -> None:
    assert empty.ask(GetQueues(), no=1) == Queues([])
    empty.ask(ADD, no=2)
    assert empty.ask(GetQueues(), no=1) != Queues([])
    assert empty.ask(GetCounts("nowhere"), no=3).counts == [0] * 6  # type: ignore[union-attr]


def test_a_silent_client_is_forgotten_after_a_day(empty: Host) -> None:
    empty.ask(ADD, no=1)
    empty.later(CLIENT_KEPT_MS - 1)
    assert stored(empty, 1) is not None
    empty.later(1)
    assert stored(empty, 1) is None
    assert empty.engine.memory.clients == {}
    assert empty.rows("timers") == 0


def test_one_that_spoke_since_is_kept_for_a_day_from_then(empty: Host) -> None:
    empty.ask(ADD, no=1)
    empty.later(CLIENT_KEPT_MS - 10)
    empty.ask(ADD, no=2, low=2)
    empty.later(10)
    assert stored(empty, 1) is not None
    assert isinstance(empty.ask(ADD, no=2, low=2), Added)
    assert empty.counts() == {"waiting": 2}
    empty.later(CLIENT_KEPT_MS)
    assert stored(empty, 1) is None
    assert empty.rows("timers") == 0


def test_a_defect_is_answered_and_not_remembered(empty: Host) -> None:
    empty.engine.begin(empty.store.begin(), empty.moment)
    empty.engine.refuse(empty.says(ADD, no=1), "the request could not be carried out")
    effects = empty.engine.finish()
    empty.store.commit()
    assert empty.reply(effects) == Refused("InternalError", "the request could not be carried out")
    assert isinstance(empty.ask(ADD, no=1), Added)


def test_pausing_twice_is_pausing_once(empty: Host) -> None:
    assert empty.ask(SetPaused("q", True)) == Done()
    assert empty.ask(SetPaused("q", True)) == Done()
    assert empty.events == [("paused", None)]
