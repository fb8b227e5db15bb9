"""The class reference matches the engine."""

from __future__ import annotations

import re

import pytest

from clawblox.engine.values.enums import ENUMS
from clawblox.engine.values.libraries import LIBRARIES, VALUE_TYPES
from docs.engine_classes import PAGE, build_world, render_page

TEXT = PAGE.read_text()


def test_the_reference_of_classes_matches_the_engine() -> None:
    assert render_page() == TEXT, "run: python -m docs.engine_classes"


def test_the_reference_has_the_arguments_of_each_method_and_event() -> None:
    shown = set(re.findall(r"^\| `(\w+)\(.*\)` \|", TEXT, re.MULTILINE))
    for spec in build_world().model.classes:
        assert {*spec.methods, *spec.events} <= shown, spec.name


@pytest.mark.parametrize(
    "row",
    [
        "| `Touched(other: BasePart)` |  |",
        "| `FindFirstChild(name, recursive)` | the recursive search is depth first |",
        "| `GetPropertyChangedSignal(name)` | return the signal of a property's changes |",
        "| `Create(instance, info, goals)` | return a new tween, not yet running |",
        "| `HasPendingInputs(player)` | return whether the queue of a player has inputs |",
    ],
)
def test_class_reference_has_signatures_of_methods(row: str) -> None:
    assert row in TEXT


def test_the_reference_states_when_character_added_fires() -> None:
    (row,) = (line for line in TEXT.splitlines() if line.startswith("| `CharacterAdded"))
    assert "not for the first character" in row


def test_the_reference_has_the_value_types_and_the_items_of_enums() -> None:
    for name in (*LIBRARIES, *(each.type_name for each in VALUE_TYPES)):
        assert f"### {name}\n" in TEXT
    for enum, items in ENUMS.items():
        (line,) = (each for each in TEXT.splitlines() if each.startswith(f"`Enum.{enum}`:"))
        assert all(f"`{name}` {number}" in line for name, number in items.items())
