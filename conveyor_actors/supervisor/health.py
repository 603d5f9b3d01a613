"""What `info()` and `workers()` tell."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from typing import Final

import msgspec

from conveyor_actors import __version__
from conveyor_actors.box import TOKEN
from conveyor_actors.engine.inputs import SetFull
from conveyor_actors.engine.memory import Memory
from conveyor_actors.engine.reading import queue_infos
from conveyor_actors.model import WAITING, Info, StoreInfo, Worker, utc
from conveyor_actors.store.lmdb_store import LmdbStore
from conveyor_actors.supervisor.pools import Pool
from conveyor_actors.supervisor.workers import WorkerProcess
from conveyor_actors.units import format_size

#: The part of all descriptors that may be in use without a warning.
_FILES_PART_MAX: Final = 0.8
_NOT_TOTALS: Final = ("next_number", "next_event")


def make_info(
    state: str,
    started_ms: int,
    memory: Memory,
    pools: Iterable[Pool],
    store: LmdbStore,
    warnings: list[str],
    garbage: int,
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
        StoreInfo(str(store.path), store.size(), store.disk_free()),
        [*warnings, *_warnings(memory, pools)],
        garbage,
    )


def _warnings(memory: Memory, pools: list[Pool]) -> list[str]:
    found = [
        f"pool {pool.config.name} {'is suspended' if pool.state == 'suspended' else 'cannot start'}: {pool.reason}"
        for pool in pools
        if pool.reason
    ]
    served = {name for pool in pools for name in pool.config.queues}
    if "*" not in served:
        for queue in memory.queues.values():
            if queue.name not in served and queue.counts[WAITING]:
                found.append(
                    f"no pool serves the queue {queue.name}: its {queue.counts[WAITING]} waiting jobs are not run; "
                    "add it to the queues of a pool"
                )
    found += [told for told in (memory.full, few_files_left()) if told is not None]
    return found


def few_files_left() -> str | None:
    """A warning before descriptors run out, for then libzmq ends the process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = len(os.listdir("/proc/self/fd"))
    if files < _FILES_PART_MAX * limit:
        return None
    return f"{files} of {limit} file descriptors are in use: raise the limit (ulimit -n), or have fewer clients"


def fullness(store: LmdbStore, least: int) -> SetFull:
    """What the room that is left on the disk allows. What the store's reserve lacks does not count as room."""
    free = max(0, store.disk_free() - store.reserve.lacking)
    if free >= least:
        return SetFull(None)
    hold = free < least // 2
    refused = "accepted or started" if hold else "accepted"
    return SetFull(
        f"the disk of {store.path} has {format_size(free)} left, min_free_disk is {format_size(least)}: no jobs are "
        f"{refused} until there is more room; {'what runs is still recorded' if hold else 'those that wait go on'}",
        hold,
    )


def make_worker(worker: WorkerProcess, memory: Memory) -> Worker:
    if not worker.ready:
        return Worker(worker.id, worker.pool.config.name, worker.pid, "starting")
    token = worker.box.slots[TOKEN]
    lease = memory.leases.get(token)
    job = None if lease is None else f"{lease.queue.name}/{lease.record.id or lease.number}"
    state = "busy" if token else "idle"
    return Worker(worker.id, worker.pool.config.name, worker.pid, state, job)
