"""Who pays when a worker or the supervisor dies: only the job that was running."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conveyor_actors.engine.inputs import Survivor
from conveyor_actors.engine.memory import QueueSettings, Settings
from conveyor_actors.model import KeepRule, RunOptions
from conveyor_actors.wire import GetHistory, History, WaitJobs

from .harness import BEGIN_MS, Host, new, settings, success


def three_at_one_worker(host: Host) -> tuple[str, str, str]:
    """A quick handler, so that the first of three jobs has two neighbours behind it."""
    host.complete(host.add("work")[0])
    one, two, three = host.add("work", "work", "work")
    assert host.dispatched() == {"w1": [one, two, three]}
    return one, two, three


def test_a_killed_worker_costs_its_job_one_stall_and_no_attempt(host: Host) -> None:
    (id,) = host.add("work")
    host.kill(id)
    job = host.job(id)
    assert (job.state, job.stalled_count, job.attempts_made) == (0, 1, 0)
    host.worker("w2")
    host.complete(id, worker="w2")
    assert (host.job(id).state, host.job(id).attempts_made) == (4, 1)
    assert host.history_of(id) == ["waiting", "active", "stalled", "waiting", "active", "completed"]


def test_its_prefetched_neighbours_pay_nothing(host: Host) -> None:
    running, *neighbours = three_at_one_worker(host)
    host.kill(running)
    assert host.job(running).stalled_count == 1
    assert [host.job(id).stalled_count for id in neighbours] == [0, 0]
    assert host.counts() == {"waiting": 3, "completed": 1}
    assert [host.history_of(id) for id in neighbours] == [["waiting", "active", "waiting"]] * 2


def test_what_it_had_finished_is_recorded(host: Host) -> None:
    done, running, waiting = three_at_one_worker(host)
    host.kill(running, success(host.token(done), b"\x07"))
    assert (host.job(done).state, host.job(done).result) == (4, b"\x07")
    assert (host.job(running).stalled_count, host.job(waiting).stalled_count) == (1, 0)


def test_a_job_whose_outcome_is_in_the_box_is_not_charged_though_its_token_was_not_cleared(host: Host) -> None:
    (id,) = host.add("work")
    host.kill(id, success(host.token(id)))
    assert (host.job(id).state, host.job(id).stalled_count) == (4, 0)


def test_a_death_between_jobs_costs_nobody_anything(host: Host) -> None:
    ids = three_at_one_worker(host)
    host.kill(None)
    assert [host.job(id).stalled_count for id in ids] == [0, 0, 0]
    assert host.counts() == {"waiting": 3, "completed": 1}


@pytest.mark.parametrize("cause", ["crashed", "stalled"])
def test_more_than_max_stalled_count_fails_through_the_normal_path(make_host: Callable[..., Host], cause: str) -> None:
    host = make_host(settings(queues={"q": QueueSettings(max_stalled_count=2)}))
    host.pool("work")
    (id,) = host.add(new(options=RunOptions(attempts=10)))
    for number in range(3):
        host.worker(f"w{number}")
        host.ask(WaitJobs([("q", id)]), route=b"waiting")
        host.kill(id, worker=f"w{number}", cause=cause)
    job = host.job(id)
    assert job.failure is not None
    assert (job.state, job.stalled_count, job.attempts_made) == (5, 3, 0)
    assert (job.failure.kind, job.failure.message) == (cause, "killed by SIGKILL")
    assert host.history_of(id)[-2:] == ["stalled", "failed"]
    assert (host.counts(), host.engine.memory.totals.failed) == ({"failed": 1}, 1)
    assert host.engine.memory.waits == {}


def test_a_poison_job_is_removed_as_its_options_say(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(remove_on_fail=KeepRule(0))))
    host.kill(id)
    host.worker("w2")
    host.kill(id, worker="w2")
    assert host.history_of(id)[-3:] == ["stalled", "failed", "removed"]
    assert host.counts() == {}


def test_who_waits_is_told_of_a_poison_job(make_host: Callable[..., Host]) -> None:
    host = make_host(settings(queues={"q": QueueSettings(max_stalled_count=0)}))
    host.pool("work")
    host.worker()
    (id,) = host.add("work")
    host.ask(WaitJobs([("q", id)]), route=b"waiting")
    (told,) = host.kill(id).ended[b"waiting"]
    assert told.failure is not None
    assert (told.id, told.failure.kind) == (id, "crashed")


def test_a_worker_stopped_by_a_shutdown_gives_its_jobs_back_uncharged(host: Host) -> None:
    running, *_ = three_at_one_worker(host)
    host.kill(running, cause="stopped")
    assert host.job(running).stalled_count == 0
    assert host.counts() == {"waiting": 3, "completed": 1}


def test_a_worker_that_died_with_its_spawner_interrupts_its_job(host: Host) -> None:
    (id,) = host.add("work")
    host.kill(id, cause="orphaned")
    assert (host.job(id).stalled_count, host.record(id).interruptions) == (0, 1)


def test_a_death_before_the_first_job_is_an_event_and_no_more(host: Host) -> None:
    host.kill(None, worker="never-ready")
    assert host.events[-1] == ("worker-died", None)


# -- the supervisor's death -------------------------------------------------------------------------------------


def test_a_supervisors_death_interrupts_what_was_running_and_nothing_else(host: Host) -> None:
    running, *neighbours = three_at_one_worker(host)
    host.start(Survivor("w1", host.token(running), BEGIN_MS, []))
    assert host.record(running).interruptions == 1
    assert [host.record(id).interruptions for id in neighbours] == [0, 0]
    assert (host.job(running).attempts_made, host.job(running).stalled_count) == (0, 0)
    assert host.counts() == {"waiting": 3, "completed": 1}


def test_ten_interruptions_fail_a_job_as_crashed(host: Host) -> None:
    (id,) = host.add("work")
    for number in range(10):
        assert host.job(id).state == 3, number
        host.start(Survivor("w1", host.token(id), BEGIN_MS, []))
        host.pool("work")
        host.worker(f"w{number}")
    job = host.job(id)
    assert job.failure is not None
    assert (job.state, job.failure.kind, job.stalled_count) == (5, "crashed", 0)
    assert "10th time" in job.failure.message
    history = host.ask(GetHistory(("q", id)))
    assert isinstance(history, History)
    assert [line.kind for line in history.entries or ()] == ["interrupted"] * 10


def test_what_was_finished_when_the_supervisor_died_is_recorded_and_not_run_again(host: Host) -> None:
    done, running, _ = three_at_one_worker(host)
    host.start(Survivor("w1", host.token(running), BEGIN_MS, [success(host.token(done), b"\x09")]))
    assert (host.job(done).state, host.job(done).result) == (4, b"\x09")
    host.start(Survivor("w1", host.token(running), BEGIN_MS, [success(host.token(done), b"\x09")]))
    assert host.events.count(("completed", done)) == 1


def test_a_box_found_twice_charges_once(host: Host) -> None:
    (id,) = host.add("work")
    survivor = Survivor("w1", host.token(id), BEGIN_MS, [])
    host.start(survivor)
    host.start(survivor)
    assert host.record(id).interruptions == 1


def test_stalls_and_interruptions_are_lines_of_its_history(host: Host) -> None:
    (id,) = host.add("work")
    host.kill(id)
    host.worker("w2")
    host.start(Survivor("w2", host.token(id), BEGIN_MS, []))
    history = host.ask(GetHistory(("q", id)))
    assert isinstance(history, History)
    assert [(line.kind, line.worker) for line in history.entries or ()] == [("stalled", "w1"), ("interrupted", "w2")]


def test_settings_of_a_queue_hold_for_it_only(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings(queues={"strict": QueueSettings(max_stalled_count=0)}))
    host.pool("work")
    host.worker()
    (strict,) = host.add("work", queue="strict")
    host.kill(strict)
    assert host.job(strict, "strict").state == 5
    host.worker("w2")
    (lenient,) = host.add("work")
    host.kill(lenient, worker="w2")
    assert host.job(lenient).state == 0
