"""The values of attributes, and how JSON shows them and other numbers of a world."""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Any, Final

from clawblox.engine.errors import to_text
from clawblox.luau import LuaTable, RuntimeFault, Vector
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.tables import border

_MAX_DEPTH: Final = 32
PLAIN: Final = ("boolean", "number", "string", "Vector3", "Color3")
"""The types of the values that are no tables."""


def copy_attribute(value: Any, depth: int = 0) -> Any:
    """Return a value as an attribute stores it: itself, or a new table of a table's array part.

    Raises:
        RuntimeFault: A value of this type cannot be an attribute.
    """
    if isinstance(value, LuaTable) and depth < _MAX_DEPTH:
        items = (value.get(float(at)) for at in range(1, int(border(value)) + 1))
        pairs = enumerate(items, 1)
        return LuaTable({float(at): copy_attribute(item, depth + 1) for at, item in pairs})
    if shown_type(value) not in PLAIN:
        raise RuntimeFault("Unsupported attribute type")
    return value


def attribute_json(value: Any) -> Any:
    """Return an attribute as JSON: Vector3 and Color3 as arrays, NaN and infinity as null."""
    if value.__class__ is float:
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
    if value.__class__ is str:
        return to_text(value)
    if value.__class__ is Vector:
        return [_single_json(part) for part in (value.x, value.y, value.z)]
    if isinstance(value, LuaTable):
        return [attribute_json(item) for item in value.values()]
    if value.__class__ is bool:
        return value
    return [_single_json(value[part]) for part in "RGB"]


def _single_json(value: float) -> float | None:
    return shortest(value) if math.isfinite(value) else None


def attributes_json(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes as a JSON object with sorted keys."""
    return {to_text(name): attribute_json(attributes[name]) for name in sorted(attributes)}


_SINGLE = struct.Struct("f")


def hundredths(value: float) -> float:
    """Return a number rounded to two decimals, never minus zero."""
    return round(value, 2) + 0.0


def hundredths_of_vector(vector: object) -> list[float]:
    """Return the components of a Vector3, rounded to two decimals."""
    x, y, z = vector.x, vector.y, vector.z  # type: ignore[attr-defined]
    return [round(x, 2) + 0.0, round(y, 2) + 0.0, round(z, 2) + 0.0]


@lru_cache(4096)
def shortest(value: float) -> float:
    """Return the number with the fewest digits that has the same 32-bit form, never minus zero.

    So 0.6, kept as a 32-bit float, is 0.6 in JSON and not 0.6000000238418579.
    """
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}") + 0.0  # 0.0 and -0.0 are equal keys of the cache
        if _SINGLE.unpack(_SINGLE.pack(short))[0] == value:
            return short
    return value
