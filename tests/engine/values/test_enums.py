"""``Enum``."""

from __future__ import annotations

import pytest

from clawblox.engine.values.enums import ENUM, ENUMS, find_enum_object
from tests.engine.values.support import error, run, text

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
def test_n8_items_have_their_values(enum: str) -> None:
    for name, value in N8_VALUES[enum].items():
        assert run(f"return Enum.{enum}.{name}.Value") == value
        assert run(f"return Enum.{enum}.{name}.Name") == name


@pytest.mark.parametrize("enum", ENUMS)
def test_no_two_items_of_an_enum_have_one_number(enum: str) -> None:
    assert len(set(ENUMS[enum].values())) == len(ENUMS[enum])


@pytest.mark.parametrize("enum", N8_NAMES)
def test_n8_items_exist(enum: str) -> None:
    for name in N8_NAMES[enum]:
        assert text(f"typeof(Enum.{enum}.{name})") == "EnumItem"


def test_n8_the_text_of_an_item_is_its_full_name() -> None:
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


def test_items_are_listed_and_found() -> None:
    assert run("return #Enum.PartType:GetEnumItems()") == 5.0
    assert run("return Enum.PartType:GetEnumItems()[1] == Enum.PartType.Ball")
    assert run("return Enum.PartType:FromName('Block') == Enum.PartType.Block")
    assert run("return Enum.PartType:FromValue(2) == Enum.PartType.Cylinder")
    assert run("return Enum.PartType:FromValue(99)") is None
    assert run("return Enum.PartType.Ball:IsA('PartType')") is True
    assert run(f"return #Enum:GetEnums() == {len(ENUM.enums)}")


def test_items_are_one_object_and_found_by_the_id_of_a_snapshot() -> None:
    assert run("return rawequal(Enum.Material.Neon, Enum.Material.Neon)")
    for found in (ENUM, ENUM.enums["Material"], ENUM.enums["Material"].items["Neon"]):
        assert find_enum_object(found.ident) is found
    for unknown in ("17", "17.Touched", "Enum.X", "Enum.X.Y", "Enum.Material.X", "Enum.A.B.C"):
        assert find_enum_object(unknown) is None
