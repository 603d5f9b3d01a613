"""Taking over from a supervisor that is gone: nobody of its processes may be alive, and what their boxes say is read.

Invariant: when it returns, no worker of an earlier supervisor of this data directory can still touch anything.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from conveyor_actors.box import BOOT, PID, START_TICKS, Box
from conveyor_actors.engine.inputs import Survivor
from conveyor_actors.errors import DataDirError
from conveyor_actors.supervisor import processes
from conveyor_actors.supervisor.logs import event
from conveyor_actors.supervisor.workers import read_outcomes

log: Final = logging.getLogger("conveyor.takeover")

_SECONDS_MAX: Final = 30.0


def store_id(data_dir: Path) -> str:
    """Marks every process of this data directory on this host."""
    status = data_dir.stat()
    return f"{status.st_dev:x}-{status.st_ino:x}"


def take_over(data_dir: Path, run: Path) -> tuple[list[Survivor], list[Box]]:
    """What the earlier supervisor's workers left, and their boxes, to be removed once that is on disk."""
    deadline = time.monotonic() + _SECONDS_MAX
    boxes = [box for path in sorted(run.glob("*.box")) if (box := Box.open(path)) is not None]
    boot = processes.boot_number()
    for box in boxes:
        pid, ticks = box.slots[PID], box.slots[START_TICKS]
        if pid and box.slots[BOOT] == boot and not processes.kill_for_sure(pid, _started_then(ticks), deadline):
            raise _still_alive([pid])
    left = processes.kill_marked(processes.STORE_VARIABLE, store_id(data_dir), deadline)
    if left:
        raise _still_alive(left)
    survivors = []
    for box in boxes:
        state = box.read()
        # Of a box that went through a power cut any page may be an old one.
        outcomes = read_outcomes(state.outcomes) if box.slots[BOOT] == boot else []
        survivors.append(Survivor(box.path.stem, state.token, state.started_wall_ms, outcomes))
    if survivors:
        running = sum(1 for survivor in survivors if survivor.running)
        event(log, "warning", "an earlier supervisor did not stop properly", workers=len(survivors), running=running)
    return survivors, boxes


def _started_then(ticks: int) -> Callable[[int], bool]:
    return lambda pid: processes.start_ticks(pid) == ticks


def sweep_run(run: Path) -> None:
    """Removes what is left in the run directory of earlier supervisors and is not a box of ours."""
    for path in run.iterdir():
        if path.suffix in (".box", ".sock"):
            path.unlink(missing_ok=True)


def _still_alive(pids: list[int]) -> DataDirError:
    names = ", ".join(str(pid) for pid in pids)
    return DataDirError(
        f"processes of an earlier supervisor do not die (pid {names}, asked by {os.getpid()}): "
        "they may hang in the kernel, on a disk for example; no job is started before they are gone"
    )
