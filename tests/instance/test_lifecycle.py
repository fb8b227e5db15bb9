"""The lifecycle of an instance: all pairs of states, random transitions, and all ends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clawblox.instance.lifecycle import MOVES, InstanceEnd, LifecycleState
from clawblox.supervision.lifecycle import IllegalMoveError, Lifecycle

LEGAL = {
    ("leasing", "spawning"),
    ("leasing", "failed"),
    ("spawning", "probing"),
    ("spawning", "failed"),
    ("probing", "ready"),
    ("probing", "leasing"),
    ("probing", "failed"),
    ("ready", "restarting"),
    ("ready", "stopping"),
    ("restarting", "ready"),
    ("restarting", "stopping"),
    ("stopping", "exited"),
}
"""The designed transitions, written down a second time."""


def reachable(start: LifecycleState) -> set[LifecycleState]:
    found: set[LifecycleState] = set()
    pending = [start]
    while pending:
        more = MOVES[pending.pop()] - found
        found |= more
        pending += more
    return found


def test_transition_table_contains_every_state() -> None:
    assert MOVES.keys() == set(LifecycleState)


def test_every_transition_is_legal_or_refused_without_effect() -> None:
    for origin, target in itertools.product(LifecycleState, LifecycleState):
        lifecycle = Lifecycle(MOVES, origin)
        if (origin, target) in LEGAL:
            lifecycle.move(target)
            assert lifecycle.state is target
        else:
            with pytest.raises(IllegalMoveError, match=f"^{origin} -> {target}$"):
                lifecycle.move(target)
            assert lifecycle.state is origin


def test_instance_is_over_after_it_has_failed_or_exited() -> None:
    over = {state for state in LifecycleState if Lifecycle(MOVES, state).is_over}
    assert over == {LifecycleState.FAILED, LifecycleState.EXITED}


def test_every_state_can_be_reached() -> None:
    assert reachable(LifecycleState.LEASING) == set(LifecycleState)


def test_every_state_can_reach_a_final_state() -> None:
    ends = {LifecycleState.FAILED, LifecycleState.EXITED}
    for state in LifecycleState:
        assert bool(reachable(state) & ends) == (state not in ends), state
        assert state not in ends or not reachable(state), state


def test_states_repeat_only_after_a_lost_port_or_a_restart() -> None:
    again = {state for state in LifecycleState if state in reachable(state)}
    starts, lives = {"leasing", "spawning", "probing"}, {"ready", "restarting"}
    assert again == starts | lives


def test_ready_instance_can_only_exit() -> None:
    lives = {LifecycleState.READY, LifecycleState.RESTARTING}
    assert reachable(LifecycleState.READY) == lives | {
        LifecycleState.STOPPING,
        LifecycleState.EXITED,
    }


class Life(RuleBasedStateMachine):
    """Arbitrary transitions, tried in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.lifecycle = Lifecycle(MOVES, LifecycleState.LEASING)
        self.past = [LifecycleState.LEASING]

    @rule(target_state=st.sampled_from(LifecycleState))
    def try_to_move(self, target_state: LifecycleState) -> None:
        try:
            self.lifecycle.move(target_state)
        except IllegalMoveError:
            assert (self.past[-1], target_state) not in LEGAL
        else:
            self.past.append(target_state)

    @invariant()
    def every_step_was_legal(self) -> None:
        assert self.lifecycle.state is self.past[-1]
        assert set(itertools.pairwise(self.past)) <= LEGAL

    @invariant()
    def exactly_one_end_can_come(self) -> None:
        assert self.lifecycle.is_over == (
            self.past[-1] in {LifecycleState.FAILED, LifecycleState.EXITED}
        )
        if LifecycleState.EXITED in self.past:
            assert LifecycleState.READY in self.past
        if LifecycleState.FAILED in self.past:
            assert LifecycleState.READY not in self.past


TestLife = Life.TestCase


# ----------------------------------------------------------------------------- its end

ENDS = {
    "stopped on purpose": ((True, True, False, False, True), "exited", "complete"),
    "interrupted while it served": ((True, True, False, False, False), "exited", "interrupted"),
    "died": ((True, True, True, False, False), "exited", "failed"),
    "finished": ((True, True, True, True, False), "exited", "complete"),
    "its start failed": ((True, False, False, False, False), "failed", "failed"),
    "stopped during its start": ((True, False, False, False, True), "failed", "failed"),
    "stopped before its turn": ((False, False, False, False, True), "failed", "failed"),
    "interrupted before its turn": ((False,) * 5, "interrupted", "failed"),
}


@pytest.mark.parametrize(("facts", "state", "status"), ENDS.values(), ids=ENDS)
def test_end_of_an_instance_has_the_right_state_and_run_status(
    facts: tuple[bool, ...], state: str, status: str
) -> None:
    names = ("was_begun", "was_ready", "has_died", "has_finished", "is_on_purpose")
    end = InstanceEnd(**dict(zip(names, facts, strict=True)))
    assert (end.state, end.run_status) == (state, status)


def test_run_is_complete_only_if_the_instance_was_ready() -> None:
    for facts in itertools.product((False, True), repeat=4):
        begun, died, finished, meant = facts
        end = InstanceEnd(
            was_begun=begun,
            was_ready=False,
            has_died=died,
            has_finished=finished,
            is_on_purpose=meant,
        )
        assert end.run_status == "failed"
        assert end.state != "exited"
