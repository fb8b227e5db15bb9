"""``NumberRange``, ``NumberSequence``, ``ColorSequence``, their keypoints, and ``Rect``."""

from __future__ import annotations

from typing import Any

import pytest

from clawblox.engine.values.sequences import ColorSequence, NumberRange, NumberSequence
from tests.engine.values.support import error, run, text

INFINITY = float("inf")
NAN = float("nan")


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("NumberRange.new(1, 2.5)", "1 2.5 "),
        ("NumberRange.new(3)", "3 3 "),
        ("NumberSequenceKeypoint.new(0.5, 2)", "0.5 2 0 "),
        ("NumberSequenceKeypoint.new(0.5, 2, 0.25)", "0.5 2 0.25 "),
        ("ColorSequenceKeypoint.new(0.5, Color3.new(1, 0, 0))", "0.5 1 0 0 0 "),
        ("NumberSequence.new(3)", "0 3 0 1 3 0 "),
        ("NumberSequence.new(3, 4)", "0 3 0 1 4 0 "),
        ("ColorSequence.new(Color3.new(0, 1, 0))", "0 0 1 0 0 1 0 1 0 0 "),
        ("ColorSequence.new(Color3.new(), Color3.new(1, 1, 1))", "0 0 0 0 0 1 1 1 1 0 "),
        ("Rect.new(1, 2, 3, 4)", "1, 2, 3, 4"),
        ("Rect.new(Vector2.new(3, 2), Vector2.new(1, 4))", "1, 2, 3, 4"),
        ("Rect.new()", "0, 0, 0, 0"),
    ],
)
def test_sequence_values_are_created_and_shown(expression: str, shown: str) -> None:
    assert text(expression) == shown
    assert run(f"return typeof({expression})") == expression.partition(".")[0]
    assert run(f"return {expression} == {expression}")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("NumberRange.new(1, 2).Min", 1.0),
        ("NumberRange.new(1, 2).Max", 2.0),
        ("#NumberSequence.new(3).Keypoints", 2.0),
        ("NumberSequence.new(3, 4).Keypoints[2].Value", 4.0),
        ("NumberSequence.new(3, 4).Keypoints[2].Time", 1.0),
        ("NumberSequence.new(3, 4).Keypoints[1].Envelope", 0.0),
        ("ColorSequence.new(Color3.new(0, 1, 0)).Keypoints[1].Value.G", 1.0),
        ("Rect.new(1, 2, 3, 5).Width", 2.0),
        ("Rect.new(1, 2, 3, 5).Height", 3.0),
        ("Rect.new(1, 2, 3, 5).Max.Y", 5.0),
    ],
)
def test_sequence_values_have_members(expression: str, value: float) -> None:
    assert run(f"return {expression}") == value


def test_sequence_has_its_keypoints_in_order_and_is_immutable() -> None:
    keypoints = """
    local function at(time, value) return NumberSequenceKeypoint.new(time, value) end
    local sequence = NumberSequence.new({ at(0, 1), at(0.5, 7), at(1, 2) })
    """
    assert run(f"{keypoints} return sequence.Keypoints[2].Value") == 7.0
    assert run(f"{keypoints} table.clear(sequence.Keypoints) return #sequence.Keypoints") == 3.0


COLOR, NUMBER = "ColorSequenceKeypoint", "NumberSequenceKeypoint"
AT = "local function at(t, v) return NumberSequenceKeypoint.new(t, v) end "


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("NumberRange.new(2, 1)", "NumberRange: invalid range"),
        ("NumberRange.new(0/0)", "NumberRange: invalid range"),
        ("NumberSequence.new({})", "NumberSequence: requires at least 2 keypoints"),
        ("NumberSequence.new({ at(0, 1) })", "NumberSequence: requires at least 2 keypoints"),
        (
            "NumberSequence.new({ at(0, 1), at(0.5, 1) })",
            "NumberSequence: must start at time 0 and end at time 1",
        ),
        (
            "NumberSequence.new({ at(0, 1), at(0.7, 1), at(0.5, 1), at(1, 1) })",
            "NumberSequence: all keypoints must be ordered by time",
        ),
        (
            "NumberSequence.new({ at(0, 1), at(0/0, 1), at(1, 1) })",
            "NumberSequence: all keypoints must be ordered by time",
        ),
        ("NumberSequence.new(0/0)", "NumberSequence: cannot have NaN"),
        (
            "NumberSequence.new(table.create(1e5, at(0, 1)))",
            "NumberSequence: can have at most 20 keypoints",
        ),
        (
            "NumberSequence.new({ at(0, 1), 5 })",
            "invalid argument #2 to 'new' (NumberSequenceKeypoint expected, got number)",
        ),
        (
            "ColorSequence.new({ at(0, 1), at(1, 1) })",
            f"invalid argument #1 to 'new' ({COLOR} expected, got {NUMBER})",
        ),
        ("ColorSequence.new()", "missing argument #1 to 'new' (Color3 expected)"),
        ("ColorSequence.new(1)", "invalid argument #1 to 'new' (Color3 expected, got number)"),
    ],
)
def test_invalid_range_or_sequence_is_refused(statement: str, message: str) -> None:
    assert error(f"{AT} return {statement}") == message


@pytest.mark.parametrize(
    ("kind", "contents"),
    [
        (NumberRange, (2.0, 1.0)),
        (NumberRange, (NAN, 1.0)),
        (NumberRange, (1.0,)),
        (NumberSequence, ()),
        (NumberSequence, (0.0, 1.0, 0.0)),
        (NumberSequence, (0.0, 1.0, 0.0, 1.0, 1.0)),
        (NumberSequence, (0.0, 1.0, 0.0, 0.5, 1.0, 0.0)),
        (NumberSequence, (0.0, 1.0, 0.0, 1.0, "1", 0.0)),
        (NumberSequence, (0.0, 1.0, NAN, 1.0, 1.0, 0.0)),
        (NumberSequence, (0.0, 1.0, 0.0) * 20 + (1.0, 1.0, 0.0)),
        (ColorSequence, (0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)),
        (ColorSequence, (0.0, 1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0)),
    ],
)
def test_invalid_range_or_sequence_in_a_snapshot_is_refused(
    kind: type[Any], contents: tuple[Any, ...]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        kind.empty().fill(*contents)


def test_numbers_in_a_snapshot_are_rounded_to_32_bits() -> None:
    sequence = ColorSequence.empty()
    sequence.fill(0.0, 0.1, 2.0, -1.0, 1.0, 0.1, INFINITY, 0.0)
    made = run("return ColorSequence.new(Color3.new(0.1, 2, -1), Color3.new(0.1, 1e300, 0))")
    assert sequence == made
