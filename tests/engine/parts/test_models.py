"""The bounding box of a model, and moves of models to free positions."""

from __future__ import annotations

from pathlib import Path

from tests.engine.playing import play, say

MODEL = """
local model = Instance.new("Model", workspace)
local function part(size, position, parent)
    local made = Instance.new("Part")
    made.Anchored, made.Size, made.Position = true, size, position
    made.Parent = parent or model
    return made
end
"""


def test_bounding_box_of_a_model_without_primary_part_is_axis_aligned(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        MODEL
        + """
        print(model:GetBoundingBox())
        part(Vector3.new(2, 2, 2), Vector3.new(0, 0, 0))
        local turned = part(Vector3.new(2, 2, 6), Vector3.new(10, 0, 0))
        turned.Orientation = Vector3.new(0, 90, 0)
        local frame, size = model:GetBoundingBox()
        print(frame.Position, frame.Rotation == CFrame.identity)
        print(size:FuzzyEq(Vector3.new(14, 2, 2)))
        print(model:GetExtentsSize() == size)
        """,
    )
    assert lines == [
        "0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1\t0, 0, 0",
        "6, 0, 0\ttrue",
        "true",
        "true",
    ]


def test_bounding_box_of_a_model_has_the_rotation_of_its_primary_part(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        MODEL
        + """
        local turn = CFrame.Angles(0.3, 0.7, -0.2)
        local first = part(Vector3.new(2, 4, 6), Vector3.zero)
        first.CFrame = turn + Vector3.new(5, 6, 7)
        part(Vector3.new(2, 4, 6), Vector3.zero).CFrame = first.CFrame * CFrame.new(10, 0, 0)
        model.PrimaryPart = first
        local frame, size = model:GetBoundingBox()
        local middle = first.CFrame * CFrame.new(5, 0, 0)
        print(size:FuzzyEq(Vector3.new(12, 4, 6)), frame:FuzzyEq(middle))
        """,
    )
    assert lines == ["true\ttrue"]


def test_move_to_places_the_primary_or_first_part_of_a_model(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        MODEL
        + """
        local a, b = part(Vector3.one, Vector3.zero), part(Vector3.one, Vector3.new(3, 0, 0))
        a.Orientation = Vector3.new(0, 90, 0)
        model:MoveTo(Vector3.new(10, 20, 30))
        print(a.Position, b.Position, a.Orientation)
        model.PrimaryPart = b
        model:MoveTo(Vector3.new(10, 20, 30))
        print(a.Position, b.Position, model:GetPivot().Position)
        print(pcall(model.MoveTo, model, 5))
        print(pcall(model.MoveTo, model, Vector3.new(0 / 0, 0, 0)))
        Instance.new("Model"):MoveTo(Vector3.zero)
        """,
    )
    assert lines == [
        "10, 20, 30\t13, 20, 30\t-0, 90, 0",
        "7, 20, 30\t10, 20, 30\t10, 20, 30",
        "false\tinvalid value for property 'position' (finite Vector3 expected, got number)",
        "false\tinvalid value for property 'position' (finite Vector3 expected, got Vector3)",
    ]


def test_move_to_raises_a_model_above_solid_obstacles(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        MODEL
        + """
        local a = part(Vector3.new(2, 2, 2), Vector3.new(0, 100, 0))
        part(Vector3.new(2, 2, 2), Vector3.new(2, 100, 0)) -- its own parts are not in the way
        part(Vector3.new(20, 4, 20), Vector3.new(0, 0, 0), workspace)
        part(Vector3.new(1, 1, 1), Vector3.new(2, 4, 0), workspace)
        local ghost = part(Vector3.new(20, 4, 20), Vector3.new(0, 7, 0), workspace)
        ghost.CanCollide = false
        model:MoveTo(Vector3.new(0, 1, 0))
        print(a.Position)
        model:MoveTo(Vector3.new(0, 1, 8))
        print(a.Position)
        model:MoveTo(Vector3.new(0, 50, 0))
        print(a.Position)
        model.Parent = game.ServerStorage
        model:MoveTo(Vector3.new(0, 1, 0))
        print(a.Position)
        """,
    )
    assert lines == ["0, 5.5, 0", "0, 3, 8", "0, 50, 0", "0, 1, 0"]


def test_move_to_places_a_model_on_the_ground(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        MODEL
        + """
        local a = part(Vector3.new(2, 2, 2), Vector3.new(0, 100, 0))
        workspace.Terrain:FillBlock(CFrame.new(0, 2, 0), Vector3.new(40, 12, 40), "Grass")
        """.replace('"Grass"', "Enum.Material.Grass")
        + """
        model:MoveTo(Vector3.new(1, 0, 1))
        print(a.Position)
        """,
    )
    assert lines == ["1, 9, 1"]


def test_model_without_a_primary_part_keeps_its_assigned_pivot(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        MODEL
        + """
        local a = part(Vector3.one, Vector3.new(5, 0, 0))
        model:PivotTo(CFrame.new(0, 50, 0))
        model:MoveTo(Vector3.new(0, 60, 0))
        print(a.Position, model:GetPivot().Position)
        """,
    )
    assert lines == ["0, 60, 0\t0, 60, 0"]


def test_move_to_charges_for_a_tower_of_obstacles(tmp_path: Path) -> None:
    run = play(
        tmp_path,
        MODEL
        + """
        part(Vector3.one, Vector3.new(0, 900, 0))
        for at = 1, 300 do part(Vector3.new(4, 1, 4), Vector3.new(0, at, 0), workspace) end
        while true do model:MoveTo(Vector3.zero) end
        """,
        steps_per_tick=500_000,
    )
    assert "exhausted the allowed number of steps" in (run.world.failure or "")


def test_translate_by_moves_a_model_as_a_whole(tmp_path: Path) -> None:
    lines = say(
        tmp_path,
        MODEL
        + """
        local a = part(Vector3.one, Vector3.new(0, 5, 0))
        local b = part(Vector3.one, Vector3.new(4, 5, 0))
        b.Orientation = Vector3.new(0, 90, 0)
        model:TranslateBy(Vector3.new(1, 2, 3))
        print(a.Position, b.Position, b.Orientation.Y)
        print(pcall(model.TranslateBy, model, 5))
        """,
    )
    assert lines[0] == "1, 7, 3\t5, 7, 3\t90"
    assert lines[1].startswith("false\tinvalid value for property 'TranslateBy' (Vector3 expected")


def test_network_owner_of_every_part_is_the_server(tmp_path: Path) -> None:
    main = MODEL + (
        "local p = part(Vector3.one, Vector3.zero) "
        "p:SetNetworkOwner(nil) p:SetNetworkOwnershipAuto() print(p:GetNetworkOwner())"
    )
    assert say(tmp_path, main) == ["nil"]
