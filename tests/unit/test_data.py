"""Users' data: what may be sent, how it comes back, and what the refusal of the rest says."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import Counter, OrderedDict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID

import msgspec
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor_actors import data
from conveyor_actors.errors import InvalidPayload


class Day(msgspec.Struct):
    day: date
    at: datetime


class Point(msgspec.Struct):
    x: int
    y: int = 2


@dataclasses.dataclass
class Size:
    width: int
    tags: list[str]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


Pair = namedtuple("Pair", "one two")
ID = UUID("12345678-1234-5678-1234-567812345678")
PLAIN = [None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**64 - 1, 1.5, "", "größe 日本", b"", b"\x00\xff", [], {}]


@pytest.mark.parametrize("value", [*PLAIN, [1, [2, {"a": [None]}]], {"a": {"b": b"c"}}, {"": 0}])
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    back = data.decode(data.encode(value))
    assert back == value
    assert type(back) is type(value)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_like)
def test_any_nesting_of_plain_data_comes_back(value: Any) -> None:
    assert data.decode(data.encode(value)) == value


def test_floats_that_are_no_numbers_come_back_too() -> None:
    assert math.isnan(data.decode(data.encode(math.nan)))
    assert data.decode(data.encode([math.inf, -math.inf])) == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        ({5}, [5]),
        (frozenset({5}), [5]),
        (Point(1), {"x": 1, "y": 2}),
        (Size(1, ["a"]), {"width": 1, "tags": ["a"]}),
        (OrderedDict(a=1), {"a": 1}),
        (Pair(1, [2]), [1, [2]]),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (ID, str(ID)),
        (Decimal("1.10"), "1.10"),
        (PurePosixPath("/a/b"), "/a/b"),
        ([Path("x")], ["x"]),
        ({"point": Point(5)}, {"point": {"x": 5, "y": 2}}),
    ],
)
def test_what_is_not_plain_is_sent_as_plain_data(value: Any, back: Any) -> None:
    assert data.decode(data.encode(value)) == back


def test_times_come_back_as_the_same_moment() -> None:
    for moment in (
        datetime(2024, 5, 6, 7, 8, 9, 123456, UTC),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ):
        assert data.decoder(datetime).decode(data.encode(moment)) == moment
        back = data.decode(data.encode({"at": moment}))["at"]
        assert (back, back.tzinfo) == (moment, UTC)


@pytest.mark.parametrize("value", [Point(3, 4), {"x": 3, "y": 4}])
def test_a_schema_makes_of_it_what_its_annotation_says(value: Any) -> None:
    assert data.decoder(Point).decode(data.encode(value)) == Point(3, 4)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Size, Size(1, ["a"])),
        (Colour, Colour.RED),
        (UUID, ID),
        (Decimal, Decimal("1.10")),
        (set[int], {1, 2}),
        (Day, Day(date(2024, 1, 2), datetime(2024, 1, 2))),
    ],
)
def test_what_a_schema_names_comes_back_as_it_was(schema: Any, value: Any) -> None:
    assert data.decoder(schema).decode(data.encode(value)) == value


def test_a_schema_is_strict() -> None:
    with pytest.raises(msgspec.ValidationError):
        data.decoder(int).decode(data.encode("5"))


@pytest.mark.parametrize(
    ("scalar", "plain"),
    [
        (numpy.int64(-7), -7),
        (numpy.uint8(7), 7),
        (numpy.float32(0.5), 0.5),
        (numpy.float64(0.5), 0.5),
        (numpy.longdouble(0.5), 0.5),
        (numpy.bool_(True), True),
        (numpy.str_("text"), "text"),
        (numpy.bytes_(b"bytes"), b"bytes"),
    ],
    ids=repr,
)
def test_numpy_scalars_are_sent_as_what_they_hold(scalar: object, plain: object) -> None:
    (sent,) = data.decode(data.encode({"n": [scalar]}))["n"]
    assert (type(sent), sent) == (type(plain), plain)


class Text(str):
    def __str__(self) -> str:
        return "something else"


class Number(int):
    pass


class Real(float):
    pass


def test_subclasses_of_plain_types_are_sent_as_those() -> None:
    sent = data.decode(data.encode({Text("key"): [Text("text"), Number(3), Real(1.5)]}))
    assert sent == {"key": ["text", 3, 1.5]}
    assert [type(item) for item in sent["key"]] == [str, int, float]


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "data is of type object, which cannot be sent: use None, bool"),
        ({"files": [1, 2, 3, object()]}, 'data["files"][3] is of type object'),
        ({"a": {"b": (1, lambda: None)}}, 'data["a"]["b"][1] is of type function'),
        ([Size(1, [object()])], "data[0].tags[0] is of type object"),  # type: ignore[list-item]
        (Point(object()), "data.x is of type object"),  # type: ignore[arg-type]
        ([1j], "data[0] is of type complex"),
        (2**64, "data = 18446744073709551616 does not fit into 64 bits: send it as str"),
        ([0, -(2**63) - 1], "data[1] = -9223372036854775809 does not fit into 64 bits"),
        ({"x": {1j}}, 'a member of data["x"] is of type complex'),
        ([date(2024, 1, 2)], "data[0] is of type date"),
        ({"t": time(1)}, 'data["t"] is of type time'),
        ((timedelta(1),), "data[0] is of type timedelta"),
        ({datetime(2024, 1, 2)}, "a member of data = datetime.datetime(2024, 1, 2, 0, 0) has no time zone"),
        ([msgspec.msgpack.Ext(1, b"")], "data[0] is of type Ext"),
        ([numpy.datetime64("2024-01-02")], "data[0] is of type datetime64"),
        ([numpy.complex64(1)], "data[0] is of type complex64"),
        ([Number(2**64)], "data[0] = 18446744073709551616 does not fit into 64 bits"),
        (["ok", "\ud800"], "data[1] is text that is not valid Unicode"),
        ({1: "a"}, "data has the key 1 of type int: keys must be str"),
        ({"a": [{None: 1}]}, 'data["a"][0] has the key None of type NoneType: keys must be str'),
        ({"a": Counter([5])}, 'data["a"] has the key 5 of type int: keys must be str'),
        ({"a": {b"k": 1}}, "data[\"a\"] has the key b'k' of type bytes: keys must be str"),
    ],
)
def test_a_refusal_names_the_path_to_what_cannot_be_sent(value: Any, message: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        data.encode(value)
    assert str(refused.value).startswith(message)
    assert isinstance(refused.value, ValueError)


def test_a_refusal_names_what_was_being_sent() -> None:
    with pytest.raises(InvalidPayload, match=r'^result\["a"\] is of type object'):
        data.encode({"a": object()}, "result")


def test_what_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidPayload, match="data is nested too deeply, or contains itself"):
        data.encode(endless)
    looped: dict[str, Any] = {}
    looped["self"] = looped
    with pytest.raises(InvalidPayload, match="nested too deeply"):
        data.encode(looped)


def test_a_huge_number_is_not_written_out_in_the_refusal() -> None:
    with pytest.raises(InvalidPayload) as refused:
        data.encode([10**1000])
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("raw", [b"", b"\xc1", b"\x92\x01", b"\xa5abc", b"\x91" * 100_000, b"\xa1\xff"])
def test_bytes_that_are_no_data_raise_what_the_reader_expects(raw: bytes) -> None:
    with pytest.raises(data.UNREADABLE):
        data.decode(raw)


def test_a_key_that_is_no_unicode_is_named() -> None:
    with pytest.raises(InvalidPayload, match=r"data\[\"a\"\] has the key '.udc80', which is not valid Unicode"):
        data.encode({"a": {"\udc80": 1}})
