"""The parameters of queries of the world, and the result of a ray."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from clawblox.engine.values.enums import EnumItem, enum_item
from clawblox.engine.values.value import (
    Mutable,
    Record,
    any_value,
    checked,
    expect_contents,
    instance_check,
    members,
)
from clawblox.luau import HostObject, LuaTable, RuntimeFault, Vector
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.operators import shown_type, to_text
from clawblox.luau.core.tables import border

_EXCLUDE = enum_item("RaycastFilterType", "Exclude")
_INCLUDE = enum_item("RaycastFilterType", "Include")


class QueryParams(Mutable):
    """The parameters of a query; scripts can change them.

    Attributes:
        members: The values of its members by name.
    """

    __slots__ = ("members",)

    defaults: ClassVar[dict[str, Any]] = {
        "FilterType": _EXCLUDE,
        "CollisionGroup": "Default",
        "RespectCanCollide": False,
    }

    def __init__(self) -> None:
        self.members: dict[str, Any] = {**self.defaults, "FilterDescendantsInstances": LuaTable()}

    def contents(self) -> tuple[Any, ...]:
        """Return the values of the members in a fixed order."""
        return tuple(self.members.values())

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, *(value.__class__ for value in self.defaults.values()), LuaTable)
        names = (*self.defaults, "FilterDescendantsInstances")
        self.members = dict(zip(names, values, strict=True))

    @property
    def includes(self) -> bool:
        """True if only the listed instances count, instead of all others."""
        return self.members["FilterType"] is _INCLUDE

    @property
    def filtered(self) -> list[Any]:
        """The listed instances."""
        return list(self.members["FilterDescendantsInstances"].values())

    def names(self) -> Iterable[str]:
        """Return the names of its members."""
        return (*self.members, *self.methods)

    def __getitem__(self, key: Any) -> Any:
        if key == "FilterDescendantsInstances":
            return LuaTable(self.members[key])
        if key in self.members:
            return self.members[key]
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key not in self.members:
            raise RuntimeFault(self._refusal(key))
        if key == "FilterDescendantsInstances":
            self.members[key] = _copy_list(key, value)
        else:
            self.members[key] = _check(key, self.defaults[key], value)


class RaycastParams(QueryParams):
    """The parameters of a ray."""

    __slots__ = ()

    type_name = "RaycastParams"
    defaults: ClassVar[dict[str, Any]] = {**QueryParams.defaults, "IgnoreWater": False}


class OverlapParams(QueryParams):
    """The parameters of a search for overlapping parts; MaxParts 0 means no limit."""

    __slots__ = ()

    type_name = "OverlapParams"
    defaults: ClassVar[dict[str, Any]] = {**QueryParams.defaults, "MaxParts": 0.0}


def _check(name: str, default: Any, value: Any) -> Any:
    if isinstance(default, EnumItem):
        if isinstance(value, EnumItem) and value.enum is default.enum:
            return value
        wanted = default.enum.ident
    elif value.__class__ is default.__class__:
        return value
    else:
        wanted = shown_type(default)
    raise _refuse(name, wanted, value)


def _copy_list(name: str, value: Any) -> LuaTable:
    if not isinstance(value, LuaTable):
        raise _refuse(name, "table", value)
    length = int(border(value))
    charge_work(length)
    values = (value.get(float(at)) for at in range(1, length + 1))
    items = [item for item in values if item is not None]
    for item in items:
        if not _is_instance(item):
            raise _refuse(name, "table of Instances", item)
    return LuaTable({float(at): item for at, item in enumerate(items, 1)})


def _is_instance(value: Any) -> bool:
    return isinstance(value, HostObject) and value.type_name == "Instance"


def _refuse(name: str, wanted: str, value: Any) -> RuntimeFault:
    return RuntimeFault(f"invalid value for '{name}' ({wanted} expected, got {shown_type(value)})")


def _add_to_filter(params: QueryParams, added: Any) -> tuple[()]:
    items = LuaTable({1.0: added}) if _is_instance(added) else added
    more = _copy_list("FilterDescendantsInstances", items)
    both = [*params.filtered, *more.values()]
    listed = LuaTable({float(at): item for at, item in enumerate(both, 1)})
    params.members["FilterDescendantsInstances"] = listed
    return ()


for _type in (RaycastParams, OverlapParams):
    _params = instance_check(_type, _type.type_name)
    checked(_type.methods, "AddToFilter", _params, any_value)(_add_to_filter)

RaycastParams.constructors["new"] = lambda *_: RaycastParams()
OverlapParams.constructors["new"] = lambda *_: OverlapParams()


class RaycastResult(Record):
    """The hit of a ray: part, position, normal, distance and material."""

    __slots__ = ()

    type_name = "RaycastResult"
    kinds = (HostObject, Vector, Vector, float, EnumItem)
    getters = members("Instance", "Position", "Normal", "Distance", "Material")

    def text(self) -> str:
        """Return the members in the format of Roblox."""
        instance, position, normal, distance, material = map(to_text, self.contents())
        return (
            f"RaycastResult{{{instance} @ {position}; normal = {normal}; material = {material}; "
            f"distance = {distance}}}"
        )
