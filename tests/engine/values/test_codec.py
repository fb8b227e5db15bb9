"""Values in the properties of instances, in a snapshot."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from clawblox.engine.instances.codec import read_value, write_value
from clawblox.engine.values.color3 import make_color3
from clawblox.engine.values.enums import enum_item
from clawblox.engine.values.libraries import lend_values
from clawblox.engine.values.udim import make_udim2
from clawblox.luau import Vector
from tests.engine.values.support import EnumHost

NEON = enum_item("Material", "Neon")


def read(saved: Any) -> Any:
    host = EnumHost()
    lend_values(host)
    return read_value(saved, host, lambda _: None)


@pytest.mark.parametrize(
    "value",
    [None, True, "é", 1.5, math.inf, Vector(1.0, 2.0, 3.0), make_color3(1, 0, 0), NEON,
     make_udim2(1, 2, 3, 4)],
)  # fmt: skip
def test_values_come_back_from_json(value: Any) -> None:
    assert read(json.loads(json.dumps(write_value(value)))) == value


def test_an_enum_item_comes_back_as_itself() -> None:
    assert read(write_value(NEON)) is NEON


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        (["h", "Nonsense", 1], "unknown type, 'Nonsense'"),
        (["h", "UDim2"], "damaged UDim2"),
        (["o", "Enum.Material.Gold"], "unknown object, 'Enum.Material.Gold'"),
        (["x"], "unknown kind 'x'"),
        (["i", 4], "no instance 4"),
    ],
)
def test_damaged_values_are_refused(saved: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(saved)


@pytest.mark.parametrize(
    "name",
    ["CFrame", "Color3", "UDim", "UDim2", "Region3", "Random", "RaycastParams", "OverlapParams",
     "RaycastResult"],
)  # fmt: skip
def test_contents_of_the_wrong_type_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"damaged {name}: expected "):
        read(["h", name, "x"])
