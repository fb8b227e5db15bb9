"""The values that each kind accepts, up to its limits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from clawblox.world_keys import COUNT, FLAG, GRAVITY, SPEECH_MODE, ValueKind, number_kind

POSITIVE = number_kind("a number above 0", math.ulp(0.0))

ACCEPTED: list[tuple[ValueKind, list[Any]]] = [
    (COUNT, [1, 10**400]),
    (FLAG, [True, False]),
    (GRAVITY, [-1e6, 0, 196.2, 1_000_000]),
    (SPEECH_MODE, ["global", "proximity"]),
    (POSITIVE, [math.ulp(0.0), 1, 1.7e308]),
]
REFUSED: list[tuple[ValueKind, list[Any]]] = [
    (COUNT, [0, -1, 1.0, True, "1", None]),
    (FLAG, [0, 1, "true", None]),
    (GRAVITY, [math.nextafter(1e6, math.inf), -1_000_001, math.nan, True, "9.8", [0]]),
    (SPEECH_MODE, ["", "Global", None, ["global"]]),
    (POSITIVE, [0, -0.0, math.inf, math.nan, 10**400, True]),
]


@pytest.mark.parametrize(("kind", "values"), ACCEPTED)
def test_valid_values_of_a_kind_pass(kind: ValueKind, values: list[Any]) -> None:
    assert all(kind.test(value) for value in values)


@pytest.mark.parametrize(("kind", "values"), REFUSED)
def test_invalid_values_of_a_kind_fail(kind: ValueKind, values: list[Any]) -> None:
    assert not any(kind.test(value) for value in values)
