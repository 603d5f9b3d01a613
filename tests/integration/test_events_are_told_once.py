"""Every transition is an event, exactly once, in order, and can be read again from any number, across restarts."""

import collections
import os
import signal
import threading

import pytest
from processes import kill
from waiting import until

from conveyor_actors import Conveyor, WaitTimeout

SUCCESS = ["waiting", "active", "completed"]


def read(conveyor, *, last, queue=None, since=0):
    """The events up to the first that `last` is true of."""
    seen = []
    with conveyor.events(queue, since=since, timeout="15s") as events:
        for event in events:
            seen.append(event)
            if last(event):
                return seen
    raise AssertionError("the events ended")


def end_of(job):
    return lambda event: event.job_id == job.id and event.type in ("completed", "failed")


def types_by_job(events):
    """What was told of each job; that it was handed out ahead and taken back again, unstarted, is left out."""
    types = collections.defaultdict(list)
    for event in events:
        if event.job_id is not None:
            told = types[event.job_id]
            if event.type == "waiting" and told[-1:] == ["active"]:
                told.pop()
            else:
                told.append(event.type)
    return types


def test_every_transition_of_every_job_is_told_once_and_in_order(conveyor, queue):
    plain = queue.add_many([("echo", number) for number in range(200)])
    retried = queue.add("fail", {"times": 2}, attempts=3, backoff="20ms")
    failed = queue.add("fail", {}, attempts=1)
    delayed = queue.add("echo", delay="100ms")
    removed = queue.add("echo", remove_on_complete=True)
    crashed = queue.add("crash", {"how": "kill"})
    for job in (*plain, retried, failed, delayed, removed, crashed):
        job.wait("20s")
    marker = queue.add("echo")
    seen = read(conveyor, last=end_of(marker))
    types = types_by_job(seen)
    assert all(types[job.id] == SUCCESS for job in plain)
    assert [each for each in types[retried.id] if each != "retrying"] == [
        *("waiting", "active", "delayed", "waiting", "active", "delayed", "waiting", "active", "completed")
    ]
    assert types[retried.id].count("retrying") == 2
    assert types[failed.id] == ["waiting", "active", "failed"]
    assert types[delayed.id] == ["delayed", "waiting", "active", "completed"]
    assert types[removed.id] == [*SUCCESS, "removed"]
    assert types[crashed.id] == ["waiting", "active", "stalled", *SUCCESS]
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert [event.at for event in seen] == sorted(event.at for event in seen)
    assert {event.queue for event in seen if event.job_id is not None} == {"q"}


def test_an_event_says_which_job_of_which_queue_and_why(conveyor, queue):
    job = queue.add("fail", {"message": "the reason"}, id="by-name")
    job.wait("20s")
    event = read(conveyor, last=end_of(job))[-1]
    assert (event.type, event.queue, event.job_id, event.name) == ("failed", "q", "by-name", "fail")
    assert event.data["kind"] == "error"
    assert "the reason" in event.data["message"]
    assert event.at.tzinfo is not None
    assert event.at == job.finished_at


def test_reading_from_a_number_gives_all_that_came_after_it(conveyor, queue):
    for job in queue.add_many([("echo", number) for number in range(100)]):
        job.wait("20s")
    marker = queue.add("echo")
    everything = read(conveyor, last=end_of(marker))
    for since in (0, 1, len(everything) // 2, len(everything) - 1):
        assert read(conveyor, last=end_of(marker), since=everything[since].seq - 1) == everything[since:]


def test_without_a_number_only_what_happens_from_now_on_is_told(conveyor, queue):
    queue.add("echo").result("20s")
    with conveyor.events(timeout="10s") as events:
        job = queue.add("echo")
        seen = [next(events) for _ in range(3)]
    assert [(event.job_id, event.type) for event in seen] == [(job.id, each) for each in SUCCESS]


def test_one_queue_can_be_read_alone(conveyor):
    for name in ("one", "other") * 10:
        conveyor.queue(name).add("whereabouts")
    marker = conveyor.queue("one").add("whereabouts")
    seen = read(conveyor, last=end_of(marker), queue="one")
    assert {event.queue for event in seen} == {"one"}
    assert len(types_by_job(seen)) == 11


def test_events_go_on_across_a_crash_of_the_supervisor_without_loss_or_repetition(start, connect, record):
    supervisor = start(workers=2)
    conveyor = connect(supervisor)
    queue = conveyor.queue("q")
    seen, done = [], threading.Event()

    def follow(url):
        with Conveyor(url) as own, own.events(since=0, timeout="25s") as events:
            for event in events:
                seen.append(event)
                if event.job_id == "last" and event.type == "completed":
                    done.set()
                    return

    follower = threading.Thread(target=follow, args=(supervisor.url,))
    follower.start()
    added = []
    for _ in range(3):
        ended = conveyor.info().totals["completed"]
        added += queue.add_many([("stamped", {"folder": record.folder})] * 500)
        until(lambda ended=ended: conveyor.info().totals["completed"] > ended + 100)
        kill(supervisor)
        supervisor = start(workers=2)
    for job in queue.as_completed(added, timeout="30s"):
        assert job.state == "completed"
    queue.add("echo", id="last").result("20s")
    assert done.wait(30)
    follower.join()
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    types = types_by_job(seen)
    assert len(types) == len(added) + 1
    assert all(told == SUCCESS for told in types.values())
    assert read(conveyor, last=lambda event: event.seq == seen[-1].seq) == seen


def test_many_events_reach_a_reader_who_is_slower_than_they_are(conveyor, queue):
    with conveyor.events(since=0, timeout="15s") as events:
        added = queue.add_many([("echo", None)] * 5_000)
        for job in added:
            job.wait("30s")
        marker = queue.add("echo")
        marker.wait("20s")
        seen = []
        for event in events:
            seen.append(event)
            if end_of(marker)(event):
                break
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert set(map(tuple, types_by_job(seen).values())) == {tuple(SUCCESS)}


def test_pausing_and_resuming_are_told_of_once(conveyor, queue):
    queue.add("echo").result("20s")
    queue.pause()
    assert queue.paused()
    queue.resume()
    assert not queue.paused()
    marker = queue.add("echo")
    told = [event.type for event in read(conveyor, last=end_of(marker)) if event.type in ("paused", "resumed")]
    assert told == ["paused", "resumed"]


def test_a_paused_queue_starts_nothing_and_goes_on_in_order(start, connect, record):
    conveyor = connect(start(workers=1))
    queue = conveyor.queue("q")
    queue.pause()
    added = queue.add_many([("record", {"folder": record.folder})] * 20)
    delayed = queue.add("record", {"folder": record.folder}, delay="100ms")
    until(lambda: delayed.refresh().state == "waiting")
    assert record() == []
    assert queue.counts()["waiting"] == 21
    assert conveyor.queue("other").add("whereabouts").result("20s")
    queue.resume()
    for job in (*added, delayed):
        job.result("20s")
    assert record.ids() == [job.id for job in (*added, delayed)]


def test_workers_are_told_of_when_they_start_and_when_they_die(conveyor, queue, record, gate):
    before = {worker.id: worker.pid for worker in conveyor.workers()}
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    victim = record.running(job.id)
    os.kill(victim, signal.SIGKILL)
    record.running(job.id, times=2)
    gate.open()
    job.result("20s")
    until(lambda: len(conveyor.workers()) == 2)
    marker = queue.add("echo")
    seen = read(conveyor, last=end_of(marker))
    started = [event.data["pid"] for event in seen if event.type == "worker-started"]
    died = [event.data["pid"] for event in seen if event.type == "worker-died"]
    assert set(before.values()) <= set(started)
    assert len(started) == len(set(started))
    assert died == [victim]


def test_who_waits_for_an_event_that_does_not_come_is_told(conveyor, queue):
    with conveyor.events(timeout="100ms") as events, pytest.raises(WaitTimeout):
        next(events)
