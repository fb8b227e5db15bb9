"""The types of properties: the values they accept, and the checks of Luau values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from clawblox.engine.instances.spec import Property
from clawblox.engine.values.enums import ENUM, EnumItem
from clawblox.engine.values.physical_properties import PhysicalProperties
from clawblox.engine.values.vector2 import Vector2, make_vector2
from clawblox.luau import HostValue, LuaTable, RuntimeFault, Vector
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.values import is_function

ENUM_NAME: Final = "name of "
"""Prefix of the type of a property that names an enum item: ``name of Enum.Font``."""


def refuse_value(name: str, wanted: str, value: Any) -> RuntimeFault:
    """Return the error for a value of the wrong type for a property."""
    return RuntimeFault(
        f"invalid value for property '{name}' ({wanted} expected, got {shown_type(value)})"
    )


def check_value(name: str, rule: Property, value: Any) -> Any:
    """Return a value as a property stores it.

    Args:
        name: The property.
        rule: Its row in the class table.
        value: The Luau value that a script assigns.

    Raises:
        RuntimeFault: The value has the wrong type, or is not finite.
    """
    check = _CHECKS.get(rule.kind)
    if check is not None:
        return check(name, rule, value)
    if rule.kind.startswith("Enum."):
        return _find_item(name, rule.kind, value)
    if rule.kind.startswith(ENUM_NAME):
        return _find_item(name, rule.kind.removeprefix(ENUM_NAME), value).name
    return _instance(name, rule, value)


def _number(name: str, rule: Property, value: Any) -> float:
    if value.__class__ is not float:
        raise refuse_value(name, "number", value)
    if value != value:
        raise RuntimeFault(f"property '{name}' cannot be NaN")
    if rule.limits is not None:
        low, high = rule.limits
        return low if value < low else min(value, high)
    return float(value)


def _boolean(name: str, rule: Property, value: Any) -> bool:
    if value.__class__ is not bool:
        raise refuse_value(name, "boolean", value)
    return bool(value)


def _string(name: str, rule: Property, value: Any) -> str:
    if value.__class__ is float:
        return format_number(value)
    if value.__class__ is not str:
        raise refuse_value(name, "string", value)
    return str(value)


def _vector(name: str, rule: Property, value: Any) -> Vector:
    if value.__class__ is not Vector:
        raise refuse_value(name, "Vector3", value)
    if not (math.isfinite(value.x) and math.isfinite(value.y) and math.isfinite(value.z)):
        _check_infinite(name, rule, value.x, value.y, value.z)
    return value


def _check_infinite(name: str, rule: Property, *parts: float) -> None:
    """Refuse a vector that is not finite, unless the property may have infinite components."""
    if not rule.may_be_infinite or any(map(math.isnan, parts)):
        raise RuntimeFault(f"property '{name}' must be finite, not {', '.join(map(str, parts))}")


def _plain(name: str, rule: Property, value: Any) -> Any:
    """Check a value of any immutable type."""
    is_plain = value is None or value.__class__ in (bool, float, str, Vector)
    if not is_plain and not isinstance(value, EnumItem | HostValue) and not hasattr(value, "spec"):
        raise refuse_value(name, "plain value", value)
    return value


def _material(name: str, rule: Property, value: Any) -> LuaTable | PhysicalProperties | None:
    """Check physical properties; a table of such numbers is copied."""
    if value is None or isinstance(value, PhysicalProperties):
        return value
    if not isinstance(value, LuaTable):
        raise refuse_value(name, rule.kind, value)
    numbers = LuaTable()
    for key, number in value.items():
        if key.__class__ is not str or number.__class__ is not float or not math.isfinite(number):
            raise RuntimeFault(f"property '{name}' takes a table of finite numbers with names")
        numbers[key] = number
    return numbers


def _function(name: str, rule: Property, value: Any) -> Any:
    if value is not None and not is_function(value):
        raise refuse_value(name, "function", value)
    return value


def _typed(wanted: str) -> Callable[[str, Property, Any], Any]:
    def check(name: str, rule: Property, value: Any) -> Any:
        if shown_type(value) != wanted:
            raise refuse_value(name, wanted, value)
        return value

    return check


def _find_item(name: str, enum: str, value: Any) -> EnumItem:
    items = ENUM.enum(enum.removeprefix("Enum."))
    item = items.look_up(value)
    if item is None and value.__class__ is str:
        raise RuntimeFault(f"invalid value for property '{name}': {items.refusal(value)}")
    if item is None:
        raise refuse_value(name, f"{enum} or the name of an item", value)
    return item


def _vector2(name: str, rule: Property, value: Any) -> Vector2:
    if isinstance(value, LuaTable):
        x, y = (value.get(key, value.get(at)) for key, at in (("X", 1.0), ("Y", 2.0)))
        value = make_vector2(x, y) if x.__class__ is y.__class__ is float else value
    if not isinstance(value, Vector2):
        raise refuse_value(name, "Vector2", value)
    if not (math.isfinite(value.x) and math.isfinite(value.y)):
        _check_infinite(name, rule, value.x, value.y)
    return value


def _instance(name: str, rule: Property, value: Any) -> Any:
    if value is None:
        return None
    spec = getattr(value, "spec", None)
    if spec is None or rule.kind not in spec.lineage:
        raise refuse_value(name, rule.kind, value)
    return value


_TYPED: Final = (
    "CFrame", "Color3", "BrickColor", "Font", "UDim", "UDim2", "TweenInfo", "Rect", "Ray",
    "NumberRange", "NumberSequence", "ColorSequence",
)  # fmt: skip
_CHECKS: dict[str, Callable[[str, Property, Any], Any]] = {
    "number": _number,
    "boolean": _boolean,
    "string": _string,
    "Vector2": _vector2,
    "Vector3": _vector,
    "PhysicalProperties": _material,
    "any": _plain,
    "function": _function,
    **{kind: _typed(kind) for kind in _TYPED},
}
