"""The log of the supervisor's processes: lines for people on a terminal, a JSON object per line elsewhere.

Knows nothing of what is logged. A record is never lost because a value in it cannot be shown, and it never
reaches the handlers of the root logger.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from conveyor_actors.errors import InvalidOption
from conveyor_actors.supervisor.log_stream import LogStream
from conveyor_actors.text import in_lines, on_one_line

_STDERR: Final = 2
LOGGER_NAME: Final = "conveyor"
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

_SHORT_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_COLOURS: Final = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def configure(level: str = "info", stream: TextIO | LogStream | None = None, json: bool | None = None) -> None:
    """Send the `conveyor` logger to `stream` (stderr). `json=None`: JSON unless the stream is a terminal."""
    if level not in LEVELS:
        raise InvalidOption("level", level, " or ".join(repr(name) for name in LEVELS))
    stream = LogStream(_STDERR) if stream is None else stream
    terminal = stream.isatty()
    handler: logging.StreamHandler[TextIO | LogStream] = logging.StreamHandler(stream)
    as_json = not terminal if json is None else json
    handler.setFormatter(JsonLines() if as_json else HumanLines(coloured=terminal and _colours_wanted()))
    logger = logging.getLogger(LOGGER_NAME)
    for previous in list(logger.handlers):
        logger.removeHandler(previous)
    logger.addHandler(handler)
    logger.setLevel(LEVELS[level])
    logger.propagate = False


def flush() -> None:
    """Writes what a slow reader of the log had not taken."""
    for handler in logging.getLogger(LOGGER_NAME).handlers:
        handler.flush()


def finish() -> None:
    """The end: what is left gets a moment."""
    for handler in logging.getLogger(LOGGER_NAME).handlers:
        if isinstance(handler, logging.StreamHandler) and isinstance(handler.stream, LogStream):
            handler.stream.finish()


def event(
    logger: logging.Logger,
    level: str | int,
    message: str,
    *,
    exc_info: BaseException | bool | None = None,
    **fields: object,
) -> None:
    """Log `message` with named values: `event(log, "info", "pool images: worker ready", pid=123)`."""
    number = LEVELS[level] if isinstance(level, str) else level
    logger.log(number, message, exc_info=exc_info, extra={"fields": fields}, stacklevel=2)


class JsonLines(logging.Formatter):
    """One JSON object per record: at, level, logger, message, its fields, and a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "at": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if traceback := _traceback(self, record):
            line["traceback"] = traceback
        for key, value in _fields(record).items():
            line[f"{key}_" if key in line else key] = value
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except Exception:
            return msgspec.json.encode({_text(key): _text(value) for key, value in line.items()}).decode()


class HumanLines(logging.Formatter):
    """`12:03:44 INFO  pool images: worker images-3 ready  pid=123`, in local time."""

    def __init__(self, *, coloured: bool = False) -> None:
        super().__init__()
        self.coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        level = f"{_SHORT_LEVELS.get(record.levelname, record.levelname):<5}"
        if self.coloured and record.levelname in _COLOURS:
            level = f"\x1b[{_COLOURS[record.levelname]}m{level}\x1b[0m"
        clock = self.formatTime(record, "%H:%M:%S")
        line = f"{clock} {level} {on_one_line(_text(record.getMessage()))}"
        if fields := " ".join(f"{key}={_word(value)}" for key, value in _fields(record).items()):
            line = f"{line}  {fields}"
        if traceback := _traceback(self, record):
            line = f"{line}\n{in_lines(traceback)}"
        return line


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""


def _text(value: object) -> str:
    try:
        text = str(value)
    except Exception:
        text = f"<{type(value).__name__} that cannot be shown>"
    return text.encode(errors="backslashreplace").decode()


def _word(value: object) -> str:
    text = _text(value)
    return text if text.isprintable() and text and not set(text) & set(" =\"'") else repr(text)


def _colours_wanted() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
