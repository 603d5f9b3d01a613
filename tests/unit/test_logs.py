"""The log is readable by people on a terminal, by programs elsewhere, and complete in both."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conveyor_actors.errors import InvalidOption
from conveyor_actors.supervisor.logs import configure, event

log = logging.getLogger("conveyor.pools")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture(autouse=True)
def logger_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("conveyor")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    yield
    logger.handlers[:] = handlers
    logger.setLevel(level)
    logger.propagate = propagate


@pytest.fixture(autouse=True)
def colours_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_away_from_a_terminal_each_record_is_a_json_object_on_a_line() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    event(log, "info", "worker ready\nreally", pid=123, worker="images-3", path=Path("/x"), sizes=[1, 2])
    event(log, logging.WARNING, "100% busy")
    first, second = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("at"))
    assert first == {
        "level": "info",
        "logger": "conveyor.pools",
        "message": "worker ready\nreally",
        "pid": 123,
        "worker": "images-3",
        "path": "/x",
        "sizes": [1, 2],
    }
    assert (second["level"], second["message"]) == ("warning", "100% busy")


def test_on_a_terminal_a_record_is_a_line_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    configure(stream=stream)
    event(log, "info", "pool images: worker images-3 ready", pid=123, reason="two words", empty="")
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d INFO  pool images: worker images-3 ready  pid=123 reason='two words' empty=''\n",
        stream.getvalue(),
    )


def test_levels_are_coloured_on_a_terminal_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    configure(stream=stream)
    event(log, "warning", "disk nearly full")
    assert "\x1b[33mWARN \x1b[0m disk nearly full" in stream.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    configure(stream=plain)
    event(log, "warning", "disk nearly full")
    assert "\x1b" not in plain.getvalue()


def test_the_form_can_be_chosen_whatever_the_stream_is() -> None:
    terminal, file = Terminal(), io.StringIO()
    configure(stream=terminal, json=True)
    event(log, "info", "hello")
    assert lines(terminal)[0]["message"] == "hello"
    configure(stream=file, json=False)
    event(log, "info", "hello")
    assert file.getvalue().endswith(" INFO  hello\n")


def test_an_exception_comes_with_its_traceback_in_both_forms() -> None:
    file, terminal = io.StringIO(), Terminal()
    for stream in (file, terminal):
        configure(stream=stream)
        try:
            raise ValueError("broken")
        except ValueError as error:
            event(log, "error", "tick failed", exc_info=error)
            log.exception("again")
    given, current = lines(file)
    assert given["traceback"].endswith("ValueError: broken")
    assert current["traceback"].startswith("Traceback (most recent call last):")
    assert terminal.getvalue().endswith("\nValueError: broken\n")


def test_a_field_never_hides_what_every_record_has() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    log.info("hello", extra={"fields": {"message": "other", "at": 1}})
    (line,) = lines(stream)
    assert line["message"] == "hello"
    assert line["message_"] == "other"
    assert line["at_"] == 1


@pytest.mark.parametrize("value", [Unshowable(), "\ud800", 10**40, {(): Unshowable()}])
def test_a_value_that_cannot_be_shown_does_not_lose_the_record(
    value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream in (io.StringIO(), Terminal()):
        configure(stream=stream)
        event(log, "info", "still here", value=value)
        assert "still here" in stream.getvalue()
    assert capsys.readouterr().err == ""


def test_a_terminal_does_not_obey_what_a_message_holds() -> None:
    stream = Terminal()
    configure(stream=stream)
    event(log, "info", "title \x1b]0;owned\x07 and\nline", field="\x1b[2J")
    assert stream.getvalue().count("\n") == 1
    assert "title \\x1b]0;owned\\x07 and\\nline" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()


def test_records_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    configure("warning", stream)
    event(log, "info", "quiet")
    event(log, "error", "loud")
    assert [line["message"] for line in lines(stream)] == ["loud"]


def test_configuring_again_replaces_and_nothing_reaches_the_root_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(stream=first)
    configure(stream=second)
    event(log, "info", "once")
    assert first.getvalue() == ""
    assert len(lines(second)) == 1
    assert caplog.records == []


def test_an_unknown_level_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidOption, match="level = 'loud' is not allowed: use 'debug' or 'info'"):
        configure("loud")


def test_a_traceback_is_shown_and_not_obeyed() -> None:
    stream = Terminal()
    configure(stream=stream)
    try:
        raise ValueError("\x1b[2Jgone")
    except ValueError as error:
        event(log, "error", "it failed", exc_info=error)
    assert "\\x1b[2Jgone" in stream.getvalue() and "\x1b[2J" not in stream.getvalue()
    assert "\nTraceback" in stream.getvalue()
