"""`conveyor`: look at queues, jobs and workers, and stop a supervisor.

A client like any other. Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 no, 2 usage, 3 unreachable, 124
timeout.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

import click

from conveyor_actors import __version__, units
from conveyor_actors.cli import show
from conveyor_actors.client.conveyor import Conveyor
from conveyor_actors.errors import ConveyorError, SupervisorUnreachable, UsageError
from conveyor_actors.model import STATE_NAMES

EXIT_NO: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_TIMEOUT: Final = 124

Command = TypeVar("Command", bound=Callable[..., Any])


def _common(command: Command) -> Command:
    """The options that every command has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table."),
        click.option(
            "--url", metavar="URL", help="Address of the supervisor (default: $CONVEYOR_URL, else conveyor.toml)."
        ),
    ):
        command = option(command)
    return command


@contextlib.contextmanager
def _connect(url: str | None) -> Iterator[Conveyor]:
    """A connection; whatever goes wrong on it is told in one line and by the exit code."""
    try:
        with Conveyor(url) as conveyor:
            yield conveyor
    except SupervisorUnreachable as error:
        _end(str(error), EXIT_UNREACHABLE)
    except UsageError as error:
        _end(str(error), EXIT_USAGE)
    except ConveyorError as error:
        _end(str(error), EXIT_NO)


def _end(message: str, status: int) -> NoReturn:
    click.echo(f"conveyor: {message}", err=True)
    sys.exit(status)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="conveyor")
def main() -> None:
    """Look at the jobs of a supervisor, and stop it. Start one with conveyor-supervisor."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names and data may have what the terminal's encoding has not
            stream.reconfigure(errors="backslashreplace")


@main.command()
@click.argument("queue", required=False)
@_common
def counts(queue: str | None, url: str | None, as_json: bool) -> None:
    """How many jobs QUEUE (default: each queue) has in each state."""
    with _connect(url) as conveyor:
        queues = conveyor.queues()
    if queue is not None:
        queues = [each for each in queues if each.name == queue]
        if not queues:
            _end(f"there is no queue {queue!r}", EXIT_NO)
    show.queues(queues, as_json)


@main.command()
@click.argument("queue")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATE_NAMES), help="Only these states (may be repeated)."
)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1_000_000), help="At most so many jobs.")
@_common
def ls(queue: str, states: tuple[str, ...], limit: int, url: str | None, as_json: bool) -> None:
    """The jobs of QUEUE."""
    with _connect(url) as conveyor:
        page = conveyor.queue(queue).jobs(*states, limit=limit)
        if not page and all(each.name != queue for each in conveyor.queues()):
            _end(f"there is no queue {queue!r}", EXIT_NO)
        show.jobs(page, as_json, more=page.next is not None)


@main.command(name="show")
@click.argument("job")
@_common
def show_job(job: str, url: str | None, as_json: bool) -> None:
    """Everything about one JOB, named by its id or by queue/id."""
    with _connect(url) as conveyor:
        found = conveyor.get(job)
        if found is None:
            _end(f"there is no job {job}", EXIT_NO)
        show.job(found, found.history(), as_json)


@main.command()
@_common
def workers(url: str | None, as_json: bool) -> None:
    """The worker processes and what they run."""
    with _connect(url) as conveyor:
        show.workers(conveyor.workers(), conveyor.info(), as_json)


@main.command()
@click.option("--timeout", metavar="DURATION", help="How long running jobs may take (default: shutdown_timeout).")
@click.option("--finish", is_flag=True, help="Wait for running jobs however long they take.")
@_common
def stop(timeout: str | None, finish: bool, url: str | None, as_json: bool) -> None:
    """Stop the supervisor as on SIGTERM, and wait until it is gone."""
    if timeout is not None and finish:
        _end("use either --timeout or --finish", EXIT_USAGE)
    try:
        limit = None if timeout is None else units.duration_ms(timeout, "--timeout") / 1000
    except UsageError as error:
        _end(str(error), EXIT_USAGE)
    with _connect(url) as conveyor:
        pid = conveyor.info().pid
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            _end(f"the supervisor (pid {pid}) is not on this host: stop it there", EXIT_NO)
        conveyor.stop(timeout=limit, finish=finish)
        select.select([pidfd], [], [])
        os.close(pidfd)
    show.stopped(pid, as_json)


if __name__ == "__main__":
    main()
