"""Lower priority numbers go first, lifo goes before the rest of its priority, and both outlive what happens to it."""

from processes import kill
from waiting import until


def test_lower_numbers_go_first_and_equal_ones_in_order(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    queue.pause()
    priorities = [5, 0, -3, 5, -(2**31), 0, 2**31 - 1, -3]
    added = [queue.add("record", {"folder": record.folder}, priority=priority) for priority in priorities]
    queue.resume()
    for job in added:
        job.result("20s")
    assert record.ids() == [job.id for job in sorted(added, key=lambda job: (job.priority, int(job.id)))]


def test_lifo_goes_before_earlier_jobs_of_its_priority_only(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    queue.pause()
    data = {"folder": record.folder}
    first, second = (queue.add("record", data) for _ in range(2))
    urgent = queue.add("record", data, priority=-1)
    last_in = queue.add("record", data, lifo=True)
    later_in = queue.add("record", data, lifo=True)
    idle_lifo = queue.add("record", data, priority=7, lifo=True)
    third = queue.add("record", data)
    queue.resume()
    expected = [urgent, later_in, last_in, first, second, third, idle_lifo]
    for job in expected:
        job.result("20s")
    assert record.ids() == [job.id for job in expected]


def test_priority_survives_a_retry(start, connect, record, gate):
    queue = connect(start(workers=1)).queue("q")
    queue.pause()
    urgent = queue.add("fail", {"times": 1, "folder": record.folder}, priority=-5, attempts=2, backoff="50ms")
    blocker = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    plain = [queue.add("record", {"folder": record.folder}) for _ in range(5)]
    queue.resume()
    record.running(blocker.id)
    until(lambda: urgent.refresh().state == "waiting" and urgent.attempts_made == 1)
    assert urgent.priority == -5
    gate.open()
    for job in (urgent, blocker, *plain):
        job.result("20s")
    noted = [words[0] for words in record() if words[0] not in ("start", "end")]
    assert noted == [urgent.id, urgent.id, *(job.id for job in plain)]


def test_priority_survives_a_stall(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    queue.pause()
    plain = [queue.add("record", {"folder": record.folder}) for _ in range(5)]
    urgent = queue.add("crash", {"how": "kill", "folder": record.folder}, priority=-5)
    queue.resume()
    for job in (urgent, *plain):
        job.result("20s")
    assert urgent.stalled_count == 1
    noted = [words[1] if words[0] == "start" else words[0] for words in record()]
    assert noted == [urgent.id, urgent.id, *(job.id for job in plain)]


def test_a_stalled_job_keeps_its_place_among_equals(start, connect, record):
    queue = connect(start(workers=1)).queue("q")
    queue.pause()
    first = queue.add("crash", {"how": "kill", "folder": record.folder})
    plain = [queue.add("record", {"folder": record.folder}) for _ in range(5)]
    queue.resume()
    for job in (first, *plain):
        job.result("20s")
    noted = [words[1] if words[0] == "start" else words[0] for words in record()]
    assert noted == [first.id, first.id, *(job.id for job in plain)]


def test_priority_and_lifo_survive_a_crash_of_the_supervisor(start, connect, record):
    supervisor = start(workers=1)
    queue = connect(supervisor).queue("q")
    queue.pause()
    data = {"folder": record.folder}
    low = queue.add("record", data, priority=9)
    plain = [queue.add("record", data) for _ in range(3)]
    newest = [queue.add("record", data, lifo=True) for _ in range(2)]
    high = queue.add("record", data, priority=-9)
    kill(supervisor)
    start(workers=1)
    assert queue.paused()
    assert high.refresh().priority == -9
    queue.resume()
    expected = [high, *reversed(newest), *plain, low]
    for job in expected:
        job.result("20s")
    assert record.ids() == [job.id for job in expected]
