"""`make demo`: CPU-bound jobs, a worker and then the supervisor killed in the middle, and every job recorded once."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conveyor_actors import Conveyor, Job, Supervisor

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs" / "demo.toml"
DATA = ROOT / "demo-data"
LOG = ROOT / "demo-data.log"
JOBS = 400
KILL_WORKER_AT = JOBS // 4
KILL_SUPERVISOR_AT = JOBS // 2

console = Console()


def main() -> int:
    started = time.monotonic()
    shutil.rmtree(DATA, ignore_errors=True)
    LOG.unlink(missing_ok=True)
    supervisor = Supervisor(CONFIG, log=LOG)
    supervisor.start()
    console.print(f"A supervisor (pid {supervisor.pid}) with 2 workers is up. Its log: {LOG.name}")
    try:
        with Conveyor(supervisor.url) as conveyor:
            jobs = conveyor.queue("demo").add_many(
                [("count-primes", {"start": 1_000_000 + 5_000 * number}) for number in range(JOBS)]
            )
            console.print(f"{JOBS} jobs are on disk. Now counting primes, and killing things:\n")
            supervisor = follow(conveyor, jobs, supervisor)
            return report(conveyor, jobs, time.monotonic() - started)
    finally:
        supervisor.close()


def follow(conveyor: Conveyor, jobs: list[Job], supervisor: Supervisor) -> Supervisor:
    """Shows the progress and kills on the way; gives the supervisor that is alive at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("jobs", total=len(jobs))
        for number, _ in enumerate(conveyor.as_completed(jobs), 1):
            progress.update(bar, completed=number)
            if number == KILL_WORKER_AT:
                kill_a_worker(conveyor, progress)
            elif number == KILL_SUPERVISOR_AT:
                supervisor = kill_the_supervisor(supervisor, progress)
    return supervisor


def kill_a_worker(conveyor: Conveyor, progress: Progress) -> None:
    worker = max(conveyor.workers(), key=lambda worker: worker.state == "busy")
    os.kill(worker.pid, signal.SIGKILL)
    progress.console.print(
        f"  [red]kill -9[/] worker {worker.id} (pid {worker.pid}) while it ran {worker.job or 'nothing'}"
    )


def kill_the_supervisor(supervisor: Supervisor, progress: Progress) -> Supervisor:
    os.kill(supervisor.pid, signal.SIGKILL)
    progress.console.print(f"  [red]kill -9[/] the supervisor (pid {supervisor.pid}); its workers go with it")
    supervisor.close()
    began = time.monotonic()
    another = Supervisor(CONFIG, log=LOG)
    another.start()
    took = time.monotonic() - began
    progress.console.print(f"  a new supervisor (pid {another.pid}) has recovered the store in {took:.2f} s")
    return another


def report(conveyor: Conveyor, jobs: list[Job], seconds: float) -> int:
    """Counts in the durable event log how often each job was recorded as completed."""
    counts = conveyor.queue("demo").counts()
    last = conveyor.info().totals
    ends: Counter[str | None] = Counter()
    with conveyor.events(queue="demo", since=0, timeout="20s") as events:
        for event in events:
            if event.type == "completed":
                ends[event.job_id] += 1
                if sum(ends.values()) == last["completed"]:
                    break
    once = sum(1 for job in jobs if ends[job.id] == 1)
    primes = sum(job.returnvalue["primes"] for job in conveyor.queue("demo").get_many([job.id for job in jobs]) if job)
    console.print(
        f"\n{counts['completed']} of {len(jobs)} jobs completed, {counts['failed']} failed, in {seconds:.1f} s."
    )
    console.print(
        f"{last['stalled']} crash and {last['interrupted']} interruptions were charged to the jobs that ran then."
    )
    console.print(f"Recorded exactly once: [bold]{once} of {len(jobs)}[/]. Primes found: {primes}.")
    return 0 if once == len(jobs) == counts["completed"] else 1


if __name__ == "__main__":
    sys.exit(main())
