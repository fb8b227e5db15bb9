"""The scheduler's records of waiting threads, and of errors that have ended threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, Protocol

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import WorldHalted
from clawblox.engine.saved_state import (
    VALUE,
    Layouts,
    SavedState,
    Stored,
    entries,
    object_slot,
    optional,
    record,
)
from clawblox.engine.slots import Slots
from clawblox.luau import Coroutine


class ThreadSearch(Protocol):
    """A condition that a waiting thread checks in each tick."""

    def find(self, tick: int) -> tuple[Any, ...] | None:
        """Return the values to resume the thread with; None to check again in the next tick."""

    def document(self, slots: Slots) -> list[Any]:
        """Return the search for a snapshot: its kind, then JSON values."""


@attrs.define(eq=False)
class Entry:
    """A waiting thread.

    Attributes:
        due: The tick in which it resumes.
        since: The tick in which it started to wait.
        thread: The thread.
        values: The values to resume it with. None for a wait, which returns the elapsed seconds, at
            least a tick, because scripts divide by them.
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


_INTERVAL_TICKS: Final = 60
_MOST_PLACES: Final = 256  # distinguished within an interval; further errors share one
_LONGEST_PLACE: Final = 200
_LONGEST_TEXT: Final = 1000

Report = Callable[[WorldHalted, int], None]
"""Logs an error; the number counts the omitted errors from the same place before it."""


class ThreadErrors(SavedState):
    """Counts the errors of threads, and logs one per place and second of simulation time.

    Args:
        report: Logs an error.

    Attributes:
        count: Number of errors since the world started.
        last: Text of the last error, cut to 1,000 characters; empty without errors.
    """

    layouts: ClassVar[Layouts] = {
        "count": shapes.whole,
        "last": shapes.text,
        "_places": entries(shapes.text, shapes.whole, shapes.whole),
    }

    def __init__(self, report: Report) -> None:
        self.report = report
        self.count = 0
        self.last = ""
        self._places: dict[
            str, tuple[int, int]
        ] = {}  # next tick to log, and number of omitted errors

    def add(self, error: WorldHalted, tick: int) -> None:
        """Count an error that has ended a thread; log it unless its place was logged recently.

        Args:
            error: The exception that would halt the world.
            tick: The current tick.
        """
        self.count += 1
        self.last = str(error)[:_LONGEST_TEXT]
        place = self._find_place(error, tick)
        next_tick, left_out = self._places.get(place, (0, 0))
        if tick < next_tick:
            self._places[place] = (next_tick, left_out + 1)
            return
        self._places[place] = (tick + _INTERVAL_TICKS, 0)
        self.report(error, left_out)

    def _find_place(self, error: WorldHalted, tick: int) -> str:
        """Return the position of an error in its script; empty if there are too many places."""
        newest, _, _ = error.traceback.partition("\n")
        place = (newest or error.reason)[:_LONGEST_PLACE]
        if place not in self._places and len(self._places) >= _MOST_PLACES:
            recent = {at: kept for at, kept in self._places.items() if tick < kept[0]}
            self._places = recent
            return place if len(recent) < _MOST_PLACES else ""
        return place
