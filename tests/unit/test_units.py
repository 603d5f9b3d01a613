"""What people write as a duration, a size or a time, and what comes out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor_actors.errors import ConveyorError, InvalidOption
from conveyor_actors.units import (
    DURATION_MAX_MS,
    SIZE_MAX_BYTES,
    duration_ms,
    format_duration,
    format_size,
    size_bytes,
    wall_ms,
)


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        (0, 0),
        (0.0, 0),
        (3, 3_000),
        (1.5, 1_500),
        (0.1, 100),
        (0.001, 1),
        (1e-9, 1),
        (timedelta(minutes=5), 300_000),
        (timedelta(microseconds=1), 1),
        (timedelta(days=7, milliseconds=3), 604_800_003),
        ("250ms", 250),
        ("5 minutes", 300_000),
        ("5 Minutes", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("1.5h", 5_400_000),
        (".5s", 500),
        ("in 10 minutes", 600_000),
        ("in 90", 90_000),
        ("90", 90_000),
        ("0.25", 250),
        ("7d", 604_800_000),
        ("2 weeks", 1_209_600_000),
        ("1 week 1 day", 691_200_000),
        ("500us", 1),
        ("1500 microseconds", 2),
        ("  30s  ", 30_000),
    ],
)
def test_a_duration_is_read_as_a_person_means_it(value: object, expected_ms: int) -> None:
    assert duration_ms(value) == expected_ms


@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.001,
        float("nan"),
        float("inf"),
        timedelta(seconds=-1),
        True,
        None,
        b"5s",
        [5],
        "",
        "   ",
        "in",
        "in ",
        "-5s",
        "5 parsecs",
        "five minutes",
        "5s later",
        "1h30",
        "30m1",
        "nan",
        "inf",
        "1e3",
        "1.s",
        "\u0665s",
        "5s" * 1000,
    ],
)
def test_what_is_not_a_duration_is_refused_with_field_value_and_a_way_out(value: object) -> None:
    with pytest.raises(InvalidOption) as refusal:
        duration_ms(value, "delay")
    assert refusal.value.field == "delay"
    assert refusal.value.value is value
    assert str(refusal.value).startswith("delay = ")
    assert "timedelta(minutes=5) or '5 minutes'" in str(refusal.value)
    assert isinstance(refusal.value, ValueError)


@pytest.mark.parametrize("value", [1e308, 10**30, timedelta.max, "101 w 99999 days"])
def test_a_duration_beyond_a_hundred_years_is_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match="at most 100 years"):
        duration_ms(value)


@given(st.integers(0, DURATION_MAX_MS))
def test_a_formatted_duration_reads_back_as_itself(ms: int) -> None:
    assert duration_ms(format_duration(ms)) == ms


@given(st.integers(0, DURATION_MAX_MS // 1000))
def test_the_same_duration_in_every_form_is_the_same_number(seconds: int) -> None:
    forms = (seconds, float(seconds), timedelta(seconds=seconds), str(seconds), f"{seconds}s")
    assert {duration_ms(form) for form in forms} == {seconds * 1000}


@given(st.timedeltas(timedelta(0), timedelta(days=365)))
def test_rounding_a_duration_adds_less_than_a_millisecond_and_takes_nothing(value: timedelta) -> None:
    rounded = timedelta(milliseconds=duration_ms(value))
    assert value <= rounded < value + timedelta(milliseconds=1)


@given(st.text(max_size=30) | st.from_regex(r"[0-9. smhdw]{1,12}") | st.integers() | st.floats())
def test_no_value_makes_the_readers_fail_in_another_way(value: object) -> None:
    for read in (duration_ms, size_bytes, wall_ms):
        try:
            assert read(value) >= 0
        except ConveyorError as refusal:
            assert isinstance(refusal, InvalidOption)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0s"),
        (250, "250ms"),
        (1_000, "1s"),
        (1_500, "1.5s"),
        (1_001, "1.001s"),
        (300_000, "5m"),
        (5_400_000, "1h 30m"),
        (90_061_500, "1d 1h 1m 1.5s"),
        (-1_500, "-1.5s"),
    ],
)
def test_a_duration_is_shown_short(ms: int, text: str) -> None:
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (1024, 1024),
        ("0", 0),
        ("123", 123),
        ("10 bytes", 10),
        ("64k", 64_000),
        ("2GB", 2_000_000_000),
        ("2gb", 2_000_000_000),
        ("64KiB", 65_536),
        ("512MiB", 536_870_912),
        ("1.5 GiB", 1_610_612_736),
        ("1TiB", 1024**4),
        ("1.0001KB", 1_001),
    ],
)
def test_a_size_is_read_as_a_person_means_it(value: object, expected: int) -> None:
    assert size_bytes(value) == expected


@pytest.mark.parametrize("value", [-1, 1.5, True, None, "", "MiB", "-1GB", "2 GBit", "1GiB 5MiB", "2**70", 2**63])
def test_what_is_not_a_size_is_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match="'512MiB' or '2GB'") as refusal:
        size_bytes(value, "memory")
    assert refusal.value.field == "memory"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (900, "900B"),
        (1024, "1KiB"),
        (1_610_612_736, "1.5GiB"),
        (536_870_912, "512MiB"),
        (1_048_575, "1MiB"),
        (-1024, "-1KiB"),
    ],
)
def test_a_size_is_shown_short(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, SIZE_MAX_BYTES // 2))
def test_a_formatted_size_is_near_the_size(size: int) -> None:
    assert abs(size_bytes(format_size(size)) - size) <= size * 0.06


@given(st.integers(1, 1023), st.integers(0, 5))
def test_a_whole_number_of_a_unit_reads_back_as_itself(count: int, power: int) -> None:
    size = count * 1024**power
    assert size_bytes(format_size(size)) == size


@given(st.datetimes(datetime(1970, 1, 2), datetime(9990, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_an_aware_time_is_the_same_instant_in_every_zone(naive: datetime, offset_minutes: int) -> None:
    zone = timezone(timedelta(minutes=offset_minutes))
    moment = naive.replace(tzinfo=UTC)
    ms = wall_ms(moment)
    assert wall_ms(moment.astimezone(zone)) == ms
    back = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert moment <= back < moment + timedelta(milliseconds=1)


def test_the_last_moment_there_is_stays_one() -> None:
    ms = wall_ms(datetime.max.replace(tzinfo=UTC))
    assert (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).year == 9999


@pytest.mark.parametrize(
    "value",
    [
        datetime(2030, 1, 1),
        1_700_000_000,
        "2030-01-01",
        None,
        datetime(2030, 1, 1).date(),
        datetime.min.replace(tzinfo=UTC),
    ],
)
def test_what_is_not_an_aware_time_since_1970_is_refused(value: object) -> None:
    with pytest.raises(InvalidOption, match=r"an aware datetime, such as datetime\.now"):
        wall_ms(value)
