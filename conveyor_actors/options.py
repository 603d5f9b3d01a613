"""What a user says of a job, checked and turned into what travels.

Every refusal names field, value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conveyor_actors import data as data_codec
from conveyor_actors.errors import InvalidOption, InvalidPayload, nearest
from conveyor_actors.model import NAME_BYTES_MAX, Backoff, Keep, KeepRule, RunOptions, fixed
from conveyor_actors.units import duration_ms, wall_ms
from conveyor_actors.wire import NewJob

ATTEMPTS_MAX: Final = 1_000_000
METADATA_BYTES_MAX: Final = 64 * 1024
_PRIORITIES: Final = range(-(2**31), 2**31)
RUN_OPTIONS: Final = ("attempts", "backoff", "remove_on_complete", "remove_on_fail")
_ADD_OPTIONS: Final = ("id", "delay", "at", "priority", "lifo", "metadata", *RUN_OPTIONS)


def new_job(name: str, payload: bytes, options: Mapping[str, Any]) -> NewJob:
    """A job as it travels, from its name, its encoded data and the options of `add`."""
    if not options:
        return NewJob(name, payload)
    check_known(options, _ADD_OPTIONS)
    given = {key: value for key, value in options.items() if value is not None}
    delay, at = given.get("delay"), given.get("at")
    if delay is not None and at is not None:
        raise InvalidOption("at", at, "either delay or at, not both")
    return NewJob(
        name,
        payload,
        run_options(given),
        _job_id(given["id"]) if "id" in given else None,
        duration_ms(delay, "delay") if delay is not None else None,
        wall_ms(at, "at") if at is not None else None,
        _priority(given.get("priority", 0)),
        _flag("lifo", given.get("lifo", False)),
        _metadata(given.get("metadata")),
    )


def run_options(options: Mapping[str, Any]) -> RunOptions | None:
    """Those options that `add` and a handler have in common; None if none is given."""
    chosen = RunOptions(
        _attempts(options.get("attempts")),
        _backoff(options.get("backoff")),
        _keep("remove_on_complete", options.get("remove_on_complete")),
        _keep("remove_on_fail", options.get("remove_on_fail")),
    )
    return None if chosen == RunOptions() else chosen


def check_known(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key, value in options.items():
        if key not in known:
            raise InvalidOption(key, value, f"one of {', '.join(known)}{nearest(key, list(known))}")


def check_name(field: str, value: object) -> str:
    """A queue's, a handler's or a job's name."""
    if not isinstance(value, str) or not value:
        raise InvalidOption(field, value, "a non-empty str")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidOption(field, value, "valid Unicode text") from None
    if size > NAME_BYTES_MAX:
        raise InvalidOption(field, value, f"at most {NAME_BYTES_MAX} bytes of text (this has {size})")
    if any(character in "/:" or ord(character) < 32 for character in value):
        raise InvalidOption(field, value, "text without '/', ':' and control characters")
    return value


def _job_id(value: object) -> str:
    id = check_name("id", value)
    if id.isdecimal():
        raise InvalidOption(
            "id", id, "an id with at least one character that is no digit (all-digit ids are generated)"
        )
    return id


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value not in _PRIORITIES:
        raise InvalidOption("priority", value, "an int from -2147483648 to 2147483647, lower first")
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(field, value, "True or False")
    return value


def _attempts(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= ATTEMPTS_MAX:
        raise InvalidOption("attempts", value, f"an int from 1 to {ATTEMPTS_MAX}: the number of tries in all")
    return value


def _backoff(value: object) -> Backoff | None:
    if value is None or (isinstance(value, Backoff) and _can_be(value)):
        return value
    try:
        return fixed(value)
    except InvalidOption:
        allowed = "fixed(d), linear(d), exponential(d), or a duration such as 1.5 or '5 seconds'"
        raise InvalidOption("backoff", value, allowed) from None


def _can_be(backoff: Backoff) -> bool:
    """Whether one that was not made by `fixed`, `linear` or `exponential` could have been."""
    return (
        backoff.kind in ("fixed", "linear", "exponential")
        and _is_count(backoff.delay_ms)
        and (backoff.max_ms is None or _is_count(backoff.max_ms))
        and isinstance(backoff.jitter, (int, float))
        and 0 <= backoff.jitter <= 1
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _keep(field: str, value: object) -> KeepRule | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return KeepRule(count=0) if value else KeepRule()
    if isinstance(value, int) and 0 <= value < 2**63:
        return KeepRule(count=value)
    if isinstance(value, Keep):
        if value.age is None:
            return value.rule
        raise InvalidOption(field, value, "Keep(count=...): what has ended is not removed by its age in this version")
    allowed = "True (remove at once), a number n >= 0 or Keep(count=n) (keep the last n) or False (keep all)"
    raise InvalidOption(field, value, allowed)


def _metadata(value: object) -> bytes | None:
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        raise InvalidOption("metadata", value, "a small dict")
    encoded = data_codec.encode(value, "metadata")
    if len(encoded) > METADATA_BYTES_MAX:
        raise InvalidPayload(f"metadata has {len(encoded)} bytes; at most {METADATA_BYTES_MAX}: put it into data")
    return encoded
