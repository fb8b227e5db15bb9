"""Functions and objects that a host lends to scripts, and conversions of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clawblox.luau.core.errors import HostError, RuntimeFault
from clawblox.luau.core.values import (
    Buffer,
    LuaTable,
    NativeFunction,
    Userdata,
    Vector,
    describe_key,
    key_value,
)
from clawblox.luau.runtime.coroutines import yield_values
from clawblox.luau.runtime.suspension import Yield


class HostFunction(NativeFunction):
    """A Python function that scripts can call.

    It gets Python values and returns one, a tuple of several, or None for no value; see `to_luau`.
    A `LuaError` it raises is an error of the script, and so are arguments that it does not take.
    Any other exception is an error of the host, which no ``pcall`` catches.

    Args:
        name: Its name in snapshots, unique in its host.
        function: The Python function.
    """

    __slots__ = ("function", "name")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call it as scripts do."""
        try:
            result = self.function(*map(to_python, arguments))
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise RuntimeFault(f"invalid arguments to '{self.name}': {error}") from None
            raise
        if result is None:
            return ()
        if isinstance(result, tuple):
            return results(result)
        return to_luau(result)


def results(values: tuple[Any, ...]) -> Any:
    """Return Python values as the results of a function.

    Raises:
        HostError: A value has no Luau form.
    """
    return to_luau(values[0]) if len(values) == 1 else tuple(map(to_luau, values))


class HostType:
    """A kind of host objects.

    Args:
        name: Its name, which ``typeof`` returns.
        properties: Getters by name; each gets the object.
        setters: Setters by name; each gets the object and the new value.
        methods: Methods by name; each gets the object and the arguments.
        operators: Operators by event, such as ``__add``, ``__lt``, ``__len``, ``__tostring``,
            ``__call``, ``__eq``, ``__concat`` and ``__iter``.
    """

    def __init__(
        self,
        name: str,
        *,
        properties: Mapping[str, Callable[..., Any]] | None = None,
        setters: Mapping[str, Callable[..., Any]] | None = None,
        methods: Mapping[str, Callable[..., Any]] | None = None,
        operators: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.name = name
        self.properties = dict(properties or {})
        self.setters = dict(setters or {})
        self.methods = {
            key: HostFunction(f"{name}:{key}", method) for key, method in (methods or {}).items()
        }
        self.meta = LuaTable()
        self.meta["__metatable"] = "The metatable is locked"
        for event, operator in (operators or {}).items():
            self.meta[event] = HostFunction(f"{name}.{event}", operator)

    def functions(self) -> list[HostFunction]:
        """Return the methods and operators."""
        operators = [value for value in self.meta.values() if isinstance(value, HostFunction)]
        return [*self.methods.values(), *operators]


class HostObject(Userdata):
    """An object of the host.

    Args:
        host_type: Its type.
        ident: Its id, by which snapshots refer to it.
        value: The host's own data about it.
    """

    __slots__ = ("host_type", "ident", "value")

    @property
    def type_name(self) -> str:  # type: ignore[override]
        """Its type, as ``typeof`` names it."""
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
        raise RuntimeFault(self._refusal(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        setter = self.host_type.setters.get(key)
        if setter is None:
            raise RuntimeFault(self._refusal(key))
        setter(self, to_python(value))

    def _refusal(self, key: Any) -> str:
        shown = describe_key(key_value(key))
        return f"{shown} is not a valid member of {self.host_type.name}"


class Host:
    """The functions, types and objects that a host lends to one VM.

    Attributes:
        functions: The registered functions by name.
        types: The registered types by name.
    """

    def __init__(self) -> None:
        self.functions: dict[str, HostFunction] = {}
        self.types: dict[str, HostType] = {}

    def function(self, name: str) -> Callable[[Callable[..., Any]], HostFunction]:
        """Register a function: ``@host.function("wait")``.

        Raises:
            HostError: A function with this name is registered already.
        """

        def register(function: Callable[..., Any]) -> HostFunction:
            return self._add(HostFunction(name, function))

        return register

    def _add(self, function: HostFunction) -> HostFunction:
        if function.name in self.functions:
            raise HostError(
                f"{function.name}: a host function with this name is registered already"
            )
        self.functions[function.name] = function
        return function

    def type(self, host_type: HostType) -> HostType:
        """Register a type of objects, with its methods and operators; return it.

        Raises:
            HostError: A function with the name of a method is registered already.
        """
        self.types[host_type.name] = host_type
        for function in host_type.functions():
            self._add(function)
        return host_type

    def find_object(self, ident: str) -> HostObject | None:
        """Return the object with an id, or None; called when a snapshot is restored.

        A host with objects overrides it.
        """
        return None


def suspend(*values: Any) -> Yield:
    """Return the exception that a host function raises to suspend the calling coroutine.

    Args:
        values: The values to yield. When the coroutine is resumed with other values, those are the
            result of the host function.

    Raises:
        LuaError: The coroutine cannot be suspended here.
        HostError: A value has no Luau form.
    """
    try:
        yield_values(tuple(map(to_luau, values)))
    except Yield as suspension:
        return suspension
    raise AssertionError


def to_luau(value: Any) -> Any:
    """Return a Python value as a Luau value.

    Integers become numbers, text becomes UTF-8 bytes, bytes become strings, and dictionaries and
    lists become new tables. Luau values stay as they are.

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
    """Return a Luau value for Python code: strings become text, other values stay as they are."""
    if value.__class__ is str:
        return str(value).encode("latin-1").decode("utf-8", "surrogateescape")
    return value
