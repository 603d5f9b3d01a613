"""The table of transitions is the whole state machine."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from conveyor_actors.engine import transitions
from conveyor_actors.engine.transitions import ENDED, STARTS, TRANSITIONS, mermaid, move
from conveyor_actors.errors import InternalError
from conveyor_actors.model import ACTIVE, STATE_NAMES, WAITING, WAITING_CHILDREN

TRIGGERS = sorted({trigger for _, trigger in TRANSITIONS})
STATES = range(len(STATE_NAMES))
ILLEGAL = [step for step in itertools.product(STATES, TRIGGERS) if step not in TRANSITIONS]


@pytest.mark.parametrize(("step", "after"), TRANSITIONS.items())
def test_a_legal_step_leads_where_the_table_says(step: tuple[int, str], after: int) -> None:
    job = SimpleNamespace(state=step[0])
    move(job, step[1])
    assert job.state == after


@pytest.mark.parametrize(("state", "trigger"), ILLEGAL)
def test_an_illegal_step_raises_and_changes_nothing(state: int, trigger: str) -> None:
    job = SimpleNamespace(state=state)
    with pytest.raises(InternalError, match=f"a job that is {STATE_NAMES[state]} cannot {trigger}"):
        move(job, trigger)
    assert job.state == state


def test_nothing_leaves_an_end() -> None:
    assert not [before for before, _ in TRANSITIONS if before in ENDED]


def test_every_state_in_use_is_reached_from_a_start() -> None:
    reached, before = set(STARTS), set()
    while reached != before:
        before = set(reached)
        reached |= {after for (state, _), after in TRANSITIONS.items() if state in reached}
    assert reached == set(STATES) - {WAITING_CHILDREN}


def test_only_a_waiting_job_is_claimed_and_only_an_active_one_completes() -> None:
    assert [step for step, after in TRANSITIONS.items() if after == ACTIVE] == [(WAITING, transitions.CLAIM)]
    assert [state for state, trigger in TRANSITIONS if trigger == transitions.COMPLETE] == [ACTIVE]


def test_the_diagram_has_every_step() -> None:
    diagram = mermaid()
    for (before, trigger), after in TRANSITIONS.items():
        assert f"{STATE_NAMES[before]} --> {STATE_NAMES[after]}: {trigger}" in diagram
    assert diagram.count("-->") == len(TRANSITIONS) + len(STARTS) + len(ENDED)
