"""How the command line prints things: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from conveyor_actors.client.job import Job
from conveyor_actors.errors import CorruptRecord
from conveyor_actors.model import STATE_NAMES, Attempt, Info, QueueInfo, Worker
from conveyor_actors.text import in_lines

_TEXT_CHARS_MAX = 60


def _json(value: Any) -> None:
    """One document on one line; what JSON has no word for becomes text."""
    click.echo(msgspec.json.encode(value, enc_hook=str))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    from rich import box  # a third of a second, needed by tables only
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column != "error")
    for row in rows:
        table.add_row(*(Text(in_lines(cell)) for cell in row))
    Console(soft_wrap=False).print(table)


def queues(found: list[QueueInfo], as_json: bool) -> None:
    if as_json:
        _json({queue.name: {"paused": queue.paused, "counts": queue.counts} for queue in found})
    elif not found:
        click.echo("no queues yet", err=True)
    else:
        rows = [
            [queue.name + (" (paused)" if queue.paused else ""), *(str(queue.counts[state]) for state in STATE_NAMES)]
            for queue in found
        ]
        _table(["queue", *STATE_NAMES], rows, right=STATE_NAMES)


def as_dict(job: Job) -> dict[str, Any]:
    """All of a job that can be read."""
    return {
        "ref": job.ref,
        "id": job.id,
        "queue": job.queue,
        "name": job.name,
        "state": job.state,
        "data": _readable(job, "data"),
        "priority": job.priority,
        "attempts": job.attempts,
        "attempts_made": job.attempts_made,
        "stalled_count": job.stalled_count,
        "returnvalue": _readable(job, "returnvalue"),
        "failure": job.failure,
        "metadata": _readable(job, "metadata"),
        "created_at": job.created_at,
        "delay_until": job.delay_until,
        "processed_at": job.processed_at,
        "finished_at": job.finished_at,
        "worker": job.worker,
    }


def _readable(job: Job, attribute: str) -> Any:
    """One job that cannot be read is no reason to show none."""
    try:
        return getattr(job, attribute)
    except CorruptRecord as error:
        return f"({error})"


def jobs(found: Sequence[Job], as_json: bool, *, more: bool) -> None:
    if as_json:
        _json([as_dict(job) for job in found])
    elif not found:
        click.echo("no jobs", err=True)
    else:
        rows = [
            [
                job.ref,
                job.name,
                job.state,
                f"{job.attempts_made}/{job.attempts}",
                _ago(job.created_at),
                _short(job.failure.message) if job.failure is not None else "",
            ]
            for job in found
        ]
        _table(["job", "name", "state", "attempts", "added", "error"], rows, right=["attempts"])
    if more:
        click.echo("there are more: raise --limit, or choose a --state", err=True)


def job(found: Job, history: list[Attempt], as_json: bool) -> None:
    if as_json:
        _json({**as_dict(found), "history": history})
        return
    empty: tuple[object, ...] = (None, "", {})
    fields = {n: v for n, v in as_dict(found).items() if n == "data" or (n != "failure" and v not in empty)}
    for name, value in fields.items():
        text = value.astimezone().isoformat(" ", "milliseconds") if isinstance(value, datetime) else _plain(value)
        click.echo(f"{name:14} {in_lines(text)}")
    if found.failure is not None:
        click.echo(f"{'failure':14} {found.failure.kind}: {in_lines(found.failure.message)}")
        if found.failure.traceback:
            click.echo(in_lines(_indent(found.failure.traceback)))
    if len(history) > 1:
        click.echo("history")
        for line in history:
            when = line.at.astimezone().isoformat(" ", "milliseconds")
            message = _short(line.message) if sys.stdout.isatty() else line.message
            click.echo(in_lines(f"  {when}  {line.kind:11} {line.worker}  {message}".rstrip()))


def workers(found: list[Worker], info: Info, as_json: bool) -> None:
    if as_json:
        _json(found)
    else:
        rows = [[worker.id, worker.pool, str(worker.pid), worker.state, worker.job or ""] for worker in found]
        _table(["worker", "pool", "pid", "state", "job"], rows, right=["pid"])
        for warning in info.warnings:
            click.echo(f"warning: {warning}", err=True)


def stopped(pid: int, as_json: bool) -> None:
    if as_json:
        _json({"stopped": pid})
    else:
        click.echo(f"the supervisor (pid {pid}) has stopped", err=True)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _short(text: str) -> str:
    first = text.partition("\n")[0]
    return first if len(first) <= _TEXT_CHARS_MAX else first[: _TEXT_CHARS_MAX - 1] + "…"


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in text.rstrip().splitlines())


def _ago(then: datetime) -> str:
    seconds = int((datetime.now(UTC) - then).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{max(0, seconds)}s ago"
