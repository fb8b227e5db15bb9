"""The kinds of values in ``world.toml``, which engine and orchestrator check. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from clawblox.foreign_values import finite_number

CONFIG_NAME: Final = "world.toml"
MOST_GRAVITY: Final = 1e6
"""Maximum strength of gravity that scripts and settings can set, in either direction."""


class ValueKind(NamedTuple):
    """A kind of value.

    Attributes:
        test: Returns whether a value is of this kind.
        expected: Description of valid values, to follow "must be".
    """

    test: Callable[[Any], bool]
    expected: str


def number_kind(expected: str, low: float, high: float = sys.float_info.max) -> ValueKind:
    """Return the kind for finite numbers within two limits."""
    return ValueKind(lambda value: finite_number(value, low=low, high=high) is not None, expected)


def choice_kind(*words: str) -> ValueKind:
    """Return the kind for a choice of words."""
    return ValueKind(lambda value: value in words, f"one of {', '.join(words)}")


COUNT: Final = ValueKind(lambda value: type(value) is int and value > 0, "a whole number above 0")
FLAG: Final = ValueKind(lambda value: isinstance(value, bool), "true or false")
GRAVITY: Final = number_kind("a number from -1000000 to 1000000", -MOST_GRAVITY, MOST_GRAVITY)
SPEECH_MODE: Final = choice_kind("global", "proximity")
