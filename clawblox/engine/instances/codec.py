"""Values of properties and attributes in a snapshot.

Booleans, strings and finite numbers are themselves. Everything else is an array whose first item
says what it is; what scripts tell apart by identity stands in a slot.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from clawblox.engine.instances.instance import Instance
from clawblox.engine.slots import Slots
from clawblox.engine.values.enums import EnumItem, find_enum_object
from clawblox.luau import Vector

if TYPE_CHECKING:
    from clawblox.engine.instances.model import DataModel


_UNUSUAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MATRIX = 9


def write_value(value: Any, slots: Slots) -> Any:
    """Return a Luau value, or a rotation matrix, as JSON."""
    if value.__class__ in (bool, str):
        return value
    if value.__class__ is float:
        return value if math.isfinite(value) else ["n", repr(value)]
    if value.__class__ is Vector:
        return ["v", *(write_value(part, slots) for part in (value.x, value.y, value.z))]
    if value.__class__ is tuple:
        return ["r", *value]
    if isinstance(value, Instance):
        return ["i", value.number]
    if isinstance(value, EnumItem):
        return ["e", value.ident]
    return ["s", slots.put(value)]


def read_value(saved: Any, model: DataModel, slots: Slots) -> Any:
    """Return the value of its JSON form.

    Args:
        saved: What `write_value` returned.
        model: Knows the instances.
        slots: The same values as when it was written.

    Raises:
        ValueError: It is damaged.
    """
    found = _read(saved, model, slots)
    if found is None:
        raise ValueError(f"{saved!r} is no value of a property or an attribute")
    return found


def _read(saved: Any, model: DataModel, slots: Slots) -> Any:
    if saved.__class__ in (bool, str):
        return saved
    if saved.__class__ in (float, int):
        return _number(saved)
    match saved:
        case ["n", str(text)]:
            return _UNUSUAL.get(text)
        case ["v", *parts] if len(parts) == 3:  # noqa: PLR2004, RUF100
            numbers = [_read(part, model, slots) for part in parts]
            return Vector(*numbers) if all(part.__class__ is float for part in numbers) else None
        case ["r", *parts] if len(parts) == _MATRIX:
            return tuple(map(_number, parts))
        case ["i", int(number)]:
            return model.find(number)
        case ["e", str(ident)]:
            item = find_enum_object(ident)
            return item if isinstance(item, EnumItem) else None
        case ["s", int(number)]:
            return slots.take(number)
    return None


def _number(saved: Any) -> float:
    if (
        saved.__class__ not in (float, int)
        or not -sys.float_info.max <= saved <= sys.float_info.max
    ):
        raise ValueError(f"{saved!r} is no finite number")
    return float(saved)
