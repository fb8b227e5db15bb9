"""Values in the properties of instances, in a snapshot."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from clawblox.engine.instances.tree_document import read_value, write_value
from clawblox.engine.slots import Slots
from clawblox.engine.values.color3 import make_color3
from clawblox.engine.values.enums import enum_item
from clawblox.engine.values.libraries import lend_values
from clawblox.engine.values.udim import make_udim2
from clawblox.luau import LuaTable, Vector
from tests.engine.values.support import EnumHost

NEON = enum_item("Material", "Neon")
MODEL: Any = SimpleNamespace(find=lambda number: None)


@pytest.mark.parametrize(
    "value",
    [True, "é", 1.5, math.inf, -math.inf, Vector(1.0, -0.0, 3.0), Vector(math.inf, 0.0, 0.0), NEON,
     make_color3(1, 0, 0), make_udim2(1, 2, 3, 4), LuaTable({1.0: "a"}), (1.0,) * 9],
)  # fmt: skip
def test_values_are_restored_from_json(value: Any) -> None:
    slots = Slots()
    saved = json.loads(json.dumps(write_value(value, slots), allow_nan=False))
    found = read_value(saved, MODEL, slots)
    assert found == value
    assert repr(write_value(found, slots)) == repr(saved)  # distinguishes -0.0 from 0.0


def test_value_shared_by_two_properties_remains_shared() -> None:
    slots, colour = Slots(), make_color3(1, 0, 0)
    first, second = write_value(colour, slots), write_value(colour, slots)
    assert read_value(first, MODEL, slots) is read_value(second, MODEL, slots) is colour


def test_enum_item_is_restored_as_the_same_object() -> None:
    assert read_value(write_value(NEON, Slots()), MODEL, Slots()) is NEON


@pytest.mark.parametrize(
    "saved",
    [None, [], {}, ["x"], ["n"], ["n", "1e999"], ["v", 1.0, 2.0], ["v", 1.0, 2.0, "3"], ["r", 1.0],
     ["r", *["1"] * 9], ["e", "Enum.Material"], ["e", "Enum.Material.Gold"], ["i", 4], ["i"],
     ["i", "4"], ["s", 1], ["s", 0], ["s", -1], 10**400],
)  # fmt: skip
def test_damaged_values_are_refused(saved: Any) -> None:
    with pytest.raises(ValueError, match=r"has no Luau value|is not a value|is not a finite"):
        read_value(saved, MODEL, Slots())


@pytest.mark.parametrize(
    "name",
    ["CFrame", "Color3", "UDim", "UDim2", "Region3", "Random", "RaycastParams", "OverlapParams",
     "RaycastResult"],
)  # fmt: skip
def test_contents_of_the_wrong_type_are_refused(name: str) -> None:
    host = EnumHost()
    lend_values(host)
    with pytest.raises((TypeError, ValueError), match="expected "):
        host.value_types[name].empty().fill("x")
