"""A thread that waits, and its part of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import attrs

from clawblox.engine import shapes
from clawblox.engine.saved_state import VALUE, Stored, object_slot, optional, record
from clawblox.engine.slots import Slots
from clawblox.luau import Coroutine


class ThreadSearch(Protocol):
    """Something that a thread waits for and looks for in each tick."""

    def find(self, tick: int) -> tuple[Any, ...] | None:
        """Return the values to resume the thread with; None to look again in the next tick."""

    def document(self, slots: Slots) -> list[Any]:
        """Return its part of a snapshot: its kind, then JSON values."""


@attrs.define(eq=False)
class Entry:
    """A thread that waits.

    Attributes:
        due: The tick in which it resumes.
        since: The tick in which it began to wait.
        thread: The thread.
        values: The values to resume it with; None for a wait, whose result is the elapsed seconds:
            at least a tick, because scripts divide by them.
        search: The search that it waits for, or None.
    """

    due: int
    since: int
    thread: Coroutine
    values: Sequence[Any] | None
    search: ThreadSearch | None = None


ENTRY: Final = record(
    Entry,
    shapes.whole,
    shapes.whole,
    object_slot(Coroutine),
    optional([VALUE]),
    Stored(
        shapes.optional([shapes.anything]),
        lambda slots, search: None if search is None else search.document(slots),
        lambda slots, saved: saved,
    ),
)
