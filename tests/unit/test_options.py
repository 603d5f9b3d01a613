"""What a user says of a job: types and bounds of each option, and refusals that say what is allowed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conveyor_actors import data
from conveyor_actors.errors import InvalidOption, InvalidPayload
from conveyor_actors.model import Backoff, Keep, KeepRule, RunOptions, exponential, fixed, linear
from conveyor_actors.options import ATTEMPTS_MAX, METADATA_BYTES_MAX, check_known, check_name, new_job, run_options
from conveyor_actors.wire import NewJob

BACKOFFS_THAT_CANNOT_BE: Any = [
    -1,
    "exponential",
    True,
    [],
    {"type": "fixed"},
    "5 parsecs",
    Backoff("sometimes", 5),  # type: ignore[arg-type]
    Backoff("fixed", -5),
    Backoff("fixed", "5"),  # type: ignore[arg-type]
    Backoff("fixed", 5, max_ms=-1),
    Backoff("fixed", 5, jitter=1.5),
    Backoff("fixed", 5, jitter=float("nan")),
]


def refused(**options: Any) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        new_job("work", b"", options)
    return caught.value


def test_no_options_are_no_options() -> None:
    assert new_job("work", b"data", {}) == NewJob("work", b"data")


def test_every_option_arrives() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    job = new_job(
        "work",
        b"data",
        {
            "id": "mine",
            "at": at,
            "priority": -5,
            "lifo": True,
            "attempts": 3,
            "backoff": exponential("1s"),
            "remove_on_complete": True,
            "remove_on_fail": 10,
            "metadata": {"a": 1},
        },
    )
    options = RunOptions(3, Backoff("exponential", 1_000), KeepRule(0), KeepRule(10))
    assert job == NewJob("work", b"data", options, "mine", None, 1_704_067_200_000, -5, True, data.encode({"a": 1}))


def test_none_says_nothing() -> None:
    names = ("id", "delay", "at", "priority", "lifo", "attempts", "backoff", "remove_on_complete", "metadata")
    assert new_job("work", b"", dict.fromkeys(names)) == NewJob("work", b"")


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    error = refused(prioritty=5)
    assert (error.field, error.value) == ("prioritty", 5)
    assert "did you mean 'priority'?" in str(error)
    with pytest.raises(InvalidOption, match="one of a, b"):
        check_known({"zzz": 1}, ("a", "b"))


# -- one option after the other -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id", ["", "123", "٣٤", "a/b", "a:b", "x" * 201, "é" * 101, "tab\t", "nul\0", "\ud800", 5, b"id", True]
)
def test_an_id_that_cannot_be(id: Any) -> None:
    error = refused(id=id)
    assert error.field == "id"
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("id", ["a", "1a", "x" * 200, "é" * 100, "größe 日本", "a.b-c_d~e", "-1", "1.5"])
def test_an_id_that_can_be(id: str) -> None:
    assert new_job("work", b"", {"id": id}).id == id


@pytest.mark.parametrize(
    ("delay", "ms"), [(0, 0), (1.5, 1_500), ("5 minutes", 300_000), (timedelta(hours=1), 3_600_000)]
)
def test_a_delay_is_a_duration(delay: Any, ms: int) -> None:
    assert new_job("work", b"", {"delay": delay}).delay_ms == ms


@pytest.mark.parametrize("delay", [-1, "soon", True, float("nan"), float("inf"), [], "-5s", timedelta(seconds=-1)])
def test_a_delay_that_cannot_be(delay: Any) -> None:
    assert refused(delay=delay).field == "delay"


@pytest.mark.parametrize("at", [5, "2024-01-01", datetime(2024, 1, 1), datetime(1960, 1, 1, tzinfo=UTC), timedelta(1)])
def test_a_time_has_to_be_an_aware_datetime(at: Any) -> None:
    assert refused(at=at).field == "at"


def test_a_delay_and_a_time_exclude_each_other() -> None:
    error = refused(delay=5, at=datetime(2030, 1, 1, tzinfo=UTC))
    assert "either delay or at" in str(error)


@pytest.mark.parametrize("priority", [1.0, "1", True, 2**31, -(2**31) - 1, [1]])
def test_a_priority_that_cannot_be(priority: Any) -> None:
    error = refused(priority=priority)
    assert (error.field, "-2147483648 to 2147483647, lower first" in str(error)) == ("priority", True)


@given(st.integers(-(2**31), 2**31 - 1))
def test_any_priority_in_its_bounds(priority: int) -> None:
    assert new_job("work", b"", {"priority": priority}).priority == priority


@pytest.mark.parametrize("lifo", [1, 0, "yes", []])
def test_lifo_is_true_or_false(lifo: Any) -> None:
    assert refused(lifo=lifo).field == "lifo"


@pytest.mark.parametrize("attempts", [0, -1, 1.0, "3", True, ATTEMPTS_MAX + 1])
def test_attempts_that_cannot_be(attempts: Any) -> None:
    assert refused(attempts=attempts).field == "attempts"


@pytest.mark.parametrize("attempts", [1, 2, ATTEMPTS_MAX])
def test_attempts_in_their_bounds(attempts: int) -> None:
    assert run_options({"attempts": attempts}) == RunOptions(attempts)


@pytest.mark.parametrize(
    ("backoff", "meant"),
    [
        (fixed(2), Backoff("fixed", 2_000)),
        (linear("1s", max="10s"), Backoff("linear", 1_000, 10_000)),
        (exponential("1s", max="1m", jitter=0.2), Backoff("exponential", 1_000, 60_000, 0.2)),
        (1.5, Backoff("fixed", 1_500)),
        ("250ms", Backoff("fixed", 250)),
        (timedelta(seconds=3), Backoff("fixed", 3_000)),
        (0, Backoff("fixed", 0)),
    ],
)
def test_a_backoff_is_a_strategy_or_a_duration(backoff: Any, meant: Backoff) -> None:
    assert run_options({"backoff": backoff}) == RunOptions(backoff=meant)


@pytest.mark.parametrize("backoff", BACKOFFS_THAT_CANNOT_BE)
def test_a_backoff_that_cannot_be(backoff: Any) -> None:
    with pytest.raises(InvalidOption) as error:
        run_options({"backoff": backoff})
    assert (error.value.field, error.value.value) == ("backoff", backoff)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, "1", True, None, float("nan")])
@pytest.mark.parametrize("strategy", [fixed, linear, exponential])
def test_jitter_is_a_part_from_nothing_to_all(strategy: Any, jitter: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        strategy("1s", jitter=jitter)
    assert caught.value.field == "jitter"


@pytest.mark.parametrize("strategy", [fixed, linear, exponential])
def test_a_strategy_names_what_is_wrong_with_its_durations(strategy: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        strategy("often")
    assert caught.value.field == "delay"
    with pytest.raises(InvalidOption) as caught:
        strategy("1s", max="never")
    assert caught.value.field == "max"


@pytest.mark.parametrize("field", ["remove_on_complete", "remove_on_fail"])
@pytest.mark.parametrize(
    ("said", "meant"),
    [(True, KeepRule(0)), (False, KeepRule()), (0, KeepRule(0)), (5, KeepRule(5)), (Keep(count=7), KeepRule(7))],
)
def test_what_is_kept(field: str, said: Any, meant: KeepRule) -> None:
    options = run_options({field: said})
    assert options is not None
    assert getattr(options, field) == meant


@pytest.mark.parametrize("field", ["remove_on_complete", "remove_on_fail"])
@pytest.mark.parametrize("said", [-1, 1.0, "5", [], {"count": 5}, 2**63, KeepRule(5)])
def test_what_cannot_be_kept(field: str, said: Any) -> None:
    error = refused(**{field: said})
    assert (error.field, "keep the last n" in str(error)) == (field, True)


def test_keep_says_what_it_can_be() -> None:
    assert Keep(5, "24h").rule == KeepRule(5, 86_400_000)
    assert Keep(age=timedelta(hours=1)).rule == KeepRule(age_ms=3_600_000)
    for wrong in (-1, "5", True, 2**63):
        with pytest.raises(InvalidOption, match=r"count = .* is not allowed: use an int from 0"):
            Keep(count=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="age = 'soon'"):
        Keep(age="soon")


def test_an_age_is_refused_until_it_is_kept() -> None:
    assert "not removed by its age in this version" in str(refused(remove_on_complete=Keep(5, "1h")))


@pytest.mark.parametrize("metadata", [5, "text", [1], ("a", 1)])
def test_metadata_is_a_dict(metadata: Any) -> None:
    assert refused(metadata=metadata).field == "metadata"


def test_metadata_that_cannot_be_sent_names_its_path() -> None:
    with pytest.raises(InvalidPayload, match=r'metadata\["a"\] is of type object'):
        new_job("work", b"", {"metadata": {"a": object()}})


def test_metadata_is_small() -> None:
    new_job("work", b"", {"metadata": {"a": "x" * (METADATA_BYTES_MAX - 100)}})
    with pytest.raises(InvalidPayload, match=f"at most {METADATA_BYTES_MAX}: put it into data"):
        new_job("work", b"", {"metadata": {"a": "x" * METADATA_BYTES_MAX}})


def test_empty_metadata_is_none() -> None:
    assert new_job("work", b"", {"metadata": {}}).metadata is None


@pytest.mark.parametrize("name", ["", 5, None, "a/b", "a:b", "x" * 201, "\ud800", "new\nline"])
def test_names_of_queues_and_handlers_follow_the_same_rule(name: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        check_name("queue", name)
    assert caught.value.field == "queue"


def test_a_refusal_does_not_repeat_a_huge_value() -> None:
    assert len(str(refused(id="x" * 100_000))) < 500
