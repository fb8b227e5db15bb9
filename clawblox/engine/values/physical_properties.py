"""``PhysicalProperties``: density, friction and elasticity of a part."""

from __future__ import annotations

from typing import Any, Final

from clawblox.engine.values.enums import EnumItem
from clawblox.engine.values.value import (
    Record,
    expect_contents,
    members,
    singles,
)
from clawblox.luau.lib.support import arguments as arg

_NAMES: Final = ("Density", "Friction", "Elasticity", "FrictionWeight", "ElasticityWeight")
_LIMITS: Final = ((1e-4, 100.0), (0.0, 2.0), (0.0, 1.0), (0.0, 100.0), (0.0, 100.0))
_GIVEN: Final = 3  # the required numbers

MATERIALS: Final[dict[str, tuple[float, float, float, float, float]]] = {
    "Asphalt": (2.36, 0.8, 0.2, 0.3, 1), "Basalt": (2.691, 0.7, 0.15, 0.3, 1),
    "Brick": (1.922, 0.8, 0.15, 0.3, 1), "Cardboard": (0.7, 0.5, 0.05, 1, 2),
    "Carpet": (1.1, 0.4, 0.25, 1, 2), "CeramicTiles": (2.4, 0.51, 0.2, 1, 1),
    "ClayRoofTiles": (2, 0.51, 0.2, 1, 1), "Cobblestone": (2.691, 0.5, 0.17, 1, 1),
    "Concrete": (2.403, 0.7, 0.2, 0.3, 1), "CorrodedMetal": (7.85, 0.7, 0.2, 1, 1),
    "CrackedLava": (2.691, 0.65, 0.15, 1, 1), "DiamondPlate": (7.85, 0.35, 0.25, 1, 1),
    "Fabric": (0.7, 0.35, 0.05, 1, 1), "Foil": (2.7, 0.4, 0.25, 1, 1),
    "ForceField": (2.403, 0.25, 0.2, 1, 1), "Glacier": (0.919, 0.05, 0.15, 2, 1),
    "Glass": (2.403, 0.25, 0.2, 1, 1), "Granite": (2.691, 0.4, 0.2, 1, 1),
    "Grass": (0.9, 0.4, 0.1, 1, 1.5), "Ground": (0.9, 0.45, 0.1, 1, 1),
    "Ice": (0.919, 0.02, 0.15, 3, 1), "LeafyGrass": (0.9, 0.4, 0.1, 2, 2),
    "Leather": (0.86, 0.35, 0.25, 1, 1), "Limestone": (2.691, 0.5, 0.15, 1, 1),
    "Marble": (2.563, 0.2, 0.17, 1, 1), "Metal": (7.85, 0.4, 0.25, 1, 1),
    "Mud": (0.9, 0.3, 0.07, 3, 4), "Neon": (0.7, 0.3, 0.2, 1, 1),
    "Pavement": (2.691, 0.5, 0.17, 0.3, 1), "Pebble": (2.403, 0.4, 0.17, 1, 1.5),
    "Plaster": (0.75, 0.6, 0.2, 0.3, 1), "Plastic": (0.7, 0.3, 0.5, 1, 1),
    "Rock": (2.691, 0.5, 0.17, 1, 1), "RoofShingles": (2.36, 0.8, 0.2, 0.3, 1),
    "Rubber": (1.3, 1.5, 0.95, 3, 2), "Salt": (2.165, 0.5, 0.05, 1, 1),
    "Sand": (1.602, 0.5, 0.05, 5, 2.5), "Sandstone": (2.691, 0.5, 0.15, 5, 1),
    "SmoothPlastic": (0.7, 0.2, 0.5, 1, 1), "Slate": (2.691, 0.4, 0.2, 1, 1),
    "Snow": (0.9, 0.3, 0.03, 3, 4), "Wood": (0.35, 0.48, 0.2, 1, 1),
    "WoodPlanks": (0.35, 0.48, 0.2, 1, 1),
}  # fmt: skip
"""Density, friction, elasticity and the latter two's weights; other materials equal Plastic."""


class PhysicalProperties(Record):
    """Density, friction and elasticity, and the weights of the latter two in a contact.

    Args:
        numbers: The five numbers, already 32-bit floats within their limits.
    """

    __slots__ = ()

    type_name = "PhysicalProperties"
    getters = members(*_NAMES)

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, *[float] * len(_NAMES))
        self._contents = _make(*values).contents()


def _make(*numbers: float) -> PhysicalProperties:
    pairs = zip(numbers, _LIMITS, strict=True)
    return PhysicalProperties(*singles(*(_clamp(value, *limits) for value, limits in pairs)))


def _clamp(value: float, low: float, high: float) -> float:
    return min(value, high) if value > low else low  # also for NaN


def _new(*args: Any) -> PhysicalProperties:
    first = args[0] if args else None
    if isinstance(first, EnumItem) and first.enum.name == "Material":
        return _make(*MATERIALS.get(first.name, MATERIALS["Plastic"]))
    given = [arg.number(args, at, "new") for at in range(_GIVEN)]
    weights = [arg.optional_number(args, at, "new", 1.0) for at in range(_GIVEN, len(_NAMES))]
    return _make(*given, *weights)


PhysicalProperties.constructors["new"] = _new
