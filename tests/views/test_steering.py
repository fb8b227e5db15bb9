"""The state of a table after keys, and the actions of the keys."""

from __future__ import annotations

from itertools import product

import pytest

from clawblox.views.steering import UNSTEERED, Action, Steering, Verb, press

ROWS = ("w000", "w001", "x/w1")
VERBS: tuple[Verb, ...] = ("save", "fork", "restart", "stop")
KEYS = ("up", "down", "enter", "escape", "backspace", "/", "?", "a", "x", "y", "w", "s", "p")


def after(*keys: str, rows: tuple[str, ...] = ROWS) -> tuple[Steering, list[Action]]:
    """Return the state after keys, and the requested actions."""
    state, actions = UNSTEERED, []
    for key in keys:
        state, action = press(state, key, rows, VERBS)
        actions += [] if action is None else [action]
    return state, actions


@pytest.mark.parametrize(
    ("keys", "selected"),
    [
        (["down"], "w000"),
        (["up"], "w000"),
        (["down", "down"], "w001"),
        (["down"] * 9, "x/w1"),
        ([*["down"] * 3, "up"], "w001"),
        (["down", "up", "up"], "w000"),
        (["down", "escape"], ""),
        (["/", "X", "down"], "x/w1"),
        (["/", "n", "o", "down"], ""),
        (["enter"], "w000"),
    ],
)
def test_arrows_select_a_row_that_is_shown(keys: list[str], selected: str) -> None:
    assert after(*keys)[0].selected == selected


def test_vanished_row_is_not_selected() -> None:
    state = Steering(selected="gone", pane="log")
    assert press(state, "s", ROWS, VERBS) == (state, None)
    assert press(state, "down", ROWS, VERBS)[0].selected == "w000"
    assert press(state, "down", (), VERBS)[0].selected == ""


def test_enter_toggles_the_log_pane_and_a_the_agents_pane() -> None:
    assert after("down", "enter")[0].pane == "log"
    assert after("down", "enter", "enter")[0].pane == ""
    assert after("down", "enter", "a")[0].pane == "agents"
    assert after("down", "a", "escape")[0] == Steering(selected="w000")


def test_a_filter_is_typed_kept_and_removed() -> None:
    typed = after("/", "s", "x", "backspace", "?")[0]
    assert (typed.pattern, typed.is_filtering) == ("s?", True)
    assert after("/", "s", "enter")[0] == Steering(pattern="s")
    assert after("/", "s", "escape")[0] == UNSTEERED
    assert after("/", "s", "enter", "escape")[0] == UNSTEERED
    assert len(after("/", *["w"] * 500)[0].pattern) == 64
    assert Steering(pattern="W0").shows("w001")
    assert not Steering(pattern="W0").shows("x/w1")


@pytest.mark.parametrize(("key", "verb"), [("s", "save"), ("f", "fork"), ("r", "restart")])
def test_an_action_is_for_the_selected_row(key: str, verb: Verb) -> None:
    assert after(key)[1] == []
    assert after("down", "down", key)[1] == [Action(verb, "w001")]


def test_a_stop_is_confirmed() -> None:
    asked, actions = after("down", "x")
    assert (asked.question, actions) == (Action("stop", "w000"), [])
    assert asked.describe(VERBS) == "stop w000? (y/n)"
    assert after("down", "x", "y") == (Steering(selected="w000"), [Action("stop", "w000")])
    for key in ("n", "escape"):
        assert after("down", "x", key) == (Steering(selected="w000"), [])
    assert after("down", "x", "x", "down", "enter", "s") == (asked, [])


def test_unavailable_actions_have_no_effect_and_are_not_listed() -> None:
    assert after("down", "p") == (Steering(selected="w000"), [])
    help_line = after("?")[0].describe(VERBS)
    assert "s save · f fork · r restart · x stop" in help_line
    assert "pause" not in help_line
    assert after("?", "?")[0] == UNSTEERED


def test_question_about_a_hostile_name_is_printable() -> None:
    question = Steering(question=Action("stop", "w\x1b[2J\n"))
    assert question.describe(VERBS).isprintable()


def test_state_is_valid_after_any_keys() -> None:
    for keys in product(KEYS, repeat=4):
        state, actions = after(*keys)
        assert state.selected in ("", *ROWS)
        assert not (state.question and state.is_filtering)
        for action in actions:
            assert action.target in ROWS
            assert action.verb in VERBS
            assert action.verb != "stop" or "y" in keys
