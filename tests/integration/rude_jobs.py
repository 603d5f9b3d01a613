"""Handlers that do what no handler should."""

import sys

import msgspec

from conveyor_actors import handler


class Strict(msgspec.Struct):
    """Refuses everything, and in no way that is foreseen."""

    error: str

    def __post_init__(self):
        if self.error == "exit":
            sys.exit(3)
        raise {"assertion": AssertionError("too wide"), "surrogate": ValueError("not \udc80")}[self.error]


@handler("strict", queue="q")
def strict(data: Strict):
    return "never"
