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
    """Give a plain Python function the name by which snapshots and messages refer to it.

    Returns:
        The function itself.

    Raises:
        HostError: It is not a plain function, or has another name already.
    """
    if not isinstance(function, FunctionType):
        raise HostError(
            f"{name}: must be a function made with def or lambda, "
            f"not a {type(function).__name__}; wrap it in one"
        )
    present = raw_name(function)
    if present not in (None, name):
        raise HostError(f"{name}: this function is registered as {present!r} already")
    if present is None:
        # Functions are identified by their code in stacks, and all functions of a def share it.
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
        values: The Luau values to yield. When the coroutine is resumed with other values, those
            are the result of the raw function.

    Raises:
        LuaError: The coroutine cannot be suspended here.
    """
    check_yieldable()
    return Yield(values)


class HostValue(Userdata):
    """A value of a type of the host, such as a colour; each type is a subclass.

    A snapshot contains the name of its type and its contents, and keeps its identity. The host
    registers the subclass with `Host.value_type`. A subclass with members defines
    ``__getitem__(key)``, from a table key to a Luau value, and `find_method`; both work without
    conversions. Scripts compare with ``__eq__`` if it is defined; as keys of tables, values differ
    by identity all the same.

    Attributes:
        type_name: The name that ``typeof`` returns, unique in the host.
        operators: Plain Python functions on Luau values by event, such as ``__add`` and
            ``__tostring``; without ``__eq``.
    """

    __slots__ = ()

    type_name = "value"
    operators: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def __init__(self) -> None:
        """Do nothing: the type has the metatable."""

    def __init_subclass__(cls) -> None:
        """Make the metatable of the type, and let its values be keys by identity."""
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
        """Return the Luau values that `fill` takes.

        Equal contents have to give equal documents, so their order is fixed.
        """
        raise NotImplementedError

    def fill(self, *values: Any) -> None:
        """Give an empty value its contents; they may come from a document that no VM wrote.

        Tables and other values among them may still be empty, so they are only kept here.

        Raises:
            TypeError, ValueError: `contents` never returns such values.
        """
        raise NotImplementedError


class VectorType:
    """The name of vectors, and their members besides the components.

    All its functions get and return Luau values, without conversions.

    Args:
        name: The name that ``typeof`` returns.
        properties: Getters by name; each gets the vector.
        methods: Plain Python functions by name; each gets the vector and the arguments. They become
            raw functions called ``name:method``; snapshots find them here.

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
        """Return a member that is neither a component in a capital letter nor a property.

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
"""Vectors as the reference has them: nothing but their components."""
