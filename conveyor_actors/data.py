"""Users' data as bytes and back: payloads, results, metadata.

The only place that knows how data is written. The supervisor never calls it on payloads: there they are bytes.
Invariant: what `encode` accepts, `decode` gives back as the plain data that API users were promised.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from pathlib import PurePath
from typing import Any, Final

import msgspec

from conveyor_actors.errors import InvalidPayload

_LEAVES: Final = frozenset({str, int, float, bool, type(None), bytes})
_ALLOWED: Final = (
    "None, bool, 64-bit int, float, str, bytes, datetime, list, tuple, set, dict with str keys, "
    "msgspec structs, dataclasses, enums, UUID, Decimal, Path and numpy scalars"
)
#: What msgspec would write, but nobody could tell from something else when it is read again.
_REFUSED: Final = (date, time, timedelta, msgspec.msgpack.Ext, msgspec.Raw)
#: For subclasses: what they are as plain data, whatever they say of themselves.
_PLAIN: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)


def _hook(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    numpy = sys.modules.get("numpy")  # a numpy scalar cannot exist where numpy was not imported
    if numpy is not None and isinstance(value, numpy.generic):
        plain = float(value) if isinstance(value, numpy.longdouble) else value.item()
        if type(plain) in _LEAVES:
            return plain
    else:
        for kind, plain_of in _PLAIN:
            if isinstance(value, kind):
                return plain_of(value)
    raise NotImplementedError(type(value).__name__)


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_hook)
_plain: Final = msgspec.msgpack.Decoder()
NONE: Final = _encoder.encode(None)
#: What reading bytes that are no message, or not the expected one, can raise.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode(value: Any, where: str = "data") -> bytes:
    """The value as bytes, or `InvalidPayload` that names the path to what cannot be sent."""
    if value is None:
        return NONE
    try:
        if type(value) not in _LEAVES:
            _check(value, (where,))
        return _encoder.encode(value)
    except InvalidPayload:
        raise
    except RecursionError:
        raise InvalidPayload(f"{where} is nested too deeply, or contains itself") from None
    except Exception as error:
        raise _explain(value, where, error) from None


def decode(raw: bytes) -> Any:
    return _plain.decode(raw)


@functools.lru_cache(maxsize=1024)
def decoder(schema: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder that checks against a handler's annotation; it reads numbers and text strictly."""
    return msgspec.msgpack.Decoder(schema, dec_hook=_restored)


def _restored(kind: type, value: Any) -> Any:
    """What travels as something else than msgspec makes of it: a path, which is text."""
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def _check(value: Any, steps: tuple[Any, ...]) -> None:
    """Refuses what msgspec would take. What lies inside structs and dataclasses is left to their types.

    `steps` lead to the value: they become text when there is something to say of it.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidPayload(
                    f"{_path(steps)} has the key {key!r} of type {type(key).__name__}: keys must be str"
                )
            if type(item) not in _LEAVES:
                _check(item, (*steps, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if type(item) not in _LEAVES:
                _check(item, (*steps, index))
    elif isinstance(value, (set, frozenset)):
        for item in value:
            if type(item) not in _LEAVES:
                _check(item, (*steps, None))
    elif isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidPayload(f"{_path(steps)} = {value!r} has no time zone: use an aware datetime, or text")
    elif isinstance(value, _REFUSED):
        raise _refusal(value, _path(steps))


def _path(steps: tuple[Any, ...]) -> str:
    """Where the steps lead, in words: a key, an index, or None for a member of a set."""
    where: str = steps[0]
    for step in steps[1:]:
        where = f"a member of {where}" if step is None else f"{where}[{json.dumps(step, ensure_ascii=False)}]"
    return where


def _explain(value: Any, where: str, error: Exception) -> InvalidPayload:
    """Walks down to the first part that cannot be encoded by itself."""
    if isinstance(value, dict):
        parts = [(_path((where, key)), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(_path((where, index)), item) for index, item in enumerate(value)]
    elif isinstance(value, (set, frozenset)):
        parts = [(_path((where, None)), item) for item in value]
    elif hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__"):
        fields = getattr(value, "__struct_fields__", None) or list(value.__dataclass_fields__)
        parts = [(f"{where}.{field}", getattr(value, field, None)) for field in fields]
    else:
        parts = []
    if isinstance(value, dict):
        for key in value:
            try:
                key.encode()
            except UnicodeEncodeError as inner:
                return InvalidPayload(f"{where} has the key {key!r}, which is not valid Unicode: {inner}")
    for path, item in parts:
        try:
            _encoder.encode(item)
        except Exception as inner:
            return _explain(item, path, inner)
    if isinstance(value, int):
        return InvalidPayload(f"{where} = {value!r:.60} does not fit into 64 bits: send it as str")
    if isinstance(value, str):
        return InvalidPayload(f"{where} is text that is not valid Unicode: {error}")
    return _refusal(value, where)


def _refusal(value: object, where: str) -> InvalidPayload:
    return InvalidPayload(f"{where} is of type {type(value).__name__}, which cannot be sent: use {_ALLOWED}")
