"""The spawner: a small, single-threaded process that imports a pool's handlers once and forks its workers.

It holds no store and no ZeroMQ context, since both break across a fork. It outlives nothing: when its supervisor is
gone it kills its workers and goes. Invariant: a worker's end is reported after it and all its descendants are dead.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from array import array
from typing import Final, NoReturn

from conveyor_actors.handlers import described, registry
from conveyor_actors.supervisor import output, processes
from conveyor_actors.wire import (
    Catalogue,
    CatalogueEntry,
    Exited,
    Fork,
    Forked,
    ImportFailed,
    NotForked,
    Report,
    Setup,
    decode_fork,
    decode_setup,
    encode,
)
from conveyor_actors.worker.main import work

MESSAGE_BYTES_MAX: Final = 128 * 1024
_TRACEBACK_CHARS_MAX: Final = 32_000
_REASON_CHARS_MAX: Final = 1_000
_SWEEP_SECONDS_MAX: Final = 2.0
_OOM_SCORE: Final = "500"


class SupervisorGone(Exception):
    """Nobody is there to report to."""


class Spawner:
    """Forks and reaps."""

    def __init__(self, control: socket.socket, setup: Setup) -> None:
        self._control = control
        self._setup = setup
        self._workers: dict[int, str] = {}
        self._supervisor = os.pidfd_open(setup.supervisor)
        if os.getppid() != setup.supervisor:
            raise SupervisorGone
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._strangers: set[int] = set()

    def run(self) -> None:
        """Until the supervisor is gone."""
        self._take_signals()
        self._strangers = set(processes.children_of(os.getpid()))  # started by the imported modules
        poll = select.poll()
        for fd in (self._control.fileno(), self._supervisor, self._wake_read):
            poll.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
            self._reap()
            if self._supervisor in ready:
                raise SupervisorGone
            if self._control.fileno() in ready:
                self._fork(decode_fork(self._receive()))

    def _take_signals(self) -> None:
        """After the imports: whatever a module did to signals is undone."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        _ignore_the_terminal()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    def _receive(self) -> bytes:
        try:
            message = self._control.recv(MESSAGE_BYTES_MAX)
        except ConnectionResetError:
            raise SupervisorGone from None
        if not message:
            raise SupervisorGone
        return message

    def report(self, message: Report, *fds: int) -> None:
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
            self._control.sendmsg([encode(message)], rights)
        except (BrokenPipeError, ConnectionResetError):
            raise SupervisorGone from None

    # -- forking --------------------------------------------------------------------------------------

    def _fork(self, order: Fork) -> None:
        output.flush_streams()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self.report(NotForked(order.worker, str(error)))
            return
        if pid == 0:
            self._become_worker(order, parent)
        self._workers[pid] = order.worker
        # Not reaped yet, so the pid is certainly that of our child.
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # a worker that nobody could watch; its end is reported like any other
            return
        try:
            self.report(Forked(order.worker, pid, processes.start_ticks(pid)), pidfd)
        finally:
            os.close(pidfd)

    def _become_worker(self, order: Fork, parent: int) -> NoReturn:
        try:
            processes.die_with_parent(parent)
            os.setsid()
            processes.become_subreaper()
            self._let_go_of_the_spawner()
            _prefer_for_oom()
            _reseed_numpy()
            work(order, self._setup.max_payload)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(1)  # never sys.exit: the handlers of atexit are the spawner's

    def _let_go_of_the_spawner(self) -> None:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Only what is ours: files that handlers' modules opened must stay open, or their numbers would be used anew.
        self._control.close()
        for fd in (self._supervisor, self._wake_read, self._wake_write):
            os.close(fd)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    # -- reaping --------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._strangers.discard(pid)
            worker = self._workers.pop(pid, None)
            if worker is not None:
                self.report(Exited(worker, pid, status, self._sweep(), usage.ru_maxrss * 1024))

    def _sweep(self) -> int:
        """Kills what a dead worker left behind: as a subreaper we are its parent now. A living worker keeps its own."""
        spared = self._workers.keys() | self._strangers
        return processes.kill_children(spared, time.monotonic() + _SWEEP_SECONDS_MAX).reaped

    def kill_all(self) -> None:
        """The end: nobody is left to report to."""
        processes.kill_children((), time.monotonic() + _SWEEP_SECONDS_MAX)


def _ignore_the_terminal() -> None:
    """What stops the supervisor stops the spawner, by way of the supervisor only."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _prefer_for_oom() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(_OOM_SCORE)


def _reseed_numpy() -> None:
    """Python's own generator is seeded anew after a fork; numpy's would give each worker the same numbers."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "random"):
        numpy.random.seed()


def _import_handlers(setup: Setup) -> ImportFailed | None:
    sys.path[:0] = [setup.root, *setup.pythonpath]
    for module in setup.imports:
        try:
            importlib.import_module(module)
        except BaseException as error:  # whatever a module does while it is imported, also sys.exit()
            told = traceback.format_exc()[-_TRACEBACK_CHARS_MAX:]
            return ImportFailed(module, _readable(described(error)[:_REASON_CHARS_MAX]), _readable(told))
    return None


def _catalogue() -> Catalogue | ImportFailed:
    catalogue = Catalogue([CatalogueEntry(h.name, h.queue, h.options) for h in registry.all()])
    size = len(encode(catalogue))
    if size <= MESSAGE_BYTES_MAX:
        return catalogue
    told = (
        f"the list of its {len(catalogue.handlers)} handlers has {size} bytes, at most {MESSAGE_BYTES_MAX} can be "
        "told: spread them over several pools"
    )
    return ImportFailed(registry.all()[0].function.__module__, told, told)


def _readable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def main() -> None:
    output.open_standard_streams()
    output.take_over_streams()
    _ignore_the_terminal()
    processes.become_subreaper()
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    try:
        first = control.recv(MESSAGE_BYTES_MAX)
        if not first:
            return
        setup = decode_setup(first)
        spawner = Spawner(control, setup)
    except (SupervisorGone, ConnectionResetError, ProcessLookupError):
        return
    try:
        processes.die_with_parent(setup.supervisor)  # an import may never end
        failed = _import_handlers(setup)
        processes.outlive_parent()  # from here on its workers are to be killed first, which `run` sees to
        output.flush_streams()
        if failed is not None:
            spawner.report(failed)
            return
        gc.collect()
        gc.freeze()  # what is imported stays shared with the workers
        spawner.report(_catalogue())
        spawner.run()
    except SupervisorGone:
        pass
    finally:
        spawner.kill_all()


if __name__ == "__main__":
    main()
