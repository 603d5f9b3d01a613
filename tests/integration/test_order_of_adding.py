"""Equal jobs run in the order they were added, none is forgotten, and many at once are all stored or none."""

import pytest

from conveyor_actors import ConveyorError, InvalidOption, InvalidPayload


def test_equal_jobs_run_in_the_order_in_which_they_were_added(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    queue.pause()
    data = {"folder": record.folder}
    added = [queue.add("record", data) for _ in range(20)]
    added += queue.add_many([("record", data)] * 50)
    added += [queue.add("record", data) for _ in range(20)]
    queue.resume()
    for job in added:
        job.result("20s")
    assert record.ids() == [job.id for job in added]


def test_jobs_that_find_a_worker_at_once_also_run_in_order(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    added = [queue.add("record", {"folder": record.folder}) for _ in range(100)]
    for job in added:
        job.result("20s")
    assert record.ids() == [job.id for job in added]


def test_jobs_added_before_any_worker_exists_are_run(start, connect, record):
    supervisor = start(pools={"other": {"queues": ["other"]}})
    conveyor = connect(supervisor)
    before = conveyor.queue("q").add_many([("record", {"folder": record.folder})] * 10)
    supervisor.close()
    start(workers=1)
    for job in before:
        job.result("20s")
    assert record.ids() == [job.id for job in before]


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        (("record", {"files": [1, object()]}), 'data["files"][1]'),
        (("record", None, {"priority": "high"}), "priority"),
        (("record", None, {"id": "123"}), "id"),
        (("", None), "name"),
        (("record", None, {"attempts": 0}), "attempts"),
        ("record", "item"),
    ],
    ids=["data", "priority", "id", "name", "attempts", "shape"],
)
def test_one_bad_item_of_many_means_that_nothing_is_stored(conveyor, bad, names):
    queue = conveyor.queue("q")
    with pytest.raises((InvalidOption, InvalidPayload)) as refusal:
        queue.add_many([("echo", 1), ("echo", 2), bad, ("echo", 3)])
    assert names in str(refusal.value)
    assert conveyor.info().totals["added"] == 0
    assert set(queue.counts().values()) == {0}


def test_more_jobs_than_one_call_takes_are_refused_whole(conveyor):
    with pytest.raises(ConveyorError, match="10000"):
        conveyor.queue("q").add_many([("echo", None)] * 10_001)
    assert conveyor.info().totals["added"] == 0


def test_any_number_of_jobs_can_be_added_in_a_stream(queue):
    added = list(queue.add_all((("echo", number) for number in range(2_500)), chunk=1_000))
    assert [int(job.id) for job in added] == sorted(int(job.id) for job in added)
    assert sorted(job.returnvalue for job in queue.as_completed(added, timeout="20s")) == list(range(2_500))


def test_a_job_may_carry_all_the_data_that_was_promised(queue):
    import dataclasses
    import datetime
    import decimal
    import enum
    import pathlib
    import uuid

    class Colour(enum.Enum):
        RED = "red"

    @dataclasses.dataclass
    class Point:
        x: int

    number = uuid.uuid4()
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    plain = {"none": None, "yes": True, "int": -(2**63), "float": 0.5, "str": "ö", "bytes": b"\0", "list": [1, [2]]}
    rich = {
        "time": moment,
        "enum": Colour.RED,
        "point": Point(1),
        "uuid": number,
        "decimal": decimal.Decimal("1.50"),
        "path": pathlib.Path("a/b"),
        "tuple": (1, 2),
        "set": {7},
    }
    assert queue.add("echo", plain).result("20s") == plain
    assert queue.add("echo", rich).result("20s") == {
        "time": moment,
        "enum": "red",
        "point": {"x": 1},
        "uuid": str(number),
        "decimal": "1.50",
        "path": "a/b",
        "tuple": [1, 2],
        "set": [7],
    }


def test_add_all_takes_a_very_large_job_after_others(queue):
    queue.pause()
    sizes = [2**20 * 39 // 10, 2**20 * 62, 1]
    added = list(queue.add_all(("echo", bytes(size)) for size in sizes))
    assert [len(job.data) for job in added] == sizes
    assert queue.counts()["waiting"] == 3
