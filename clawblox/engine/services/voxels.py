"""The cells of the ground: cubes of 4 studs, each with a material and an occupancy.

Cells are stored in chunks of 16 by 16 by 16; empty chunks are not stored. The cell at 0 0 0 extends
from the origin to (4, 4, 4). A cell is solid for physics if at least half of it is filled.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

AIR: Final = 0
"""The material of a cell without ground."""
FULL: Final = 255
"""The occupancy of a full cell."""

_SIDE: Final = 16
_CELLS: Final = _SIDE**3
_HALF: Final = 128
_EMPTY: Final = bytes(_CELLS)

Cell: TypeAlias = tuple[int, int, int]
Box: TypeAlias = tuple[Cell, Cell]
"""The first cell and the cell after the last, on each axis."""


def overlap(at: int, low: float, high: float) -> float:
    """Return the share of a cell between two positions on an axis, in cells."""
    return max(0.0, min(at + 1.0, high) - max(float(at), low))


class _Chunk:
    """The cells of a chunk; x varies fastest, then z, then y."""

    __slots__ = ("materials", "occupancy")

    def __init__(self, materials: bytes = _EMPTY, occupancy: bytes = _EMPTY) -> None:
        self.materials = bytearray(materials)
        self.occupancy = bytearray(occupancy)


class Voxels:
    """The ground of a world.

    Materials are small numbers: `AIR`, and numbers that the caller chooses.

    Attributes:
        changed: The chunks that have changed since physics last read them, in order.
    """

    def __init__(self) -> None:
        self.changed: dict[Cell, None] = {}
        self._chunks: dict[Cell, _Chunk] = {}

    def read(self, cell: Cell) -> tuple[int, int]:
        """Return the material and the occupancy of a cell."""
        key, at = _place(cell)
        chunk = self._chunks.get(key)
        return (AIR, 0) if chunk is None else (chunk.materials[at], chunk.occupancy[at])

    def write(self, cell: Cell, material: int, occupancy: int) -> None:
        """Set the material and the occupancy of a cell."""
        if material == AIR or occupancy <= 0:
            material = occupancy = 0
        key, at = _place(cell)
        chunk = self._chunks.get(key)
        if chunk is None:
            if material == AIR:
                return
            chunk = self._chunks[key] = _Chunk()
        chunk.materials[at], chunk.occupancy[at] = material, occupancy
        self.changed[key] = None

    def fill(self, cell: Cell, material: int, share: float) -> None:
        """Fill a share of a cell with a material, or empty it with `AIR`.

        The material with the larger share of the cell is kept.
        """
        old, occupancy = self.read(cell)
        part = round(share * FULL)
        if material == AIR:
            self.write(cell, old, min(occupancy, FULL - part))
        elif part and part >= occupancy:
            self.write(cell, material, part)

    def fill_row(self, first: Cell, length: int, material: int) -> None:
        """Fill whole cells along the x axis, or empty them."""
        x, y, z = first
        end = x + length
        while x < end:
            key, at = _place((x, y, z))
            count = min(end - x, _SIDE - x % _SIDE)
            chunk = self._chunks.get(key)
            if chunk is None and material != AIR:
                chunk = self._chunks[key] = _Chunk()
            if chunk is not None:
                chunk.materials[at : at + count] = bytes([material]) * count
                chunk.occupancy[at : at + count] = bytes([FULL if material else 0]) * count
                self.changed[key] = None
            x += count

    def boxes(self, key: Cell) -> list[Box]:
        """Return the solid cells of a chunk as a small number of boxes, in a fixed order.

        Args:
            key: The chunk, as in `changed`.
        """
        chunk = self._chunks.get(key)
        if chunk is None:
            return []
        solid = bytearray(part >= _HALF for part in chunk.occupancy)
        corner = tuple(_SIDE * part for part in key)
        found: list[Box] = []
        for at in range(_CELLS):
            if solid[at]:
                x, z, y = at % _SIDE, at // _SIDE % _SIDE, at // _SIDE**2
                nx, ny, nz = _grow(solid, x, y, z)
                low = (corner[0] + x, corner[1] + y, corner[2] + z)
                found.append((low, (low[0] + nx, low[1] + ny, low[2] + nz)))
        return found

    def chunks(self) -> Iterator[Cell]:
        """Iterate over the chunks that have ground, in a fixed order."""
        return iter(sorted(self._chunks))

    def document(self, materials: Sequence[str]) -> dict[str, Any]:
        """Return the ground for a snapshot.

        Args:
            materials: The names of the materials, by number.
        """
        return {
            "materials": list(materials),
            "changed": [list(key) for key in self.changed],
            "chunks": [
                [
                    *key,
                    _pack(self._chunks[key].materials),
                    _pack(self._chunks[key].occupancy),
                ]
                for key in self.chunks()
            ],
        }

    def restore(self, document: dict[str, Any], find: Callable[[str], int]) -> None:
        """Restore the ground of a snapshot.

        Args:
            document: The result of `document`.
            find: Returns the number of a material.

        Raises:
            ValueError: The snapshot is damaged.
        """
        numbers = [find(name) for name in document["materials"]]
        table = bytes([*numbers, *[AIR] * (256 - len(numbers))])
        for x, y, z, materials, occupancy in document["chunks"]:
            self._chunks[x, y, z] = _Chunk(_unpack(materials).translate(table), _unpack(occupancy))
        self.changed = dict.fromkeys((x, y, z) for x, y, z in document["changed"])


def _place(cell: Cell) -> tuple[Cell, int]:
    x, y, z = cell
    key = (x // _SIDE, y // _SIDE, z // _SIDE)
    return key, (y % _SIDE * _SIDE + z % _SIDE) * _SIDE + x % _SIDE


def _grow(solid: bytearray, x: int, y: int, z: int) -> Cell:
    """Remove a box, grown from a cell along x, z and y, from the solid cells; return its end."""

    def at(y: int, z: int) -> int:
        return (y * _SIDE + z) * _SIDE + x

    nx = 1
    while x + nx < _SIDE and solid[at(y, z) + nx]:
        nx += 1
    row = bytes([1]) * nx

    def has_row(y: int, z: int) -> bool:
        return solid[at(y, z) : at(y, z) + nx] == row

    nz = 1
    while z + nz < _SIDE and has_row(y, z + nz):
        nz += 1
    ny = 1
    while y + ny < _SIDE and all(has_row(y + ny, cell_z) for cell_z in range(z, z + nz)):
        ny += 1
    for up in range(y, y + ny):
        for cell_z in range(z, z + nz):
            solid[at(up, cell_z) : at(up, cell_z) + nx] = bytes(nx)
    return nx, ny, nz


def _pack(cells: bytearray) -> str:
    return base64.b64encode(zlib.compress(cells)).decode()


def _unpack(text: str) -> bytes:
    try:
        unpacker = zlib.decompressobj()
        cells = unpacker.decompress(base64.b64decode(text, validate=True), _CELLS + 1)
    except zlib.error as error:
        raise ValueError(f"the cells of the terrain are damaged: {error}") from None
    if len(cells) != _CELLS:
        raise ValueError("a chunk of the terrain has the wrong size")
    return cells
