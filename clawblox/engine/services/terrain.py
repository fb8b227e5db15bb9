"""``Terrain``: the ground below Workspace, and its methods for scripts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.parts.ground import CELL
from clawblox.engine.services.voxels import AIR, FULL, Cell, Voxels, overlap
from clawblox.engine.values import rotations
from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.enums import ENUM, EnumItem
from clawblox.engine.values.ray_and_region import Region3
from clawblox.engine.values.value import as_list
from clawblox.luau import LuaTable, RuntimeFault, Vector

_MATERIALS: Final = ("Air", *(name for name in ENUM.enum("Material").numbers if name != "Air"))
_NUMBERS: Final = {name: number for number, name in enumerate(_MATERIALS)}
_CHANNELS: Final = ("SolidMaterial", "SolidOccupancy", "LiquidOccupancy")
_MAX_CELLS: Final = 1 << 22


SHAPE: Final = {
    "materials": [shapes.text],
    "changed": [(shapes.integer,) * 3],
    "chunks": [((shapes.integer,) * 3 + (shapes.text, shapes.text))],
}


def make_terrain(model: DataModel) -> None:
    """Create the empty ground of a new world."""
    terrain = model.make("Terrain")
    terrain.link(model.workspace)
    terrain.in_workspace = True
    model.workspace.store("Terrain", terrain)
    terrain.extra = Voxels()


def find_terrain(model: DataModel) -> Voxels:
    """Return the ground of a world."""
    voxels: Voxels = model.workspace.read("Terrain").extra
    return voxels


def terrain_document(model: DataModel) -> dict[str, Any]:
    """Return the ground for a snapshot."""
    return find_terrain(model).document(_MATERIALS)


def restore_terrain(model: DataModel, document: dict[str, Any]) -> None:
    """Restore the ground of a snapshot.

    Raises:
        ValueError: The snapshot is damaged.
    """
    voxels = model.workspace.read("Terrain").extra = Voxels()
    voxels.restore(document, _find_material)


def _find_material(name: str) -> int:
    if name not in _NUMBERS:
        raise ValueError(f"the snapshot has an unknown material {name!r}")
    return _NUMBERS[name]


def _wrong(method: str, at: int, wanted: str) -> RuntimeFault:
    return RuntimeFault(f"invalid argument #{at} to '{method}' ({wanted} expected)")


def _material(value: Any, method: str, at: int) -> int:
    if not isinstance(value, EnumItem) or value.name not in _NUMBERS:
        raise _wrong(method, at, "Enum.Material")
    return _NUMBERS[value.name]


def fill_block(terrain: Instance, frame: Any, size: Any, material: Any) -> Any:
    """``FillBlock(cframe, size, material)``; Air removes ground."""
    if not isinstance(frame, CFrame):
        raise _wrong("FillBlock", 1, "CFrame")
    if not isinstance(size, Vector):
        raise _wrong("FillBlock", 2, "Vector3")
    kind = _material(material, "FillBlock", 3)
    numbers = (*frame.contents()[1:], frame.position.x, frame.position.y, frame.position.z)
    half = tuple(abs(part) / 2 / CELL for part in (size.x, size.y, size.z))
    if not all(map(math.isfinite, (*numbers, *half))):
        raise RuntimeFault("FillBlock: the block must be finite")
    center = tuple(part / CELL for part in numbers[9:])
    if frame.rotation == rotations.IDENTITY:
        _fill_straight(terrain, center, half, kind)
    else:
        _fill_turned(terrain, center, half, frame.rotation, kind)
    return ()


def _cells(terrain: Instance, low: tuple[float, ...], high: tuple[float, ...]) -> list[range]:
    """Return the cells between two corners, on each axis; charge the script for them."""
    spans = [range(math.floor(a), math.ceil(b)) for a, b in zip(low, high, strict=True)]
    count = math.prod(map(len, spans))
    if count > _MAX_CELLS:
        raise RuntimeFault(f"Region is too large: {count} cells, at most {_MAX_CELLS}")
    terrain.model.scheduler.vm.charge(count)
    return spans


def _fill_straight(
    terrain: Instance, center: tuple[float, ...], half: tuple[float, ...], kind: int
) -> None:
    voxels: Voxels = terrain.extra
    low = tuple(c - h for c, h in zip(center, half, strict=True))
    high = tuple(c + h for c, h in zip(center, half, strict=True))
    along, up, across = _cells(terrain, low, high)
    shares = [overlap(x, low[0], high[0]) for x in along]
    full = [x for x, share in zip(along, shares, strict=True) if share == 1.0]
    for y in up:
        for z in across:
            side = overlap(y, low[1], high[1]) * overlap(z, low[2], high[2])
            if side == 1.0 and full:
                voxels.fill_row((full[0], y, z), len(full), kind)
            for x, share in zip(along, shares, strict=True):
                if side * share < 1.0:
                    voxels.fill((x, y, z), kind, side * share)


def _fill_turned(
    terrain: Instance,
    center: tuple[float, ...],
    half: tuple[float, ...],
    rotation: rotations.Rotation,
    kind: int,
) -> None:
    """Fill cells by the depth of their centres in the block, ignoring the cells' own rotation."""
    voxels: Voxels = terrain.extra
    reach = [
        sum(abs(rotation[3 * axis + part]) * half[part] for part in range(3)) + 1.0
        for axis in range(3)
    ]
    low = tuple(c - r for c, r in zip(center, reach, strict=True))
    high = tuple(c + r for c, r in zip(center, reach, strict=True))
    for x, y, z in _product(_cells(terrain, low, high)):
        offset = (x + 0.5 - center[0], y + 0.5 - center[1], z + 0.5 - center[2])
        local = rotations.apply_inverse(rotation, *offset)
        share = math.prod(
            max(0.0, min(at + 0.5, h) - max(at - 0.5, -h))
            for at, h in zip(local, half, strict=True)
        )
        if share > 0.0:
            voxels.fill((x, y, z), kind, share)


def _product(spans: list[range]) -> Iterator[Cell]:
    along, up, across = spans
    return ((x, y, z) for x in along for y in up for z in across)


def _region(terrain: Instance, region: Any, resolution: Any, method: str) -> list[range]:
    if not isinstance(region, Region3):
        raise _wrong(method, 1, "Region3")
    if resolution != CELL:
        raise RuntimeFault(f"{method}: the resolution must be 4")
    corners = [
        tuple(part / CELL for part in (at.x, at.y, at.z)) for at in (region.low, region.high)
    ]
    if not all(part.is_integer() for corner in corners for part in corner):
        raise RuntimeFault(f"{method}: the region must be on the grid; use Region3:ExpandToGrid(4)")
    return _cells(terrain, *corners)


def read_voxel_channels(terrain: Instance, region: Any, resolution: Any, channels: Any) -> Any:
    """``ReadVoxelChannels(region, 4, channels)``: return ``[x][y][z]`` tables and ``Size``."""
    spans = _region(terrain, region, resolution, "ReadVoxelChannels")
    if not isinstance(channels, LuaTable):
        raise _wrong("ReadVoxelChannels", 3, "table")
    found = LuaTable({"Size": Vector(*(float(len(span)) for span in spans))})
    for name in channels.values():
        if name not in _CHANNELS:
            raise RuntimeFault(f"ReadVoxelChannels: unknown channel; known are {_CHANNELS}")
        found[name] = _read_channel(terrain.extra, spans, name)
    return found


def _read_channel(voxels: Voxels, spans: list[range], name: str) -> LuaTable:
    items = [ENUM.enum("Material").item(each) for each in _MATERIALS]

    def value(cell: Cell) -> Any:
        material, occupancy = voxels.read(cell)
        if name == "SolidMaterial":
            return items[material]
        return occupancy / FULL if name == "SolidOccupancy" else 0.0

    along, up, across = spans
    return as_list(as_list(as_list(value((x, y, z)) for z in across) for y in up) for x in along)


def write_voxel_channels(terrain: Instance, region: Any, resolution: Any, channels: Any) -> Any:
    """``WriteVoxelChannels(region, 4, channels)``, leaving missing cells unchanged."""
    method = "WriteVoxelChannels"
    spans = _region(terrain, region, resolution, method)
    if not isinstance(channels, LuaTable):
        raise _wrong(method, 3, "table")
    voxels: Voxels = terrain.extra
    materials, shares = channels.get("SolidMaterial"), channels.get("SolidOccupancy")
    starts = [span.start for span in spans]
    for cell in _product(spans):
        at = [float(part - start + 1) for part, start in zip(cell, starts, strict=True)]
        material, occupancy = voxels.read(cell)
        named = _entry(materials, at)
        share = _entry(shares, at)
        if named is not None:
            material = _material(named, method, 3)
        if share is not None:
            if share.__class__ is not float or not 0.0 <= share <= 1.0:
                raise RuntimeFault(f"{method}: an occupancy must be a number from 0 to 1")
            occupancy = round(share * FULL)
        elif named is not None and occupancy == 0:
            occupancy = FULL
        voxels.write(cell, material, 0 if material == AIR else occupancy)
    return ()


def _entry(channel: Any, at: list[float]) -> Any:
    for part in at:
        if not isinstance(channel, LuaTable):
            return None
        channel = channel.get(part)
    return channel
