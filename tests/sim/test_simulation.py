"""Whatever goes wrong, nothing that was promised is broken: many runs of the simulated host, each from its own seed.

SIM_SEEDS says how many (300), SIM_FIRST_SEED with which to begin (0).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .world import World

FIRST_SEED = int(os.environ.get("SIM_FIRST_SEED", "0"))
SEEDS = int(os.environ.get("SIM_SEEDS", "300"))
SEEDS_PER_CHUNK = 10

#: What a handful of runs has to bring about, or they would prove nothing.
REACHED = (
    "checkpoint",
    "clients gone",
    "clock stepped",
    "completed",
    "crashed during recovery",
    "delayed",
    "died after a claim",
    "died after sending",
    "died killed by its job",
    "died while running",
    "died with its outcome in the box",
    "disk full",
    "duplicated",
    "failed",
    "forged outcomes",
    "found its task taken back",
    "grown",
    "larger than the box",
    "turned its box over",
    "late copy of a request",
    "distrusted",
    "paused",
    "poisoned ClientSays",
    "poisoned Outcomes",
    "poisoned WorkerDied",
    "poisoned WorkerReady",
    "pool down",
    "put back",
    "recalled",
    "reconnected",
    "refused InternalError",
    "refused ProtocolError",
    "refused StoreFull",
    "removed",
    "repeated outcomes",
    "repeated request",
    "retrying",
    "shutdown",
    "stalled",
    "stopped while running",
    "supervisor crashed after the commit",
    "supervisor crashed before the commit",
    "supervisor crashed between ticks",
    "supervisor crashed in the middle of sending",
    "torn commit",
    "waits put off",
)

PRINT_TRACE = """
import sys
from sim.test_simulation import run
print(run(int(sys.argv[1])).trace.hexdigest())
"""


@pytest.fixture(autouse=True)
def no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done to the engine here is meant to be."""
    monkeypatch.setattr(logging.getLogger("conveyor.supervisor"), "disabled", True)


@contextmanager
def directory() -> Iterator[Path]:
    """In memory where there is such a place: the store's durability is not what is tried here."""
    in_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=in_memory if os.access(in_memory, os.W_OK) else None) as path:
        yield Path(path)


def run(seed: int) -> World:
    with directory() as path:
        world = World(seed, path)
        try:
            world.run()
        except BaseException as error:
            error.add_note(f"seed {seed} at {world.now_us / 1e6:.6f} s; again: SIM_FIRST_SEED={seed} SIM_SEEDS=1")
            raise
        finally:
            world.close()
        return world


@pytest.mark.parametrize("first", range(FIRST_SEED, FIRST_SEED + SEEDS, SEEDS_PER_CHUNK))
def test_no_promise_is_broken_whatever_goes_wrong(first: int) -> None:
    for seed in range(first, min(first + SEEDS_PER_CHUNK, FIRST_SEED + SEEDS)):
        run(seed)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 4))
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    assert run(seed).trace.digest() == run(seed).trace.digest()


def test_a_run_does_not_depend_on_the_order_of_sets() -> None:
    command = [sys.executable, "-c", PRINT_TRACE, "7"]
    tests = Path(__file__).parent.parent
    traces = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{tests}:{tests.parent}"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1] != ""


def test_the_runs_reach_what_they_are_meant_to_try() -> None:
    seen: Counter[str] = Counter()
    for seed in range(80):
        world = run(seed)
        seen += world.seen + world.expected.seen
    assert [what for what in REACHED if not seen[what]] == []
