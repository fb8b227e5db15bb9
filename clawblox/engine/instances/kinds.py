"""The types of properties: what may be assigned, and how a Luau value is checked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from clawblox.engine.instances.spec import Property
from clawblox.luau import RuntimeFault, Vector
from clawblox.luau.core.operators import shown_type

__all__ = ["check_value", "refuse_value"]


def refuse_value(name: str, wanted: str, value: Any) -> RuntimeFault:
    """Return the error about a value of the wrong type for a property."""
    return RuntimeFault(
        f"invalid value for property '{name}' ({wanted} expected, got {shown_type(value)})"
    )


def check_value(name: str, rule: Property, value: Any) -> Any:
    """Return a value as a property holds it.

    Args:
        name: The property.
        rule: Its row in the class table.
        value: The Luau value that a script assigns.

    Raises:
        RuntimeFault: It is of the wrong type, or not finite.
    """
    check = _CHECKS.get(rule.kind)
    if check is not None:
        return check(name, rule, value)
    if rule.kind.startswith("Enum."):
        return _enum_item(name, rule, value)
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
    if value.__class__ is not str:
        raise refuse_value(name, "string", value)
    return str(value)


def _vector(name: str, rule: Property, value: Any) -> Vector:
    if value.__class__ is not Vector:
        raise refuse_value(name, "Vector3", value)
    if not (math.isfinite(value.x) and math.isfinite(value.y) and math.isfinite(value.z)):
        raise RuntimeFault(f"property '{name}' must be finite, not {value.x}, {value.y}, {value.z}")
    return value


def _any(name: str, rule: Property, value: Any) -> Any:
    return value


def _typed(wanted: str) -> Callable[[str, Property, Any], Any]:
    def check(name: str, rule: Property, value: Any) -> Any:
        if shown_type(value) != wanted:
            raise refuse_value(name, wanted, value)
        return value

    return check


def _enum_item(name: str, rule: Property, value: Any) -> Any:
    if shown_type(value) != "EnumItem" or not str(value).startswith(rule.kind + "."):
        raise refuse_value(name, rule.kind, value)
    return value


def _instance(name: str, rule: Property, value: Any) -> Any:
    if value is None:
        return None
    spec = getattr(value, "spec", None)
    if spec is None or rule.kind not in spec.lineage:
        raise refuse_value(name, rule.kind, value)
    return value


_CHECKS: dict[str, Callable[[str, Property, Any], Any]] = {
    "number": _number,
    "boolean": _boolean,
    "string": _string,
    "Vector3": _vector,
    "CFrame": _typed("CFrame"),
    "Color3": _typed("Color3"),
    "UDim": _typed("UDim"),
    "UDim2": _typed("UDim2"),
    "PhysicalProperties": _any,
    "any": _any,
}
