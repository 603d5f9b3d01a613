"""Keys sort as the numbers they are made of; records that were damaged are never believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import Backoff, KeepRule, RunOptions
from conveyor_actors.store import tables as t
from conveyor_actors.wire import CatalogueEntry, EventBatch, FailureRecord, HistoryEntry

u8, u32, u64 = st.integers(0, 2**8 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
timers = st.tuples(u64, u8, u64)
places = st.tuples(u32, u8, u64, u64)

JOB = t.JobRecord(
    1, "work", 5, -7, 2**63 + 1, 1_700_000_000_000, b"payload", "mine", t.HAS_NAME, True,
    RunOptions(3, Backoff("exponential", 5, 100, 0.5), KeepRule(0), KeepRule()), 5, 6, 7, 1, 2, 3, "w1", b"r",
    FailureRecord("error", "message", "trace", 9), b"\x80",
)  # fmt: skip
RECORDS = [
    (t.Meta(1, 2, 3), t.read_meta),
    (t.QueueRecord(1, True), t.read_queue),
    ([0, 1, 2, 3, 4, 5], t.read_counts),
    (t.Totals(5, 6, 7), t.read_totals),
    (JOB, t.read_job),
    (t.LeaseRecord("w1", [(1, 2), (3, 4)]), t.read_lease),
    (t.RequestRecord(5, {1: b"a"}, 1), t.read_requests),
    ([CatalogueEntry("work", None, RunOptions(3))], t.read_catalogue),
    (HistoryEntry("failed", 5, "w1", "m", "t"), t.read_history),
    (EventBatch(5, 6, [(0, "q", 7, "work", None)]), t.read_events),
]


@given(timers, timers)
def test_timers_sort_by_due_time_then_kind_then_number(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert (t.timer_key(*one) < t.timer_key(*other)) == (one < other)
    assert t.read_timer(t.timer_key(*one)) == one


@given(places, places)
def test_states_sort_by_queue_state_time_and_number(
    one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> None:
    assert (t.by_state_key(*one) < t.by_state_key(*other)) == (one < other)
    assert t.read_by_state(t.by_state_key(*one)) == one
    assert t.by_state_key(*one).startswith(t.by_state_prefix(one[0], one[1]))


@given(u64)
def test_numbers_come_back(number: int) -> None:
    assert t.read_number(t.number_key(number)) == number


@given(u32, st.integers(-(2**31), 2**31 - 1), u64)
def test_all_waiting_jobs_of_a_queue_lie_together(queue: int, priority: int, order: int) -> None:
    assert t.waiting_key(queue, priority, order).startswith(t.queue_key(queue))


@pytest.mark.parametrize(
    ("record", "read"), RECORDS, ids=[read.__qualname__ + str(i) for i, (_, read) in enumerate(RECORDS)]
)
def test_a_record_comes_back_as_it_was_written(record: object, read: object) -> None:
    assert read(t.write(record)) == record  # type: ignore[operator]


@given(st.data())
def test_a_flipped_bit_anywhere_is_found(data: st.DataObject) -> None:
    sealed = bytearray(t.write(JOB))
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptRecord):
        t.read_job(bytes(sealed))


def test_a_record_of_another_layout_says_which() -> None:
    sealed = bytes((9,)) + t.write(JOB)[1:]
    with pytest.raises(CorruptRecord, match="the record of a job has layout version 9; this program reads version 1"):
        t.read_job(sealed)


@pytest.mark.parametrize("left", [0, 4, 5, -1])
def test_a_truncated_record_is_not_believed(left: int) -> None:
    with pytest.raises(CorruptRecord):
        t.read_job(t.write(JOB)[:left])


@given(st.binary(max_size=2_000))
def test_what_is_sealed_comes_out_again(body: bytes) -> None:
    assert t.unseal(t.seal(body)) == body
