"""Budgets of one call from the host: steps, and the interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from clawblox.luau.core.errors import RuntimeFault

_EXHAUSTED = "exhausted the allowed number of steps"
BATCH = 1000
MANY = 100  # values in a row from which on copying them is charged
LONG_TEXT = 4096  # strings from this length on are charged for being read, as in comparisons
BYTES_A_STEP = 1024  # as many are copied in about the time of a step
SHORT_TEXT = 200  # strings of so many bytes are counted, and saved, wherever they stand
STEPS_A_COLLECTION = 300_000  # after this many, dead entries leave weak tables
STEP_BYTES = 100  # the most a step can add to the heap without being charged for it


Charge = Callable[[int], None]  # takes steps for work that is about to be done


def free_of_charge(steps: int) -> None:
    """Take nothing: the host's own work."""


class Budget:
    """What a call may still use.

    Generated code takes its steps from an iterator, which costs next to nothing; the budget hands
    them out in batches.
    """

    def __init__(self) -> None:
        self.steps_left: int | None = None
        self.is_interrupted = False

    def take(self, steps: int) -> None:
        """Take steps for work that is about to be done.

        Raises:
            RuntimeFault: Fewer are left, and now none, or the host has interrupted the script.
        """
        self.check_interrupt()
        if self.steps_left is None:
            return
        if self.steps_left < steps:
            self.steps_left = 0
            raise RuntimeFault(_EXHAUSTED)
        self.steps_left -= steps

    def take_batch(self) -> int:
        """Take the next steps for loops and calls, which use them one by one; return how many.

        Raises:
            RuntimeFault: None are left, or the host has interrupted the script.
        """
        self.check_interrupt()
        if self.steps_left is None:
            return BATCH
        if self.steps_left <= 0:
            raise RuntimeFault(_EXHAUSTED)
        size = min(BATCH, self.steps_left)
        self.steps_left -= size
        return size

    def check_interrupt(self) -> None:
        """Raise `RuntimeFault` if the host has interrupted the script."""
        if self.is_interrupted:
            raise RuntimeFault("interrupted by the host")


def batch(size: int) -> Iterator[Any]:
    """Return an iterator that lasts for a number of steps."""
    return repeat(None, size)
