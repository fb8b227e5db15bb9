"""Bodies for ``Terrain``: boxes of solid cells, with negative numbers."""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from clawblox.engine import shapes
from clawblox.engine.instances.instance import Instance
from clawblox.engine.physics.bodies import Traits
from clawblox.engine.physics.colliders import BLOCK, Shape
from clawblox.engine.physics.space import Space
from clawblox.engine.saved_state import Layouts, SavedState, entries

CELL: Final = 4.0
"""Length of a cell's side, in studs."""

Cell = tuple[int, int, int]


class Cells(Protocol):
    """The cells of the ground, stored in the ``extra`` of ``Terrain``."""

    changed: dict[Cell, None]

    def boxes(self, key: Cell) -> list[tuple[Cell, Cell]]:
        """Return the solid cells of a chunk as boxes: the first cell, and the end (exclusive)."""


class Ground(SavedState):
    """The bodies of the ground."""

    layouts: ClassVar[Layouts] = {
        "_made": shapes.whole,
        "_chunks": entries((shapes.integer,) * 3, [shapes.integer]),
    }

    def __init__(self, space: Space) -> None:
        self._space = space
        self._chunks: dict[Cell, list[int]] = {}
        self._made = 0

    def bring(self, terrain: Instance | None) -> None:
        """Apply the changes of the ground to its bodies."""
        cells: Cells | None = None if terrain is None else terrain.extra
        if cells is None or not cells.changed:
            return
        for key in cells.changed:
            for number in self._chunks.pop(key, ()):
                self._space.remove(number)
            numbers = [self._add(*box) for box in cells.boxes(key)]
            if numbers:
                self._chunks[key] = numbers
        cells.changed.clear()

    def _add(self, low: Cell, high: Cell) -> int:
        self._made += 1
        sizes = [(end - start) * CELL for start, end in zip(low, high, strict=True)]
        x, y, z = (start * CELL + size / 2.0 for start, size in zip(low, sizes, strict=True))
        block = Shape(BLOCK, sizes[0], sizes[1], sizes[2])
        self._space.add(-self._made, Traits(block), (x, y, z))
        return -self._made
