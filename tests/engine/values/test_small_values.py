"""``BrickColor``, ``Ray`` and ``PhysicalProperties``."""

from __future__ import annotations

import pytest

from clawblox.engine.values.brick_color import COLORS, PALETTE, BrickColor
from clawblox.engine.values.enums import ENUMS
from clawblox.engine.values.physical_properties import MATERIALS
from tests.engine.values.support import error, run, text


def test_a_brick_colour_has_number_name_and_colour() -> None:
    assert run("local c = BrickColor.new('Bright red') return c.Number, c.Name, c.r") == (
        21.0,
        "Bright red",
        run("return Color3.fromRGB(196, 40, 28).R"),
    )
    assert text("BrickColor.new(1010).Color:ToHex()") == "#0000FF"
    assert text("BrickColor.new(1010)") == "Really blue"


@pytest.mark.parametrize("unknown", ["'Nonsense'", "4", "-1", "0/0", "1.5"])
def test_an_unknown_brick_colour_is_medium_stone_grey(unknown: str) -> None:
    assert text(f"BrickColor.new({unknown})") == "Medium stone grey"


@pytest.mark.thorough
def test_a_colour_becomes_the_nearest_brick_colour() -> None:
    assert text("BrickColor.new(1, 0, 0)") == "Really red"
    assert text("BrickColor.new(Color3.fromRGB(195, 41, 30))") == "Bright red"
    assert run("return BrickColor.new(Color3.new(1, 1, 0)) == BrickColor.new('New Yeller')")
    for number, _, name in COLORS:
        found = run(f"return BrickColor.new(BrickColor.new({number}).Color).Name")
        assert found == name


def test_brick_color_palette_has_128_colours() -> None:
    assert len(COLORS) == 208
    assert len(set(PALETTE)) == 128
    assert text("BrickColor.palette(0)") == "Earth green"
    assert text("BrickColor.palette(127)") == "Really black"
    assert "must be from 0 to 127" in error("BrickColor.palette(128)")
    assert "must be from 0 to 127" in error("BrickColor.palette(0/0)")


def test_named_and_random_brick_colours() -> None:
    assert text("BrickColor.Green()") == "Dark green"
    assert text("BrickColor.Gray()") == "Medium stone grey"
    assert run("return BrickColor.random().Number") in {float(number) for number, _, _ in COLORS}


def test_unknown_brick_colour_in_a_snapshot_is_refused() -> None:
    with pytest.raises(ValueError, match="no BrickColor 4"):
        BrickColor.empty().fill(4.0)


def test_a_ray_has_an_origin_a_direction_and_a_unit() -> None:
    assert text("Ray.new(Vector3.new(1, 2, 3), Vector3.new(0, 0, 5))") == "{1, 2, 3}, {0, 0, 5}"
    assert text("Ray.new(Vector3.one, Vector3.new(0, 0, 5)).Unit.Direction") == "0, 0, 1"
    assert text("Ray.new(Vector3.one, Vector3.zero).Unit.Direction") == "0, 0, 0"
    assert run("return Ray.new(Vector3.one, Vector3.zero) == Ray.new(Vector3.one, Vector3.zero)")


def test_ray_returns_its_closest_point() -> None:
    ray = "Ray.new(Vector3.new(1, 0, 0), Vector3.xAxis)"
    assert text(f"{ray}:ClosestPoint(Vector3.new(5, 3, 4))") == "5, 0, 0"
    assert text(f"{ray}:ClosestPoint(Vector3.new(-5, 3, 4))") == "1, 0, 0"
    assert run(f"return {ray}:Distance(Vector3.new(5, 3, 4))") == 5.0


def test_physical_properties_are_clamped_numbers() -> None:
    assert text("PhysicalProperties.new(2, 0.5, 0.25)") == "2, 0.5, 0.25, 1, 1"
    assert text("PhysicalProperties.new(2, 0.5, 0.25, 3, 4)") == "2, 0.5, 0.25, 3, 4"
    assert text("PhysicalProperties.new(1e9, 5, 5, 1e9, -1)") == "100, 2, 1, 100, 0"
    assert run("return PhysicalProperties.new(0/0, 0, 0).Density") == pytest.approx(1e-4)
    assert "number expected" in error("PhysicalProperties.new(1, 2)")


def test_each_material_has_physical_properties() -> None:
    for name in ENUMS["Material"]:
        density = run(f"return PhysicalProperties.new(Enum.Material.{name}).Density")
        assert density == pytest.approx(MATERIALS.get(name, MATERIALS["Plastic"])[0]), name


def test_physical_properties_exist_only_for_known_materials() -> None:
    assert MATERIALS.keys() | {"Air", "Water"} == ENUMS["Material"].keys()
