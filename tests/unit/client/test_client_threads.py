"""One connection, many threads, and exceptions out of the blue."""

from __future__ import annotations

import gc
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from beside import in_thread, joined
from fake_supervisor import DEADLINE_S, FakeSupervisor

from conveyor_actors import (
    Conveyor,
    WaitTimeout,
    wire,
)

# -- many threads -------------------------------------------------------------------------------------------


def test_sixteen_threads_add_at_the_same_time(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    queue = conveyor.queue("images")

    def add_some(thread: int) -> list[tuple[str, Any]]:
        return [(queue.add("resize", [thread, index]).id, [thread, index]) for index in range(100)]

    with ThreadPoolExecutor(16) as pool:
        added = [pair for pairs in pool.map(add_some, range(16)) for pair in pairs]
    assert len({id for id, _ in added}) == 1600 == len(fake.store.carried_out)
    assert all(queue.get_many([id])[0].data == data for id, data in added[::100])  # type: ignore[union-attr]


def test_sixteen_threads_wait_for_jobs_that_end_in_any_order(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    jobs = conveyor.queue("images").add_many([("resize", number) for number in range(16)])
    with ThreadPoolExecutor(16) as pool:
        results = [pool.submit(job.result, "20s") for job in jobs]
        for job in reversed(jobs):
            fake.end([("images", job.id)], int(job.id))
        assert [future.result(DEADLINE_S) for future in results] == list(range(1, 17))


def test_the_leader_hands_on_when_it_has_its_answer(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    first, second = conveyor.queue("images").add_many([("resize", 1), ("resize", 2)])
    leading = in_thread(first.result)
    fake.await_request(wire.WaitJobs, 1)
    following = in_thread(second.result)
    fake.await_request(wire.WaitJobs, 2)
    fake.end([("images", first.id)], "one")
    assert joined(leading) == "one"
    fake.end([("images", second.id)], "two")
    assert joined(following) == "two"


def test_a_follower_keeps_its_own_deadline(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    first, second = conveyor.queue("images").add_many([("resize", 1), ("resize", 2)])
    leading = in_thread(first.result)
    fake.await_request(wire.WaitJobs)
    with pytest.raises(WaitTimeout):
        second.result("50ms")
    fake.end([("images", first.id)], "one")
    assert joined(leading) == "one"


def test_a_follower_can_ask_while_another_thread_waits(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    job = conveyor.queue("images").add("resize", 1)
    waiting = in_thread(job.result)
    fake.await_request(wire.WaitJobs)
    assert all(conveyor.ping() < DEADLINE_S for _ in range(100))
    fake.end([("images", job.id)], 1)
    assert joined(waiting) == 1


# -- interruptions ------------------------------------------------------------------------------------------


def interrupt_main() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.parametrize("leader", [True, False])
def test_ctrl_c_in_a_wait_leaves_the_channel_usable(fake: FakeSupervisor, conveyor: Conveyor, leader: bool) -> None:
    mine, other = conveyor.queue("images").add_many([("resize", 1), ("resize", 2)])
    waiting = None if leader else in_thread(other.result)
    if waiting is not None:
        fake.await_request(wire.WaitJobs)

    def interrupt() -> None:
        fake.await_request(wire.WaitJobs, 1 if leader else 2)
        interrupt_main()

    interrupting = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        mine.result("20s")
    joined(interrupting)
    assert conveyor.ping() < DEADLINE_S
    fake.end([("images", mine.id), ("images", other.id)], "done")
    assert mine.result("20s") == "done"
    assert waiting is None or joined(waiting) == "done"


def test_ctrl_c_of_the_leader_hands_leadership_to_who_still_waits(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    mine, other = conveyor.queue("images").add_many([("resize", 1), ("resize", 2)])
    followers: list[tuple[threading.Thread, list[Any]]] = []

    def follow_and_interrupt() -> None:
        fake.await_request(wire.WaitJobs, 1)
        followers.append(in_thread(other.result))
        fake.await_request(wire.WaitJobs, 2)
        interrupt_main()

    interrupting = in_thread(follow_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        mine.result("20s")
    joined(interrupting)
    fake.end([("images", other.id)], "done")
    assert joined(followers[0]) == "done"


def test_a_signal_handler_may_ask_while_its_own_thread_waits(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    job = conveyor.queue("images").add("resize", 1)
    pings: list[float] = []

    def handle(*_: object) -> None:
        pings.append(conveyor.ping())
        fake.end([("images", job.id)], "done")

    def alarm() -> None:
        fake.await_request(wire.WaitJobs)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        running = in_thread(alarm)
        assert job.result("20s") == "done"
        joined(running)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(pings) == 1


def test_an_exception_at_any_moment_costs_nobody_else_an_answer(fake: FakeSupervisor, conveyor: Conveyor) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    done = threading.Event()

    def ask() -> int:
        asked = 0
        while not done.is_set():
            conveyor.ping()
            asked += 1
        return asked

    conveyor.ping()
    others = [in_thread(ask) for _ in range(3)]
    before = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    gc.disable()  # what is raised inside of it can reach nobody
    try:
        for round in range(600):
            try:
                signal.setitimer(signal.ITIMER_REAL, (20 + round) / 1e6)
                try:
                    conveyor.ping()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupted += 1
        done.set()
        assert all(joined(other) > 0 for other in others)
    finally:
        gc.enable()
        done.set()
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 0 and conveyor.ping() < DEADLINE_S
