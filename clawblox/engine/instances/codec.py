"""Values of properties and attributes in a snapshot.

Numbers, strings, booleans and nil are themselves. Everything else is an array whose first item
says what it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from clawblox.engine.instances.instance import Instance
from clawblox.luau import Host, HostObject, HostValue, LuaTable, Vector

__all__ = ["read_value", "write_value"]


def write_value(value: Any) -> Any:
    """Return a Luau value as JSON.

    Raises:
        TypeError: It cannot be saved.
    """
    if value is None or value.__class__ in (bool, str):
        return value
    if value.__class__ is float:
        return value if math.isfinite(value) else ["n", repr(value)]
    if value.__class__ is Vector:
        return ["v", *map(write_value, (value.x, value.y, value.z))]
    if value.__class__ is tuple:
        return ["r", *value]
    if isinstance(value, Instance):
        return ["i", value.number]
    if isinstance(value, HostObject):
        return ["o", value.ident]
    if isinstance(value, HostValue):
        return ["h", value.type_name, *map(write_value, value.contents())]
    if isinstance(value, LuaTable):
        return ["t", *([write_value(key), write_value(each)] for key, each in value.items())]
    raise TypeError(f"{type(value).__name__}: a value of this type cannot be saved")


def read_value(saved: Any, host: Host, find: Callable[[int], Instance | None]) -> Any:
    """Return the Luau value of its JSON form.

    Args:
        saved: What `write_value` returned.
        host: Knows the engine's types of values, and its objects.
        find: Returns the instance with a number.

    Raises:
        ValueError: It is damaged.
    """
    if not isinstance(saved, list):
        return float(saved) if saved.__class__ is int else saved
    kind, *parts = saved
    if kind == "n":
        return float(parts[0])
    if kind == "r":
        return tuple(map(float, parts))
    if kind == "i":
        found = find(parts[0])
        if found is None:
            raise ValueError(f"the snapshot has no instance {parts[0]}")
        return found
    if kind == "o":
        thing = host.find_object(parts[0])
        if thing is None:
            raise ValueError(f"the snapshot has an unknown object, {parts[0]!r}")
        return thing
    if kind == "t":
        return LuaTable({read_value(k, host, find): read_value(v, host, find) for k, v in parts})
    values = [read_value(part, host, find) for part in (parts if kind == "v" else parts[1:])]
    if kind == "v":
        return Vector(*values)
    if kind == "h":
        return _make_value(host, parts[0], values)
    raise ValueError(f"the snapshot has a value of unknown kind {kind!r}")


def _make_value(host: Host, name: str, contents: list[Any]) -> HostValue:
    """Return a value of one of the engine's types.

    Raises:
        ValueError: There is no such type, or it never has such contents.
    """
    cls = host.value_types.get(name)
    if cls is None:
        raise ValueError(f"the snapshot has a value of an unknown type, {name!r}")
    made = cls.empty()
    try:
        made.fill(*contents)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the snapshot has a damaged {name}: {error}") from error
    return made
