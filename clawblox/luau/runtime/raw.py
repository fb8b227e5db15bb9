"""Host objects without conversions: raw functions, values, and members of vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ClassVar, Self

from clawblox.luau.core.errors import HostError, RuntimeFault
from clawblox.luau.core.values import LuaTable, Userdata, Vector, describe_key, key_value
from clawblox.luau.runtime.coroutines import check_yieldable
from clawblox.luau.runtime.diagnose import BUILTIN_CODES, RAW_NAMES
from clawblox.luau.runtime.suspension import Yield


def make_raw(name: str, function: Any) -> FunctionType:
    """Give a plain Python function its name for snapshots and messages.

    Returns:
        The function itself.

    Raises:
        HostError: The function is not plain, or already has another name.
    """
    if not isinstance(function, FunctionType):
        raise HostError(
            f"{name}: must be a function made with def or lambda, "
            f"not a {type(function).__name__}; wrap it in one"
        )
    present = raw_name(function)
    if present not in (None, name):
        raise HostError(f"{name}: this function is already registered as {present!r}")
    if present is None:
        # Stacks identify functions by their code, which all functions of a def share.
        function.__code__ = function.__code__.replace(co_name=name)
        function.__qualname__ = name
        function.__dict__["raw_name"] = name
        BUILTIN_CODES[function.__code__] = name.replace(":", ".").rpartition(".")[2]
        RAW_NAMES.add(name)
    return function


def raw_name(function: FunctionType) -> str | None:
    """Return the name of a raw function; None for any other function."""
    name: str | None = function.__dict__.get("raw_name")
    return name


def suspend_raw(*values: Any) -> Yield:
    """Return the exception that a raw function raises to suspend the calling coroutine.

    Args:
        values: The Luau values to yield. The values that the coroutine is resumed with are the
            result of the raw function.

    Raises:
        LuaError: The coroutine cannot be suspended here.
    """
    check_yieldable()
    return Yield(values)


class HostValue(Userdata):
    """A value of a host type, such as a colour; each type is a subclass.

    A snapshot contains the name of its type and its contents, and keeps its identity. The host
    registers the subclass with `Host.value_type`. A subclass with members defines
    ``__getitem__(key)``, from a table key to a Luau value, and `find_method`, both without
    conversions. Scripts compare values with ``__eq__`` if it is defined; table keys are always
    compared by identity.

    Attributes:
        type_name: The name that ``typeof`` returns, unique in the host.
        operators: Plain Python functions on Luau values by event, such as ``__add`` and
            ``__tostring``; without ``__eq``.
    """

    __slots__ = ()

    type_name = "value"
    operators: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def __init__(self) -> None:
        """Do nothing, since the metatable belongs to the type."""

    def __init_subclass__(cls) -> None:
        """Create the metatable of the type, and make its values keys by identity."""
        super().__init_subclass__()
        meta = LuaTable({**cls.operators, "__metatable": "The metatable is locked"})
        cls.meta = meta  # type: ignore[misc]  # one for the type, not one for each value
        if cls.__dict__.get("__hash__", True) is None:  # because it defines ``__eq__``
            cls.__hash__ = object.__hash__  # type: ignore[assignment]

    @classmethod
    def empty(cls) -> Self:
        """Return a value without contents, for `fill`."""
        return cls.__new__(cls)

    def contents(self) -> tuple[Any, ...]:
        """Return the Luau values for `fill`.

        Their order is fixed, because equal contents must give equal documents.
        """
        raise NotImplementedError

    def fill(self, *values: Any) -> None:
        """Give an empty value its contents, possibly from a forged document.

        Tables and other values among them may still be empty, and can only be stored here.

        Raises:
            TypeError, ValueError: The values are invalid, since `contents` never returns them.
        """
        raise NotImplementedError


class VectorType:
    """The type name of vectors, and their members other than the components.

    All functions take and return Luau values, without conversions.

    Args:
        name: The name that ``typeof`` returns.
        properties: Getters by name; each takes the vector.
        methods: Plain Python functions by name; each takes the vector and the arguments. They
            become raw functions named ``name:method``, which snapshots refer to.

    Attributes:
        functions: The methods by their full names.

    Raises:
        HostError: A method is not a plain function, or is registered under another name.
    """

    def __init__(
        self,
        name: str,
        *,
        properties: Mapping[str, Callable[[Vector], Any]] | None = None,
        methods: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.name = name
        self.properties: Mapping[str, Any] = dict(properties or {})
        self.methods: Mapping[str, Any] = {
            key: make_raw(f"{name}:{key}", method) for key, method in (methods or {}).items()
        }
        self.functions: Mapping[str, Any] = {
            f"{name}:{key}": method for key, method in self.methods.items()
        }

    def read(self, vector: Vector, key: Any) -> Any:
        """Return a component in lower case, or a method.

        Raises:
            RuntimeFault: Vectors have no such member.
        """
        if key in ("x", "y", "z"):
            return getattr(vector, key)
        method = self.methods.get(key)
        if method is not None:
            return method
        raise RuntimeFault(f"attempt to index {self.name} with {describe_key(key_value(key))}")


PLAIN_VECTORS = VectorType("vector")
"""Vectors as in the reference, with components only."""
