"""`conveyor-supervisor`: reads the configuration, takes the data directory, runs the loop."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from conveyor_actors import __version__
from conveyor_actors.config import CONFIG_NAME, Config, load_config, not_effective, refuse_unsupported
from conveyor_actors.errors import ConveyorError, InvalidConfig, StoreError
from conveyor_actors.supervisor import logs, output, processes
from conveyor_actors.supervisor.datadir import DataDir
from conveyor_actors.supervisor.loop import Loop

log: Final = logging.getLogger("conveyor.supervisor")

EXIT_USAGE: Final = 2
EXIT_FAILED: Final = 1


class Starter:
    """Whoever started this and waits on a descriptor: told one thing, and whatever comes later is for the log."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def tell(self, what: str) -> None:
        fd, self._fd = self._fd, None  # once it is closed, the number may mean any other file
        if fd is not None:
            with contextlib.suppress(OSError):
                os.write(fd, f"{what}\n".encode("utf-8", "replace"))
            os.close(fd)


def main(arguments: Sequence[str] | None = None) -> None:
    output.open_standard_streams()
    options = _parser().parse_args(arguments)
    try:
        logs.configure(options.log_level)
        config = _config(options)
        refuse_unsupported(config)
    except ConveyorError as error:
        sys.exit(_complain(error, EXIT_USAGE))
    if options.check:
        for warning in not_effective(config):
            sys.stderr.write(f"warning: {warning}\n")
        sys.stdout.write(f"{options.config}: the configuration is valid\n")
        return
    starter = Starter(options.ready_fd)
    try:
        sys.exit(run(config, starter))
    except InvalidConfig as error:
        starter.tell(str(error))
        sys.exit(_complain(error, EXIT_USAGE))
    except StoreError as error:
        starter.tell(str(error))
        logs.event(log, "critical", str(error))
        sys.exit(EXIT_FAILED)
    except Exception as error:
        told = f"the supervisor ended by an error that nobody expected: {type(error).__name__}: {error}"
        starter.tell(told)
        logs.event(log, "critical", f"{told}; what is acknowledged is stored: start it again", exc_info=error)
        sys.exit(EXIT_FAILED)
    finally:
        logs.finish()


def run(config: Config, starter: Starter) -> int:
    """The supervisor's whole life in this process; gives its exit status."""
    files = _raise_file_limit()
    processes.become_subreaper()  # what a dead spawner leaves comes to us
    warnings = not_effective(config)
    for warning in warnings:
        logs.event(log, "warning", warning)
    with DataDir.open(config.supervisor.data_dir) as data_dir:
        loop = Loop(config, data_dir, warnings, files)
        properly = False
        try:
            gc.freeze()  # what exists now lives as long as the process
            status = loop.run(lambda: starter.tell("ready"))
            properly = True
            return status
        finally:
            loop.close(properly=properly)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="conveyor-supervisor",
        description="Runs the jobs of a data directory on this host.",
        epilog="Environment variables CONVEYOR_<SECTION>_<KEY> win over the file, flags over both.",
    )
    parser.add_argument("--config", default=CONFIG_NAME, metavar="FILE", help=f"configuration (default: {CONFIG_NAME})")
    parser.add_argument("--check", action="store_true", help="validate the configuration and exit")
    parser.add_argument(
        "--root", metavar="DIR", help="where relative paths and imports start (default: the file's folder)"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="instead of supervisor.data_dir")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any key, such as supervisor.durability=relaxed"
    )
    parser.add_argument("--log-level", default="info", choices=list(logs.LEVELS))
    parser.add_argument("--ready-fd", type=int, metavar="FD", help="write `ready`, or why not, to this descriptor")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def _config(options: argparse.Namespace) -> Config:
    overrides: dict[str, str | None] = {"supervisor.data_dir": options.data_dir}
    for text in options.set:
        key, separator, value = text.partition("=")
        if not separator:
            raise InvalidConfig(f"--set {text}: use --set KEY=VALUE, for example --set pools.default.workers=2")
        overrides[key] = value
    root = None if options.root is None else Path(options.root).resolve()
    return load_config(options.config, root=root, overrides=overrides)


def _raise_file_limit() -> int:
    """libzmq aborts the process when descriptors run out, so there should be plenty. Gives the limit there was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def _complain(error: ConveyorError, status: int) -> int:
    sys.stderr.write(f"conveyor-supervisor: {error}\n")
    return status


if __name__ == "__main__":
    main()
