"""Durations, sizes and times: from what people write to integers of one unit, and back to text.

Knows only the errors. Whole milliseconds and bytes come out, rounded up: nothing ends earlier than was asked.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from conveyor_actors.errors import InvalidOption

DURATION_ALLOWED: Final = "a duration such as 1.5, timedelta(minutes=5) or '5 minutes'"
SIZE_ALLOWED: Final = "a size in bytes such as 1048576, or text such as '512MiB' or '2GB'"
WALL_ALLOWED: Final = "an aware datetime, such as datetime.now(timezone.utc) + timedelta(minutes=5)"

DURATION_MAX_MS: Final = 36_525 * 86_400_000
SIZE_MAX_BYTES: Final = 2**63 - 1
TEXT_CHARACTERS_MAX: Final = 100

_SECOND_US: Final = 1_000_000
_DURATION_UNITS_US: Final[dict[str, int]] = {
    spelling: unit_us
    for unit_us, spellings in (
        (1, "us µs μs microsecond microseconds"),
        (1_000, "ms msec msecs millisecond milliseconds"),
        (_SECOND_US, "s sec secs second seconds"),
        (60 * _SECOND_US, "m min mins minute minutes"),
        (3_600 * _SECOND_US, "h hr hrs hour hours"),
        (86_400 * _SECOND_US, "d day days"),
        (604_800 * _SECOND_US, "w week weeks"),
    )
    for spelling in spellings.split()
}
_SIZE_UNITS: Final[dict[str, int]] = {"": 1, "b": 1, "byte": 1, "bytes": 1} | {
    spelling: base**power
    for power, letter in enumerate("kmgtp", start=1)
    for base, spelling in ((1000, letter), (1000, f"{letter}b"), (1024, f"{letter}ib"))
}

_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_SECONDS: Final = re.compile(_NUMBER)
_DURATION_PART: Final = re.compile(rf"({_NUMBER})\s*([a-zµμ]+)\s*")
_SIZE: Final = re.compile(rf"({_NUMBER})\s*([a-z]*)")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def duration_ms(value: object, field: str = "duration") -> int:
    """Milliseconds of seconds, a timedelta or text: `duration_ms("1h30m") == 5_400_000`."""
    microseconds = _duration_us(value)
    if microseconds is None or microseconds < 0:
        raise InvalidOption(field, value, DURATION_ALLOWED)
    milliseconds = _ceil_ms(microseconds)
    if milliseconds > DURATION_MAX_MS:
        raise InvalidOption(field, value, f"{DURATION_ALLOWED}, of at most 100 years")
    return milliseconds


def size_bytes(value: object, field: str = "size") -> int:
    """Bytes of an int or text: `size_bytes("1.5 GiB") == 1_610_612_736`. KB is 1000 bytes, KiB is 1024."""
    size = _size(value)
    if size is None or not 0 <= size <= SIZE_MAX_BYTES:
        raise InvalidOption(field, value, SIZE_ALLOWED)
    return size


#: The last millisecond of the year 9999.
WALL_MAX_MS: Final = 253_402_300_799_999


def wall_ms(value: object, field: str = "at") -> int:
    """Milliseconds since 1970 of an aware datetime, never more than a datetime can be."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidOption(field, value, WALL_ALLOWED)
    milliseconds = _ceil_ms(_timedelta_us(value - _EPOCH))
    if milliseconds < 0:
        raise InvalidOption(field, value, f"{WALL_ALLOWED}, not before 1970")
    return min(milliseconds, WALL_MAX_MS)


def format_duration(ms: int) -> str:
    """Text that `duration_ms` reads back as the same number: '250ms', '1.5s', '1h 30m'."""
    if ms < 0:
        return f"-{format_duration(-ms)}"
    if 0 < ms < 1000:
        return f"{ms}ms"
    parts = []
    rest = ms
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        seconds, milliseconds = divmod(rest, 1000)
        decimals = f".{milliseconds:03}".rstrip("0") if milliseconds else ""
        parts.append(f"{seconds}{decimals}s")
    return " ".join(parts)


def format_size(n: int) -> str:
    """Text for people, to one decimal: '512MiB', '1.5GiB', '900B'."""
    if n < 0:
        return f"-{format_size(-n)}"
    for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB")):
        tenths = round(Fraction(n * 10, 1024**power))
        if tenths < 10_240:
            return _tenths(tenths, unit)
    return _tenths(round(Fraction(n * 10, 1024**5)), "PiB")


def _duration_us(value: object) -> Fraction | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value * _SECOND_US
    if isinstance(value, float):
        # The shortest text of a float is what was written: the binary value of 0.1 would round up to 101 ms.
        return Fraction(float.__repr__(value)) * _SECOND_US if math.isfinite(value) else None
    if isinstance(value, timedelta):
        return _timedelta_us(value)
    if isinstance(value, str) and len(value) <= TEXT_CHARACTERS_MAX:
        return _duration_text_us(value.strip().lower())
    return None


def _duration_text_us(text: str) -> Fraction | None:
    text = re.sub(r"^in\s+", "", text)
    if _SECONDS.fullmatch(text):
        return Fraction(text) * _SECOND_US
    total = Fraction(0)
    position = 0
    while part := _DURATION_PART.match(text, position):
        unit_us = _DURATION_UNITS_US.get(part[2])
        if unit_us is None:
            return None
        total += Fraction(part[1]) * unit_us
        position = part.end()
    return total if position == len(text) and position > 0 else None


def _ceil_ms(microseconds: Fraction | int) -> int:
    return -(-microseconds // 1000)


def _timedelta_us(value: timedelta) -> int:
    return (value.days * 86_400 + value.seconds) * _SECOND_US + value.microseconds


def _tenths(tenths: int, unit: str) -> str:
    whole, tenth = divmod(tenths, 10)
    return f"{whole}.{tenth}{unit}" if tenth else f"{whole}{unit}"


def _size(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and len(value) <= TEXT_CHARACTERS_MAX:
        match = _SIZE.fullmatch(value.strip().lower())
        if match and match[2] in _SIZE_UNITS:
            return math.ceil(Fraction(match[1]) * _SIZE_UNITS[match[2]])
    return None
