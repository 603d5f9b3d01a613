"""Who comes first: priority, then LIFO before FIFO, then the order of arrival."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conveyor_actors.engine.ordering import order_of
from conveyor_actors.model import RunOptions
from conveyor_actors.store.tables import waiting_key
from conveyor_actors.wire import SetPaused

from .harness import Host, new

priorities = st.integers(-(2**31), 2**31 - 1)
numbers = st.integers(1, 2**62)


@given(st.tuples(priorities, st.booleans(), numbers), st.tuples(priorities, st.booleans(), numbers))
def test_the_key_of_a_waiting_job_sorts_as_promised(one: tuple[int, bool, int], other: tuple[int, bool, int]) -> None:
    def place(job: tuple[int, bool, int]) -> tuple[int, int, int]:
        priority, lifo, number = job
        return (priority, 0, -number) if lifo else (priority, 1, number)

    def key(job: tuple[int, bool, int]) -> bytes:
        priority, lifo, number = job
        return waiting_key(1, priority, order_of(number, lifo))

    assert (place(one) < place(other)) == (key(one) < key(other))


def test_equals_are_first_in_first_out(empty: Host) -> None:
    ids = empty.add(*["work"] * 5)
    assert empty.waiting() == ids


def test_lifo_goes_before_earlier_fifo_jobs_newest_first(empty: Host) -> None:
    first, second = empty.add("work", "work")
    third, fourth = empty.add(new(lifo=True), new(lifo=True))
    assert empty.waiting() == [fourth, third, first, second]


def test_a_lower_priority_number_goes_first_whatever_came_before(empty: Host) -> None:
    low, high, lifo = empty.add(new(priority=5), new(priority=-5), new(priority=5, lifo=True))
    assert empty.waiting() == [high, lifo, low]


def test_jobs_are_handed_out_in_that_order(host: Host) -> None:
    blocker = host.add("work")[0]
    expected = list(reversed(host.add(*[new(priority=-n) for n in range(6)])))
    order = []
    for id in [blocker, *expected[:-1]]:
        host.complete(id)
        order += host.dispatched().get("w1", [])
    assert order == expected


def test_a_retried_job_goes_to_the_end_of_its_priority(host: Host) -> None:
    retried = host.add(new(options=RunOptions(attempts=2), priority=3))[0]
    host.ask(SetPaused("q", True))
    first, later = host.add(new(priority=2), new(priority=4))
    same = host.add(new(priority=3))[0]
    host.fail(retried)
    assert host.waiting() == [first, same, retried, later]


def test_a_stalled_job_keeps_its_place(host: Host) -> None:
    stalled = host.add("work")[0]
    others = host.add("work", "work")
    host.ask(SetPaused("q", True))
    host.kill(stalled)
    assert host.waiting() == [stalled, *others]


def test_priority_and_place_survive_a_restart(host: Host) -> None:
    running = host.add(new(priority=1))[0]
    ids = host.add(new(priority=2), new(priority=-1), new(priority=1, lifo=True))
    host.start()
    assert host.waiting() == [ids[1], ids[2], running, ids[0]]


@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mix_is_listed_in_order(empty: Host, jobs: list[tuple[int, bool]]) -> None:
    queue = f"q{empty.next_no}"
    ids = empty.add(*[new(priority=priority, lifo=lifo) for priority, lifo in jobs], queue=queue)
    places = {
        id: (priority, 0, -int(id)) if lifo else (priority, 1, int(id))
        for id, (priority, lifo) in zip(ids, jobs, strict=True)
    }
    assert empty.waiting(queue) == sorted(ids, key=lambda id: places[id])
