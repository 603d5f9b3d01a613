"""What goes on beside a test: calls in threads of their own, and time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from fake_supervisor import DEADLINE_S


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs it beside the test; the list gets what it returns or raises."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def joined(running: tuple[threading.Thread, list[Any]]) -> Any:
    thread, outcome = running
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the call never came back"
    return outcome[0]


def settled(condition: Callable[[], bool]) -> None:
    """Waits until it is so."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be so"
        time.sleep(0.01)


class Clock:
    """Real time, and what a caller lets pass while it is busy elsewhere."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.passed_s

    def pass_an_hour(self) -> None:
        self.passed_s += 3600
