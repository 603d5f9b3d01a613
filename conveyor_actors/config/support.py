"""What a valid config asks for and this version does not do: told in words, or refused where that is unsafe.

Knows the config's structs only. When a feature arrives, its line here goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from conveyor_actors.config.model import Config, PoolConfig, QueueConfig, RetentionConfig, SupervisorConfig
from conveyor_actors.config.sources import dotted
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
    if config.curve is not None:
        raise InvalidConfig("CURVE is not available in this version: remove [curve], and listen on ipc or loopback")


def _without_effect(config: Config) -> Iterator[tuple[str, str]]:
    supervisor = config.supervisor
    plain_supervisor = SupervisorConfig(data_dir=supervisor.data_dir, listen=supervisor.listen)
    yield from _changed(("supervisor",), supervisor, plain_supervisor, _SUPERVISOR)
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
    if config.http is not None:
        yield "[http]", "there is no HTTP server"
    yield from _changed(("retention",), config.retention, RetentionConfig(), _RETENTION)


def _changed(
    table: tuple[str, ...], section: msgspec.Struct, plain: msgspec.Struct, ineffective: dict[str, str]
) -> Iterator[tuple[str, str]]:
    for field, instead in ineffective.items():
        if getattr(section, field) != getattr(plain, field):
            yield dotted(table, field.removesuffix("_ms")), instead
