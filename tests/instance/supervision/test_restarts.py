"""Restart policies: valid options, and the limit on restarts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.config.options import SharedOptions
from clawblox.errors import ConfigError
from clawblox.instance.lifecycle import restart_delay
from clawblox.supervision.lifecycle import RestartBudget

# ----------------------------------------------------------------------------------- options


def test_default_policy_never_restarts() -> None:
    options = SharedOptions()
    assert (options.restart, options.max_restarts, options.restart_window) == ("never", 3, 60.0)


@pytest.mark.parametrize("mode", ["never", "fresh", "checkpoint"])
def test_each_restart_mode_has_its_limits(mode: Any) -> None:
    options = SharedOptions(restart=mode, max_restarts=1, restart_window=0.5)
    assert (options.restart, options.max_restarts, options.restart_window) == (mode, 1, 0.5)


WRONG: list[tuple[str, Any, str]] = [
    ("restart", "always", "must be never, fresh or checkpoint"),
    ("restart", "", "must be"),
    ("restart", None, "must be"),
    ("restart", True, "must be"),
    ("max_restarts", 0, "a whole number, 1 or more"),
    ("max_restarts", -1, "a whole number"),
    ("max_restarts", 2.0, "a whole number"),
    ("max_restarts", True, "a whole number"),
    ("max_restarts", "3", "a whole number"),
    ("restart_window", 0, "seconds above 0"),
    ("restart_window", -1.5, "seconds above 0"),
    ("restart_window", math.nan, "seconds above 0"),
]


@pytest.mark.parametrize(("option", "value", "message"), WRONG)
def test_invalid_restart_value_error_names_the_argument(
    option: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        SharedOptions(**{option: value})
    assert caught.value.key == option
    assert caught.value.value is value


# ------------------------------------------------------------------------------------ budget


def delays(times: list[float], max_restarts: int, window: float) -> list[float | None]:
    """Return the decision of a policy for a death at each of the times."""
    budget = RestartBudget(max_restarts, window)
    taken = [budget.take(now) for now in times]
    return [None if before is None else restart_delay(before) for before in taken]


TABLE: dict[str, tuple[list[float], int, list[float | None]]] = {
    "one and no more": ([0, 1, 9.9], 1, [0.0, None, None]),
    "one, again": ([0, 10, 20], 1, [0.0, 0.0, 0.0]),
    "a window ends where it began": ([5, 15], 1, [0.0, 0.0]),
    "all at once": ([7, 7, 7, 7], 3, [0.0, 0.1, 0.2, None]),
    "a refusal uses up nothing": ([0, 9, 9.5, 10], 2, [0.0, 0.1, None, 0.1]),
    "one leaves, one comes": ([0, 6, 10, 12, 16], 2, [0.0, 0.1, 0.1, None, 0.1]),
    "quiet again": ([0, 1, 2, 30], 3, [0.0, 0.1, 0.2, 0.0]),
    "ever later, up to the longest": (
        [0.0] * 9,
        8,
        [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, None],
    ),
}


@pytest.mark.parametrize(("times", "most", "expected"), TABLE.values(), ids=TABLE)
def test_restarts_are_counted_in_a_sliding_window(
    times: list[float], most: int, expected: list[float | None]
) -> None:
    assert delays(times, most, 10.0) == expected


@given(
    pauses=st.lists(st.floats(0, 20), max_size=60),
    most=st.integers(1, 6),
    window=st.floats(0.01, 30),
)
def test_window_allows_exactly_the_restarts_of_the_policy(
    pauses: list[float], most: int, window: float
) -> None:
    times = [sum(pauses[: count + 1]) for count in range(len(pauses))]
    taken: list[float] = []
    for now, delay in zip(times, delays(times, most, window), strict=True):
        before = [time for time in taken if time > now - window]
        assert (delay is None) == (len(before) == most)
        if delay is not None:
            assert 0.0 <= delay <= 5.0
            assert (delay == 0.0) == (before == [])
            taken.append(now)


def test_a_policy_with_thousands_of_restarts_keeps_the_longest_delay() -> None:
    assert set(delays([0.0] * 3000, 3000, 1.0)[8:]) == {5.0}
