"""Errors of scripts that end a thread and not the world: counted, and logged without a flood."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from clawblox.engine import shapes
from clawblox.engine.errors import WorldHalted
from clawblox.engine.saved_state import Layouts, SavedState, entries

_INTERVAL_TICKS: Final = 60
_MOST_PLACES: Final = 256  # that are distinguished within an interval; the others share one
_LONGEST_PLACE: Final = 200
_LONGEST_TEXT: Final = 1000

Report = Callable[[WorldHalted, int], None]
"""Logs an error; the number is how many more of its place were left out before it."""


class ThreadErrors(SavedState):
    """Counts the errors of threads; of each place, logs one a second of simulation time.

    Args:
        report: Logs an error.

    Attributes:
        count: The errors since the world began.
        last: The text of the last one, cut to 1,000 characters; empty if there was none.
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
        self._places: dict[str, tuple[int, int]] = {}  # next tick to log, and errors left out

    def add(self, error: WorldHalted, tick: int) -> None:
        """Count an error that has ended a thread, and log it unless its place was just logged.

        Args:
            error: The exception that would halt the world.
            tick: The present tick.
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
        """Return the position of an error in its script; empty if there are too many of them."""
        newest, _, _ = error.traceback.partition("\n")
        place = (newest or error.reason)[:_LONGEST_PLACE]
        if place not in self._places and len(self._places) >= _MOST_PLACES:
            recent = {at: kept for at, kept in self._places.items() if tick < kept[0]}
            self._places = recent
            return place if len(recent) < _MOST_PLACES else ""
        return place
