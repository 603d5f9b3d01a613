"""`result()` answers whenever it is asked: early, late, after removal, across a crash, ten thousand at once."""

import shutil
import threading

import pytest
from processes import kill
from waiting import until

from conveyor_actors import Closed, Conveyor, JobFailed, JobRemoved, WaitTimeout


def test_the_result_of_a_job_that_ended_before_it_was_asked_for(conveyor, queue):
    job = queue.add("echo", {"a": [1, None]})
    until(lambda: queue.counts()["completed"] == 1)
    assert job.result("20s") == {"a": [1, None]}
    assert conveyor.get(job.ref).result() == {"a": [1, None]}
    assert queue.get(job.id).returnvalue == {"a": [1, None]}


def test_the_result_of_a_job_that_ended_before_needs_no_time(conveyor, queue):
    job, removed = queue.add("echo", 1), queue.add("echo", 2, remove_on_complete=True)
    until(lambda: conveyor.info().totals["completed"] == 2)
    assert removed.result(timeout=0) == 2
    assert queue.get(job.id).wait(0) == "completed"
    assert job.result(timeout=0) == 1
    assert list(queue.as_completed([job, removed], timeout=0)) == [job, removed]


def test_a_result_can_be_asked_for_again_and_again(queue):
    job = queue.add("echo", 7)
    assert [job.result("20s") for _ in range(3)] == [7, 7, 7]


def test_the_result_of_a_failed_job_is_an_exception_with_its_failure(queue):
    job = queue.add("fail", {"message": "no luck"})
    with pytest.raises(JobFailed, match="no luck") as failed:
        job.result("20s")
    assert failed.value.failure.kind == "error"
    assert job.wait() == "failed"


def test_automatically_removed_jobs_still_answer(queue):
    job = queue.add("echo", "kept a while", remove_on_complete=True)
    until(lambda: queue.get(job.id) is None)
    assert queue.counts()["completed"] == 0
    assert job.result("20s") == "kept a while"


def test_a_failed_job_that_was_removed_still_answers(queue):
    job = queue.add("fail", {"message": "gone"}, remove_on_fail=True)
    until(lambda: queue.get(job.id) is None)
    with pytest.raises(JobFailed, match="gone"):
        job.result("20s")


def test_a_removed_job_still_answers_after_the_supervisor_was_killed(start, connect):
    supervisor = start()
    queue = connect(supervisor).queue("q")
    job = queue.add("echo", "durable", remove_on_complete=True)
    until(lambda: queue.get(job.id) is None)
    kill(supervisor)
    start()
    assert job.result("20s") == "durable"


def test_of_finished_jobs_only_so_many_are_kept_as_was_said(queue):
    added = [queue.add("echo", number, remove_on_complete=3) for number in range(10)]
    assert [job.result("20s") for job in added] == list(range(10))
    assert queue.counts()["completed"] == 3
    assert [job is not None for job in queue.get_many(job.id for job in added)].count(True) == 3


def test_a_job_that_never_was_raises_job_removed(start, connect):
    supervisor = start()
    job = connect(supervisor).queue("q").add("echo")
    kill(supervisor)
    shutil.rmtree(start.data_dir)
    start()
    with pytest.raises(JobRemoved, match=job.ref):
        job.result("20s")


def test_a_wait_that_is_too_short_raises_and_the_job_goes_on(queue, record, gate):
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "in the end"})
    with pytest.raises(WaitTimeout) as waited:
        job.result("100ms")
    assert isinstance(waited.value, TimeoutError)
    record.running(job.id)
    gate.open()
    assert job.result("20s") == "in the end"
    assert len(record("start")) == 1


def test_result_waits_across_the_death_of_the_supervisor(start, connect, record, gate):
    supervisor = start(workers=1)
    queue = connect(supervisor).queue("q")
    job = queue.add("gated", {"folder": record.folder, "gate": gate.path, "tag": "still here"})
    record.running(job.id)
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(job.result("40s")))
    waiting.start()
    kill(supervisor)
    start(workers=1)
    gate.open()
    waiting.join()
    assert answers == ["still here"]


def test_ten_thousand_jobs_are_waited_for_at_once(queue):
    queue.pause()
    added = queue.add_many([("echo", number) for number in range(10_000)])
    queue.resume()
    ended = list(queue.as_completed(added, timeout="60s"))
    assert len(ended) == 10_000
    assert {job.id: job.returnvalue for job in ended} == {job.id: number for number, job in enumerate(added)}


def test_as_completed_gives_jobs_in_the_order_of_their_ends(queue, record, gate):
    slow = queue.add("gated", {"folder": record.folder, "gate": gate.path})
    record.running(slow.id)
    quick = queue.add("echo")
    completion = queue.as_completed([slow, quick], timeout="20s")
    assert next(completion) == quick
    gate.open()
    assert next(completion) == slow
    assert list(completion) == []


def test_many_threads_wait_through_one_connection(queue):
    answers = {}

    def ask(number):
        answers[number] = [queue.add("echo", (number, turn)).result("20s") for turn in range(20)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: [[number, turn] for turn in range(20)] for number in range(8)}


def test_who_waits_on_a_conveyor_that_is_closed_is_told(start, record, gate):
    conveyor = Conveyor(start().url)
    job = conveyor.queue("q").add("gated", {"folder": record.folder, "gate": gate.path})
    record.running(job.id)
    told = []

    def wait():
        with pytest.raises(Closed):
            job.result("20s")
        told.append(True)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with pytest.raises(WaitTimeout):
        job.result("50ms")
    conveyor.close()
    waiting.join()
    assert told == [True]
    with pytest.raises(Closed):
        conveyor.info()
    gate.open()
