"""The same id twice is one job; what cannot be a job is refused with the reason, and nothing of it is stored."""

import threading

import pytest

from conveyor_actors import Conveyor, InvalidOption, InvalidPayload

#: Name, data and options of what is no job, and what the refusal has to say.
IMPOSSIBLE = [
    ("echo", None, {"id": ""}, "id"),
    ("echo", None, {"id": "12345"}, "digit"),
    ("echo", None, {"id": "a:b"}, "':'"),
    ("echo", None, {"id": "a/b"}, "'/'"),
    ("echo", None, {"id": "x" * 201}, "200"),
    ("echo", None, {"id": 5}, "id"),
    ("echo", None, {"id": "\ud800"}, "id"),
    ("", None, {}, "name"),
    ("n" * 201, None, {}, "200"),
    (5, None, {}, "name"),
    (len, None, {}, "handler"),
    ("echo", object(), {}, "object"),
    ("echo", {"a": [0, {1: 2}]}, {}, 'data["a"][1]'),
    ("echo", {"a": {"b": 2**64}}, {}, 'data["a"]["b"]'),
    ("echo", {"text": "\ud800"}, {}, 'data["text"]'),
    ("echo", None, {"priority": 2**31}, "priority"),
    ("echo", None, {"priority": 1.5}, "priority"),
    ("echo", None, {"attempts": 0}, "attempts"),
    ("echo", None, {"lifo": "yes"}, "lifo"),
    ("echo", None, {"prioritty": 1}, "'priority'"),
    ("echo", None, {"metadata": [1]}, "metadata"),
    ("echo", None, {"backoff": "whenever"}, "backoff"),
    ("echo", None, {"remove_on_complete": -1}, "remove_on_complete"),
]


def events(conveyor, last):
    """All events up to the first that `last` is true of."""
    seen = []
    for event in conveyor.events(since=0, timeout="10s"):
        seen.append(event)
        if last(event):
            break
    return seen


def test_the_same_id_twice_is_one_job(conveyor, queue, record):
    queue.pause()
    first = queue.add("record", {"folder": record.folder, "tag": "first"}, id="invoice-7")
    again = queue.add("record", {"folder": record.folder, "tag": "second"}, id="invoice-7", priority=4)
    assert first.created
    assert not again.created
    assert again == first
    assert again.ref == "q/invoice-7"
    assert again.data["tag"] == "first"
    assert again.priority == 0
    assert queue.counts()["waiting"] == 1
    queue.resume()
    assert again.result("20s") == "first"
    assert record() == [["invoice-7", "first"]]
    told = [event.type for event in events(conveyor, lambda event: event.type == "completed")]
    assert told.count("duplicated") == 1
    assert told.count("waiting") == 1


def test_an_id_is_still_taken_when_its_job_has_ended(queue, record):
    queue.add("record", {"folder": record.folder, "tag": "done"}, id="a").result("20s")
    again = queue.add("record", {"folder": record.folder, "tag": "again"}, id="a")
    assert not again.created
    assert again.result("20s") == "done"
    assert len(record()) == 1


def test_an_id_is_free_again_when_its_job_was_removed(queue, record):
    data = {"folder": record.folder}
    queue.add("record", data, id="a", remove_on_complete=True).result("20s")
    again = queue.add("record", data, id="a")
    assert again.created
    again.result("20s")
    assert len(record()) == 2


def test_the_same_id_in_another_queue_is_another_job(conveyor):
    one, other = (conveyor.queue(name).add("whereabouts", id="same") for name in ("one", "other"))
    assert one.created
    assert other.created
    assert one != other
    assert one.result("20s")["queue"] == "one"
    assert other.result("20s")["queue"] == "other"


def test_the_same_id_within_one_call_is_one_job(queue, record):
    data = {"folder": record.folder}
    added = queue.add_many([("record", data, {"id": "x"}), ("record", data), ("record", data, {"id": "x"})])
    assert [job.created for job in added] == [True, True, False]
    for job in added:
        job.result("20s")
    assert sorted(record.ids()) == sorted([added[1].id, "x"])


def test_many_producers_with_one_id_make_one_job(start, connect, record):
    supervisor = start()
    created, barrier = [], threading.Barrier(4)

    def produce():
        with Conveyor(supervisor.url) as conveyor:
            barrier.wait()
            for number in range(25):
                job = conveyor.queue("q").add("record", {"folder": record.folder}, id=f"job-{number}")
                created.append((job.id, job.created))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {f"job-{number}" for number in range(25)}
    assert sorted(id for id, first in created if first) == sorted(ids)
    queue = connect(supervisor).queue("q")
    for job in queue.get_many(ids):
        job.result("20s")
    assert sorted(record.ids()) == sorted(ids)


def test_what_cannot_be_a_job_is_refused_with_the_reason(conveyor):
    for name, data, options, says in IMPOSSIBLE:
        with pytest.raises((InvalidOption, InvalidPayload)) as refusal:
            conveyor.queue("q").add(name, data, **options)
        assert isinstance(refusal.value, ValueError)
        assert says in str(refusal.value)
    assert conveyor.info().totals["added"] == 0
    assert conveyor.queues() == []


def test_a_queue_that_cannot_be_is_refused(conveyor):
    for name in ("", "a/b", "a:b", "q" * 201, 7):
        with pytest.raises(InvalidOption, match="queue"):
            conveyor.queue(name)


def test_data_that_does_not_fit_the_handler_is_refused_at_the_producer(conveyor, home):
    import jobs

    assert conveyor.add(jobs.resize, {"path": "a.jpg"}).result("20s")["width"] == 640
    with pytest.raises(InvalidPayload, match="width"):
        conveyor.add(jobs.resize, {"path": "a.jpg", "width": "wide"})
    with pytest.raises(InvalidPayload, match="path"):
        conveyor.queue("q").add(jobs.resize, {})
    assert conveyor.info().totals["added"] == 1
