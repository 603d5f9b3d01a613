"""Pausing a queue stops pick-up and nothing else."""

from __future__ import annotations

from conveyor_actors.wire import AddJobs, GetCounts, SetPaused

from .harness import Host, new


def test_a_paused_queue_hands_out_nothing_and_takes_jobs(host: Host) -> None:
    host.ask(SetPaused("q", True))
    host.add("work", "work")
    assert host.dispatched() == {}
    assert host.counts() == {"waiting": 2}
    assert host.ask(GetCounts("q")).paused  # type: ignore[union-attr]


def test_resuming_goes_on_in_order(host: Host) -> None:
    host.ask(SetPaused("q", True))
    first, second = host.add("work", "work")
    host.ask(SetPaused("q", False))
    assert host.dispatched() == {"w1": [first]}
    host.complete(first)
    assert host.dispatched() == {"w1": [second]}
    assert [kind for kind, id in host.events if id is None][-2:] == ["paused", "resumed"]


def test_running_jobs_finish_and_unbegun_ones_are_taken_back(host: Host) -> None:
    host.complete(host.add("work")[0])
    running, behind = host.add("work", "work")
    host.ask(SetPaused("q", True))
    assert host.effects.recalls == ["w1"]
    host.recalled(host.token(running), host.token(behind))
    host.complete(running)
    assert host.dispatched() == {}
    assert host.counts() == {"completed": 2, "waiting": 1}


def test_a_worker_that_is_to_give_back_is_given_nothing_in_that_tick(host: Host) -> None:
    """It would be taken back before it arrives."""
    host.complete(host.add("work")[0])
    running, behind = host.add("work", "work")
    effects = host.tick(host.says(SetPaused("q", True)), host.says(AddJobs("another", [new()])))
    assert (effects.recalls, host.dispatched()) == (["w1"], {})
    host.recalled(host.token(running), host.token(behind))
    host.complete(running)
    assert host.dispatched() == {"w1": ["4"]}


def test_other_queues_go_on(host: Host) -> None:
    host.ask(SetPaused("q", True))
    (id,) = host.add("work", queue="another")
    assert host.dispatched() == {"w1": [id]}


def test_workers_without_jobs_of_the_queue_are_left_alone(host: Host) -> None:
    host.add("work", queue="another")
    host.ask(SetPaused("q", True))
    assert host.effects.recalls == []


def test_a_pause_survives_a_restart(host: Host) -> None:
    host.ask(SetPaused("q", True))
    host.start()
    host.pool("work")
    host.worker()
    host.add("work")
    assert host.dispatched() == {}


def test_a_queue_can_be_paused_before_it_has_jobs(empty: Host) -> None:
    empty.ask(SetPaused("new", True))
    assert empty.engine.memory.queues["new"].paused
