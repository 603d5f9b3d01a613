"""What `info()` and `workers()` tell."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec

from conveyor_actors import __version__
from conveyor_actors.box import TOKEN
from conveyor_actors.engine.memory import Memory
from conveyor_actors.engine.reading import queue_infos
from conveyor_actors.model import WAITING, Info, StoreInfo, Worker, utc
from conveyor_actors.store.lmdb_store import LmdbStore
from conveyor_actors.supervisor.pools import Pool
from conveyor_actors.supervisor.workers import WorkerProcess
from conveyor_actors.units import format_size

_NOT_TOTALS = ("next_number", "next_event")


def disk_free(store: LmdbStore) -> int:
    status = os.statvfs(store.path)
    return status.f_bavail * status.f_frsize


def make_info(
    state: str, started_ms: int, memory: Memory, pools: Iterable[Pool], store: LmdbStore, warnings: list[str]
) -> Info:
    totals = {k: v for k, v in msgspec.structs.asdict(memory.totals).items() if k not in _NOT_TOTALS}
    pools = list(pools)
    return Info(
        state,
        __version__,
        os.getpid(),
        memory.incarnation,
        utc(started_ms),
        totals,
        [pool.info() for pool in pools],
        queue_infos(memory),
        StoreInfo(str(store.path), store.size(), disk_free(store)),
        [*warnings, *_warnings(memory, pools)],
    )


def _warnings(memory: Memory, pools: list[Pool]) -> list[str]:
    found = [f"pool {pool.config.name} is suspended: {pool.reason}" for pool in pools if pool.state == "suspended"]
    served = {name for pool in pools for name in pool.config.queues}
    if "*" not in served:
        for queue in memory.queues.values():
            if queue.name not in served and queue.counts[WAITING]:
                found.append(
                    f"no pool serves the queue {queue.name}: its {queue.counts[WAITING]} waiting jobs are not run; "
                    "add it to the queues of a pool"
                )
    if memory.full is not None:
        found.append(memory.full)
    return found


def full_message(free: int, least: int, store: LmdbStore) -> str | None:
    """Why no job can be accepted, or None."""
    if free >= least:
        return None
    return (
        f"the disk of {store.path} has {format_size(free)} left, min_free_disk is {format_size(least)}: "
        "no jobs are accepted until there is more room; running jobs go on"
    )


def make_worker(worker: WorkerProcess, memory: Memory) -> Worker:
    if not worker.ready:
        return Worker(worker.id, worker.pool.config.name, worker.pid, "starting")
    token = worker.box.slots[TOKEN]
    lease = memory.leases.get(token)
    job = None if lease is None else f"{lease.queue.name}/{lease.record.id or lease.number}"
    state = "busy" if token else "idle"
    return Worker(worker.id, worker.pool.config.name, worker.pid, state, job)
