"""Budgets of one call from the host: steps, and the interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from clawblox.luau.core.errors import RuntimeFault

EXHAUSTED = "exhausted the allowed number of steps"
INTERRUPTED = "interrupted by the host"
BATCH = 1000
CHARGED_COPY = 100  # copying at least this many values is charged
LONG_TEXT = 4096  # reading a string of at least this length, as in comparisons, is charged
BYTES_PER_STEP = 1024  # copying them takes about as long as a step
SHORT_TEXT = 200  # up to this length, each occurrence of a string is counted and saved
STEPS_PER_COLLECTION = 300_000  # between collections that remove dead entries of weak tables
MOST_PATTERNS = 512  # that are kept ready
STEP_BYTES = 100  # the most a step can add to the heap without a charge for memory

Charge = Callable[[int], None]
"""Takes steps for work that is about to be done."""


def free_of_charge(steps: int) -> None:
    """Take no steps: the host pays for its own work."""


class StepBudget:
    """The steps that a call from the host has left.

    Generated code takes its steps from an iterator, which costs next to nothing; the budget hands
    them out in batches.

    Attributes:
        steps_left: The steps not handed out yet; None means no limit. Below 0 for work that could
            not be refused.
        is_used_up: Whether work was refused because too few steps were left.
        is_interrupted: Whether the host has interrupted the script.
        interruption: Why it has, for the error of the script.
    """

    def __init__(self) -> None:
        self.steps_left: int | None = None
        self.is_used_up = False
        self.is_interrupted = False
        self.interruption = INTERRUPTED

    def renew(self, steps: int | None) -> None:
        """Start again with a number of steps; None means no limit."""
        self.steps_left = steps
        self.is_used_up = False

    def take(self, steps: int) -> None:
        """Take steps for work that is about to be done.

        Raises:
            RuntimeFault: Fewer steps are left, which are lost, or the host has interrupted the
                script.
        """
        if self.is_interrupted:
            self.check_interrupt()
        if self.steps_left is None:
            return
        if self.steps_left < steps:
            self.steps_left = min(self.steps_left, 0)
            raise self._exhausted()
        self.steps_left -= steps

    def take_batch(self) -> int:
        """Take the next steps for loops and calls, which use them one by one.

        Returns:
            The number of steps taken.

        Raises:
            RuntimeFault: No steps are left, or the host has interrupted the script.
        """
        self.check_interrupt()
        if self.steps_left is None:
            return BATCH
        if self.steps_left <= 0:
            raise self._exhausted()
        size = min(BATCH, self.steps_left)
        self.steps_left -= size
        return size

    def _exhausted(self) -> RuntimeFault:
        self.is_used_up = True
        return RuntimeFault(EXHAUSTED)

    def check_interrupt(self) -> None:
        """Check whether the host has interrupted the script.

        Raises:
            RuntimeFault: It has.
        """
        if self.is_interrupted:
            raise RuntimeFault(self.interruption)


def batch(size: int) -> Iterator[Any]:
    """Return an iterator that lasts for a number of steps."""
    return repeat(None, size)
