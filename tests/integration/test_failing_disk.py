"""A disk that takes nothing more: the supervisor ends, and the next one finds all that was acknowledged or finished."""

import resource
import threading

from waiting import until


def refuse_writes(supervisor):
    """From here on every write of the supervisor to a file fails."""
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (0, 0))


def test_what_was_finished_when_the_disk_failed_is_recorded_and_not_run_again(start, connect, record, gate):
    supervisor = start(workers=1)
    queue = connect(supervisor).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "done"})
    record.running(job.id)
    refuse_writes(supervisor)
    gate.open()
    assert supervisor.process.wait(timeout=20) == 1
    start(workers=1)
    assert job.result("20s") == "done"
    assert (job.attempts_made, job.stalled_count) == (1, 0)
    assert record.ids("start") == [job.id]


def test_what_ran_when_the_disk_failed_is_run_again_and_charged_an_interruption(start, connect, record, gate):
    supervisor = start(workers=1)
    queue = connect(supervisor).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "done"})
    record.running(job.id)
    refuse_writes(supervisor)
    adding = threading.Thread(target=lambda: queue.add("echo", "added after all"))
    adding.start()
    assert supervisor.process.wait(timeout=20) == 1
    start(workers=1)
    adding.join()
    record.running(job.id, times=2)
    gate.open()
    assert job.result("20s") == "done"
    assert [line.kind for line in job.history()] == ["interrupted", "completed"]
    until(lambda: queue.counts()["completed"] == 2)
