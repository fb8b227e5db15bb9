"""Terrain: cells of 4 studs, filling with blocks, and the boxes for physics."""

from __future__ import annotations

import math
import random

import pytest

from clawblox.engine.errors import WorldHalted
from clawblox.engine.services.terrain import find_terrain, restore_terrain, terrain_document
from clawblox.engine.services.voxels import FULL, Voxels
from tests.engine.services.bench import Bench, bench

READ = """
local function read(x1, y1, z1, x2, y2, z2)
    local region = Region3.new(Vector3.new(x1, y1, z1), Vector3.new(x2, y2, z2))
    return Workspace.Terrain:ReadVoxelChannels(region, 4, {'SolidMaterial', 'SolidOccupancy'})
end
local function fill(at, size, material)
    Workspace.Terrain:FillBlock(at, size, Enum.Material[material])
end
"""


def printed(source: str) -> list[str]:
    return bench(READ + source).printed()


def test_a_block_on_the_grid_fills_whole_cells() -> None:
    source = """
    fill(CFrame.new(0, -2, 0), Vector3.new(40, 4, 8), 'Grass')
    local found = read(-24, -4, -4, 24, 4, 4)
    print(found.Size, #found.SolidMaterial, #found.SolidMaterial[1], #found.SolidMaterial[1][1])
    for _, x in {1, 2, 11, 12} do
        print(found.SolidMaterial[x][1][1], found.SolidOccupancy[x][1][2],
              found.SolidMaterial[x][2][1], found.SolidOccupancy[x][2][1])
    end
    """
    air, grass = "Enum.Material.Air", "Enum.Material.Grass"
    assert printed(source) == [
        "12, 2, 2\t12\t2\t2",
        f"{air}\t0\t{air}\t0",
        f"{grass}\t1\t{air}\t0",
        f"{grass}\t1\t{air}\t0",
        f"{air}\t0\t{air}\t0",
    ]


def test_a_cell_holds_the_share_that_a_block_covers() -> None:
    source = """
    fill(CFrame.new(0, 1, 0), Vector3.new(8, 2, 8), 'Sand')
    fill(CFrame.new(2, 0.5, 2), Vector3.new(4, 1, 4), 'Rock' and 'Slate')
    local found = read(0, 0, 0, 4, 4, 4)
    print(found.SolidMaterial[1][1][1].Name, math.round(found.SolidOccupancy[1][1][1] * 100))
    fill(CFrame.new(2, 1.5, 2), Vector3.new(4, 3, 4), 'Slate')
    found = read(0, 0, 0, 4, 4, 4)
    print(found.SolidMaterial[1][1][1].Name, math.round(found.SolidOccupancy[1][1][1] * 100))
    fill(CFrame.new(2, 2, 2), Vector3.new(4, 4, 4), 'Air')
    print(read(0, 0, 0, 4, 4, 4).SolidMaterial[1][1][1].Name)
    """
    assert printed(source) == ["Sand\t50", "Slate\t75", "Air"]


def test_a_turned_block_fills_the_same_volume() -> None:
    def volume(turn: str) -> float:
        world = bench(
            READ + f"fill({turn}, Vector3.new(32, 16, 24), 'Grass')\n"
            "local sum = 0\n"
            "for _, xs in read(-40, -40, -40, 40, 40, 40).SolidOccupancy do for _, ys in xs do"
            " for _, share in ys do sum += share end end end print(sum)"
        )
        return float(world.printed()[0])

    straight = volume("CFrame.new(1, 2, 3)")
    assert straight == pytest.approx(32 * 16 * 24 / 64, rel=0.01)
    assert volume("CFrame.new(1, 2, 3) * CFrame.Angles(0.3, 0.7, 0)") == pytest.approx(
        straight, rel=0.03
    )


def test_written_values_are_read_back() -> None:
    source = """
    local region = Region3.new(Vector3.new(-4, 0, 60), Vector3.new(4, 4, 68))
    local air, neon = Enum.Material.Air, Enum.Material.Neon
    Workspace.Terrain:WriteVoxelChannels(region, 4, {
        SolidMaterial = {{{neon, neon}}, {{air, neon}}},
        SolidOccupancy = {{{1, 0.2}}, {{1}}},
    })
    local found = read(-4, 0, 60, 4, 4, 68)
    for x = 1, 2 do for z = 1, 2 do
        print(found.SolidMaterial[x][1][z].Name, math.round(found.SolidOccupancy[x][1][z] * 100))
    end end
    """
    assert printed(source) == ["Neon\t100", "Neon\t20", "Air\t0", "Neon\t100"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("t:FillBlock(1)", "invalid argument #1 to 'FillBlock' (CFrame expected)"),
        ("t:FillBlock(CFrame.new(), Vector3.one, 3)", "invalid argument #3 to 'FillBlock'"),
        ("t:FillBlock(CFrame.new(0/0, 0, 0), Vector3.one, m)", "the block must be finite"),
        ("t:FillBlock(CFrame.new(), Vector3.one * 1e6, m)", "Region is too large"),
        ("t:ReadVoxelChannels(r, 2, {})", "the resolution must be 4"),
        ("t:ReadVoxelChannels(off, 4, {})", "the region must be on the grid"),
        ("t:ReadVoxelChannels(r, 4, {'x'})", "unknown channel"),
        ("t:WriteVoxelChannels(r, 4, {SolidOccupancy = {{{2}}}})", "a number from 0 to 1"),
    ],
)
def test_invalid_terrain_calls_name_the_mistake(call: str, message: str) -> None:
    head = (
        "local t, m = Workspace.Terrain, Enum.Material.Grass\n"
        "local r = Region3.new(Vector3.zero, Vector3.new(4, 4, 4))\n"
        "local off = Region3.new(Vector3.zero, Vector3.new(4, 4, 5))\n"
    )
    with pytest.raises(WorldHalted) as caught:
        bench(head + call)
    assert message in str(caught.value)


def solid_cells(voxels: Voxels) -> list[tuple[int, int, int]]:
    """Return the cells of all boxes, checking that boxes do not overlap."""
    return [
        (x, y, z)
        for key in voxels.chunks()
        for low, high in voxels.boxes(key)
        for x in range(low[0], high[0])
        for y in range(low[1], high[1])
        for z in range(low[2], high[2])
    ]


def test_boxes_cover_the_solid_cells_once() -> None:
    draw = random.Random(7)
    voxels = Voxels()
    written = {}
    for _ in range(900):
        cell = (draw.randrange(-20, 20), draw.randrange(-3, 3), draw.randrange(-9, 9))
        occupancy = draw.choice([0, 60, 127, 128, FULL])
        voxels.write(cell, 1, occupancy)
        written[cell] = occupancy
    voxels.fill_row((-30, 0, 0), 50, 2)
    written |= {(x, 0, 0): FULL for x in range(-30, 20)}
    expected = sorted(cell for cell, occupancy in written.items() if occupancy >= 128)
    assert sorted(solid_cells(voxels)) == expected


def test_flat_terrain_has_few_boxes() -> None:
    world = bench(READ + "fill(CFrame.new(0, -2, 0), Vector3.new(512, 4, 512), 'Grass')")
    voxels = find_terrain(world.model)
    assert sorted(voxels.changed) == list(voxels.chunks())
    boxes = [box for key in voxels.chunks() for box in voxels.boxes(key)]
    assert len(boxes) == 64
    assert sum(math.prod(b - a for a, b in zip(*box, strict=True)) for box in boxes) == 128 * 128


def test_terrain_is_restored_from_a_snapshot() -> None:
    world = bench(READ + "fill(CFrame.new(3, 1, 0), Vector3.new(70, 5, 9), 'Ice')")
    voxels = find_terrain(world.model)
    voxels.changed.clear()  # read by physics
    voxels.write((0, 0, 0), 0, 0)
    document = terrain_document(world.model)
    other = Bench().begin()
    restore_terrain(other.model, document)
    assert terrain_document(other.model) == document
    assert list(find_terrain(other.model).changed) == [(0, 0, 0)]
    assert solid_cells(find_terrain(other.model)) == solid_cells(find_terrain(world.model))
    document["chunks"][0][3] = "AAAA"
    with pytest.raises(ValueError, match="damaged"):
        restore_terrain(Bench().begin().model, document)
