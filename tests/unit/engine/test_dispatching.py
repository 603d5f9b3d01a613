"""Which pool serves which queue, and in what order."""

from __future__ import annotations

from collections.abc import Callable

from conveyor_actors.engine.inputs import PoolDown
from conveyor_actors.engine.memory import Settings
from conveyor_actors.wire import AddJobs, SetPaused

from .harness import Host, new, settings, success


def test_a_pool_prefers_its_queues_in_their_order(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"pool": ("urgent", "*")}))
    host.pool("work")
    (plain,) = host.add("work", queue="plain")
    (urgent,) = host.add("work", queue="urgent")
    host.worker()
    assert host.dispatched() == {"w1": [urgent]}
    host.complete(urgent)
    assert host.dispatched() == {"w1": [plain]}


def test_a_star_leaves_alone_what_another_pool_names(make_host: Callable[[Settings], Host]) -> None:
    host = make_host(settings({"rest": ("*",), "images": ("images",)}))
    host.pool("work", name="rest")
    host.pool("work", name="images")
    host.worker("rest-1", pool="rest")
    (image,) = host.add("work", queue="images")
    assert host.dispatched() == {}
    host.worker("images-1", pool="images")
    assert host.dispatched() == {"images-1": [image]}


def test_the_queues_of_a_star_take_turns(empty: Host) -> None:
    for queue in ("a", "b", "c"):
        empty.add("work", "work", queue=queue)
    empty.pool("work")
    empty.worker()
    order = []
    while empty.dispatched():
        ((id,),) = empty.dispatched().values()
        order.append(empty.tasks[id][-1].queue)
        empty.report(success(empty.token(id), us=200_000))  # so long that nothing is put behind it
    assert sorted(order) == ["a", "a", "b", "b", "c", "c"]
    assert set(order[:4]) == {"a", "b", "c"}


def test_a_pool_that_is_down_gets_nothing_until_it_is_ready_again(host: Host) -> None:
    host.tick(PoolDown("pool"))
    (id,) = host.add("work")
    assert host.dispatched() == {}
    host.pool("work")
    assert host.dispatched() == {"w1": [id]}


def test_tokens_rise_with_every_dispatch(host: Host) -> None:
    host.worker("w2")
    tokens = []
    for _ in range(5):
        (id,) = host.add("work")
        tokens.append(host.token(id))
        host.complete(id, worker=host.effects.dispatches[0][0])
    assert tokens == sorted(set(tokens))


def test_a_worker_announced_twice_is_one_worker(host: Host) -> None:
    (id,) = host.add("work")
    host.worker()
    assert host.dispatched() == {}
    host.complete(id)
    assert host.job(id).state == 4


def test_what_was_measured_outlives_a_pools_restart(host: Host) -> None:
    host.complete(host.add("work")[0])
    host.pool("work", "new")
    host.add("work", "work")
    assert len(host.dispatched()["w1"]) == 2


def test_a_task_says_all_a_worker_needs(host: Host) -> None:
    (id,) = host.add("work")
    host.kill(id)
    host.worker("w2")
    task = host.tasks[id][-1]
    assert (task.id, task.queue, task.name, task.payload) == (id, "q", "work", b"\xc0")
    assert (task.attempts_made, task.stalled_count, task.attempts) == (0, 1, 1)


def test_large_payloads_are_handed_out_a_few_megabytes_at_a_time(host: Host) -> None:
    host.report(success(host.token(host.add("work")[0]), us=1))
    ids = [host.add(new(payload=bytes(1_000_000)))[0] for _ in range(7)]
    assert [id for id in ids if id in host.tasks] == ids[:5]
    host.report(success(host.token(ids[0]), us=1))  # four left, less than 4 MiB
    assert host.dispatched() == {"w1": [ids[5]]}
    host.decide()
    host.store.abort()
    host.engine.reload(host.store.begin())
    assert host.engine.memory.workers["w1"].held_bytes == 5 * 1_000_001  # results of one byte are expected
    for id in ids[1:6]:
        host.report(success(host.token(id), us=1))
    assert host.engine.memory.workers["w1"].held_bytes == 1_000_001
    assert host.counts() == {"active": 1, "completed": 7}


def test_large_results_are_expected_a_few_megabytes_at_a_time(host: Host) -> None:
    host.report(success(host.token(host.add("work")[0]), bytes(1_000_000), us=1))
    ids = [host.add("work")[0] for _ in range(7)]
    assert [id for id in ids if id in host.tasks] == ids[:5]
    host.report(*(success(host.token(id), us=1) for id in ids[:5]))
    assert host.dispatched() == {"w1": ids[5:]}
    for worker in host.engine.memory.workers.values():
        assert worker.held_bytes < 2 * 800_000  # small ones are believed slowly


def test_a_batch_of_large_payloads_is_divided_among_ticks(host: Host) -> None:
    host.report(success(host.token(host.add("work")[0]), us=1))
    host.ask(SetPaused("q", True))
    ids = host.add(*[new(payload=bytes(1_000_000))] * 12, *["work"] * 3)
    host.ask(SetPaused("q", False))
    assert host.dispatched() == {"w1": ids[:5]}
    host.report(*(success(host.token(id), us=1) for id in ids[:5]))
    assert host.dispatched() == {"w1": ids[5:10]}
    host.report(*(success(host.token(id), us=1) for id in ids[5:10]))
    assert host.dispatched() == {"w1": ids[10:]}


def test_queues_share_a_pool_also_where_one_is_fed_as_it_is_emptied(host: Host) -> None:
    """A producer adds a job to one queue for each that ends, and another queue has its own waiting all the time."""
    host.ask(SetPaused("full", True))
    host.add(*["work"] * 40, queue="full")
    host.add(*["work"] * 2, queue="fed")
    host.ask(SetPaused("full", False))
    ran = {"fed": 0, "full": 0}
    tasks = [task for tasks in host.tasks.values() for task in tasks]
    for _ in range(40):
        for task in tasks:
            ran[task.queue] += 1
        host.now_us += 100_000
        host.report(*(success(task.token, us=100_000) for task in tasks))
        tasks = [task for _, tasks in host.effects.dispatches for task in tasks]
        host.tick(host.says(AddJobs("fed", [new()])))
        assert not host.effects.dispatches
    assert min(ran.values()) > 10


def test_every_queue_has_its_turn_also_after_a_restart(host: Host) -> None:
    for name in ("c", "a", "b"):
        host.add(*["work"] * 8, queue=name)
    host.start()
    host.pool("work")
    host.worker()
    ran = []
    for _ in range(9):
        ((_, (task,)),) = host.effects.dispatches
        ran.append(task.queue)
        host.now_us += 10_000_000
        host.report(success(task.token, us=10_000_000))
    assert [ran.count(name) for name in "abc"] == [3, 3, 3]
