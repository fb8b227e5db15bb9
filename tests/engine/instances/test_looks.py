"""Data classes and members: stored, copied, saved and restored, with types and defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.instances.spec import ClassSpec, Property
from clawblox.engine.values.enums import ENUM
from docs.engine_classes import build_world
from tests.engine.playing import play, printed, say
from tests.engine.torture import Plan, torture

WORLD = build_world()
CLASSES: list[ClassSpec] = [spec for spec in WORLD.model.classes if not spec.refusal]
OTHER = {
    "boolean": "not before",
    "number": "before + 1",
    "string": "before .. '!'",
    "Vector2": "Vector2.new(0.25, 7)",
    "Vector3": "Vector3.new(0.25, 7, -1)",
    "CFrame": "CFrame.new(1, 2, 3)",
    "Color3": "Color3.new(0.25, 0.5, 1)",
    "BrickColor": "BrickColor.new('Bright red')",
    "Font": "Font.fromEnum(Enum.Font.GothamBold)",
    "UDim": "UDim.new(0.25, 7)",
    "UDim2": "UDim2.new(0.25, 7, 1, -1)",
    "Rect": "Rect.new(1, 2, 3, 4)",
    "Ray": "Ray.new(Vector3.one, Vector3.one)",
    "NumberRange": "NumberRange.new(0.25, 7)",
    "NumberSequence": "NumberSequence.new(0.25, 7)",
    "ColorSequence": "ColorSequence.new(Color3.new(0.25, 0.5, 1))",
    "Attachment": "Instance.new('Attachment')",
    "BasePart": "Instance.new('Part')",
    "Camera": "Instance.new('Camera')",
    "GuiObject": "Instance.new('Frame')",
    "Instance": "workspace",
    "SoundGroup": "Instance.new('SoundGroup')",
}
"""An expression for a value other than the default, by type of the property."""


OF_ITS_OWN = ("CameraType", "PlayerToHideFrom", "TimeOfDay")
"""Members with special values: any value, a player, and a value tied to another member."""


def data_members(spec: ClassSpec) -> dict[str, Property]:
    """Return the data members that a script can assign."""
    members = spec.properties.items()
    return {name: rule for name, rule in members if rule.is_data and not rule.read_only}


def other_value(rule: Property) -> str:
    kind = rule.kind.removeprefix("name of ")
    if not kind.startswith("Enum."):
        return OTHER[kind]
    enum = ENUM.enum(kind.removeprefix("Enum."))
    *_, last = enum.items
    return f"{kind}.{last}"


MADE = [spec for spec in CLASSES if spec.creatable and data_members(spec)]
HEAD = """
local kept = {}
local function other(holder, name, value)
    holder[name] = value
    table.insert(kept, { holder, name, holder[name] })
end
local function check()
    for _, row in kept do
        local holder, name, value = unpack(row)
        assert(holder[name] == value, `{holder.ClassName}.{name} is {holder[name]}, not {value}`)
    end
end
local made, before
"""


def fill(spec: ClassSpec, holder: str) -> list[str]:
    """Return statements that give the data members of an instance other values."""
    lines = [f"made = {holder}"]
    for name, rule in data_members(spec).items():
        if name not in OF_ITS_OWN:
            lines.append(f"before = made.{name}")
            lines.append(f"other(made, '{name}', {other_value(rule)})")
    return lines


def test_data_members_are_stored_copied_saved_and_restored(tmp_path: Path) -> None:
    lines = [HEAD]
    for spec in MADE:
        lines += fill(spec, f"Instance.new('{spec.name}', workspace)")
    lines.append("for at, row in table.clone(kept) do")
    lines.append("    local copy = row[1]:Clone()")
    lines.append("    assert(copy[row[2]] == row[3] or typeof(row[3]) == 'Instance', row[2])")
    lines.append("end")
    for name in ("Lighting", "SoundService", "StarterPlayer", "Workspace", "Players"):
        spec = WORLD.model.classes.find(name)
        assert spec is not None
        lines += fill(spec, f"game:GetService('{name}')")
    lines.append("while true do check() print(#kept) task.wait() end")
    (tmp_path / "world.toml").write_text('name = "looks"')
    (tmp_path / "main.lua").write_text("\n".join(lines))
    run = torture(tmp_path, Plan(), ticks=3, saves=(0, 2))
    assert run.world.failure is None, run.world.failure
    assert len(set(run.lines)) == 1


def test_default_of_a_data_member_is_valid_for_its_type() -> None:
    with WORLD.vm.entered():
        for spec in MADE:
            for name, rule in data_members(spec).items():
                default: Any = spec.defaults.get(name)
                if rule.kind.startswith("Enum."):
                    assert default.name in ENUM.enum(rule.kind.removeprefix("Enum.")).numbers, name
                else:
                    assert default is not None or rule.default is None, (spec.name, name)


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("Instance.new('Part').TopSurface", "Enum.SurfaceType.Smooth"),
        ("Instance.new('PointLight').Range", "8"),
        ("Instance.new('ParticleEmitter').Lifetime", "5 10 "),
        ("Instance.new('Beam').Transparency", "0 0.5 0 1 0.5 0 "),
        ("Instance.new('UISizeConstraint').MaxSize", "inf, inf"),
        ("Instance.new('UIGridLayout').CellSize", "{0, 100}, {0, 100}"),
        ("Instance.new('ImageLabel').SliceCenter", "0, 0, 0, 0"),
        ("Instance.new('TextLabel').TextTruncate", "Enum.TextTruncate.None"),
        ("Instance.new('SpecialMesh').Name", "Mesh"),
        ("Instance.new('BrickColorValue').Value", "Medium stone grey"),
        ("Instance.new('RayValue').Value", "{0, 0, 0}, {0, 0, 0}"),
        ("Instance.new('MeshPart'):IsA('BasePart')", "true"),
        ("Instance.new('WedgePart').Shape", "Enum.PartType.Wedge"),
        ("Instance.new('Texture'):IsA('Decal')", "true"),
        ("game.Lighting.FogEnd", "100000"),
        ("game:GetService('Lighting') == game.Lighting", "true"),
        ("Instance.new('ParticleEmitter'):Emit(5)", ""),
        ("typeof(Instance.new('TextBox').FocusLost:Connect(print))", "RBXScriptConnection"),
    ],
)
def test_data_members_have_the_documented_defaults(
    tmp_path: Path, expression: str, shown: str
) -> None:
    assert say(tmp_path, f"print({expression})") == [shown]


STUD = "invalid value for property 'TopSurface'"


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "Instance.new('ParticleEmitter').Size = 3",
            "invalid value for property 'Size' (NumberSequence expected, got number)",
        ),
        (
            "Instance.new('UISizeConstraint').MaxSize = Vector2.new(0/0, 1)",
            "property 'MaxSize' must be finite, not nan, 1.0",
        ),
        ("Instance.new('PointLight').Range = 0/0", "property 'Range' cannot be NaN"),
        (
            "Instance.new('Part').TopSurface = 'Stud'",
            f"{STUD}: 'Stud' is not a valid member of Enum.SurfaceType; did you mean 'Studs'?",
        ),
        (
            "Instance.new('PointLight').Rnage = 1",
            "'Rnage' is not a valid member of PointLight 'PointLight'; did you mean 'Range'?",
        ),
        ("Instance.new('Frame').AbsoluteSize = 1", "property 'AbsoluteSize' of Frame is read-only"),
        ("Instance.new('Light')", "Unknown class 'Light'; did you mean 'SpotLight'?"),
        (
            "Instance.new('Actor')",
            "Actor is not supported: scripts run one after the other; use a Model",
        ),
        (
            "game.Lighting.TimeOfDay = 'noon'",
            "invalid value for property 'TimeOfDay' (time such as 14:30:00 expected, got string)",
        ),
    ],
)
def test_data_member_refuses_a_value_of_the_wrong_type(
    tmp_path: Path, statement: str, problem: str
) -> None:
    (line,) = say(tmp_path, f"print(select(2, pcall(function() {statement} end)))")
    assert line == f"main.lua:1: {problem}"


def test_refused_service_is_nil_with_a_warning_that_states_the_reason(tmp_path: Path) -> None:
    run = play(tmp_path, "for i = 1, 2 do print(game:GetService('TeleportService')) end")
    assert printed(run) == ["nil"] * 2
    (warning,) = [line for line in run.lines if line.startswith("err")]
    assert warning.endswith(
        "GetService: TeleportService is not supported: a world is a single place"
    )


def test_lighting_clock_can_be_read_and_set_in_three_forms(tmp_path: Path) -> None:
    script = """
    local lighting = game:GetService("Lighting")
    local function show()
        print(lighting.ClockTime, lighting.TimeOfDay, lighting:GetMinutesAfterMidnight())
    end
    lighting:GetPropertyChangedSignal("ClockTime"):Connect(show)
    show()
    lighting.ClockTime = 25.5
    lighting.TimeOfDay = "06:30:00"
    lighting.TimeOfDay = 15
    lighting:SetMinutesAfterMidnight(-60)
    lighting.ClockTime = 23.99999
    """
    assert say(tmp_path, script) == [
        "14\t14:00:00\t840",
        "1.5\t01:30:00\t90",
        "6.5\t06:30:00\t390",
        "15\t15:00:00\t900",
        "23\t23:00:00\t1380",
        "23.99999\t00:00:00\t1439.9994",
    ]
    assert say(tmp_path, "game.Lighting.ClockTime = math.huge print(game.Lighting.TimeOfDay)") == [
        "16:00:00"
    ]
