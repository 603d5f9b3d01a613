"""A lost connection is made again: what was acknowledged is stored, and no request is carried out twice."""

import multiprocessing
import os
import signal
import threading
import time

import pytest
from processes import kill
from waiting import until

from conveyor_actors import Closed, Conveyor, OutcomeUnknown, SupervisorUnreachable

KILLS = 4
POOLS = {"default": {"queues": ["q"]}}


def test_adds_during_crashes_are_stored_once_each(start, connect):
    supervisor = start(pools=POOLS)
    conveyor = connect(supervisor)
    held = conveyor.queue("held")
    acknowledged, stop = [], threading.Event()

    def produce():
        with Conveyor(supervisor.url) as own:
            while not stop.is_set():
                acknowledged.append(own.queue("held").add("echo", len(acknowledged)).id)

    producers = [threading.Thread(target=produce) for _ in range(2)]
    for producer in producers:
        producer.start()
    for _ in range(KILLS):
        before = len(acknowledged)
        until(lambda before=before: len(acknowledged) > before + 50)
        kill(supervisor)
        supervisor = start(pools=POOLS)
    before = len(acknowledged)
    until(lambda: len(acknowledged) > before + 50)
    stop.set()
    for producer in producers:
        producer.join()
    assert len(acknowledged) == len(set(acknowledged))
    stored = [job.id for job in held.jobs("waiting", limit=1_000_000)]
    assert sorted(stored) == sorted(acknowledged)
    assert held.counts()["waiting"] == len(acknowledged)
    assert conveyor.info().totals["added"] == len(acknowledged)


def test_large_adds_during_a_crash_are_stored_whole_and_once(start, connect):
    supervisor = start(pools=POOLS)
    conveyor = connect(supervisor)
    held = conveyor.queue("held")
    for delay in (0.0, 0.005, 0.02, 0.05):
        before = held.counts()["waiting"]
        added = []
        adding = threading.Thread(target=lambda added=added: added.extend(held.add_many([("echo", None)] * 5_000)))
        adding.start()
        time.sleep(delay)  # any moment will do
        kill(supervisor)
        supervisor = start(pools=POOLS)
        adding.join()
        assert len({job.id for job in added}) == 5_000
        assert held.counts()["waiting"] == before + 5_000


def test_a_client_waits_for_a_supervisor_that_is_being_restarted(start, connect):
    supervisor = start()
    conveyor = connect(supervisor)
    kill(supervisor)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(conveyor.queue("q").add("echo", 5).result("30s")))
    asking.start()
    start()
    asking.join()
    assert answers == [5]


def test_a_clean_restart_goes_unnoticed_as_well(start, connect):
    supervisor = start()
    queue = connect(supervisor).queue("q")
    for turn in range(3):
        assert queue.add("echo", turn).result("20s") == turn
        supervisor.close()
        supervisor = start()
    assert queue.counts()["completed"] == 3


def test_a_supervisor_that_is_not_there_is_named_with_what_to_do(home):
    url = f"ipc://{home}/nobody.sock"
    with pytest.raises(SupervisorUnreachable, match="conveyor-supervisor") as refusal:
        Conveyor(url, timeout="200ms").queue("q").add("echo")
    assert url in str(refusal.value)


def test_a_supervisor_that_does_not_answer_leaves_the_outcome_unknown(start, connect):
    supervisor = start()
    with Conveyor(supervisor.url, timeout="300ms") as conveyor:
        os.kill(supervisor.pid, signal.SIGSTOP)
        try:
            with pytest.raises(OutcomeUnknown):
                conveyor.queue("q").add("echo")
        finally:
            os.kill(supervisor.pid, signal.SIGCONT)
    assert connect(supervisor).queue("q").add("echo", "on").result("20s") == "on"


def test_many_clients_come_and_go(start, connect):
    supervisor = start()
    for number in range(50):
        with Conveyor(supervisor.url) as conveyor:
            assert conveyor.queue("q").add("echo", number).result("20s") == number
    assert connect(supervisor).info().totals["completed"] == 50


def test_a_closed_conveyor_refuses_and_closing_again_is_nothing(start):
    conveyor = Conveyor(start().url)
    conveyor.ping()
    conveyor.close()
    conveyor.close()
    with pytest.raises(Closed):
        conveyor.queue("q").add("echo")


def use_after_fork(conveyor, answers):
    try:
        conveyor.ping()
    except Closed as refusal:
        answers.put(str(refusal))
    else:
        answers.put("it was let through")


def test_a_conveyor_is_not_for_a_forked_child(conveyor):
    forking = multiprocessing.get_context("fork")
    answers = forking.SimpleQueue()
    child = forking.Process(target=use_after_fork, args=(conveyor, answers))
    child.start()
    said = answers.get()
    child.join()
    assert "fork" in said
    assert conveyor.ping() < 5
