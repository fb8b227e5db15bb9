"""The error for an unknown name states the class and the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.playing import play, say

WRONG = {
    "Instance.new('Part'):Destory()": (
        "'Destory' is not a valid member of Part 'Part'; did you mean 'Destroy'?"
    ),
    "workspace:getchildren()": (
        "'getchildren' is not a valid member of Workspace 'Workspace'; did you mean 'GetChildren'?"
    ),
    "workspace:Zzzzzz()": "'Zzzzzz' is not a valid member of Workspace 'Workspace'",
    "Instance.new('Part').Anchord = true": (
        "'Anchord' is not a valid member of Part 'Part'; did you mean 'Anchored'?"
    ),
    "Instance.new('Prt')": "Unknown class 'Prt'; did you mean 'Part'?",
    "Instance.new('Part'):GetPropertyChangedSignal('Postion')": (
        "Postion is not a valid property name of Part; did you mean 'Position'?"
    ),
    "local a = Enum.Material.Woodplank": (
        "'Woodplank' is not a valid member of Enum.Material; did you mean 'WoodPlanks'?"
    ),
    "local a = Enum.Materials": (
        "'Materials' is not a valid member of Enum; did you mean 'Material'?"
    ),
    "Instance.new('Part').Material = 'Neoon'": (
        "invalid value for property 'Material': 'Neoon' is not a valid member of Enum.Material; "
        "did you mean 'Neon'?"
    ),
    "local a = CFrame.new().LookVecter": (
        "'LookVecter' is not a valid member of CFrame; did you mean 'LookVector'?"
    ),
    "RaycastParams.new().FilterTyp = 1": (
        "'FilterTyp' is not a valid member of RaycastParams; did you mean 'FilterType'?"
    ),
    "workspace.ChildAdded:Conect(print)": (
        "'Conect' is not a valid member of RBXScriptSignal; did you mean 'Connect'?"
    ),
    "workspace[{}] = 1": "table is not a valid member of Workspace 'Workspace'",
}


@pytest.mark.parametrize("statement", WRONG)
def test_unknown_member_error_names_its_class_and_the_nearest_name(
    tmp_path: Path, statement: str
) -> None:
    lines = say(tmp_path, f"print(select(2, pcall(function() {statement} end)))")
    assert lines == [f"main.lua:1: {WRONG[statement]}"]


def test_unknown_service_is_nil_with_a_warning_that_names_the_nearest(tmp_path: Path) -> None:
    run = play(
        tmp_path,
        """
        for _ = 1, 3 do print(game:GetService("RunServise"), game:GetService("Zzz")) end
        print(game:FindService("Nonsense"), game:GetService(5))
        """,
    )
    assert [line for line in run.lines if line.startswith("err")] == [
        (
            "err [Lua WARN] GetService: 'RunServise' is not a service of DataModel; "
            "did you mean 'RunService'?"
        ),
        "err [Lua WARN] GetService: 'Zzz' is not a service of DataModel",
        "err [Lua WARN] GetService: number is not a service of DataModel",
    ]


def test_number_of_remembered_warnings_is_limited(tmp_path: Path) -> None:
    run = play(tmp_path, "for at = 1, 1000 do game:GetService('S' .. at) end")
    assert run.world.failure is None
    assert sum("is not a service" in line for line in run.lines) == 100


@pytest.mark.thorough
def test_search_for_the_nearest_name_is_charged(tmp_path: Path) -> None:
    script = "while true do pcall(function() return Enum.Material.SmothPlastik end) end"
    run = play(tmp_path, script, steps_per_tick=300_000)
    assert "exhausted the allowed number of steps" in (run.world.failure or "")
