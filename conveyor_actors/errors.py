"""Every exception of the package, in one tree: whose fault it is can be read from the class.

Knows nothing of the rest. A message says what happened, with which value, and what to do about it.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final


class ConveyorError(Exception):
    """The root of everything this package raises."""


# -- the caller's: something to change in the calling code or in the configuration ------------------


class UsageError(ConveyorError):
    """The call cannot be carried out as it was written."""


class InvalidOption(UsageError, ValueError):
    """An argument is of the wrong type, out of range, or unknown."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} = {_shown(value)} is not allowed: use {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.allowed)


class InvalidPayload(UsageError, ValueError):
    """Data that cannot travel: the message names the path to the value."""


class InvalidConfig(UsageError, ValueError):
    """The configuration has a key or a value that cannot be."""


class InvalidJobState(UsageError):
    """The job is not in the state that the operation needs; the message names both."""


class Closed(UsageError):
    """The object was closed, or belongs to the process this one was forked from."""


# -- the way between the caller and the supervisor --------------------------------------------------


class RemoteError(ConveyorError):
    """The supervisor did not answer as expected."""


class SupervisorUnreachable(RemoteError, ConnectionError):
    """Nobody answers at the address; the message says which was tried and how to start one."""


class SupervisorFailed(RemoteError):
    """A supervisor that was started ended before it was ready; its log says why."""


class OutcomeUnknown(RemoteError, TimeoutError):
    """A change was sent and not answered in time: it may or may not have been carried out."""


class ProtocolError(RemoteError):
    """A message that cannot be understood, or another version of the protocol."""


class WaitTimeout(RemoteError, TimeoutError):
    """The job had not ended when the given time was over. The job goes on."""


# -- the store and the host -------------------------------------------------------------------------


class StoreError(ConveyorError):
    """The state store cannot do what is asked of it."""


class StoreFull(StoreError):
    """There is too little disk left to accept more jobs; recorded work goes on."""


class QueueFull(StoreError):
    """The queue has reached its `max_size`."""


class DataDirError(StoreError):
    """The data directory is locked by another supervisor, not writable, or on an unfit filesystem."""


class CorruptRecord(StoreError):
    """What is stored cannot be read: it does not match its checksum or its version, or was wrong when it was sent."""


# -- the job's ---------------------------------------------------------------------------------------


class JobError(ConveyorError):
    """The job itself did not come to a result."""


class JobFailed(JobError):
    """The job ended as failed; `failure` tells kind, message and traceback."""

    def __init__(self, message: str, failure: Any = None) -> None:
        super().__init__(message)
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.failure)


class JobCancelled(JobFailed):
    """The job was cancelled."""


class JobRemoved(JobError):
    """The job is gone: removed by hand, or automatically more than a minute ago."""


# -- what a handler raises to steer its own job -------------------------------------------------------


class Unrecoverable(ConveyorError):
    """Raise it in a handler to fail the job at once, whatever attempts are left."""


# -- ours --------------------------------------------------------------------------------------------


class InternalError(ConveyorError):
    """A defect of this package. Nothing of the failed operation was stored."""


#: What may travel from the supervisor to a client by name.
BY_NAME: Final[dict[str, type[ConveyorError]]] = {
    error.__name__: error
    for error in (
        InvalidPayload,
        InvalidJobState,
        ProtocolError,
        StoreFull,
        QueueFull,
        CorruptRecord,
        InternalError,
    )
}


def nearest(word: str, known: list[str]) -> str:
    """' (did you mean x?)', or '' where nothing is near."""
    found = get_close_matches(word, known, n=1, cutoff=0.5)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _shown(value: object, width: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= width else text[: width - 1] + "…"
