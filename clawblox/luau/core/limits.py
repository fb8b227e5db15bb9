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
STEP_BYTES = 100  # that a step stands for
ROOM_BYTES = 300  # that generated code takes at a time, for a table or for upvalues

SIZES = 2  # the version of the sizes below, in snapshots
# The sizes of values, including the memory for visiting them; generous for CPython 3.11 to 3.13.
ENTRY_BYTES = 100  # of a table
TABLE_BYTES = 220
FILLED_BYTES = 120  # of a table, besides its entries, for which making it is charged
FUNCTION_BYTES = 260
UPVALUE_BYTES = 90  # besides the box of a variable that closures share and change
COROUTINE_BYTES = 300
NATIVE_BYTES = 150  # of a library function with its own state
FRAME_BYTES = 220  # of a suspended call
ERROR_BYTES = 700  # of an error that killed a coroutine
VECTOR_BYTES = 120
BUFFER_BYTES = 150
OBJECT_BYTES = 100  # of any other object
STRING_BYTES = 50  # besides its characters
CHUNK_BYTES = 5000  # of compiled source, besides its tokens
TOKEN_BYTES = 400

Charge = Callable[[int], None]
"""Charges steps for work in advance."""


def free_of_charge(steps: int) -> None:
    """Ignore the steps, for work of the host."""
