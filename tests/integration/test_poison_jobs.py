"""A job that kills every worker fails after its stalls, by the normal way, and nobody else notices."""

import pytest

from conveyor_actors import JobFailed


@pytest.mark.parametrize("stalls", [0, 1, 3])
def test_more_stalls_than_allowed_fail_the_job_as_crashed(start, connect, record, stalls):
    queue = connect(start(workers=1, queues={"q": {"max_stalled_count": stalls}})).queue("q")
    job = queue.add("crash", {"how": "kill", "times": 100, "folder": record.folder}, attempts=5)
    with pytest.raises(JobFailed) as failed:
        job.result("20s")
    assert failed.value.failure.kind == "crashed"
    assert "SIGKILL" in failed.value.failure.message
    assert len(record("start")) == stalls + 1
    assert job.stalled_count == stalls + 1
    assert job.attempts_made == 0
    assert [line.kind for line in job.history()] == ["stalled"] * (stalls + 1)


def test_it_fails_with_the_events_of_any_failure(conveyor, queue):
    job = queue.add("crash", {"how": "kill", "times": 100})
    assert job.wait("20s") == "failed"
    marker = queue.add("echo")
    marker.result("20s")
    types, failure = [], None
    for event in conveyor.events(since=0, timeout="10s"):
        if event.job_id == job.id:
            types.append(event.type)
            failure = event.data if event.type == "failed" else failure
        if event.job_id == marker.id and event.type == "completed":
            break
    assert types == ["waiting", "active", "stalled", "waiting", "active", "stalled", "failed"]
    assert failure["kind"] == "crashed"


def test_remove_on_fail_is_honoured(conveyor, queue):
    job = queue.add("crash", {"how": "kill", "times": 100}, remove_on_fail=True)
    with pytest.raises(JobFailed) as failed:
        job.result("20s")
    assert failed.value.failure.kind == "crashed"
    assert queue.get(job.id) is None
    assert queue.counts()["failed"] == 0
    assert conveyor.info().totals["failed"] == 1


def test_a_poison_job_does_not_disturb_the_others(queue):
    others = queue.add_many([("echo", number) for number in range(200)])
    poison = queue.add("crash", {"how": "segv", "times": 100}, priority=-1)
    others += queue.add_many([("echo", number) for number in range(200)])
    ended = list(queue.as_completed(others, timeout="20s"))
    assert {(job.state, job.stalled_count, job.attempts_made) for job in ended} == {("completed", 0, 1)}
    assert poison.wait("20s") == "failed"
