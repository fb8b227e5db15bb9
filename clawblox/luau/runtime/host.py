"""Functions and objects that a host provides to scripts, and conversions of values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from clawblox.luau.core.errors import HostError, RuntimeFault
from clawblox.luau.core.values import (
    Buffer,
    Function,
    LuaTable,
    NativeFunction,
    Userdata,
    Vector,
    describe_key,
    key_value,
)
from clawblox.luau.runtime.raw import HostValue, make_raw, raw_name, suspend_raw
from clawblox.luau.runtime.suspension import Yield


@dataclass(slots=True, eq=False, repr=False)
class HostFunction(NativeFunction):
    """A Python function that scripts can call.

    It takes Python values and returns one value, a tuple of several, or None for no value; see
    `to_luau`. A `LuaError` is an error of the script, and so are unexpected arguments. Any other
    exception is an error of the host, which ``pcall`` does not catch.

    Args:
        name: Its name in snapshots, unique in its host.
        function: The Python function.
    """

    name: str
    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Call the function with Luau values."""
        try:
            result = self.function(*map(to_python, arguments))
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise RuntimeFault(f"invalid arguments to '{self.name}': {error}") from None
            raise
        if result is None:
            return ()
        return results(result) if isinstance(result, tuple) else to_luau(result)


def results(values: tuple[Any, ...]) -> Any:
    """Return Python values as the results of a function.

    Raises:
        HostError: A value has no Luau form.
    """
    return to_luau(values[0]) if len(values) == 1 else tuple(map(to_luau, values))


class HostType:
    """A kind of host objects.

    Args:
        name: The name that ``typeof`` returns.
        properties: Getters by name; each takes the object.
        setters: Setters by name; each takes the object and the new value.
        methods: Methods by name; each takes the object and the arguments.
        operators: Operators by event, such as ``__add``, ``__lt``, ``__len``, ``__tostring``,
            ``__call``, ``__eq``, ``__concat`` and ``__iter``.
        missing: The getter of all other members, which takes the object and the key; None to
            refuse them.
    """

    def __init__(
        self,
        name: str,
        *,
        properties: Mapping[str, Callable[..., Any]] | None = None,
        setters: Mapping[str, Callable[..., Any]] | None = None,
        methods: Mapping[str, Callable[..., Any]] | None = None,
        operators: Mapping[str, Callable[..., Any]] | None = None,
        missing: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self.missing = missing
        self.properties = dict(properties or {})
        self.setters = dict(setters or {})
        self.methods: dict[str, Any] = {
            key: HostFunction(f"{name}:{key}", method) for key, method in (methods or {}).items()
        }
        self.meta = LuaTable({"__metatable": "The metatable is locked"})
        for event, operator in (operators or {}).items():
            self.meta[event] = HostFunction(f"{name}.{event}", operator)

    def functions(self) -> list[HostFunction]:
        """Return the methods and operators."""
        operators = [value for value in self.meta.values() if isinstance(value, HostFunction)]
        return [*self.methods.values(), *operators]


class HostObject(Userdata):
    """An object of the host.

    ``object.name`` is a property or else a method; ``object:name()`` is a method or else a
    property. For speed, a subclass may override ``__getitem__``, ``__setitem__`` and
    `find_method`, which use table keys and Luau values without conversions.

    Args:
        host_type: Its type.
        ident: Its id in snapshots.
        value: The host's data for the object.

    Attributes:
        size_bytes: Its own size in the memory limit, without the values that it keeps alive.
    """

    __slots__ = ("host_type", "ident", "value")

    size_bytes = 100

    @property
    def type_name(self) -> str:  # type: ignore[override]
        """Its type, as returned by ``typeof``."""
        return self.host_type.name

    def __init__(self, host_type: HostType, ident: str, value: Any = None) -> None:
        super().__init__(host_type.meta)
        self.host_type = host_type
        self.ident = ident
        self.value = value

    def __getitem__(self, key: Any) -> Any:
        getter = self.host_type.properties.get(key)
        if getter is not None:
            return to_luau(getter(self))
        method = self.host_type.methods.get(key)
        if method is not None:
            return method
        missing = self.host_type.missing
        if missing is not None:
            return to_luau(missing(self, to_python(key_value(key))))
        raise RuntimeFault(self._refusal(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        setter = self.host_type.setters.get(key)
        if setter is None:
            raise RuntimeFault(self._refusal(key))
        setter(self, to_python(value))

    def held(self) -> Iterable[Any]:
        """Return the Luau values that it keeps alive, for the memory limit."""
        return ()

    def find_method(self, name: str) -> Any:
        """Return the function that ``object:name()`` calls, or None."""
        return self.host_type.methods.get(name)

    def explain_missing(self, name: str) -> str:
        """Return the error text for a call ``object:name()`` of a missing method."""
        return f"attempt to call missing method '{name}' of {self.type_name}"

    def _refusal(self, key: Any) -> str:
        shown = describe_key(key_value(key))
        return f"{shown} is not a valid member of {self.host_type.name}"


class Host:
    """The functions, types and objects that a host provides to a VM.

    Attributes:
        functions: The registered functions by name.
        types: The registered types of objects by name.
        value_types: The registered types of values by name.
    """

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.types: dict[str, HostType] = {}
        self.value_types: dict[str, type[HostValue]] = {}

    def function(self, name: str) -> Callable[[Callable[..., Any]], HostFunction]:
        """Register a function: ``@host.function("wait")``.

        Raises:
            HostError: A function with this name is already registered.
        """

        def register(function: Callable[..., Any]) -> HostFunction:
            lent = HostFunction(name, function)
            self._add(name, lent)
            return lent

        return register

    def raw(self, name: str) -> Callable[[Function], Function]:
        """Register a plain Python function that scripts call directly: ``@host.raw("spawn")``.

        It takes Luau values and returns Luau results: a bare value for a single result (``None`` is
        nil), otherwise a tuple. A `RuntimeFault` is an error of the script with the script's
        position, a `LuaError` an error with its own text. Unexpected arguments are errors of the
        script too. Any other exception is an error of the host, which ``pcall`` does not catch. A
        function may be registered with several hosts.

        Raises:
            HostError: A function with this name is already registered; or the function is not
                plain, or is registered under another name.
        """

        def register(function: Function) -> Function:
            self._add(name, make_raw(name, function))
            return function

        return register

    def _add(self, name: str, function: Function) -> None:
        if name in self.functions:
            raise HostError(f"{name}: a host function with this name is already registered")
        self.functions[name] = function

    def value_type(self, cls: type[HostValue]) -> type[HostValue]:
        """Register a type of values; return it.

        Raises:
            HostError: Another type with this name is already registered.
        """
        if self.value_types.setdefault(cls.type_name, cls) is not cls:
            raise HostError(
                f"{cls.type_name}: a type of values with this name is already registered"
            )
        return cls

    def type(self, host_type: HostType) -> HostType:
        """Register a type of objects, with its methods and operators; return it.

        Raises:
            HostError: A function with the name of a method is already registered.
        """
        self.types[host_type.name] = host_type
        for function in host_type.functions():
            self._add(function.name, function)
        return host_type

    def find_object(self, ident: str) -> HostObject | None:
        """Return the object with an id, or None; called during a restore.

        A host with objects must override this method.
        """
        return None


def suspend(*values: Any) -> Yield:
    """Return the exception that a host function raises to suspend the calling coroutine.

    Args:
        values: The values to yield. The values that the coroutine is resumed with are the result
            of the host function.

    Raises:
        LuaError: The coroutine cannot be suspended here.
        HostError: A value has no Luau form.
    """
    return suspend_raw(*map(to_luau, values))


def lent_name(value: Any) -> str | None:
    """Return the name of a host function or object in snapshots; None for other values."""
    if isinstance(value, FunctionType):
        return raw_name(value)
    if isinstance(value, HostFunction):
        return value.name
    if isinstance(value, HostObject):
        return f"{value.host_type.name} {value.ident}"
    return None


def to_luau(value: Any) -> Any:
    """Return a Python value as a Luau value.

    Integers become numbers, text becomes UTF-8 bytes, bytes become strings, and dictionaries and
    lists become new tables. Luau values are unchanged.

    Raises:
        HostError: The value has no Luau form.
    """
    if value is None or isinstance(value, (bool, LuaTable, Userdata, Vector, Buffer)):
        return value
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    if isinstance(value, (bytes, bytearray)):
        return value.decode("latin-1")
    if isinstance(value, (list, tuple)):
        pairs = enumerate(value, 1)
        return LuaTable({float(at): to_luau(item) for at, item in pairs if item is not None})
    if isinstance(value, dict):
        table = LuaTable()
        for key, item in value.items():
            if item is not None:
                table[to_luau(key)] = to_luau(item)
        return table
    if callable(value) or type(value).__module__.startswith("clawblox.luau"):
        return value
    raise HostError(f"{type(value).__name__}: a value of this type has no Luau form")


def to_python(value: Any) -> Any:
    """Return a Luau value for Python code: strings become text, other values are unchanged."""
    if value.__class__ is str:
        return str(value).encode("latin-1").decode("utf-8", "surrogateescape")
    return value
