"""The shape of a configuration: one struct per section of conveyor.toml, with the default of every key.

Knows nothing of files or of how values are written. Durations are `_ms`, sizes are bytes, paths are absolute.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from conveyor_actors.model import KeepRule

WORKERS_MAX: Final = 1024


class SupervisorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[supervisor]: where the state is, who may connect, how it stops."""

    data_dir: Path
    listen: tuple[str, ...]
    socket_mode: int = 0o600
    socket_group: str | None = None
    durability: Literal["fsync", "relaxed"] = "fsync"
    shutdown_timeout_ms: int = 30_000
    orphan_grace_ms: int = 30_000
    min_free_disk: int = 1024**3
    insecure: bool = False
    webhook_private: bool = True
    webhook_secret: str | None = None
    max_payload: int = 64 * 1024**2


class PoolConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[pools.NAME]: worker processes and the queues they serve, in order of precedence."""

    name: str
    queues: tuple[str, ...] = ("*",)
    workers: int = msgspec.field(default_factory=lambda: min(os.cpu_count() or 1, WORKERS_MAX))
    imports: tuple[str, ...] = ()
    pythonpath: tuple[Path, ...] = ()
    env: dict[str, str] = {}
    threads_per_worker: int = 1
    start_method: Literal["fork", "spawn"] = "fork"
    max_jobs_per_worker: int = 0
    memory_recycle: int = 0
    memory_budget: int = 0
    restart_intensity: int = 10
    restart_period_ms: int = 60_000
    allow_pickle: bool = False
    paused: bool = False
    nice: int = 0


class RateConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Never more than `max` starts in any window of `duration`."""

    max: int
    duration_ms: int


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[queues.NAME]: limits and retention of one queue. None: no limit, or nothing said."""

    max_global_concurrency: int | None = None
    rate: RateConfig | None = None
    lock_duration_ms: int = 30_000
    stalled_interval_ms: int = 30_000
    max_stalled_count: int = 1
    remove_on_complete: KeepRule | None = None
    remove_on_fail: KeepRule | None = None
    webhook: str | None = None
    max_size: int | None = None
    group_concurrency: int | None = None
    group_rate: RateConfig | None = None


class CurveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[curve]: the keys that let TCP leave the machine."""

    public_key_file: Path
    secret_key_file: Path
    allow: tuple[str, ...] = ()


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[http]: the API and the dashboard."""

    listen: str = "127.0.0.1:7601"
    token: str | None = None
    read_only: bool = False


class RetentionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """[retention]: what becomes of old jobs where nothing else is said."""

    stale_after_ms: int = 7 * 86_400_000
    delete_after_ms: int = 30 * 86_400_000
    on_stale: str | None = None
    on_delete: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A whole configuration. `root` is where relative paths start, and first on the workers' sys.path."""

    root: Path
    supervisor: SupervisorConfig
    pools: dict[str, PoolConfig]
    queues: dict[str, QueueConfig] = {}
    schedules: dict[str, dict[str, Any]] = {}
    curve: CurveConfig | None = None
    http: HttpConfig | None = None
    retention: RetentionConfig = RetentionConfig()

    def queue(self, name: str) -> QueueConfig:
        """What holds for a queue, configured or not."""
        return self.queues.get(name, _PLAIN_QUEUE)


_PLAIN_QUEUE: Final = QueueConfig()
