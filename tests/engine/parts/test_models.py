"""The box around a model, and models that are moved to a free place."""

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


def test_the_box_around_a_model_is_along_the_axes_of_the_world(tmp_path: Path) -> None:
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


def test_the_box_around_a_model_is_turned_as_its_primary_part(tmp_path: Path) -> None:
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


def test_a_model_moves_to_a_place_with_its_first_or_primary_part(tmp_path: Path) -> None:
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


def test_a_model_goes_up_until_nothing_solid_is_in_its_way(tmp_path: Path) -> None:
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


def test_a_model_stands_on_the_ground(tmp_path: Path) -> None:
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


def test_a_model_without_a_primary_part_keeps_the_pivot_that_it_was_given(tmp_path: Path) -> None:
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


def test_a_tower_of_parts_in_the_way_is_charged(tmp_path: Path) -> None:
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


def test_a_model_is_translated_as_one(tmp_path: Path) -> None:
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


def test_the_server_owns_every_part(tmp_path: Path) -> None:
    main = MODEL + (
        "local p = part(Vector3.one, Vector3.zero) "
        "p:SetNetworkOwner(nil) p:SetNetworkOwnershipAuto() print(p:GetNetworkOwner())"
    )
    assert say(tmp_path, main) == ["nil"]
