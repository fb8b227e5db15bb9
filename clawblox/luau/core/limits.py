"""The units in which the limits of a call from the host are counted."""

from __future__ import annotations

from collections.abc import Callable

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
