"""Waiting for what a test expects, with a deadline: never a sleep and a hope."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS_MAX = 20.0
PAUSE_SECONDS = 0.005


def until(condition: Callable[[], T], seconds: float = SECONDS_MAX) -> T:
    """What the condition gives as soon as that is true; the test fails if it takes longer than so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {_described(condition)}, last {value!r}")
        time.sleep(PAUSE_SECONDS)


def _described(condition: Callable[[], object]) -> str:
    code = condition.__code__ if hasattr(condition, "__code__") else None
    return repr(condition) if code is None else f"{code.co_name} at line {code.co_firstlineno} of {code.co_filename}"
