"""Properties of parts with structured values: colours, materials, physical properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.values.enums import ENUMS
from tests.engine.playing import say


def test_brick_color_and_color_are_kept_in_sync(tmp_path: Path) -> None:
    assert say(
        tmp_path,
        """
        local part = Instance.new("Part")
        print(part.BrickColor)
        part:GetPropertyChangedSignal("BrickColor"):Connect(function() print("changed") end)
        part:GetPropertyChangedSignal("Color"):Connect(function() print(part.Color:ToHex()) end)
        part.BrickColor = BrickColor.new("Really red")
        part.BrickColor = BrickColor.new("Really red")
        part.Color = Color3.new(0, 0, 1)
        print(part.BrickColor, part:Clone().BrickColor)
        print(pcall(function() part.BrickColor = "Really red" end))
        """,
    ) == [
        "Sand violet metallic",
        "#FF0000",
        "changed",
        "#0000FF",
        "Really blue\tReally blue",
        (
            "false\tmain.lua:10: invalid value for property 'BrickColor' "
            "(BrickColor expected, got string)"
        ),
    ]


def test_physical_properties_change_the_mass_and_bounce_of_a_part(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        """
        local floor = Instance.new("Part", workspace)
        floor.Anchored, floor.Size = true, Vector3.new(100, 1, 100)
        local balls = {}
        for at, bounce in { 0, 1 } do
            local ball = Instance.new("Part", workspace)
            ball.Shape, ball.Size = "Ball", Vector3.one * 2
            ball.Position = Vector3.new(at * 10, 8, 0)
            ball.CustomPhysicalProperties = PhysicalProperties.new(3, 0.3, bounce)
            balls[at] = ball
        end
        print(balls[1]:GetMass() / balls[1]:Clone():GetMass())
        print(balls[1].CustomPhysicalProperties.Density)
        balls[1].CustomPhysicalProperties = nil
        print(balls[2]:GetMass() / balls[1]:GetMass())
        task.wait(0.4)
        print(balls[1].Position.Y < 2, balls[2].Position.Y > 2)
        """,
        90,
    )
    assert lines == ["1", "3", "3", "true\ttrue"]


@pytest.mark.parametrize("name", ["WoodPlanks", "Rubber", "Air", "CorrodedMetal"])
def test_part_accepts_every_material(tmp_path: Path, name: str) -> None:
    script = f"local p = Instance.new('Part') p.Material = Enum.Material.{name} print(p.Material)"
    assert say(tmp_path, script) == [f"Enum.Material.{name}"]
    assert name in ENUMS["Material"]


def test_find_part_on_ray_accepts_a_ray_value(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        """
        local part = Instance.new("Part", workspace)
        part.Anchored, part.Position = true, Vector3.new(0, 5, 0)
        print(workspace:FindPartOnRay(Ray.new(Vector3.new(0, 50, 0), Vector3.new(0, -100, 0))))
        """,
    )
    assert lines == ["Part\t0, 5.5, 0\t0, 1, 0\tEnum.Material.Plastic"]
