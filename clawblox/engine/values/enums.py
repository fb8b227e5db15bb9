"""``Enum``: its enums and their items, one object each, which snapshots refer to by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from clawblox.engine.nearest import suggest
from clawblox.engine.values.enum_data import ALIASES, ENUMS
from clawblox.engine.values.functions import (
    Check,
    Functions,
    checked,
    instance_check,
)
from clawblox.luau import HostObject, HostType, LuaTable, RuntimeFault
from clawblox.luau.core.values import describe_key, key_value
from clawblox.luau.lib.support import arguments as arg

ITEM_TYPE = HostType("EnumItem")
ENUM_TYPE = HostType("Enum")
ENUMS_TYPE = HostType("Enums")
ITEM_METHODS: Functions = {}
ENUM_METHODS: Functions = {}
ENUMS_METHODS: Functions = {}


class _Named(HostObject):
    """An object that snapshots and messages call by its full name.

    Attributes:
        methods: Its methods by name.
    """

    __slots__ = ()

    methods: ClassVar[Functions] = {}

    def __str__(self) -> str:
        return self.ident

    def refusal(self, key: Any) -> str:
        """Return the error about a member that does not exist."""
        likely = suggest(key, self.names())
        return f"{describe_key(key_value(key))} is not a valid member of {self.ident}{likely}"

    def names(self) -> Iterable[str]:
        """Return the names of its members."""
        return self.methods

    def __getitem__(self, key: Any) -> Any:
        method = self.methods.get(key)
        if method is None:
            raise RuntimeFault(self.refusal(key))
        return method

    def __setitem__(self, key: Any, value: Any) -> None:
        raise RuntimeFault(f"{self.ident} cannot be changed")

    def find_method(self, name: str) -> Any:
        """Return the method that a method call finds, or None."""
        return self.methods.get(name)


class EnumItem(_Named):
    """An item of an enum.

    Attributes:
        enum: The enum.
        name: Its name.
        number: Its value.
    """

    __slots__ = ("enum", "name", "number")

    methods = ITEM_METHODS

    def __init__(self, enum: Enum, name: str, number: int) -> None:
        super().__init__(ITEM_TYPE, f"{enum.ident}.{name}")
        self.enum = enum
        self.name = name
        self.number = number

    def __getitem__(self, key: Any) -> Any:
        if key == "Name":
            return self.name
        if key == "Value":
            return float(self.number)
        if key == "EnumType":
            return self.enum
        return super().__getitem__(key)

    def names(self) -> Iterable[str]:
        """Return the names of its members."""
        return ("Name", "Value", "EnumType", *self.methods)


class Enum(_Named):
    """An enum.

    Attributes:
        name: Its name.
        items: Its items by name.
    """

    __slots__ = ("items", "name")

    methods = ENUM_METHODS

    def __init__(self, name: str, numbers: dict[str, int]) -> None:
        super().__init__(ENUM_TYPE, f"Enum.{name}")
        self.name = name
        self.items = {item: EnumItem(self, item, number) for item, number in numbers.items()}

    def find(self, name: str) -> EnumItem | None:
        """Return an item by its name or by an older one, or None."""
        return self.items.get(ALIASES.get(self.name, {}).get(name, name))

    def look_up(self, value: Any) -> EnumItem | None:
        """Return the item that a script means by itself, by its name or by its number, or None."""
        if isinstance(value, EnumItem):
            return value if value.enum is self else None
        if value.__class__ is str:
            return self.find(value)
        if value.__class__ is not float:
            return None
        return next((item for item in self.items.values() if item.number == value), None)

    def __getitem__(self, key: Any) -> Any:
        return self.find(key) or super().__getitem__(key)

    def names(self) -> Iterable[str]:
        """Return the names of its items and methods."""
        return (*self.items, *self.methods)


class Enums(_Named):
    """The global ``Enum``.

    Attributes:
        enums: All enums by name.
    """

    __slots__ = ("enums",)

    methods = ENUMS_METHODS

    def __init__(self) -> None:
        super().__init__(ENUMS_TYPE, "Enum")
        self.enums = {name: Enum(name, numbers) for name, numbers in ENUMS.items()}

    def __getitem__(self, key: Any) -> Any:
        return self.enums.get(key) or super().__getitem__(key)

    def names(self) -> Iterable[str]:
        """Return the names of its enums and methods."""
        return (*self.enums, *self.methods)


ENUM = Enums()


def enum_item(enum: str, name: str) -> EnumItem:
    """Return an item.

    Raises:
        KeyError: There is no such enum or item.
    """
    return ENUM.enums[enum].items[name]


def find_enum_object(ident: str) -> HostObject | None:
    """Return ``Enum``, an enum or an item by the id in a snapshot, or None."""
    root, *path = ident.split(".")
    if root != "Enum" or len(path) > 2:
        return None
    if not path:
        return ENUM
    enum = ENUM.enums.get(path[0])
    if enum is None or len(path) == 1:
        return enum
    return enum.items.get(path[1])


def enum_check(enum: str) -> Check:
    """Return a check for the items of an enum."""

    def check(args: tuple[Any, ...], at: int, name: str) -> EnumItem:
        value = args[at] if at < len(args) else None
        if not isinstance(value, EnumItem) or value.enum.name != enum:
            arg.wrong_type(args, at, name, f"Enum.{enum}")
        return value

    return check


def _list(values: Any) -> LuaTable:
    return LuaTable({float(at): value for at, value in enumerate(values, 1)})


_item = instance_check(EnumItem, "EnumItem")
_enum = instance_check(Enum, "Enum")
_enums = instance_check(Enums, "Enums")


@checked(ITEM_METHODS, "IsA", _item, arg.string)
def _is_a(item: EnumItem, name: str) -> bool:
    return item.enum.name == name


@checked(ENUM_METHODS, "GetEnumItems", _enum)
def _enum_items(enum: Enum) -> LuaTable:
    return _list(enum.items.values())


@checked(ENUM_METHODS, "FromName", _enum, arg.string)
def _from_name(enum: Enum, name: str) -> EnumItem | None:
    return enum.find(name)


@checked(ENUM_METHODS, "FromValue", _enum, arg.number)
def _from_value(enum: Enum, number: float) -> EnumItem | None:
    return enum.look_up(number)


@checked(ENUMS_METHODS, "GetEnums", _enums)
def _get_enums(enums: Enums) -> LuaTable:
    return _list(enums.enums.values())


for _type in (ITEM_TYPE, ENUM_TYPE, ENUMS_TYPE):
    checked(_type.meta, "__tostring", instance_check(_Named, _type.name))(str)
