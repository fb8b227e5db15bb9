"""The types of attributes, and their form in observations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.instances.attributes import attribute_json
from tests.engine.torture import Plan, Run, torture
from tests.engine.values.support import run

IDENTITY = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
TYPES: dict[str, tuple[str, Any]] = {
    "boolean": ("true", True),
    "number": ("0.1", 0.1),
    "string": ("'a'", "a"),
    "Vector3": ("Vector3.new(1, 0.1, 3)", [1.0, 0.1, 3.0]),
    "Color3": ("Color3.new(1, 0.1, 0)", [1.0, 0.1, 0.0]),
    "Vector2": ("Vector2.new(1, 0.1)", [1.0, 0.1]),
    "CFrame": ("CFrame.new(1, 2, 3)", {"position": [1.0, 2.0, 3.0], "rotation": IDENTITY}),
    "UDim": ("UDim.new(0.1, 3)", [0.1, 3]),
    "UDim2": ("UDim2.new(0.1, 3, 1, -4)", [[0.1, 3], [1.0, -4]]),
    "BrickColor": ("BrickColor.new('Bright red')", "Bright red"),
    "NumberRange": ("NumberRange.new(0.1, 2)", [0.1, 2.0]),
    "NumberSequence": ("NumberSequence.new(0.1, 2)", [[0.0, 0.1, 0.0], [1.0, 2.0, 0.0]]),
    "ColorSequence": (
        "ColorSequence.new(Color3.new(1, 0, 0))",
        [[0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]],
    ),
    "Rect": ("Rect.new(1, 2, 3, 4)", [1.0, 2.0, 3.0, 4.0]),
    "EnumItem": ("Enum.KeyCode.Space", "Space"),
}
"""An expression for a value of each type, and its JSON."""

MAIN = "\n".join(
    [
        "local folder = Instance.new('Folder', workspace)",
        *(f"folder:SetAttribute('{kind}', {value})" for kind, (value, _) in TYPES.items()),
        "folder:SetAttribute('list', { CFrame.new(), { Enum.Font.Arial } })",
        "local copy = folder:Clone()",
        "local frame = folder:GetAttribute('CFrame')",
        "while true do",
        "    for _, each in { folder, copy } do",
        *(
            f"        assert(each:GetAttribute('{kind}') == {value}, '{kind}')"
            for kind, (value, _) in TYPES.items()
        ),
        "    end",
        "    assert(rawequal(folder:GetAttribute('CFrame'), frame))",
        "    assert(folder:GetAttributes().list[2][1] == Enum.Font.Arial)",
        "    print('equal')",
        "    task.wait()",
        "end",
    ]
)


@pytest.mark.parametrize("kind", TYPES)
def test_attribute_is_converted_to_json(kind: str) -> None:
    expression, shown = TYPES[kind]
    value = run(f"return {expression}")
    assert json.dumps(attribute_json(value)) == json.dumps(shown)


def test_infinite_and_nan_attributes_are_null_in_json() -> None:
    values = run(
        """
        return Vector2.new(0/0, 1), CFrame.new(math.huge, 0, 0), UDim.new(0/0, 0/0),
            NumberRange.new(-math.huge, 1), NumberSequence.new(math.huge), Rect.new(0/0, 0, 0, 1)
        """
    )
    for value in values:
        shown = json.dumps(attribute_json(value), allow_nan=False)
        assert "null" in shown


def test_attributes_of_every_type_are_stored_cloned_observed_and_restored(tmp_path: Path) -> None:
    (tmp_path / "world.toml").write_text('name = "attributes"')
    (tmp_path / "main.lua").write_text(MAIN)
    done: Run = torture(tmp_path, Plan().join(0, "Ada"), ticks=4, saves=range(4))
    assert done.lines == ["out [Lua] equal"] * 5
    entities = done.record()["agents"]["Ada"]["world"]["entities"]
    (seen,) = [entity["attributes"] for entity in entities if entity["name"] == "Folder"]
    assert seen.pop("list") == [{"position": [0.0] * 3, "rotation": IDENTITY}, ["Arial"]]
    assert seen == {kind: shown for kind, (_, shown) in TYPES.items()}
