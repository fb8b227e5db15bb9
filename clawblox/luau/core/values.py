"""The values of Luau as Python objects.

nil, booleans, numbers and strings are ``None``, ``bool``, ``float`` and ``str`` (one character per
byte). Functions are Python callables: generated functions, built-in functions, and instances of
`NativeFunction`. They return a bare value for exactly one result, and a tuple otherwise.

Tables are dictionaries. The class of a table implements the behaviour beyond reading and writing.
It changes with the metatable, so plain tables have no overhead.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

from clawblox.luau.core.errors import MAX_MESSAGE, RuntimeFault
from clawblox.luau.core.machine import Coroutine, charge_reading, current
from clawblox.luau.core.machine import call_unyieldable as call_hook

Function = Callable[..., Any]

MAX_INDEX_CHAIN = 100
_LINKS = tuple(link % 8 == 7 for link in range(MAX_INDEX_CHAIN))  # True for tables that take a step
OWN_CLASS_BYTES = 2000  # of a class created for the tables with one metatable
_OWN_CLASS_STEPS = 50
_RENEWAL_STEPS = 8  # for a lookup through a chain of tables


class Flag:
    """The key of ``true`` or ``false`` in a table, since Python booleans equal numbers."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value


TRUE_KEY = Flag(True)
FALSE_KEY = Flag(False)


def flag(value: bool) -> Flag:
    """Return the table key of a boolean."""
    return TRUE_KEY if value else FALSE_KEY


def table_key(value: Any) -> Any:
    """Return the table key of a value, charging for a long string.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    if value.__class__ is str:
        charge_reading(len(value))
    return flag(value) if value.__class__ is bool else value


def key_value(key: Any) -> Any:
    """Return the Luau value of a table key."""
    return key.value if key.__class__ is Flag else key


def _call(self: Any, *arguments: Any) -> Any:
    """Call a table or userdata, like a script."""
    meta = self.meta  # and no metamethod(), since scripts call these often
    handler: Any = None if meta is None else raw_get(meta, "__call")
    if not is_function(handler):
        raise RuntimeFault(f"attempt to call a {self.type_name} value")
    return handler(self, *arguments)


class LuaTable(dict[Any, Any]):
    """A table without a metatable; its values are never None."""

    __slots__ = ("__weakref__", "_cursor", "_hint", "_meta", "_own_class", "_serial")

    _meta: LuaTable | None
    _own_class: type[MetaTable]
    _hint: float  # the number of elements it was created for; 0 if unknown
    _cursor: Any  # the position of `next`
    _serial: int

    meta: LuaTable | None = None
    type_name = "table"
    __missing__ = dict.get
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __ne__ = object.__ne__

    def __repr__(self) -> str:
        return f"<table of {len(self)}>"


class MetaTable(LuaTable):
    """A table with a metatable that does not intercept assignments."""

    __slots__ = ()

    meta = LuaTable.__dict__["_meta"]

    def __missing__(self, key: Any) -> Any:  # type: ignore[override]
        table: LuaTable = self
        for is_charged in _LINKS:
            if is_charged:
                current.vm.charge_work(1)
            meta = table.meta
            if meta is None:
                return None
            handler = raw_get(meta, "__index")
            if handler is None:
                return None
            if not isinstance(handler, LuaTable):
                if handler.__class__ is FunctionType or is_function(handler):
                    return first(call_hook(handler, table, key_value(key)))
                return hooks["index"](handler, key_value(key))
            value = raw_get(handler, key)
            if value is not None:
                return value
            table = handler
        raise RuntimeFault("'__index' chain too long; possibly loop")

    __call__ = _call
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LuaTable) and meta_equal(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other


class SlowTable(MetaTable):
    """A table with special assignments: it has ``__newindex``, or is a metatable itself."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __setitem__(self, key: Any, value: Any) -> None:
        assign(self, key, value)


class FrozenTable(SlowTable):
    """A read-only table."""

    __slots__ = ()
    __hash__ = object.__hash__


raw_get = dict.get
raw_set = dict.__setitem__
raw_pop = dict.pop
raw_has = dict.__contains__
hooks: dict[str, Function] = {}  # filled by `operators`, which imports this module


class NativeFunction:
    """A function with its own state, such as the result of ``string.gmatch``."""

    __slots__ = ("__weakref__", "_serial")

    def held(self) -> tuple[Any, ...]:
        """Return the values that its state keeps alive."""
        return ()


class Userdata:
    """A result of ``newproxy``: an identity with an optional metatable."""

    __slots__ = ("__weakref__", "_serial", "meta")

    type_name = "userdata"

    def __init__(self, meta: LuaTable | None) -> None:
        self.meta = meta

    def __getitem__(self, key: Any) -> Any:
        handler = metamethod(self, "__index")
        key = key_value(key)
        if handler is None and (handler := metamethod(self, "__namecall")) is not None:
            return handler
        if handler is None:
            raise RuntimeFault(f"attempt to index {self.type_name} with {describe_key(key)}")
        if is_function(handler):
            return first(call_hook(handler, self, key))
        return hooks["index"](handler, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        handler = metamethod(self, "__newindex")
        key = key_value(key)
        if handler is None:
            raise RuntimeFault(f"attempt to index {self.type_name} with {describe_key(key)}")
        if is_function(handler):
            call_hook(handler, self, key, value)
        else:
            hooks["put"](handler, key, value)

    def find_method(self, name: str) -> Any:
        """Return the function that ``value:name()`` calls; None to read the field instead."""
        return None

    __call__ = _call

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Userdata) and meta_equal(self, other)

    __hash__ = object.__hash__


class Vector:
    """A vector of three 32-bit floats; a value, not an object."""

    __slots__ = ("x", "y", "z")

    def __init__(self, x: float, y: float, z: float) -> None:
        self.x = x
        self.y = y
        self.z = z

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not Vector:
            return False
        return self.x == other.x and self.y == other.y and self.z == other.z

    def __hash__(self) -> int:
        return hash((self.x, self.y, self.z))

    def __getitem__(self, key: Any) -> Any:
        if key == "X":
            return self.x
        if key == "Y":
            return self.y
        if key == "Z":
            return self.z
        getter = current.vm.vectors.properties.get(key)
        return current.vm.vectors.read(self, key) if getter is None else getter(self)

    def find_method(self, name: str) -> Any:
        """Return the function that ``vector:name()`` calls, or None."""
        return current.vm.vectors.methods.get(name)


class Buffer:
    """A block of bytes."""

    __slots__ = ("__weakref__", "_serial", "data")

    def __init__(self, data: bytearray) -> None:
        self.data = data


def is_function(value: Any) -> bool:
    """Return whether a value's type is ``function``."""
    return value.__class__ is FunctionType or isinstance(
        value, (NativeFunction, BuiltinFunctionType)
    )


TYPE_NAMES: dict[type, str] = {
    type(None): "nil",
    bool: "boolean",
    float: "number",
    str: "string",
    LuaTable: "table",
    MetaTable: "table",
    SlowTable: "table",
    FrozenTable: "table",
    FunctionType: "function",
    BuiltinFunctionType: "function",
    Vector: "vector",
    Buffer: "buffer",
    Userdata: "userdata",
    Coroutine: "thread",
}


def type_name(value: Any) -> str:
    """Return the type of a value in the form of ``type``."""
    name = TYPE_NAMES.get(value.__class__)
    if name is not None:
        return name
    if isinstance(value, LuaTable):
        return "table"
    return "function" if isinstance(value, NativeFunction) else "userdata"


def first(result: Any) -> Any:
    """Return the first value of a function's result."""
    if result.__class__ is tuple:
        return result[0] if result else None
    return result


def as_tuple(result: Any) -> tuple[Any, ...]:
    """Return all values of a function's result."""
    return result if result.__class__ is tuple else (result,)


def as_result(values: tuple[Any, ...]) -> Any:
    """Return values in the form of a function's result."""
    return values[0] if len(values) == 1 else values


def truth(value: Any) -> bool:
    """Return whether a value counts as true."""
    return value is not None and value is not False


def describe_key(key: Any) -> str:
    """Return a key in the form of messages about indexing."""
    return f"'{key[:MAX_MESSAGE]}'" if key.__class__ is str else type_name(key)


def metamethod(value: Any, event: str) -> Any:
    """Return a value's handler of an event, or None."""
    meta = getattr(value, "meta", None)
    return None if meta is None else raw_get(meta, event)


def meta_equal(left: Any, right: Any) -> bool:
    """Compare two objects with their shared ``__eq``, even if they are the same object.

    Raises:
        LuaError: A metamethod fails or yields.
    """
    handler = metamethod(left, "__eq")
    if handler is None or metamethod(right, "__eq") is not handler:
        return left is right
    return truth(first(call_hook(handler, left, right)))


def raw_assign(table: LuaTable, key: Any, value: Any) -> None:
    """Set a valid table key without metamethods."""
    if value is None:
        raw_pop(table, key, None)
    else:
        raw_set(table, key, value)
    if table.__class__ is SlowTable and key.__class__ is str:
        if key == "__newindex":
            reclass_users(table)
        elif key == "__index":
            if current.vm is not None:
                current.vm.charge_work(_RENEWAL_STEPS)
            renew_class(table)


def check_key(key: Any) -> None:
    """Refuse nil and NaN as keys for assignments.

    Raises:
        RuntimeFault: The key is nil or NaN, or a vector that contains NaN.
    """
    if key is None:
        raise RuntimeFault("table index is nil")
    if key.__class__ in (float, Vector) and key != key:
        what = "is" if key.__class__ is float else "contains"
        raise RuntimeFault(f"table index {what} NaN")


def check_writable(table: LuaTable) -> None:
    """Refuse to change a frozen table.

    Raises:
        RuntimeFault: The table is frozen.
    """
    if table.__class__ is FrozenTable:
        raise RuntimeFault("attempt to modify a readonly table")


def assign(target: Any, key: Any, value: Any) -> None:
    """Set a key of a table like a script: with ``__newindex``, unless the table is read-only.

    Raises:
        RuntimeFault: The table is frozen, the key is nil or NaN, or the chain of ``__newindex`` is
            too long.
        LuaError: A metamethod fails or yields.
    """
    table = target
    for is_charged in _LINKS:
        if is_charged:
            current.vm.charge_work(1)
        meta = table.meta
        handler = None
        if meta is not None and not raw_has(table, key):
            handler = raw_get(meta, "__newindex")
        if handler is None:
            check_writable(table)
            check_key(key)
            raw_assign(table, key, value)
            return
        if is_function(handler):
            call_hook(handler, table, key_value(key), value)
            return
        if not isinstance(handler, LuaTable):
            hooks["put"](handler, key_value(key), value)
            return
        table = handler
    raise RuntimeFault("'__newindex' chain too long; possibly loop")


def set_metatable(table: LuaTable, meta: LuaTable | None) -> None:
    """Give a table a metatable; the caller must check that this is allowed."""
    if meta is not None and not isinstance(meta, SlowTable):
        if meta.__class__ is LuaTable:
            meta._meta = None
        meta.__class__ = SlowTable
    chosen = _class_for(table, meta)
    table._meta = meta
    table.__class__ = chosen


def _class_for(table: LuaTable, meta: LuaTable | None) -> type[LuaTable]:
    if isinstance(table, SlowTable):
        return table.__class__
    if meta is None:
        return LuaTable
    return SlowTable if raw_has(meta, "__newindex") else user_class(meta)


def user_class(meta: LuaTable) -> type[MetaTable]:
    """Return the class of the tables with this metatable.

    The second user gets a class created for the metatable, which looks up missing fields in the
    ``__index`` table without Python code.
    """
    own_class: type[MetaTable] | None = getattr(meta, "_own_class", None)
    if own_class is None:
        meta._own_class = MetaTable
        return MetaTable
    if own_class is MetaTable:
        current.vm.allocate(OWN_CLASS_BYTES)
        current.vm.charge_work(_OWN_CLASS_STEPS)
        return own_user_class(meta)
    return own_class


def has_own_class(table: LuaTable) -> bool:
    """Return whether the tables with this metatable have their own class."""
    return isinstance(table, SlowTable) and getattr(table, "_own_class", MetaTable) is not MetaTable


def own_user_class(meta: LuaTable) -> type[MetaTable]:
    """Return the class created for the tables with this metatable."""
    own_class: type[MetaTable] = getattr(meta, "_own_class", MetaTable)
    if own_class is MetaTable:
        own_class = meta._own_class = type("MetaTable", (MetaTable,), {"__slots__": ()})
        renew_class(meta)
    return own_class


def renew_class(meta: LuaTable) -> None:
    """Adapt the class of a metatable's users to its current ``__index``."""
    if not has_own_class(meta):
        return
    own_class: Any = meta._own_class
    handler = raw_get(meta, "__index")
    if isinstance(handler, LuaTable) and not _is_circular(handler):
        own_class.__missing__ = handler.__getitem__
    else:
        own_class.__missing__ = MetaTable.__missing__


def _is_circular(table: LuaTable) -> bool:
    for _ in range(MAX_INDEX_CHAIN):
        handler = None if table.meta is None else raw_get(table.meta, "__index")
        if not isinstance(handler, LuaTable):
            return False
        table = handler
    return True


def reclass_users(meta: LuaTable) -> None:
    """Change the class of all tables with this metatable after it has gained ``__newindex``.

    Raises:
        LuaError: The call has used up its steps or its memory, or the host has interrupted it.
    """
    import gc  # rarely needed: only if the handler is set after the first use

    for user in gc.get_referrers(meta):
        if isinstance(user, MetaTable) and not isinstance(user, SlowTable) and user.meta is meta:
            user.__class__ = SlowTable
    if current.vm is not None:  # otherwise the host is building a table
        current.vm.charge_search()


def freeze(table: LuaTable) -> None:
    """Make a table read-only."""
    if table.__class__ is LuaTable:
        table._meta = None
    table.__class__ = FrozenTable
