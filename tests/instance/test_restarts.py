"""Restart policies: what can be asked for, and never more restarts than it allows."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawblox.config.options import RestartPolicy
from clawblox.errors import ConfigError
from clawblox.instance.lifecycle import RestartBudget

# ---------------------------------------------------------------------------------- policies


def test_nothing_is_brought_back_unless_it_is_asked_for() -> None:
    assert RestartPolicy() == RestartPolicy("never", 3, 60.0)


@pytest.mark.parametrize("mode", ["never", "fresh", "checkpoint"])
def test_every_mode_has_its_numbers(mode: Any) -> None:
    policy = RestartPolicy(mode, 1, 0.5)
    assert (policy.mode, policy.max_restarts, policy.window) == (mode, 1, 0.5)


WRONG: list[tuple[str, Any, str, str]] = [
    ("mode", "always", "restart", "one of never, fresh, checkpoint"),
    ("mode", "", "restart", "one of"),
    ("mode", None, "restart", "one of"),
    ("mode", True, "restart", "one of"),
    ("max_restarts", 0, "max_restarts", "a whole number, 1 or more"),
    ("max_restarts", -1, "max_restarts", "a whole number"),
    ("max_restarts", 2.0, "max_restarts", "a whole number"),
    ("max_restarts", True, "max_restarts", "a whole number"),
    ("max_restarts", "3", "max_restarts", "a whole number"),
    ("window", 0, "restart_window", "seconds above 0"),
    ("window", -1.5, "restart_window", "seconds above 0"),
    ("window", math.nan, "restart_window", "seconds above 0"),
]


@pytest.mark.parametrize(("field", "value", "key", "message"), WRONG)
def test_a_value_that_cannot_be_is_named_by_its_argument(
    field: str, value: Any, key: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        RestartPolicy(**{field: value})
    assert caught.value.key == key
    assert caught.value.value is value


# --------------------------------------------------------------------------------- intensity


def delays(times: list[float], max_restarts: int, window: float) -> list[float | None]:
    """Return what a policy says to a death at each of the times."""
    intensity = RestartBudget(RestartPolicy("fresh", max_restarts, window))
    return [intensity.take(now) for now in times]


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
def test_restarts_are_counted_in_a_window_that_moves(
    times: list[float], most: int, expected: list[float | None]
) -> None:
    assert delays(times, most, 10.0) == expected


@given(
    pauses=st.lists(st.floats(0, 20), max_size=60),
    most=st.integers(1, 6),
    window=st.floats(0.01, 30),
)
def test_no_window_has_more_restarts_than_the_policy_says_and_none_is_refused_before(
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


def test_a_policy_that_allows_thousands_goes_on_to_wait_the_longest_time() -> None:
    assert set(delays([0.0] * 3000, 3000, 1.0)[8:]) == {5.0}
