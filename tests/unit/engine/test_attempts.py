"""How an attempt ends, and what is recorded of it."""

from __future__ import annotations

import pytest

from conveyor_actors.model import Backoff, RunOptions
from conveyor_actors.wire import PAGE_BYTES_MAX, GetHistory, History, HistoryEntry, Outcome, encode

from .harness import BEGIN_MS, Host, entry, failure, new, success


@pytest.mark.parametrize("size", [0, 1, 256, 257, 50_000])
def test_a_result_of_any_size_comes_back(host: Host, size: int) -> None:
    (id,) = host.add("work")
    host.report(success(host.token(id), bytes(size)))
    job = host.job(id)
    assert (job.state, job.result, job.failure) == (4, bytes(size), None)
    assert (job.attempts_made, job.processed_ms, job.finished_ms, job.worker) == (1, BEGIN_MS, BEGIN_MS, "w1")
    assert host.history_of(id) == ["waiting", "active", "completed"]


def test_n_attempts_are_exactly_n_runs(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(attempts=3)))
    for _ in range(3):
        assert host.job(id).state == 3
        host.fail(id)
    job = host.job(id)
    assert (job.state, job.attempts_made, len(host.tasks[id])) == (5, 3, 3)
    assert job.failure is not None
    assert (job.failure.kind, job.failure.message, job.failure.at_ms) == ("error", "ValueError: no", BEGIN_MS)
    assert [task.attempts_made for task in host.tasks[id]] == [0, 1, 2]


def test_a_success_after_failures_leaves_no_failure_but_its_history(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(attempts=3)))
    host.fail(id)
    host.complete(id)
    assert host.job(id).failure is None
    history = host.ask(GetHistory(("q", id)))
    assert isinstance(history, History)
    assert history.entries is not None
    assert [(line.kind, line.worker) for line in history.entries] == [("failed", "w1"), ("completed", "w1")]
    assert history.entries[0].traceback == "Traceback ..."


def test_a_backoff_delays_the_next_attempt(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(2, Backoff("fixed", 200))))
    host.fail(id)
    assert (host.job(id).state, host.job(id).due_ms) == (2, BEGIN_MS + 200)
    host.later(200)
    assert host.job(id).state == 2
    host.later(1)
    assert host.job(id).state == 3
    assert host.history_of(id) == ["waiting", "active", "retrying", "delayed", "waiting", "active"]


def test_jitter_comes_from_the_draw_of_the_tick(host: Host) -> None:
    options = RunOptions(2, Backoff("fixed", 1_000, None, 1.0))
    ids = host.add(*[new(options=options) for _ in range(3)])
    delays = []
    for id in ids:
        host.fail(id)
        delays.append((host.job(id).due_ms or 0) - BEGIN_MS)
    assert all(0 <= delay <= 1_000 for delay in delays)
    assert len(set(delays)) == 3


def test_a_backoff_of_nothing_is_now(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(2, Backoff("fixed", 0))))
    host.fail(id)
    assert host.job(id).state == 3


@pytest.mark.parametrize("kind", ["unrecoverable", "invalid-payload", "unknown-handler"])
def test_what_cannot_get_better_fails_at_once(host: Host, kind: str) -> None:
    (id,) = host.add(new(options=RunOptions(attempts=5)))
    host.fail(id, kind)
    job = host.job(id)
    assert job.failure is not None
    assert (job.state, job.attempts_made, job.failure.kind) == (5, 1, kind)
    assert host.history_of(id) == ["waiting", "active", "failed"]


def test_what_add_does_not_say_the_handler_says(empty: Host) -> None:
    empty.pool(entry("work", attempts=3, backoff=Backoff("fixed", 100)))
    empty.worker()
    plain, own = empty.add("work", new(options=RunOptions(attempts=2)))
    empty.fail(plain)
    assert (empty.job(plain).state, empty.job(plain).attempts) == (2, 3)
    empty.fail(own)
    assert (empty.job(own).state, empty.job(own).attempts) == (2, 2)  # the backoff is still the handler's
    empty.later(101)
    empty.fail(plain)
    empty.fail(own)
    assert (empty.job(plain).state, empty.job(own).state) == (2, 5)


def test_a_handler_of_the_queue_goes_before_one_of_any_queue(empty: Host) -> None:
    empty.pool(entry("work", attempts=2), entry("work", "q", attempts=9))
    assert empty.job(empty.add("work")[0]).attempts == 9
    assert empty.job(empty.add("work", queue="else")[0], "else").attempts == 2


def test_a_long_message_is_shortened_in_events_only(host: Host) -> None:
    (id,) = host.add("work")
    host.report(failure(host.token(id), "error", "x" * 5_000))
    job = host.job(id)
    assert job.failure is not None
    assert len(job.failure.message) == 5_000
    assert host.dump()["events"]  # and the log stays small
    assert max(map(len, host.dump()["events"].values())) < 1_000


def history(host: Host, id: str) -> list[HistoryEntry]:
    answer = host.ask(GetHistory(("q", id)))
    assert isinstance(answer, History)
    assert len(encode(answer)) <= PAGE_BYTES_MAX
    assert answer.entries is not None
    return answer.entries


def test_of_very_many_attempts_the_last_thousand_are_kept(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(attempts=1_100)))
    for number in range(1_005):
        host.report(failure(host.token(id), "error", str(number)))
    host.kill(id)
    kept = history(host, id)
    assert [(line.kind, line.message) for line in kept[:2]] == [("failed", "6"), ("failed", "7")]
    assert [(line.kind, line.message) for line in kept[-2:]] == [("failed", "1004"), ("stalled", "killed by SIGKILL")]
    assert len(kept) == 1_000
    host.worker()
    host.complete(id)
    assert len(history(host, id)) == 1_001  # that it completed is no line of its own in the store


def test_a_long_history_comes_in_one_page_with_the_newest_tracebacks(host: Host) -> None:
    (id,) = host.add(new(options=RunOptions(attempts=1_000)))
    for number in range(999):
        told = Outcome(host.token(id), 1, BEGIN_MS, 1_000, b"", f"{number} " + "\U0001f4a5" * 3_000, "trace " * 2_600)
        host.report(told)
    lines = history(host, id)
    whole = [number for number, line in enumerate(lines) if line.traceback]
    assert whole == list(range(999 - len(whole), 999))
    assert len(whole) > 50
    assert [line.message.partition(" ")[0] for line in lines] == [str(number) for number in range(999)]
