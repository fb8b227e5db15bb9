"""The value types as a VM's globals, and as a class table's defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clawblox.engine.values import (
    brick_color,
    cframe,
    color3,
    date_time,
    enums,
    font,
    key_info,
    physical_properties,
    query_params,
    random_stream,
    ray_and_region,
    sequences,
    tween_info,
    udim,
    vector2,
    vector3,
)
from clawblox.engine.values.value import Functions, Value
from clawblox.luau import Host, LuaTable, Vector

VALUE_TYPES: tuple[type[Value], ...] = (
    vector2.Vector2,
    cframe.CFrame,
    color3.Color3,
    brick_color.BrickColor,
    udim.UDim,
    udim.UDim2,
    ray_and_region.Region3,
    ray_and_region.Ray,
    physical_properties.PhysicalProperties,
    tween_info.TweenInfo,
    font.Font,
    vector2.Rect,
    sequences.NumberRange,
    sequences.NumberSequenceKeypoint,
    sequences.NumberSequence,
    sequences.ColorSequenceKeypoint,
    sequences.ColorSequence,
    date_time.DateTime,
    random_stream.Random,
    query_params.RaycastParams,
    query_params.OverlapParams,
    query_params.RaycastResult,
    key_info.DataStoreKeyInfo,
)

LIBRARIES: dict[str, tuple[Functions, dict[str, Any]]] = {
    "Vector3": (vector3.CONSTRUCTORS, dict(vector3.CONSTANTS)),
    **{
        value_type.type_name: (value_type.constructors, value_type.constants)
        for value_type in VALUE_TYPES
        if value_type.constructors
    },
}

LATE_NAMES: tuple[str, ...] = (
    "task.synchronize",
    "task.desynchronize",
    "Rect",
    "NumberRange",
    "NumberSequenceKeypoint",
    "NumberSequence",
    "ColorSequenceKeypoint",
    "ColorSequence",
    "DateTime",
    "Font",
)
"""Globals and library fields added to worlds since version 1 of their snapshots.

Library fields are dotted names; new names come last. See `clawblox.luau.lib.support.registry`.
"""

_ENUM_TYPES = (
    (enums.ITEM_TYPE, enums.ITEM_METHODS),
    (enums.ENUM_TYPE, enums.ENUM_METHODS),
    (enums.ENUMS_TYPE, enums.ENUMS_METHODS),
)


def lend_values(host: Host) -> dict[str, Any]:
    """Register the value types and their functions with a host; return the globals of scripts.

    Raises:
        HostError: The host already has a type or function of this name.
    """
    libraries: dict[str, Any] = {"Enum": enums.ENUM}
    for name, (constructors, constants) in LIBRARIES.items():
        _register(host, f"{name}.", constructors)
        libraries[name] = LuaTable({**constructors, **constants})
    for value_type in VALUE_TYPES:
        host.value_type(value_type)
        _register(host, f"{value_type.type_name}:", value_type.methods)
    for host_type, methods in _ENUM_TYPES:
        host.type(host_type)
        _register(host, f"{host_type.name}:", methods)
    return libraries


def _register(host: Host, prefix: str, functions: Functions) -> None:
    for name, function in functions.items():
        host.raw(prefix + name)(function)


_MAKERS: dict[str, Callable[..., Any]] = {
    "Vector2": vector2.make_vector2,
    "Vector3": Vector,
    "CFrame": lambda: cframe.IDENTITY_CFRAME,
    "Color3": color3.make_color3,
    "BrickColor": brick_color.BrickColor,
    "UDim": udim.make_udim,
    "UDim2": udim.make_udim2,
    "Ray": ray_and_region.make_ray,
    "Font": font.default_font,
    "Rect": vector2.make_rect,
    "NumberRange": sequences.make_number_range,
    "NumberSequence": sequences.NumberSequence.constructors["new"],
    "ColorSequence": lambda *color: sequences.ColorSequence.constructors["new"](
        color3.make_color3(*color)
    ),
}


def make_default(kind: str, data: Any) -> Any:
    """Return the Luau value of a default in the class table.

    Args:
        kind: The type of the property.
        data: Plain data: a tuple of numbers for a value, an item's name for an ``Enum.X``.
    """
    if data is None:
        return None
    if kind.startswith("Enum."):
        return enums.enum_item(kind.removeprefix("Enum."), data)
    maker = _MAKERS.get(kind)
    return data if maker is None else maker(*data)
