"""Test parameters, only some of which run by default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[object], every: int) -> list[Any]:
    """Return parameters whose every ``every``-th runs by default; the others are thorough."""
    return [
        pytest.param(value, marks=pytest.mark.thorough if at % every else ())
        for at, value in enumerate(values)
    ]


def usually(values: Iterable[object], *usual: object) -> list[Any]:
    """Return parameters; those in ``usual`` run by default, the others are thorough."""
    return [
        pytest.param(value, marks=() if value in usual else pytest.mark.thorough)
        for value in values
    ]
