"""Requests are idempotent: what is sent again is answered from the record."""

from __future__ import annotations

import pytest

from conveyor_actors.engine.requests import CLIENT_KEPT_MS
from conveyor_actors.model import Backoff, KeepRule, RunOptions
from conveyor_actors.store import tables as t
from conveyor_actors.wire import (
    UNANSWERED_REQUESTS_MAX,
    Added,
    AddJobs,
    Body,
    Done,
    GetCounts,
    GetQueues,
    Queues,
    Refused,
    SetPaused,
)

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
    empty.later(CLIENT_KEPT_MS)
    assert stored(empty, 1) is not None
    empty.later(1)
    assert stored(empty, 1) is None
    assert empty.engine.memory.clients == {}
    assert empty.rows("timers") == 0


def test_one_that_spoke_since_is_kept_for_a_day_from_then(empty: Host) -> None:
    empty.ask(ADD, no=1)
    empty.later(CLIENT_KEPT_MS - 10)
    empty.ask(ADD, no=2, low=2)
    empty.later(11)
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


def test_no_more_replies_are_kept_than_a_client_may_have_unanswered(empty: Host) -> None:
    for no in range(1, UNANSWERED_REQUESTS_MAX + 1):
        empty.ask(ADD, no=no, low=1)
    before = empty.dump()
    refused = empty.ask(ADD, no=1_000, low=1)
    assert isinstance(refused, Refused)
    assert (refused.error, "256 replies are kept" in refused.message) == ("ProtocolError", True)
    assert empty.dump() == before
    assert isinstance(empty.ask(ADD, no=7, low=1), Added)  # what is kept is still told
    assert isinstance(empty.ask(ADD, no=1_000, low=2), Added)
    record = stored(empty, 1)
    assert record is not None
    assert (len(record.replies), record.low) == (UNANSWERED_REQUESTS_MAX, 2)


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(attempts=0),
        RunOptions(attempts=2**64 - 1),
        RunOptions(backoff=Backoff("linear", -(2**63))),
        RunOptions(backoff=Backoff("exponential", 2**64 - 1)),
        RunOptions(backoff=Backoff("fixed", 5, -1)),
        RunOptions(backoff=Backoff("fixed", 5, jitter=float("nan"))),
        RunOptions(remove_on_complete=KeepRule(-1)),
        RunOptions(remove_on_fail=KeepRule(2**64 - 1)),
    ],
)
def test_options_that_nobody_could_count_with_are_refused(empty: Host, options: RunOptions) -> None:
    refused = empty.ask(AddJobs("q", [new(), new(options=options)]))
    assert isinstance(refused, Refused)
    assert (refused.error, "it has to be from" in refused.message) == ("ProtocolError", True)
    assert empty.rows("jobs") == 0
