"""A supervisor of one's own, as a subprocess: started, waited for until it serves, stopped.

Knows of the supervisor only its command line. Invariant: when `start` returns it serves clients; when `close` returns
it is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path, PurePath
from types import TracebackType
from typing import IO, Any, Final

from conveyor_actors.client.conveyor import Conveyor
from conveyor_actors.config import client_url, load_config, parse_config
from conveyor_actors.errors import ConveyorError, InvalidConfig, InvalidOption, SupervisorFailed, UsageError
from conveyor_actors.model import Keep
from conveyor_actors.units import duration_ms

#: What a stop may take beyond the time that running jobs are given: they are asked to end for 5 s, and then killed.
_STOP_MARGIN_MS: Final = 15_000
#: What a supervisor takes at most that can be told anything.
_TELLING_SECONDS: Final = 2
_MODULE: Final = "conveyor_actors.supervisor.main"
_READY: Final = "ready"


class Supervisor:
    """`conveyor-supervisor` with a config file, or with the same as a dict (then paths are relative to the cwd).

    Its log, and what handlers print, goes to this process's stderr, or is appended to the file `log`.

    >>> with Supervisor({"supervisor": {"data_dir": "run1"}, "pools": {"default": {"imports": ["tasks"]}}}) as running:
    ...     with running.connect() as conveyor: ...
    """

    def __init__(
        self, config: str | os.PathLike[str] | Mapping[str, Any], *, log: str | os.PathLike[str] | None = None
    ) -> None:
        self._root = Path.cwd()
        self._log = None if log is None else Path(log)
        if isinstance(config, Mapping):
            self._config: Path | Mapping[str, Any] = config
            parsed = parse_config(config, root=self._root)
        elif isinstance(config, (str, os.PathLike)):
            self._config = Path(os.path.abspath(config))
            parsed = load_config(self._config)
        else:
            raise InvalidOption("config", config, "the path of a conveyor.toml, or a dict")
        self._shutdown_ms = parsed.supervisor.shutdown_timeout_ms
        self.url: Final = client_url(parsed)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def returncode(self) -> int | None:
        """What it exited with; None while it runs."""
        return None if self.process is None else self.process.poll()

    def __enter__(self) -> Supervisor:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "not started" if self.process is None else f"pid {self.pid}"
        return f"<Supervisor {self.url} {state}>"

    def connect(self, **options: Any) -> Conveyor:
        """A `Conveyor` to this supervisor, with the options of `Conveyor`."""
        return Conveyor(self.url, **options)

    def start(self) -> None:
        """Starts it and waits until it serves clients and each pool is ready or has failed to start (see `info()`)."""
        if self.process is not None:
            raise UsageError("this Supervisor was started before: make a new one")
        with self._config_arguments() as arguments, self._output() as output:
            reading, writing = os.pipe()
            try:
                command = [sys.executable, "-m", _MODULE, *arguments, "--ready-fd", str(writing)]
                # A group of its own: Ctrl-C in the terminal is for the caller, who closes this.
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(writing,),
                    process_group=0,
                )
            finally:
                os.close(writing)
            try:
                self._await_ready(self.process, reading)
            except BaseException:
                self.close()
                raise

    def close(self, timeout: object = None) -> None:
        """Stops it as SIGTERM does. Running jobs get `timeout` (by default its shutdown_timeout), then they see that
        they are aborted, and 5 s later they are killed and return to their queue.
        """
        wait_ms = self._shutdown_ms if timeout is None else duration_ms(timeout, "timeout")
        process = self.process
        if process is None or process.poll() is not None:
            return
        if timeout is None or not self._is_told_to_stop(wait_ms):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait((wait_ms + _STOP_MARGIN_MS) / 1000)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _is_told_to_stop(self, timeout_ms: int) -> bool:
        """A signal cannot say how long running jobs may take."""
        try:
            with self.connect(timeout=_TELLING_SECONDS) as conveyor:
                conveyor.stop(timeout=timeout_ms / 1000)
        except ConveyorError:
            return False
        return True

    @contextlib.contextmanager
    def _output(self) -> Iterator[IO[bytes] | None]:
        if self._log is None:
            yield None
        else:
            with open(self._log, "ab") as file:
                yield file

    @contextlib.contextmanager
    def _config_arguments(self) -> Iterator[list[str]]:
        if isinstance(self._config, Path):
            yield ["--config", str(self._config)]
            return
        handle, name = tempfile.mkstemp(prefix="conveyor-", suffix=".json")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(self._config, file, default=_plain)
            yield ["--config", name, "--root", str(self._root)]
        finally:
            os.unlink(name)

    def _await_ready(self, process: subprocess.Popen[bytes], reading: int) -> None:
        with open(reading, "rb") as pipe:
            told = pipe.readline().decode().strip()
        if told != _READY:
            status = process.wait()
            raise SupervisorFailed(
                f"the supervisor for {self.url} exited with status {status} before it was ready: "
                f"{told or 'its log says why'}"
            )


def _plain(value: object) -> object:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Keep):
        return {"count": value.count, "age": value.age} if value != Keep() else False
    if isinstance(value, Mapping):
        return dict(value)
    raise InvalidConfig(f"the config has {value!r} of type {type(value).__name__}: use what a TOML file can hold")
