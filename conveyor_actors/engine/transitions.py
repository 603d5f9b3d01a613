"""The state machine of a job as a table. The only place where a job's state changes.

An illegal step raises and changes nothing. The diagram in the README is made from the same table.
"""

from __future__ import annotations

from typing import Final, Protocol

from conveyor_actors.errors import InternalError
from conveyor_actors.model import ACTIVE, COMPLETED, DELAYED, FAILED, STATE_NAMES, WAITING

CLAIM: Final = "claim"
COMPLETE: Final = "complete"
RETRY: Final = "retry"
BACK_OFF: Final = "back off"
FAIL: Final = "fail"
STALL: Final = "stall"
INTERRUPT: Final = "interrupt"
RECALL: Final = "recall"
PROMOTE: Final = "delay over"
REFUSE: Final = "refuse"

#: The states a new job can start in.
STARTS: Final = {WAITING: "add", DELAYED: "add with delay"}

TRANSITIONS: Final = {
    (DELAYED, PROMOTE): WAITING,
    (WAITING, CLAIM): ACTIVE,
    (WAITING, REFUSE): FAILED,  # no pool has a handler for it
    (ACTIVE, COMPLETE): COMPLETED,
    (ACTIVE, FAIL): FAILED,
    (ACTIVE, RETRY): WAITING,
    (ACTIVE, BACK_OFF): DELAYED,
    (ACTIVE, STALL): WAITING,  # its worker died or froze while running it
    (ACTIVE, INTERRUPT): WAITING,  # it died with its supervisor
    (ACTIVE, RECALL): WAITING,  # taken back before it was started, or at shutdown
}

ENDED: Final = frozenset({COMPLETED, FAILED})


class HasState(Protocol):
    state: int


def move(job: HasState, trigger: str) -> None:
    """Changes the job's state as the table says."""
    after = TRANSITIONS.get((job.state, trigger))
    if after is None:
        raise InternalError(f"a job that is {STATE_NAMES[job.state]} cannot {trigger}")
    job.state = after


def mermaid() -> str:
    """The table as a mermaid diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {STATE_NAMES[state]}: {label}" for state, label in STARTS.items()]
    lines += [
        f"    {STATE_NAMES[before]} --> {STATE_NAMES[after]}: {trigger}"
        for (before, trigger), after in TRANSITIONS.items()
    ]
    lines += [f"    {STATE_NAMES[state]} --> [*]" for state in sorted(ENDED)]
    return "\n".join(lines)
