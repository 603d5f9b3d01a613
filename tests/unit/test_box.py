"""The box: two processes share it, none waits for the other, and it outlives both."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conveyor_actors.box import (
    ABORT,
    BOX_BYTES,
    CLAIMED,
    OUTCOMES_BYTES_MAX,
    REVOKED,
    SENT,
    STARTED_WALL_MS,
    TOKEN,
    Box,
    is_large,
)
from conveyor_actors.packing import join
from conveyor_actors.wire import Outcome, decode_outcomes, encode

DEADLINE_SECONDS = 20
CHILD_BEGINS = """
import sys
from pathlib import Path
from conveyor_actors.box import TOKEN, Box
from conveyor_actors.wire import Outcome, encode
box = Box.open(Path(sys.argv[1]))
say = lambda *words: print(*words, flush=True)
say("ready")
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker.box"


@pytest.fixture
def box(path: Path) -> Iterator[Box]:
    """The supervisor's end."""
    box = Box.create(path)
    yield box
    box.close()


@pytest.fixture
def worker(box: Box, path: Path) -> Iterator[Box]:
    """The worker's end, in this process."""
    end = Box.open(path)
    assert end is not None
    yield end
    end.close()


@contextmanager
def child(path: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    """A process with the worker's end, ready to begin when it is sent a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD_BEGINS + code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_SECONDS)


def outcome(token: int, size: int = 10) -> bytes:
    return encode(Outcome(token, 0, 0, 0, bytes(size)))


def tokens(halves: list[bytes]) -> list[list[int]]:
    return [[outcome.token for outcome in decode_outcomes(half)] for half in halves]


# -- the file ---------------------------------------------------------------------------------------------------


def test_a_new_box_is_empty_and_its_owners_alone(box: Box, path: Path) -> None:
    assert box.read() == (0, 0, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size == BOX_BYTES


def test_a_box_is_made_once(box: Box, path: Path) -> None:
    with pytest.raises(FileExistsError):
        Box.create(path)


@pytest.mark.parametrize("content", [b"", b"short", bytes(BOX_BYTES), b"x" * (BOX_BYTES + 1)])
def test_what_is_no_whole_box_is_not_opened(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert Box.open(path) is None


def test_a_box_that_is_not_there_is_not_opened(path: Path) -> None:
    assert Box.open(path) is None


def test_a_removed_box_leaves_no_file(path: Path) -> None:
    Box.create(path).remove()
    assert not path.exists()


def test_what_one_end_writes_the_other_reads(box: Box, worker: Box) -> None:
    worker.slots[STARTED_WALL_MS] = 6
    worker.slots[TOKEN] = 2**63 + 7
    state = box.read()
    assert (state.token, state.started_wall_ms) == (2**63 + 7, 6)
    box.ask_to_abort()
    assert worker.slots[ABORT] == 1


# -- claim and recall ---------------------------------------------------------------------------------------------


def test_a_job_is_claimed_unless_it_was_taken_back(box: Box, worker: Box) -> None:
    assert worker.claim(5)
    state = box.recall(8)
    assert state is not None
    assert state.claimed == 5
    assert not worker.claim(6)
    assert not worker.claim(8)
    assert worker.claim(9)
    assert worker.slots[CLAIMED] == 9


def test_a_claim_that_came_first_stays(box: Box, worker: Box) -> None:
    assert worker.claim(8)
    state = box.recall(8)
    assert state is not None
    assert state.claimed == 8


def test_a_later_recall_never_gives_back_what_an_earlier_one_took(box: Box, worker: Box) -> None:
    """The worker runs 7 for long and has 8 to 10 before it; then its queue is paused."""
    worker.claim(7)
    box.recall(10)
    box.recall(7)
    assert not worker.claim(8)
    assert not worker.claim(10)
    assert box.slots[REVOKED] == 10


def test_a_recall_does_not_wait_for_the_lock(box: Box, path: Path) -> None:
    """Nor is it ever lost: the kernel frees the lock of a process that is killed."""
    hold = "import fcntl; fcntl.flock(box._fd, fcntl.LOCK_EX); say('locked'); sys.stdin.readline()"
    with child(path, hold) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        assert box.recall(5) is None
        assert box.slots[REVOKED] == 0
        process.kill()
        process.wait(timeout=DEADLINE_SECONDS)
        assert box.recall(5) is not None


def test_between_two_processes_every_job_is_either_claimed_or_taken_back(box: Box, path: Path) -> None:
    claim = """
import time
from conveyor_actors.box import REVOKED
while not box.slots[REVOKED]:  # the other one has begun
    time.sleep(0.0001)
claimed = [token for token in range(1, 8_001) if box.claim(token)]
say(",".join(map(str, claimed)))
"""
    taken: list[tuple[int, int]] = []
    with child(path, claim) as process:
        while (reached := box.slots[CLAIMED]) < 8_000 and process.poll() is None:
            upto = max(reached, box.slots[REVOKED]) + 3
            if upto > 7_990:
                break
            state = box.recall(upto)
            if state is not None and state.claimed < upto:
                taken.append((state.claimed, upto))
        assert process.stdout is not None
        claimed = {int(token) for token in process.stdout.readline().split(",")}
    took = {token for after, upto in taken for token in range(after + 1, upto + 1)}
    assert took
    assert not took & claimed, "a job was claimed and taken back"
    assert took | claimed == set(range(1, 8_001)), "a job is nobody's"


# -- outcomes -----------------------------------------------------------------------------------------------------


def test_unsent_outcomes_are_one_message(box: Box, worker: Box) -> None:
    assert worker.unsent() is None
    assert worker.add_outcome(outcome(1))
    assert worker.add_outcome(outcome(2))
    message = worker.unsent()
    assert message is not None
    assert tokens([message]) == [[1, 2]]
    assert tokens(box.read().outcomes) == [[1, 2]]


def test_what_was_sent_stays_readable(box: Box, worker: Box) -> None:
    for token in (1, 2, 3):
        worker.add_outcome(outcome(token))
        message = worker.unsent()
        assert message is not None and tokens([message]) == [[token]]
        worker.mark_sent()
        assert worker.unsent() is None
    assert tokens(box.read().outcomes) == [[1, 2, 3]]
    assert worker.slots[SENT] == 3


def test_until_the_half_after_it_is_full_too(box: Box, worker: Box) -> None:
    for token in range(1, 5):
        big = outcome(token, OUTCOMES_BYTES_MAX * 2 // 3)
        if not worker.add_outcome(big):
            worker.turn_over()
            assert worker.add_outcome(big)
        worker.mark_sent()
        assert tokens(box.read().outcomes) == [[token - 1], [token]][token == 1 :]


def test_a_full_half_says_so_and_keeps_what_it_has(box: Box, worker: Box) -> None:
    big = outcome(1, OUTCOMES_BYTES_MAX // 2)
    assert worker.add_outcome(big)
    assert not worker.add_outcome(big)
    assert tokens(box.read().outcomes) == [[1]]


def test_an_outcome_may_fill_a_half_to_the_last_byte_and_does_not_touch_the_other(box: Box, worker: Box) -> None:
    for half in (1, 2):
        overhead = len(outcome(half, 20_000)) - 20_000
        exact = outcome(half, OUTCOMES_BYTES_MAX - overhead)
        assert len(exact) == OUTCOMES_BYTES_MAX
        assert worker.add_outcome(exact)
        assert not worker.add_outcome(outcome(9))
        worker.mark_sent()
        if half == 1:
            worker.turn_over()
    assert tokens(box.read().outcomes) == [[1], [2]]


def test_it_is_known_whether_what_did_not_arrive_is_in_the_box(box: Box, worker: Box) -> None:
    for _ in range(3):
        worker.add_outcome(outcome(1))
        worker.mark_sent()
    assert box.holds_all_after(0, 0)
    for turns in (1, 2, 3):
        worker.turn_over()
        worker.add_outcome(outcome(1))
        worker.mark_sent()
        needed = 0 if turns == 1 else turns + 1  # what was sent before the older half was begun
        assert box.holds_all_after(needed, 0)
        assert not needed or not box.holds_all_after(needed - 1, 0)
    worker.mark_large_sent()
    assert not box.holds_all_after(100, 0)
    assert box.holds_all_after(100, 1)


def test_a_message_with_an_outcome_too_large_for_the_box_is_told_from_others(worker: Box) -> None:
    overhead = len(outcome(1, 40_000)) - 40_000
    largest = outcome(1, OUTCOMES_BYTES_MAX - len(outcome(1, 20_000)) + 20_000)
    assert worker.add_outcome(largest)
    message = worker.unsent()
    assert message is not None
    assert not is_large(message)
    assert is_large(join(1, outcome(1, OUTCOMES_BYTES_MAX + 1 - overhead)))


def test_a_recall_tells_what_was_claimed_and_is_not_sent(box: Box, worker: Box) -> None:
    worker.claim(1)
    worker.add_outcome(outcome(1))
    worker.mark_sent()
    assert box.recall(1) == (1, None)
    worker.claim(2)
    worker.add_outcome(outcome(2))
    recalled = box.recall(2)
    assert recalled is not None and recalled.unsent is not None
    assert (recalled.claimed, tokens([recalled.unsent])) == (2, [[2]])


def test_an_outcome_larger_than_a_half_is_never_kept(worker: Box) -> None:
    assert not worker.add_outcome(outcome(1, OUTCOMES_BYTES_MAX))
    assert worker.unsent() is None


def test_a_killed_worker_leaves_all_it_had_finished(box: Box, path: Path) -> None:
    finish = """
for token in (1, 2):
    box.add_outcome(encode(Outcome(token, 0, 0, 0)))
box.mark_sent()
box.add_outcome(encode(Outcome(3, 0, 0, 0)))
box.slots[TOKEN] = 4
say("running")
sys.stdin.readline()
"""
    with child(path, finish) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.kill()
        process.wait(timeout=DEADLINE_SECONDS)
    state = box.read()
    assert state.token == 4
    assert tokens(state.outcomes) == [[1, 2, 3]]


# -- reading while the other end writes ---------------------------------------------------------------------------


def test_no_read_of_a_slot_is_torn(box: Box, path: Path) -> None:
    write = """
low, high = 0x00000000_FFFFFFFF, 0xFFFFFFFF_00000000
slots = box.slots
for _ in range(3_000_000):
    slots[TOKEN] = low
    slots[TOKEN] = high
slots[TOKEN] = 1
"""
    slots, seen = box.slots, set()
    with child(path, write) as process:
        while 1 not in seen and process.poll() is None:
            for _ in range(1_000):
                seen.add(slots[TOKEN])
    assert seen <= {0, 1, 0x00000000_FFFFFFFF, 0xFFFFFFFF_00000000}
    assert len(seen) > 2


def test_outcomes_read_under_a_working_worker_are_whole_and_without_a_hole(box: Box, path: Path) -> None:
    work = """
for token in range(1, 15_001):
    encoded = encode(Outcome(token, 0, token, 0, bytes(token % 50)))
    if not box.add_outcome(encoded):
        box.mark_sent()
        box.turn_over()
        box.add_outcome(encoded)
    if token % 7 == 0 and token < 15_000:
        box.mark_sent()
say("done")
"""
    looks = last = 0
    with child(path, work) as process:
        while last < 15_000:
            ended = process.poll() is not None
            recalled = box.recall(0)
            if recalled is None:
                continue
            found = [] if recalled.unsent is None else tokens([recalled.unsent])[0]
            if found:
                assert found == list(range(found[0], found[-1] + 1))
                assert found[-1] >= last
                last = found[-1]
                looks += 1
            assert last == 15_000 or not ended
    assert looks > 10


MADE_ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from conveyor_actors.box import Box

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    Box.create(Path(sys.argv[1]))
except OSError as error:
    print("refused")
"""


def test_a_box_has_all_its_room_from_the_start(box: Box, path: Path) -> None:
    assert path.stat().st_blocks * 512 >= BOX_BYTES, "a page that cannot be had later is a SIGBUS"


def test_a_box_that_cannot_have_its_room_is_not_made(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MADE_ON_A_FULL_DISK, str(path)], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("refused\n", 0)
    assert not path.exists()
