"""The state of a table that a person controls with keys. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.printable import printable

Verb: TypeAlias = Literal["save", "fork", "restart", "pause", "stop"]

VERB_KEYS: Final[Mapping[str, Verb]] = {
    "s": "save",
    "f": "fork",
    "r": "restart",
    "p": "pause",
    "x": "stop",
}
_PANE_KEYS: Final[Mapping[str, Literal["log", "agents"]]] = {"enter": "log", "a": "agents"}
_CONFIRMED: Final[Sequence[Verb]] = ("stop",)
_MAX_PATTERN: Final = 64


@attrs.frozen
class Action:
    """An action on a row.

    Attributes:
        verb: The kind of action.
        target: The key of the row.
    """

    verb: Verb
    target: str


@attrs.frozen
class Steering:
    """State of a table after the keys that a person has typed.

    Attributes:
        selected: The key of the selected row; empty for none.
        pattern: Text that the names of all shown rows contain.
        pane: Kind of lines to show for the selected row below the table; empty for no pane.
        is_filtering: Whether the pattern is being typed.
        question: The action to confirm; None for none.
        has_help: Whether the line of keys is shown.
    """

    selected: str = ""
    pattern: str = ""
    pane: Literal["", "log", "agents"] = ""
    is_filtering: bool = False
    question: Action | None = None
    has_help: bool = False

    def shows(self, key: str) -> bool:
        """Return whether the row with a key is shown."""
        return self.pattern.casefold() in key.casefold()

    def describe(self, verbs: Sequence[Verb]) -> str:
        """Return the line to show in place of a table's notice; empty to keep the notice.

        Args:
            verbs: The possible actions on a row.
        """
        if self.question is not None:
            return f"{self.question.verb} {printable(self.question.target)}? (y/n)"
        pattern = printable(self.pattern)
        if self.is_filtering:
            return f"filter: {pattern}▏ · Enter keeps it, Esc shows all rows"
        if self.has_help:
            offered = [f"{key} {verb}" for key, verb in VERB_KEYS.items() if verb in verbs]
            keys = ("↑↓ select", "Enter log", "a agents", "/ filter", *offered, "Esc back")
            return " · ".join(keys)
        return f"filter: {pattern} · ? shows the keys" if pattern else ""


UNSTEERED: Final = Steering()


def press(
    state: Steering, key: str, rows: Sequence[str], verbs: Sequence[Verb]
) -> tuple[Steering, Action | None]:
    """Return the next state after a key, and the requested action, if any.

    Args:
        state: The state.
        key: The key; see :class:`~clawblox.cli.terminal.keyboard.KeyDecoder`.
        rows: The keys of all rows in order.
        verbs: The possible actions on a row.
    """
    if state.question is not None:
        if key not in ("y", "n", "escape"):
            return state, None
        return attrs.evolve(state, question=None), state.question if key == "y" else None
    shown = [row for row in rows if state.shows(row)]
    if key in ("up", "down"):
        return _move(state, -1 if key == "up" else 1, shown), None
    if state.is_filtering:
        return _type(state, key), None
    if (verb := VERB_KEYS.get(key)) in verbs and verb and state.selected in shown:
        action = Action(verb, state.selected)
        asks = verb in _CONFIRMED
        return attrs.evolve(state, question=action if asks else None), None if asks else action
    return _turn(state, key, shown), None


def _move(state: Steering, step: int, shown: Sequence[str]) -> Steering:
    """Select the next row, or the first if none was selected."""
    if not shown:
        return attrs.evolve(state, selected="")
    at = shown.index(state.selected) + step if state.selected in shown else 0
    return attrs.evolve(state, selected=shown[min(max(at, 0), len(shown) - 1)])


def _type(state: Steering, key: str) -> Steering:
    """Change the pattern."""
    match key:
        case "enter":
            return attrs.evolve(state, is_filtering=False)
        case "escape":
            return attrs.evolve(state, is_filtering=False, pattern="")
        case "backspace":
            return attrs.evolve(state, pattern=state.pattern[:-1])
    return attrs.evolve(state, pattern=(state.pattern + key)[:_MAX_PATTERN])


def _turn(state: Steering, key: str, shown: Sequence[str]) -> Steering:
    """Show and hide parts of the table."""
    if key == "?":
        return attrs.evolve(state, has_help=not state.has_help)
    if key == "/":
        return attrs.evolve(state, is_filtering=True)
    if key == "escape":  # each Escape undoes one of these
        for part in ("has_help", "pane", "selected", "pattern"):
            if value := getattr(state, part):
                return attrs.evolve(state, **{part: type(value)()})
    if (pane := _PANE_KEYS.get(key)) is not None:
        if state.selected not in shown:
            state = _move(state, 0, shown)
        return attrs.evolve(state, pane="" if state.pane == pane else pane)
    return state
