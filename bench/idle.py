"""CPU of the whole process tree with four idle workers, in per cent of a core, against a process that sleeps."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil

from bench.common import supervisor


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def run(short: bool = False) -> dict[str, object]:
    seconds = 10 if short else 60
    sleeper = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(1)"])
    try:
        with supervisor(4) as (running, conveyor):
            conveyor.ping()
            root = psutil.Process(running.pid)
            tree = [root, *root.children(recursive=True)]
            time.sleep(1)
            before, sleeper_before = _cpu(tree), _cpu([psutil.Process(sleeper.pid)])
            time.sleep(seconds)
            used = _cpu(tree) - before
            sleeper_used = _cpu([psutil.Process(sleeper.pid)]) - sleeper_before
    finally:
        sleeper.kill()
        sleeper.wait()
    percent = 100 * used / seconds
    return {
        "processes": len(tree),
        "seconds": seconds,
        "percent_of_a_core": percent,
        "sleeping_process_percent": 100 * sleeper_used / seconds,
        "required": "< 0.5",
        "ok": percent < 0.5,
    }
