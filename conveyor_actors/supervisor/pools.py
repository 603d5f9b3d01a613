"""Pools: a spawner each, and the workers it forks; started, watched, replaced, and suspended when they cannot start.

Knows nothing of jobs beyond the tokens in the boxes. It tells the engine what happened by appending inputs.
Invariant: a worker's death is told once, after it and its descendants are gone and all it had finished was read.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from conveyor_actors.box import BOOT, PID, START_TICKS, Box
from conveyor_actors.config import PoolConfig
from conveyor_actors.engine.inputs import Input, PoolDown, PoolReady, WorkerDied, WorkerReady
from conveyor_actors.engine.supervision import over_intensity, restart_delay_ms
from conveyor_actors.model import PoolInfo
from conveyor_actors.supervisor import processes
from conveyor_actors.supervisor.logs import event
from conveyor_actors.supervisor.spawner_process import SpawnerProcess
from conveyor_actors.supervisor.workers import Cause, WorkerProcess, read_outcomes
from conveyor_actors.units import format_size
from conveyor_actors.wire import (
    Catalogue,
    Exited,
    Fork,
    Forked,
    ImportFailed,
    NotForked,
    Ready,
    Report,
    Setup,
)

log: Final = logging.getLogger("conveyor.pools")

_READY_SECONDS_MAX: Final = 60.0
#: A worker is dead for so long at most before its spawner has swept what it left, and told.
_REPORT_SECONDS_MAX: Final = 10.0
#: What a dead worker sent arrives in so long, or never.
_HEARD_SECONDS_MAX: Final = 0.1
_HEARD_AGAIN_SECONDS: Final = 0.001
_FULL_AGAIN_SECONDS: Final = 0.05
#: How long the loop may stand still for the dying, and when it looks again.
_DYING_SECONDS_MAX: Final = 0.02
_DYING_AGAIN_SECONDS: Final = 0.02
_AGAIN_SECONDS: Final = 1.0
_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Host(msgspec.Struct):
    """What a pool needs of the supervisor around it."""

    root: Path
    run: Path
    store_id: str
    incarnation: int
    address: str
    max_payload: int
    beat_ms: int
    #: How many files handlers may open.
    files: int
    #: Children of this process that no pool may kill as left behind: all spawners, and who was there before them.
    children: set[int]
    #: Inputs for the next tick.
    inputs: list[Input]
    #: (file descriptor, what to do when it is readable)
    watch: Callable[[int, Callable[[], None]], None]
    unwatch: Callable[[int], None]
    #: (seconds from now, what to do then)
    later: Callable[[float, Callable[[], None]], None]
    #: The ref of the job that runs with this token.
    job_of: Callable[[int], str | None]
    after_commit: Callable[[Callable[[], None]], None]


class Pool:
    """One `[pools.NAME]`."""

    def __init__(self, config: PoolConfig, host: Host) -> None:
        self.config = config
        self.host = host
        self.state = "starting"
        self.reason = ""
        self.workers: dict[str, WorkerProcess] = {}
        self.handlers: list[str] = []
        self._spawner: SpawnerProcess | None = None
        #: The one before, for as long as workers of it are not surely dead.
        self._dead_spawner: SpawnerProcess | None = None
        self._has_served = False
        self._numbers = 0
        self._early_deaths_ms: list[int] = []
        self._early_deaths_in_a_row = 0
        self._oom_kills = processes.oom_kills()

    def info(self) -> PoolInfo:
        ready = sum(1 for worker in self.workers.values() if worker.ready)
        queues, wanted = list(self.config.queues), self.config.workers
        return PoolInfo(self.config.name, self.state, queues, wanted, ready, self.handlers, self.reason)

    @property
    def settled(self) -> bool:
        """Whether there is nothing more to wait for at a start: what has failed to start once may do so again."""
        if self.state == "suspended" or self._early_deaths_in_a_row:
            return True
        return self.state == "ready" and sum(1 for w in self.workers.values() if w.ready) >= self.config.workers

    # -- the spawner ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the spawner; if that fails, tries again."""
        config, host = self.config, self.host
        self._has_served = False
        environment = {
            **os.environ,
            **{name: str(config.threads_per_worker) for name in _THREAD_VARIABLES},
            **config.env,
            processes.STORE_VARIABLE: host.store_id,
        }
        try:
            spawner = SpawnerProcess(environment, host.files)
        except OSError as error:
            told = f"pool {config.name}: its spawner cannot be started: {error}"
            event(log, "error", told, trying_again_in_s=_AGAIN_SECONDS)
            self._count_early_death(told)
            host.later(_AGAIN_SECONDS, self._restart)
            return
        self._adopt(spawner)
        paths = [str(path) for path in config.pythonpath]
        spawner.send(Setup(os.getpid(), str(host.root), paths, list(config.imports), host.max_payload))
        host.later(_READY_SECONDS_MAX, lambda: self._check_import_time(spawner))

    def _adopt(self, spawner: SpawnerProcess) -> None:
        self._spawner = spawner
        self.host.children.add(spawner.pid)
        self.host.watch(spawner.control.fileno(), self._read_reports)
        self.host.watch(spawner.pidfd, self._spawner_died)

    def _check_import_time(self, spawner: SpawnerProcess) -> None:
        if self._spawner is spawner and self.state == "starting":
            told = f"pool {self.config.name}: its handlers have been importing for {_READY_SECONDS_MAX:.0f} s"
            event(log, "warning", told, imports=list(self.config.imports))

    def _read_reports(self) -> None:
        spawner = self._spawner
        assert spawner is not None, "its control socket is watched for as long as it is there"
        try:
            for report, fd in spawner.reports():
                self._take_report(report, fd)
        except EOFError:
            self.host.unwatch(spawner.control.fileno())  # its pidfd tells the rest

    def _take_report(self, report: Report, fd: int) -> None:
        match report:
            case Catalogue():
                self._ready(report)
            case ImportFailed():
                self._suspend(f"{report.module} cannot be imported: {report.reason}")
                event(
                    log,
                    "error",
                    f"pool {self.config.name}: {report.module} cannot be imported",
                    traceback=report.traceback,
                )
            case Forked():
                self._forked(report, fd)
            case NotForked():
                self._not_forked(report)
            case Exited():
                self._exited(report)

    def _ready(self, catalogue: Catalogue) -> None:
        self.state = "ready"
        self.handlers = sorted(entry.name for entry in catalogue.handlers)
        self.host.inputs.append(PoolReady(self.config.name, catalogue.handlers))
        pid = 0 if self._spawner is None else self._spawner.pid
        event(log, "info", f"pool {self.config.name}: handlers imported", handlers=self.handlers, pid=pid)
        if not self.handlers:
            event(
                log,
                "warning",
                f"pool {self.config.name} has no handlers: set `imports` to the modules that declare them",
            )
        self._fill()

    def _spawner_died(self) -> None:
        """Its workers die with it; it comes back, at once if it had been of use."""
        spawner = self._spawner
        assert spawner is not None, "its pidfd is watched for as long as it is there"
        self._read_reports()  # what it said before it died
        how = spawner.ended()
        self.host.children.discard(spawner.pid)
        self.host.unwatch(spawner.control.fileno())
        self.host.unwatch(spawner.pidfd)
        spawner.close()
        self._spawner, self._dead_spawner = None, spawner
        if self.state == "suspended" and not self.workers:
            return  # it had nothing more to do
        told = f"pool {self.config.name}: its spawner ended with {how}"
        event(log, "error", told, workers=len(self.workers))
        self.host.inputs.append(PoolDown(self.config.name))
        for worker in self.workers.values():
            worker.kill("orphaned", "its spawner died")
        self._bury_orphans()
        if self.state == "suspended":
            return
        self.state = "starting"
        if not self._has_served:
            self._count_early_death(told)
        if self.state == "starting":
            self.host.later(self._delay(), self._restart)

    def _bury_orphans(self) -> None:
        """Without a spawner nobody sweeps what a dead worker has left, and nobody reports: we do."""
        if self._spawner is not None or self._dead_spawner is None or not self.workers:
            return
        if not self._dead_spawner.kill_descendants(self.host.children, _DYING_SECONDS_MAX):
            self.host.later(_DYING_AGAIN_SECONDS, self._bury_orphans)
            return
        for worker in list(self.workers.values()):
            if worker.dead or worker.pidfd < 0:
                told = f"worker {worker.id} (pid {worker.pid}) died with its spawner"
                self._finish_when_known(worker, told, time.monotonic() + _HEARD_SECONDS_MAX)

    def _restart(self) -> None:
        if self.state != "starting" or self._spawner is not None:
            return
        if self.workers:  # not before every worker of the old one is dead
            self.host.later(_DYING_AGAIN_SECONDS, self._restart)
            return
        self.start()

    # -- workers --------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Orders workers until there are as many as configured."""
        spawner = self._spawner
        while spawner is not None and self.state == "ready" and len(self.workers) < self.config.workers:
            self._numbers += 1
            id = f"{self.config.name}-{self._numbers}"
            path = self.host.run / f"{self.host.incarnation}-{id}.box"
            try:
                worker = WorkerProcess(id, self, Box.create(path))
            except OSError as error:
                told = f"pool {self.config.name}: no worker can be started: {error}"
                event(log, "error", told, trying_again_in_s=_AGAIN_SECONDS)
                self.host.later(_AGAIN_SECONDS, self._fill)
                return
            if not spawner.send(Fork(id, worker.identity, str(path), self.host.address, self.host.beat_ms)):
                worker.box.remove()
                self.host.later(_FULL_AGAIN_SECONDS, self._fill)
                return
            self.workers[id] = worker
            self._expect(worker, _READY_SECONDS_MAX, lambda worker: worker.ready, "is not ready")

    def _expect(
        self, worker: WorkerProcess, seconds: float, done: Callable[[WorkerProcess], bool], otherwise: str
    ) -> None:
        """What does not come in time will not come: a worker that hangs is killed, or the spawner that does."""

        def check() -> None:
            if self.workers.get(worker.id) is not worker or done(worker):
                return
            told = f"worker {worker.id} (pid {worker.pid}) {otherwise} after {seconds:.0f} s"
            if worker.pidfd >= 0 and not worker.dead:
                worker.kill("crashed", told)
            elif self._spawner is not None:
                event(log, "error", f"pool {self.config.name}: {told}: its spawner hangs and is killed")
                self._spawner.kill()

        self.host.later(seconds, check)

    def _forked(self, report: Forked, pidfd: int) -> None:
        worker = self.workers[report.worker]
        worker.pid, worker.pidfd = report.pid, pidfd
        slots = worker.box.slots
        slots[START_TICKS], slots[BOOT], slots[PID] = report.start_ticks, processes.boot_number(), report.pid
        if pidfd >= 0:  # the kernel drops it where there is no room for one more descriptor
            self.host.watch(pidfd, lambda: self._worker_gone(worker))

    def _not_forked(self, report: NotForked) -> None:
        worker = self.workers.get(report.worker)
        if worker is not None:
            self._finish(worker, f"worker {worker.id} could not be forked: {report.reason}")

    def worker_ready(self, worker: WorkerProcess, said: Ready) -> None:
        worker.ready = self._has_served = True
        worker.threads = said.threads
        self._early_deaths_in_a_row = 0
        if self.state != "suspended":
            self.reason = ""
        self.host.inputs.append(WorkerReady(worker.id, self.config.name, said.pid))
        event(log, "debug", f"pool {self.config.name}: worker {worker.id} is ready", pid=said.pid)

    def _worker_gone(self, worker: WorkerProcess) -> None:
        """The kernel says that it is dead. The spawner sweeps what it left and reports."""
        self.host.unwatch(worker.pidfd)
        worker.dead = True
        self._expect(worker, _REPORT_SECONDS_MAX, lambda worker: False, "is dead and not reported")
        self._bury_orphans()

    def _exited(self, report: Exited) -> None:
        worker = self.workers.get(report.worker)
        if worker is not None:
            self._finish_when_known(worker, self._words(worker, report), time.monotonic() + _HEARD_SECONDS_MAX)

    def _words(self, worker: WorkerProcess, report: Exited) -> str:
        if worker.stall:
            return f"worker {worker.id} (pid {report.pid}) was killed: {worker.stall}"
        words = f"worker {worker.id} (pid {report.pid}) {processes.describe_status(report.status)}"
        if os.WIFSIGNALED(report.status) and os.WTERMSIG(report.status) == signal.SIGKILL and worker.cause is None:
            kills, self._oom_kills = self._oom_kills, processes.oom_kills()
            if self._oom_kills > kills:
                words += ", probably by the kernel for want of memory"
        words += f"; it had held up to {format_size(report.peak_memory)}"
        if report.swept:
            words += f"; {report.swept} of its child processes were killed"
        return words

    def _finish_when_known(self, worker: WorkerProcess, words: str, deadline: float) -> None:
        """What it sent before its death may still be on its way, or have died with it inside ZeroMQ."""
        if self.workers.get(worker.id) is not worker:
            return
        if worker.all_known or time.monotonic() > deadline:
            self._finish(worker, words)
        else:
            self.host.later(_HEARD_AGAIN_SECONDS, lambda: self._finish_when_known(worker, words, deadline))

    def _finish(self, worker: WorkerProcess, words: str) -> None:
        """The end of a worker: the engine is told, its box goes once that is on disk, and another takes its place."""
        del self.workers[worker.id]
        if worker.pidfd >= 0:
            if not worker.dead:
                self.host.unwatch(worker.pidfd)
            os.close(worker.pidfd)
        state = worker.box.read()
        cause: Cause = worker.cause or "crashed"
        self.host.inputs.append(
            WorkerDied(
                worker.id,
                self.config.name,
                worker.pid,
                state.token,
                state.started_wall_ms,
                read_outcomes(state.outcomes),
                cause,
                words,
            )
        )
        self.host.after_commit(worker.box.remove)
        if cause != "stopped":
            job = self.host.job_of(state.token) or "none"
            event(log, "warning", f"pool {self.config.name}: {words}", cause=cause, job=job)
        if not worker.ready and cause == "crashed":
            self._count_early_death(words)
            self.host.later(self._delay(), self._fill)
        else:
            self._fill()

    # -- giving up ------------------------------------------------------------------------------------

    def _count_early_death(self, words: str) -> None:
        now_ms = time.monotonic_ns() // 1_000_000
        self._early_deaths_in_a_row += 1
        self.reason = words
        self._early_deaths_ms.append(now_ms)
        del self._early_deaths_ms[: -self.config.restart_intensity - 1]
        if over_intensity(self._early_deaths_ms, self.config.restart_intensity, self.config.restart_period_ms, now_ms):
            self._suspend(f"{len(self._early_deaths_ms)} deaths before ready in a short time; the last: {words}")

    def _delay(self) -> float:
        return restart_delay_ms(self._early_deaths_in_a_row, secrets.randbelow(1000) / 1000) / 1000

    def _suspend(self, reason: str) -> None:
        self.state, self.reason = "suspended", reason
        if self._spawner is None or not any(worker.ready for worker in self.workers.values()):
            self.host.inputs.append(PoolDown(self.config.name))
        told = f"pool {self.config.name} is suspended, its jobs stay queued: {reason}"
        event(log, "error", f"{told}. Mend the cause and restart the supervisor")

    # -- the end --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begins the end: the spawner kills what is left of its workers, and goes."""
        importing = self.state == "starting" and not self.workers
        self.state = "stopped"
        for worker in self.workers.values():
            worker.kill("stopped")
        if self._spawner is not None:
            self.host.unwatch(self._spawner.control.fileno())
            self.host.unwatch(self._spawner.pidfd)
            self._spawner.let_go(at_once=importing)

    def close(self, *, keep_boxes: bool) -> None:
        """After `stop`. No process of ours is left afterwards.

        Boxes that are kept tell the next supervisor what was running and what was finished.
        """
        spawner, self._spawner = self._spawner, None
        if spawner is not None:
            self.host.children.discard(spawner.pid)
            spawner.await_end(self.host.children)
            spawner.close()
        for worker in self.workers.values():
            if worker.pidfd >= 0:
                if not worker.dead:
                    self.host.unwatch(worker.pidfd)
                os.close(worker.pidfd)
            if keep_boxes:
                worker.box.close()
            else:
                worker.box.remove()
        self.workers.clear()
