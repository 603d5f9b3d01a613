"""Pools serve the queues they name, `*` is what nobody names, and the environment wins over the file."""

import pytest
from waiting import until


def pool(name, *queues, workers=1):
    return {"queues": list(queues), "workers": workers, "env": {"TEST_POOL": name}}


def test_a_queue_belongs_to_the_pool_that_names_it_and_the_rest_to_the_star(start, connect):
    pools = {"images": pool("images", "images"), "default": pool("default", "*", workers=2)}
    conveyor = connect(start(pools=pools))
    added = {
        name: conveyor.queue(name).add_many([("whereabouts", None)] * 20) for name in ("images", "mail", "anything")
    }
    served = {name: {job.result("20s")["pool"] for job in jobs} for name, jobs in added.items()}
    assert served == {"images": {"images"}, "mail": {"default"}, "anything": {"default"}}


def test_a_busy_pool_does_not_hold_up_another(start, connect, record, gate):
    conveyor = connect(start(pools={"one": pool("one", "q"), "rest": pool("rest", "*")}))
    blocker = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": gate.path})
    record.running(blocker.id)
    assert conveyor.queue("mail").add("whereabouts").result("20s")["pool"] == "rest"
    behind = conveyor.queue("q").add("echo", "later")
    assert behind.refresh().state == "waiting"
    gate.open()
    assert behind.result("20s") == "later"


def test_queues_are_served_in_the_order_in_which_a_pool_names_them(start, connect, record, gate):
    conveyor = connect(start(pools={"default": pool("default", "q", "second", "*")}))
    blocker = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": gate.path})
    record.running(blocker.id)
    added = [conveyor.queue(name).add("whereabouts") for name in ("third", "second", "q")]
    gate.open()
    ended = [job.queue for job in conveyor.as_completed(added, timeout="20s")]
    started = sorted(added, key=lambda job: (job.refresh().finished_at, ended.index(job.queue)))
    assert [job.queue for job in started] == ["q", "second", "third"]


def test_two_pools_that_name_the_same_queue_share_it(start, connect, record, gate):
    conveyor = connect(start(pools={"one": pool("one", "q"), "two": pool("two", "q")}))
    queue = conveyor.queue("q")
    both = [queue.add("gated", {"folder": record.folder, "gate": gate.path}) for _ in range(2)]
    for job in both:
        record.running(job.id)
    assert {worker.pool for worker in conveyor.workers() if worker.state == "busy"} == {"one", "two"}
    gate.open()
    for job in both:
        job.result("20s")


def test_the_environment_wins_over_the_configuration(start, connect, monkeypatch):
    monkeypatch.setenv("CONVEYOR_POOLS_DEFAULT_WORKERS", "3")
    conveyor = connect(start(workers=1))
    until(lambda: len(conveyor.workers()) == 3)
    assert conveyor.info().pools[0].workers == 3


def test_a_pool_sets_the_environment_and_the_threads_of_its_workers(start, connect):
    conveyor = connect(start(pools={"default": pool("blue", "*")}))
    assert conveyor.queue("any").add("whereabouts").result("20s")["pool"] == "blue"


def test_keys_without_effect_are_told_of(start, connect):
    conveyor = connect(start(queues={"images": {"max_size": 5}}))
    assert any("max_size" in warning for warning in conveyor.info().warnings)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_pool_has_the_workers_it_was_given(start, connect, workers):
    conveyor = connect(start(workers=workers))
    assert len(conveyor.workers()) == workers
    assert len({worker.pid for worker in conveyor.workers()}) == workers
