"""``Enum``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from clawblox.engine.values.enums import ENUM, ENUMS, find_enum_object, read_public_enums
from clawblox.luau import LuaError
from tests.engine.values.support import error, make_vm, run, text

N8_VALUES = {
    "Material": {
        "Plastic": 256, "SmoothPlastic": 272, "Neon": 288, "Wood": 512, "Marble": 784,
        "Slate": 800, "Concrete": 816, "Brick": 848, "Granite": 880, "Metal": 1040, "Grass": 1280,
        "Sand": 1296, "Fabric": 1312, "Ice": 1536, "Glass": 1568, "ForceField": 1584,
    },
    "PartType": {"Ball": 0, "Block": 1, "Cylinder": 2, "Wedge": 3},
}  # fmt: skip
N8_NAMES = {
    "HumanoidStateType": [
        "Running",
        "Landed",
        "Jumping",
        "Freefall",
        "Dead",
        "Physics",
        "None",
        "Seated",
        "Climbing",
        "Swimming",
        "FallingDown",
        "Ragdoll",
        "GettingUp",
        "Flying",
        "PlatformStanding",
        "RunningNoPhysics",
        "StrafingNoPhysics",
    ],
    "Material": [
        "WoodPlanks",
        "Basalt",
        "CrackedLava",
        "Limestone",
        "Pavement",
        "Pebble",
        "Cobblestone",
        "Rock",
        "Sandstone",
        "CorrodedMetal",
        "DiamondPlate",
        "Foil",
        "LeafyGrass",
        "Snow",
        "Mud",
        "Ground",
        "Asphalt",
        "Salt",
        "Glacier",
        "Air",
        "Water",
        "Cardboard",
        "Carpet",
        "CeramicTiles",
        "ClayRoofTiles",
        "RoofShingles",
        "Leather",
        "Plaster",
        "Rubber",
    ],
    "Font": [
        "GothamBold",
        "Gotham",
        "SourceSans",
        "SourceSansBold",
        "BuilderSans",
        "BuilderSansMedium",
        "BuilderSansBold",
        "BuilderSansExtraBold",
        "Arimo",
        "ArimoBold",
        "Unknown",
    ],
    "RaycastFilterType": ["Include", "Exclude", "Whitelist", "Blacklist"],
}


@pytest.mark.parametrize("enum", N8_VALUES)
def test_enum_items_have_their_values(enum: str) -> None:
    for name, value in N8_VALUES[enum].items():
        assert run(f"return Enum.{enum}.{name}.Value") == value
        assert run(f"return Enum.{enum}.{name}.Name") == name


@pytest.mark.parametrize("enum", ENUMS)
def test_items_of_an_enum_have_distinct_numbers(enum: str) -> None:
    assert len(set(ENUMS[enum].values())) == len(ENUMS[enum])


@pytest.mark.parametrize("enum", N8_NAMES)
def test_enum_items_of_the_engine_exist(enum: str) -> None:
    for name in N8_NAMES[enum]:
        assert text(f"typeof(Enum.{enum}.{name})") == "EnumItem"


def test_enum_item_is_shown_by_its_full_name() -> None:
    assert text("Enum.Material.Neon") == "Enum.Material.Neon"
    assert text("Enum.Material") == "Enum.Material"
    assert text("Enum.Material.Neon.EnumType") == "Enum.Material"


def test_the_older_names_of_filters_are_the_same_items() -> None:
    assert run("return Enum.RaycastFilterType.Blacklist == Enum.RaycastFilterType.Exclude")
    assert run("return Enum.RaycastFilterType.Whitelist == Enum.RaycastFilterType.Include")


def test_unknown_enums_and_items_are_errors_that_name_them() -> None:
    assert error("return Enum.Nonsense") == "'Nonsense' is not a valid member of Enum"
    assert error("return Enum.Material.Zzz") == "'Zzz' is not a valid member of Enum.Material"
    assert error("return Enum.Material.Neon.X") == "'X' is not a valid member of Enum.Material.Neon"
    assert error("Enum.Material.Neon.Value = 3") == "Enum.Material.Neon cannot be changed"


def test_enum_items_can_be_listed_and_found() -> None:
    assert run("return #Enum.PartType:GetEnumItems()") == 5.0
    assert run("return Enum.PartType:GetEnumItems()[1] == Enum.PartType.Ball")
    assert run("return Enum.PartType:FromName('Block') == Enum.PartType.Block")
    assert run("return Enum.PartType:FromValue(2) == Enum.PartType.Cylinder")
    assert run("return Enum.PartType:FromValue(99)") is None
    assert run("return Enum.PartType.Ball:IsA('PartType')") is True
    assert run("return #Enum:GetEnums()") == len(ENUMS) + len(read_public_enums())
    assert run("return table.find(Enum:GetEnums(), Enum.Material) ~= nil")


def test_enum_item_is_a_unique_object_with_an_id() -> None:
    assert run("return rawequal(Enum.Material.Neon, Enum.Material.Neon)")
    for enum, item in (("Material", "Neon"), ("KeyCode", "Space")):
        for found in (ENUM, ENUM.enum(enum), ENUM.enum(enum).item(item)):
            assert find_enum_object(found.ident) is found
    for unknown in (
        "17",
        "17.Touched",
        "Enum.X",
        "Enum.X.Y",
        "Enum.Material.X",
        "Enum.KeyCode.Nope",
        "Enum.KeyCode.Unknown",
        "Enum.A.B.C",
    ):
        assert find_enum_object(unknown) is None


@pytest.mark.parametrize(
    ("item", "number"),
    [
        ("KeyCode.Space", 32),
        ("UserInputType.MouseButton1", 0),
        ("SurfaceType.Studs", 3),
        ("ProductPurchaseDecision.PurchaseGranted", 1),
        ("ThumbnailType.HeadShot", 0),
        ("ConnectionError.OK", 0),
    ],
)
def test_enums_of_the_public_api_have_their_items(item: str, number: int) -> None:
    enum, _, name = item.partition(".")
    assert text(f"Enum.{item}") == f"Enum.{item}"
    assert run(f"return Enum.{item}.Value") == number
    assert run(f"return rawequal(Enum.{enum}:FromValue({number}), Enum.{item})")
    assert run(f"return rawequal(Enum.{enum}:FromName('{name}'), Enum.{item})")
    assert run(f"return table.find(Enum.{enum}:GetEnumItems(), Enum.{item}) ~= nil")
    assert run(f"return table.find(Enum:GetEnums(), Enum.{enum}) ~= nil")


def test_every_enum_of_the_public_api_is_complete() -> None:
    assert len(read_public_enums()) > 600
    assert not read_public_enums().keys() & ENUMS.keys()
    for name in read_public_enums():
        enum = ENUM.enum(name)
        assert [item.number for item in enum.items.values()] == [*enum.numbers.values()]
        assert enum.numbers, name


def test_older_names_of_the_public_api_are_the_same_items() -> None:
    assert run("return rawequal(Enum.KeyCode.Unknown, Enum.KeyCode.None)")
    assert run("return rawequal(Enum.Font.Montserrat, Enum.Font.Gotham)")


def test_unknown_public_enum_or_item_error_suggests_the_nearest_name() -> None:
    expected = "'KeyCod' is not a valid member of Enum; did you mean 'KeyCode'?"
    assert error("return Enum.KeyCod") == expected
    assert error("return Enum.KeyCode.Spac").endswith("; did you mean 'Space'?")


@pytest.mark.parametrize(
    ("source", "is_read"),
    [("Enum.Material.Neon.Value", False), ("Enum.KeyCode.Space", True)],
)
def test_the_public_enums_are_read_when_a_script_first_needs_them(
    source: str, is_read: bool
) -> None:
    code = (
        "from clawblox.engine.values.enums import read_public_enums; "
        "from tests.engine.values.support import run; "
        f"run('return {source}'); print(read_public_enums.cache_info().currsize > 0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert result.stdout == f"{is_read}\n"


def test_listing_enums_costs_steps() -> None:
    vm = make_vm()
    vm.step_limit = 10_000
    vm.call(vm.load("for i = 1, 100 do Enum.KeyCode:FromValue(8) end", "=t", vm.new_environment()))
    with pytest.raises(LuaError, match="steps"):
        vm.call(vm.load("for i = 1, 100 do Enum:GetEnums() end", "=t", vm.new_environment()))
