"""Budgets of one call from the host: steps, memory, and the interrupt."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

from clawblox.luau.errors import RuntimeFault

_BATCH = 1000
STEP_BYTES = 100  # the most a step can add to the heap without being charged for it


class Budget:
    """What a call may still use.

    Generated loops and functions take their steps from an iterator, which costs them next to
    nothing; the budget hands out steps in batches.
    """

    def __init__(self) -> None:
        self.steps_left: int | None = None
        self.is_exhausted = False
        self.is_interrupted = False
        self.reason = ""
        self.batches = 0

    def start(self, steps: int | None) -> Iterator[Any]:
        """Return the step iterator of a new call; None means no limit."""
        self.steps_left = steps
        self.is_exhausted = False
        self.reason = ""
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterator[None]]:
        while not self.is_interrupted:
            size = _BATCH
            if self.steps_left is not None:
                size = min(_BATCH, self.steps_left)
                self.steps_left -= size
            if size == 0:
                self.reason = "exhausted allowed number of steps"
                break
            self.batches += 1
            try:
                self.grow()
            except RuntimeFault as fault:
                self.reason = str(fault.value)
                break
            yield repeat(None, size)
        self.is_exhausted = True

    def grow(self) -> None:
        """Account for what a batch of steps may allocate; the VM overrides this."""

    def fail(self) -> None:
        """Raise the error of a spent budget."""
        raise RuntimeFault(self.reason or "interrupted by the host")
