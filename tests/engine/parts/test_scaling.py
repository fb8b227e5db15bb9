"""Models that grow and shrink, and motors that turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.playing import printed, say
from tests.engine.torture import Plan, torture

CAR = """
local function part(name, at, size, parent)
    local made = Instance.new("Part")
    made.Name, made.Anchored, made.Size, made.Position = name, true, size, at
    made.Parent = parent
    return made
end
local car = Instance.new("Model")
car.Name = "Car"
local body = part("Body", Vector3.new(10, 5, 0), Vector3.new(4, 2, 6), car)
local lamp = part("Lamp", Vector3.new(10, 5, 4), Vector3.new(1, 1, 1), car)
car.PrimaryPart = body
car.Parent = workspace
local function show(made) print(made.Name, made.Position, made.Size) end
"""


def test_scale_to_scales_a_model_around_its_pivot(tmp_path: Path) -> None:
    main = (
        CAR
        + """
        local mark = Instance.new("Attachment", body)
        mark.Position = Vector3.new(0, 1, 0)
        local joint = Instance.new("Weld", body)
        joint.C0, joint.C1 = CFrame.new(1, 0, 0), CFrame.new(0, 2, 0)
        local trailer = Instance.new("Model", car)
        part("Box", Vector3.new(10, 5, 8), Vector3.new(2, 2, 2), trailer)
        trailer:PivotTo(CFrame.new(10, 5, 8))
        lamp.Orientation = Vector3.new(0, 90, 0)
        lamp:GetPropertyChangedSignal("Size"):Connect(function() print("changed") end)
        print(car:GetScale(), trailer:GetScale())
        trailer:ScaleTo(3)
        car:ScaleTo(2)
        show(body) show(lamp) show(trailer.Box)
        print(mark.Position, joint.C0.Position, joint.C1.Position, lamp.Orientation.Y)
        print(car:GetScale(), trailer:GetScale(), car:Clone():GetScale(), car.Scale)
        print(trailer:GetPivot().Position)
        car:ScaleTo(1)
        show(lamp)
        """
    )
    assert say(tmp_path, main) == [
        "1\t1",
        "changed",
        "Body\t10, 5, 0\t8, 4, 12",
        "Lamp\t10, 5, 8\t2, 2, 2",
        "Box\t10, 5, 16\t12, 12, 12",
        "0, 2, 0\t2, 0, 0\t0, 4, 0\t90",
        "2\t6\t2\tnil",
        "10, 5, 16",
        "changed",
        "Lamp\t10, 5, 4\t1, 1, 1",
    ]


def test_a_model_without_primary_part_keeps_its_pivot(tmp_path: Path) -> None:
    main = (
        CAR
        + """
        car.PrimaryPart = nil
        car:PivotTo(CFrame.new(0, 0, 0))
        car:ScaleTo(0.5)
        print(car:GetPivot().Position, lamp.Position - body.Position)
        """
    )
    assert say(tmp_path, main) == ["0, 0, 0\t0, 0, 2"]


@pytest.mark.parametrize("scale", ["0", "-1", "0/0", "1e9", "'2'", "nil"])
def test_scale_to_refuses_a_scale_out_of_range(tmp_path: Path, scale: str) -> None:
    main = f"{CAR} print(pcall(car.ScaleTo, car, {scale})) print(car:GetScale())"
    refused, kept = say(tmp_path, main)
    assert refused.startswith("false\t")
    assert "ScaleTo" in refused
    assert kept == "1"


def test_repeatedly_scaled_nested_model_keeps_a_valid_scale(tmp_path: Path) -> None:
    main = """
    local inner = Instance.new("Model")
    for _ = 1, 100 do
        local outer = Instance.new("Model")
        inner.Parent = outer
        outer:ScaleTo(0.0001)
    end
    inner:ScaleTo(1)
    print(inner:GetScale())
    """
    assert say(tmp_path, main) == ["1"]


SCALED = (
    CAR
    + """
body.Anchored, lamp.Anchored = false, false
local weld = Instance.new("WeldConstraint", body)
weld.Part0, weld.Part1 = body, lamp
task.wait(0.05)
car:ScaleTo(2)
task.wait(0.1)
print(car:GetScale(), math.round((lamp.Position - body.Position).Magnitude * 100))
"""
)


@pytest.mark.thorough
def test_scaled_model_stays_welded_even_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(SCALED)
    (tmp_path / "world.toml").write_text('name = "scaled"')
    run = torture(tmp_path, Plan(), ticks=14, saves=(2, 4, 8))
    assert printed(run) == ["2\t800"]


DOOR = (
    CAR
    + """
local hinge = Instance.new("Motor6D")
hinge.Part0, hinge.Part1 = body, lamp
hinge.C0, hinge.C1 = CFrame.new(2, 0, 0), CFrame.new(-1, 0, 0)
hinge.Parent = body
local function at(name)
    local offset = lamp.Position - body.Position
    print(name, math.round(offset.X * 10), math.round(offset.Y * 10), math.round(offset.Z * 10))
end
task.wait(0.05)
at("straight")
hinge.DesiredAngle = math.pi / 2
task.wait(0.05)
at("without speed")
hinge.MaxVelocity = math.pi / 10
task.wait(0.15)
at("turned")
print(hinge.CurrentAngle == hinge.DesiredAngle)
hinge.Transform = CFrame.new(0, 0, 5)
task.wait(0.05)
at("moved")
"""
)


def test_motor_turns_and_moves_its_part_even_after_a_restore(tmp_path: Path) -> None:
    (tmp_path / "main.lua").write_text(DOOR)
    (tmp_path / "world.toml").write_text('name = "door"')
    run = torture(tmp_path, Plan(), ticks=24, saves=(2, 8, 10, 17))
    assert printed(run) == [
        "straight\t30\t0\t0",
        "without speed\t30\t0\t0",
        "turned\t20\t10\t0",
        "true",
        "moved\t20\t10\t50",
    ]


@pytest.mark.parametrize("value", ["1/0", "-1/0", "1e300"])
def test_the_angles_of_a_motor_are_limited(tmp_path: Path, value: str) -> None:
    main = (
        f"{CAR} local hinge = Instance.new('Motor6D', body) hinge.Part0, hinge.Part1 = body, lamp "
        f"hinge.CurrentAngle, hinge.DesiredAngle, hinge.MaxVelocity = {value}, -({value}), {value} "
        "task.wait() print(math.abs(hinge.CurrentAngle))"
    )
    assert say(tmp_path, main, 2) == ["1000000"]


def test_motor_is_not_a_weld(tmp_path: Path) -> None:
    main = (
        "local motor = Instance.new('Motor6D') print(motor:IsA('Weld'), motor:IsA('Constraint')) "
        "print(pcall(function() motor.DesiredAngl = 1 end))"
    )
    kinds, error = say(tmp_path, main)
    assert kinds == "false\ttrue"
    assert "did you mean 'DesiredAngle'?" in error
