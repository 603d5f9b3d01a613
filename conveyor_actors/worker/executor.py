"""What happens to one job in a worker: claim, decode, call, encode, keep the outcome.

Knows nothing of sockets. Invariant: a job's token is in the box exactly while its handler may run; its outcome is
in the box, or on its way, before the token is cleared.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

from conveyor_actors import data as data_codec
from conveyor_actors.box import STARTED_WALL_MS, TOKEN, Box
from conveyor_actors.errors import InvalidPayload, Unrecoverable
from conveyor_actors.handlers import Handler, Registry, described
from conveyor_actors.wire import OUTCOME_KINDS, SUCCESS, Outcome, Task
from conveyor_actors.worker.context import JobContext

_ERROR: Final = OUTCOME_KINDS.index("error")
_UNRECOVERABLE: Final = OUTCOME_KINDS.index("unrecoverable")
_INVALID_PAYLOAD: Final = OUTCOME_KINDS.index("invalid-payload")
_UNKNOWN_HANDLER: Final = OUTCOME_KINDS.index("unknown-handler")
_TRACEBACK_CHARS_MAX: Final = 16_000
_MESSAGE_CHARS_MAX: Final = 4_000


class Executor:
    """Runs tasks one after the other."""

    def __init__(self, box: Box, registry: Registry, max_payload: int) -> None:
        self._box = box
        self._registry = registry
        self._max_payload = max_payload
        self._pid = os.getpid()

    def run(self, task: Task) -> Outcome:
        """The whole of one attempt. Whatever the handler raises becomes an outcome."""
        slots = self._box.slots
        started_ms = time.time_ns() // 1_000_000
        started_ns = time.monotonic_ns()
        slots[STARTED_WALL_MS] = started_ms
        slots[TOKEN] = task.token
        kind, value, message, trace = self._attempt(task)
        duration_us = (time.monotonic_ns() - started_ns) // 1000
        return Outcome(task.token, kind, started_ms, duration_us, value, message, trace)

    def _attempt(self, task: Task) -> tuple[int, bytes, str, str]:
        handler = self._registry.find(task.queue, task.name)
        if handler is None:
            return _UNKNOWN_HANDLER, b"", f"this worker has no handler {task.name!r} for {task.queue!r}", ""
        try:
            data = handler.decode(task.payload)
        except BaseException as error:
            return _INVALID_PAYLOAD, b"", _message(handler.misfit(error)), ""
        try:
            returned = call(handler, data, JobContext(task, data, self._box))
        except BaseException as error:  # a handler that calls sys.exit() has failed, and so has its job only
            if os.getpid() != self._pid:
                _end_fork(error)
            return _failed(handler, error)
        if os.getpid() != self._pid:
            _end_fork(None)
        return self._encode(returned)

    def _encode(self, returned: object) -> tuple[int, bytes, str, str]:
        try:
            value = data_codec.encode(returned, "result")
        except InvalidPayload as error:
            return _UNRECOVERABLE, b"", f"the handler returned what cannot be stored: {error}", ""
        if len(value) > self._max_payload:
            message = f"the result has {len(value)} bytes; max_payload is {self._max_payload}: return a path instead"
            return _UNRECOVERABLE, b"", message, ""
        return SUCCESS, value, "", ""


def call(handler: Handler, data: object, context: JobContext) -> object:
    function: Callable[..., object] = handler.function
    if handler.wants == 2:
        return function(data, context)
    return function(data) if handler.wants == 1 else function()


def _end_fork(error: BaseException | None) -> NoReturn:
    """Ends a process that a handler forked, as Python ends its own: it must not go on as a second worker."""
    status = 1
    try:
        if error is None:
            status = 0
        elif isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            status = (error.code or 0) & 0xFF
        elif isinstance(error, SystemExit):
            sys.stderr.write(f"{error.code}\n")
        else:
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _failed(handler: Handler, error: BaseException) -> tuple[int, bytes, str, str]:
    fatal = isinstance(error, Unrecoverable) or handler.is_fatal(error)
    own = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without our own frames
    own = own.tb_next if own is not None else None
    trace = "".join(traceback.format_exception(type(error), error, own))
    return (
        _UNRECOVERABLE if fatal else _ERROR,
        b"",
        _message(described(error)),
        _middle_cut(trace).encode("utf-8", "replace").decode(),
    )


def _message(text: str) -> str:
    return text[:_MESSAGE_CHARS_MAX].encode("utf-8", "replace").decode()


def _middle_cut(trace: str) -> str:
    """Where it was raised stands at the beginning, what was raised at the end: both are kept."""
    if len(trace) <= _TRACEBACK_CHARS_MAX:
        return trace
    half = _TRACEBACK_CHARS_MAX // 2
    return f"{trace[:half]}\n…\n{trace[-half:]}"
