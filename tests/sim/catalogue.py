"""What the simulated pools can run: the handlers, how they behave, and what the configuration says of queues."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from conveyor_actors.engine.memory import PoolSettings, QueueSettings, Settings
from conveyor_actors.model import NO_OPTIONS, Backoff, KeepRule, RunOptions
from conveyor_actors.wire import OUTCOME_KINDS, PAGE_BYTES_MAX, SUCCESS, CatalogueEntry

ERROR: Final = OUTCOME_KINDS.index("error")
UNRECOVERABLE: Final = OUTCOME_KINDS.index("unrecoverable")

QUEUES: Final = ("a", "b", "c", "d")
NOBODY: Final = "nobody"


class Behaviour(NamedTuple):
    """`kinds` is what a run may end with; `slow` how often it takes long; `deadly` how often it kills its worker."""

    options: RunOptions = NO_OPTIONS
    kinds: tuple[int, ...] = (SUCCESS,)
    slow: float = 0.0
    deadly: float = 0.0
    result_bytes: int = 8


HANDLERS: Final = {
    "quick": Behaviour(),
    "mixed": Behaviour(slow=0.15, result_bytes=12_000),
    "long": Behaviour(slow=1.0),
    "flaky": Behaviour(RunOptions(3, Backoff("exponential", 15, 40, 0.5)), (SUCCESS, ERROR)),
    "bad": Behaviour(RunOptions(2, remove_on_fail=KeepRule(2)), (ERROR,)),
    "fatal": Behaviour(RunOptions(5), (UNRECOVERABLE,)),
    "killer": Behaviour(deadly=0.7),
    "tidy": Behaviour(RunOptions(remove_on_complete=KeepRule(0)), slow=0.05),
    "keeper": Behaviour(RunOptions(remove_on_complete=KeepRule(2)), result_bytes=600),
    "big": Behaviour(result_bytes=40_000),
}


class Pool(NamedTuple):
    name: str
    queues: tuple[str, ...]
    workers: int
    handlers: frozenset[tuple[str | None, str]]

    def entries(self) -> list[CatalogueEntry]:
        def place(handler: tuple[str | None, str]) -> tuple[str, str]:
            return handler[0] or "", handler[1]

        return [CatalogueEntry(name, queue, HANDLERS[name].options) for queue, name in sorted(self.handlers, key=place)]

    def can_run(self, queue: str, name: str) -> bool:
        return (queue, name) in self.handlers or (None, name) in self.handlers


class Host:
    """A configuration."""

    def __init__(self, pools: list[Pool], settings: Settings) -> None:
        self.pools = pools
        self.settings = settings
        self._serving = {queue: self._find_serving(queue) for queue in QUEUES}

    def _find_serving(self, queue: str) -> list[Pool]:
        named = [pool for pool in self.pools if queue in pool.queues]
        return named or [pool for pool in self.pools if "*" in pool.queues]

    def serving(self, queue: str) -> list[Pool]:
        return self._serving[queue]

    def can_ever_run(self, queue: str, name: str) -> bool:
        return any(pool.can_run(queue, name) for pool in self.serving(queue))


def draw_host(draw: random.Random) -> Host:
    """One to three pools; most often one of them serves what nobody else names."""
    pools = []
    for index in range(draw.choice((1, 1, 2, 3))):
        queues = tuple(draw.sample(QUEUES, draw.randint(0, 2)))
        if index == 0 and (not queues or draw.random() < 0.85):
            queues = (*queues, "*")
        handlers: set[tuple[str | None, str]] = {
            (None if draw.random() < 0.8 else draw.choice(QUEUES), name)
            for name in HANDLERS
            if draw.random() < (0.9 if index == 0 else 0.6)
        }
        pools.append(Pool(f"pool{index}", queues or ("d",), draw.randint(1, 3), frozenset(handlers)))
    settings = Settings(
        {pool.name: PoolSettings(pool.queues) for pool in pools},
        {
            "a": QueueSettings(max_stalled_count=draw.choice((0, 1, 3))),
            "b": QueueSettings(remove_on_complete=KeepRule(draw.choice((0, 5)))),
        },
        max_payload=1_000,
        events_kept_max=draw.choice((500_000, 500_000, 50)),
        page_bytes_max=draw.choice((PAGE_BYTES_MAX, PAGE_BYTES_MAX, 700)),
    )
    return Host(pools, settings)
