"""The values of attributes, and their form in JSON and that of other numbers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from clawblox.engine.errors import to_text
from clawblox.engine.values.brick_color import BrickColor
from clawblox.engine.values.cframe import CFrame
from clawblox.engine.values.udim import UDim
from clawblox.luau import LuaTable, RuntimeFault, Vector
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.tables import border

_MAX_DEPTH: Final = 32
PLAIN: Final = ("boolean", "number", "string", "Vector3", "Color3")
"""The types of values that all views show."""


def copy_attribute(value: Any, depth: int = 0) -> Any:
    """Return a value as an attribute stores it; for a table, a copy of its array part.

    Raises:
        RuntimeFault: A value of this type cannot be an attribute.
    """
    if isinstance(value, LuaTable) and depth < _MAX_DEPTH:
        items = (value.get(float(at)) for at in range(1, int(border(value)) + 1))
        pairs = enumerate(items, 1)
        return LuaTable({float(at): copy_attribute(item, depth + 1) for at, item in pairs})
    kind = shown_type(value)
    if kind not in PLAIN and kind not in _FORMS:
        raise RuntimeFault("Unsupported attribute type")
    return value


def attribute_json(value: Any) -> Any:
    """Return an attribute as JSON; NaN and infinity are null."""
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
    return value if value.__class__ is bool else _FORMS[shown_type(value)](value)


def _single_json(value: float) -> float | None:
    return shortest(value) if math.isfinite(value) else None


def _numbers_json(value: Any) -> list[float | None]:
    return [_single_json(part) for part in value.contents()]


def _frame_json(frame: CFrame) -> dict[str, Any]:
    numbers = [_single_json(part) for part in frame.rotation]
    rotation = [numbers[0:3], numbers[3:6], numbers[6:9]]
    return {"position": attribute_json(frame.position), "rotation": rotation}


def _length_json(length: UDim) -> list[Any]:
    return [_single_json(length.scale), attribute_json(length.offset)]


def _keypoints_json(sequence: Any) -> list[list[float | None]]:
    return [[_single_json(part) for part in row.numbers()] for row in sequence.keypoints()]


_FORMS: Final[dict[str, Callable[[Any], Any]]] = {
    "Color3": _numbers_json,
    "Vector2": _numbers_json,
    "NumberRange": _numbers_json,
    "Rect": lambda rect: [*_numbers_json(rect["Min"]), *_numbers_json(rect["Max"])],
    "UDim": _length_json,
    "UDim2": lambda size: [_length_json(size.x), _length_json(size.y)],
    "CFrame": _frame_json,
    "NumberSequence": _keypoints_json,
    "ColorSequence": _keypoints_json,
    "BrickColor": BrickColor.text,
    "EnumItem": lambda item: item.name,
}
"""The functions that convert attributes of other types to JSON, by type."""


def attributes_json(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes as a JSON object with sorted keys."""
    return {to_text(name): attribute_json(attributes[name]) for name in sorted(attributes)}


_SINGLE = struct.Struct("f")


def hundredths(value: float) -> float:
    """Return a number rounded to two decimals, with 0.0 for -0.0."""
    return round(value, 2) + 0.0


def hundredths_of_vector(vector: object) -> list[float]:
    """Return the components of a Vector3, rounded to two decimals."""
    x, y, z = vector.x, vector.y, vector.z  # type: ignore[attr-defined]
    return [round(x, 2) + 0.0, round(y, 2) + 0.0, round(z, 2) + 0.0]


@lru_cache(4096)
def shortest(value: float) -> float:
    """Return the number with the fewest digits that has the same 32-bit form, 0.0 for -0.0.

    For example, 0.6 stored as a 32-bit float is 0.6 in JSON instead of 0.6000000238418579.
    """
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}") + 0.0  # 0.0 and -0.0 are equal keys of the cache
        if _SINGLE.unpack(_SINGLE.pack(short))[0] == value:
            return short
    return value
