"""Crash-resilient, CPU-bound batch jobs. Everything public is imported from here.

Light to import: workers load it with every module of handlers, so the client comes in only when it is named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from conveyor_actors.errors import (
    Closed,
    ConveyorError,
    CorruptRecord,
    DataDirError,
    InternalError,
    InvalidConfig,
    InvalidJobState,
    InvalidOption,
    InvalidPayload,
    JobCancelled,
    JobError,
    JobFailed,
    JobRemoved,
    OutcomeUnknown,
    ProtocolError,
    QueueFull,
    RemoteError,
    StoreError,
    StoreFull,
    SupervisorFailed,
    SupervisorUnreachable,
    Unrecoverable,
    UsageError,
    WaitTimeout,
)
from conveyor_actors.handlers import handler
from conveyor_actors.model import (
    Attempt,
    Backoff,
    Event,
    Failure,
    Info,
    Keep,
    QueueInfo,
    Worker,
    exponential,
    fixed,
    linear,
)
from conveyor_actors.worker.context import JobContext

if TYPE_CHECKING:
    from conveyor_actors.client.completion import as_completed
    from conveyor_actors.client.conveyor import Conveyor
    from conveyor_actors.client.job import Job
    from conveyor_actors.client.queue import Queue
    from conveyor_actors.client.supervisor import Supervisor

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "Backoff",
    "Closed",
    "Conveyor",
    "ConveyorError",
    "CorruptRecord",
    "DataDirError",
    "Event",
    "Failure",
    "Info",
    "InternalError",
    "InvalidConfig",
    "InvalidJobState",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobError",
    "JobFailed",
    "JobRemoved",
    "Keep",
    "OutcomeUnknown",
    "ProtocolError",
    "Queue",
    "QueueFull",
    "QueueInfo",
    "RemoteError",
    "StoreError",
    "StoreFull",
    "Supervisor",
    "SupervisorFailed",
    "SupervisorUnreachable",
    "Unrecoverable",
    "UsageError",
    "WaitTimeout",
    "Worker",
    "__version__",
    "as_completed",
    "exponential",
    "fixed",
    "handler",
    "linear",
]

_LAZY = {
    "Conveyor": "conveyor_actors.client.conveyor",
    "Job": "conveyor_actors.client.job",
    "Queue": "conveyor_actors.client.queue",
    "Supervisor": "conveyor_actors.client.supervisor",
    "as_completed": "conveyor_actors.client.completion",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
