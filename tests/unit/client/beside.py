"""Calls made beside a test, in threads of their own."""

from __future__ import annotations

import threading
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
