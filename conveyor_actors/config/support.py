"""What a valid config asks for and this version does not do: told in words, or refused where that is unsafe.

Knows the config's structs only. When a feature arrives, its line here goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from conveyor_actors.config.model import Config, PoolConfig, QueueConfig, RetentionConfig, SupervisorConfig
from conveyor_actors.config.sources import dotted
from conveyor_actors.config.values import is_exposed
from conveyor_actors.errors import InvalidConfig

_SUPERVISOR: Final = {
    "orphan_grace_ms": "workers die with their supervisor",
    "webhook_private": "webhooks are not sent",
    "webhook_secret": "webhooks are not sent",
}
_POOL: Final = {
    "start_method": "workers are forked",
    "max_jobs_per_worker": "workers are not recycled",
    "memory_recycle": "workers are not recycled",
    "memory_budget": "jobs are admitted whatever memory they declare",
    "allow_pickle": "functions do not travel by pickle",
    "paused": "the pool starts running",
    "nice": "workers run at the supervisor's priority",
}
_QUEUE: Final = {
    "max_global_concurrency": "concurrency is bounded by the pool's workers only",
    "rate": "starts are not limited",
    "webhook": "webhooks are not sent",
    "max_size": "the queue is not bounded",
    "group_concurrency": "groups are not limited",
    "group_rate": "groups are not limited",
}
_RETENTION: Final = {
    "stale_after_ms": "jobs do not become stale",
    "delete_after_ms": "old jobs are not deleted by age",
    "on_stale": "jobs do not become stale",
    "on_delete": "old jobs are not deleted by age",
}


def not_effective(config: Config) -> list[str]:
    """A sentence for each key that is set and that this version does not act on."""
    return [f"{key} has no effect in this version: {instead}" for key, instead in _without_effect(config)]


def refuse_unsupported(config: Config) -> None:
    """Raise InvalidConfig for what must not be left out in silence."""
    exposed = [address for address in config.supervisor.listen if is_exposed(address)]
    if config.curve is not None and exposed and not config.supervisor.insecure:
        raise InvalidConfig(
            f"supervisor.listen has {exposed[0]!r}, and CURVE keys are not used in this version: listen on ipc:// or "
            "tcp://127.0.0.1, or set supervisor.insecure = true if the network is trusted"
        )


def _without_effect(config: Config) -> Iterator[tuple[str, str]]:
    supervisor = config.supervisor
    plain_supervisor = SupervisorConfig(data_dir=supervisor.data_dir, listen=supervisor.listen)
    yield from _changed(("supervisor",), supervisor, plain_supervisor, _SUPERVISOR)
    if supervisor.socket_group is not None and not _outside(supervisor):
        yield "supervisor.socket_group", "nobody else can enter data_dir; listen on a path outside of it"
    for name, pool in config.pools.items():
        yield from _changed(("pools", name), pool, PoolConfig(name=name), _POOL)
    for name, queue in config.queues.items():
        yield from _changed(("queues", name), queue, QueueConfig(), _QUEUE)
        for key in ("remove_on_complete", "remove_on_fail"):
            keep = getattr(queue, key)
            if keep is not None and keep.age_ms is not None:
                yield dotted(("queues", name), key, "age"), "finished jobs are kept by count only"
    for name in config.schedules:
        yield f"[{dotted(('schedules', name))}]", "jobs are not scheduled"
    if config.curve is not None:
        yield "[curve]", "connections are not encrypted"
    if config.http is not None:
        yield "[http]", "there is no HTTP server"
    yield from _changed(("retention",), config.retention, RetentionConfig(), _RETENTION)


def _outside(supervisor: SupervisorConfig) -> bool:
    """Whether others than its owner can reach some socket of it."""
    paths = [Path(address.removeprefix("ipc://")) for address in supervisor.listen if address.startswith("ipc://")]
    return any(supervisor.data_dir not in path.parents for path in paths)


def _changed(
    table: tuple[str, ...], section: msgspec.Struct, plain: msgspec.Struct, ineffective: dict[str, str]
) -> Iterator[tuple[str, str]]:
    for field, instead in ineffective.items():
        if getattr(section, field) != getattr(plain, field):
            yield dotted(table, field.removesuffix("_ms")), instead
