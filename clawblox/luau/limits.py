"""Budgets of one call from the host: steps, and the interrupt."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from clawblox.luau.errors import RuntimeFault

BATCH = 1000
BYTES_A_STEP = 1024  # as many are copied in about the time of a step
SHORT_TEXT = 200  # strings of so many bytes are counted, and saved, wherever they stand
STEP_BYTES = 100  # the most a step can add to the heap without being charged for it


class Budget:
    """What a call may still use.

    Generated code takes its steps from an iterator, which costs next to nothing; the budget hands
    them out in batches.
    """

    def __init__(self) -> None:
        self.steps_left: int | None = None
        self.is_interrupted = False

    def take(self, steps: int) -> int:
        """Take steps, fewer if there are fewer left.

        Raises:
            RuntimeFault: None are left, or the host has interrupted the script.
        """
        if self.is_interrupted:
            raise RuntimeFault("interrupted by the host")
        if self.steps_left is None:
            return steps
        if self.steps_left <= 0:
            raise RuntimeFault("exhausted the allowed number of steps")
        taken = min(steps, self.steps_left)
        self.steps_left -= taken
        return taken


def batch(size: int) -> Iterator[Any]:
    """Return an iterator that lasts for a number of steps."""
    return repeat(None, size)
