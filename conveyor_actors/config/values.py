"""Readers of single config values: each takes what was written and its dotted key, and gives the typed value.

Knows neither sections nor where a value came from. What does not fit raises InvalidOption, saying what would.
"""

from __future__ import annotations

import ipaddress
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from conveyor_actors import ipc
from conveyor_actors.config.model import RateConfig
from conveyor_actors.errors import InvalidOption
from conveyor_actors.model import NAME_BYTES_MAX, Keep, KeepRule
from conveyor_actors.units import SIZE_MAX_BYTES, duration_ms, format_duration, format_size, size_bytes
from conveyor_actors.wire import EVENTS_PORT_STEP, EVENTS_SUFFIX

Reader = Callable[[object, str], Any]

PORT_MAX: Final = 65_535
WHOLE_MAX: Final = 2**63 - 1
LISTEN_ALLOWED: Final = "an address such as 'ipc://data/conveyor.sock' or 'tcp://127.0.0.1:7600'"

_HOST_PORT: Final = re.compile(r"(\[[0-9a-z:.%]+\]|[^\[\]:/\s]+):([0-9]{1,5})", re.IGNORECASE)


class HostPort(NamedTuple):
    """A network address; an IPv6 host keeps its brackets."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether it can be reached from this machine only."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


# -- plain values -----------------------------------------------------------------------------------


def flag(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(field, value, "true or false")
    return value


def text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise InvalidOption(field, value, "text in quotes, not empty")
    return value


def whole(low: int, high: int | None = None) -> Reader:
    allowed = f"a whole number from {low}" + (f" to {high}" if high is not None else "")
    bound = WHOLE_MAX if high is None else high

    def read(value: object, field: str) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= bound:
            return int(value)
        raise InvalidOption(field, value, allowed)

    return read


def one_of(*choices: str) -> Reader:
    allowed = " or ".join(repr(choice) for choice in choices)

    def read(value: object, field: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InvalidOption(field, value, allowed)
        return value

    return read


def duration(low_ms: int = 0) -> Reader:
    def read(value: object, field: str) -> int:
        milliseconds = duration_ms(value, field)
        if milliseconds < low_ms:
            raise InvalidOption(field, value, f"a duration of at least {format_duration(low_ms)}")
        return milliseconds

    return read


def size(low: int = 0, high: int = SIZE_MAX_BYTES) -> Reader:
    def read(value: object, field: str) -> int:
        size = size_bytes(value, field)
        if not low <= size <= high:
            raise InvalidOption(field, value, f"a size from {format_size(low)} to {format_size(high)}")
        return size

    return read


def list_of(item: Reader, example: str, *, at_least: int = 0) -> Reader:
    allowed = f"a list such as {example}" + (", not empty" if at_least else "")

    def read(value: object, field: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) < at_least:
            raise InvalidOption(field, value, allowed)
        return tuple(item(each, f"{field}[{index}]") for index, each in enumerate(value))

    return read


def anything(value: object, field: str) -> object:
    return value


# -- names ------------------------------------------------------------------------------------------


def queue_name(value: object, field: str) -> str:
    allowed = f"a queue name of 1 to {NAME_BYTES_MAX} bytes without '/', ':' or control characters"
    if not isinstance(value, str) or not value or any(_unfit(character) for character in value):
        raise InvalidOption(field, value, allowed)
    if len(value.encode()) > NAME_BYTES_MAX:
        raise InvalidOption(field, value, allowed)
    return value


def pool_name(value: object, field: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(rf"[A-Za-z0-9_-]{{1,{NAME_BYTES_MAX}}}", value):
        allowed = f"a pool name of 1 to {NAME_BYTES_MAX} letters, digits, '-' and '_'"
        raise InvalidOption(field, value, allowed)
    return value


def module_name(value: object, field: str) -> str:
    if not isinstance(value, str) or not all(part.isidentifier() for part in value.split(".")):
        raise InvalidOption(field, value, "the name of a module as in an import, such as 'myapp.tasks'")
    return value


def octal_mode(value: object, field: str) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"(0o?)?[0-7]{3}", value):
        raise InvalidOption(field, value, "octal permissions in quotes, such as '0600' or '0660'")
    return int(value.removeprefix("0o"), 8)


def environment(value: object, field: str) -> dict[str, str]:
    allowed = "a table of names and text, such as { LANG = 'C.UTF-8' }"
    if not isinstance(value, Mapping):
        raise InvalidOption(field, value, allowed)
    for name, content in value.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise InvalidOption(field, value, allowed)
        if not isinstance(content, str) or "\0" in content:
            raise InvalidOption(f"{field}.{name}", content, "text in quotes")
    return dict(value)


# -- paths and addresses ----------------------------------------------------------------------------


def absolute(path: Path | str) -> Path:
    """The path from `/`, without '..'. Links stay: a linked config file is in the folder of the link."""
    return Path(os.path.normpath(Path.cwd() / path))


def path_under(root: Path) -> Reader:
    def read(value: object, field: str) -> Path:
        if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
            raise InvalidOption(field, value, f"a path; relative ones start at {root}")
        return absolute(root / value)

    return read


def listen_under(root: Path) -> Reader:
    def read(value: object, field: str) -> str:
        if isinstance(value, str) and value.startswith("ipc://"):
            path = value.removeprefix("ipc://")
            # '@' would be an abstract socket and '*' a random one: neither has permissions we could set.
            if path and path[0] not in "@*" and "\0" not in path:
                return ipc_address(absolute(root / path), field, value)
        if isinstance(value, str) and value.startswith("tcp://"):
            host_port(value.removeprefix("tcp://"), field, LISTEN_ALLOWED, PORT_MAX - EVENTS_PORT_STEP)
            return value
        raise InvalidOption(field, value, LISTEN_ALLOWED)

    return read


def ipc_address(path: Path, field: str, value: object) -> str:
    """The address of a socket at `path`, beside which there will be one for events."""
    check_socket(Path(f"{path}{EVENTS_SUFFIX}"), field, value)
    return f"ipc://{path}"


def check_socket(path: Path, field: str, value: object) -> None:
    """Refuses the path of a socket that does not fit into the kernel's socket address."""
    length = len(os.fsencode(path))
    if length > ipc.PATH_BYTES_MAX:
        raise InvalidOption(
            field,
            value,
            f"a shorter data_dir or listen: the path of a socket has at most {ipc.PATH_BYTES_MAX} bytes, "
            f"and {path} has {length}",
        )


def host_port(
    value: object, field: str, allowed: str = "host:port, such as '127.0.0.1:7601'", highest: int = PORT_MAX
) -> HostPort:
    match = _HOST_PORT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidOption(field, value, allowed)
    if not 1 <= int(match[2]) <= highest:
        raise InvalidOption(field, value, f"{allowed}, with a port from 1 to {highest}")
    return HostPort(match[1], int(match[2]))


def is_exposed(address: str) -> bool:
    """Whether other machines can reach a socket."""
    return address.startswith("tcp://") and not host_port(address.removeprefix("tcp://"), "listen").loopback


def http_listen(value: object, field: str) -> str:
    host, port = host_port(value, field)
    return f"{host}:{port}"


def web_url(value: object, field: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/]+\S*", value):
        raise InvalidOption(field, value, "a URL such as 'https://example.org/hook'")
    return value


# -- small tables -----------------------------------------------------------------------------------


def keep(value: object, field: str) -> KeepRule:
    allowed = "true (remove at once), false (keep all), a number to keep, or { count = 1000, age = '24h' }"
    if isinstance(value, Keep):
        return value.rule
    if isinstance(value, bool):
        return KeepRule(count=0) if value else KeepRule()
    if isinstance(value, Mapping) and value and set(value) <= {"count", "age"}:
        count, age = value.get("count"), value.get("age")
        return KeepRule(
            count=None if count is None else whole(0)(count, f"{field}.count"),
            age_ms=None if age is None else duration_ms(age, f"{field}.age"),
        )
    if isinstance(value, int) and value >= 0:
        return KeepRule(count=int(value))
    raise InvalidOption(field, value, allowed)


def rate(value: object, field: str) -> RateConfig:
    if isinstance(value, RateConfig):
        return value
    if not isinstance(value, Mapping) or set(value) != {"max", "duration"}:
        raise InvalidOption(field, value, "a table such as { max = 100, duration = '1s' }")
    return RateConfig(
        max=whole(1)(value["max"], f"{field}.max"),
        duration_ms=duration(1)(value["duration"], f"{field}.duration"),
    )


def _unfit(character: str) -> bool:
    return character in "/:" or unicodedata.category(character) in ("Cc", "Cs")
