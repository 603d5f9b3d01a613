"""Handlers that do what no handler should."""

import os
import sys

import msgspec
from jobs import note

from conveyor_actors import JobContext, handler


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


@handler("forks", queue="q")
def forks(data, job: JobContext):
    """Its child leaves in one of the ways there are. Gives the child's exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    output = os.open(data["output"], os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    note(data["folder"], f"child {job.id} {os.getpid()}")
    sys.stdout.write("printed and not flushed")
    if data["how"] == "raises":
        raise ValueError("in the child")
    if data["how"] != "returns":
        sys.exit(data["code"])
    return "in the child"
