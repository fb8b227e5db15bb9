"""Values of the host that scripts hold as userdata, and that snapshots save by their contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from clawblox.luau.core.values import LuaTable, Userdata


class HostValue(Userdata):
    """A value of a type of the host, such as a colour; each type is a subclass.

    A snapshot holds its type's name and its contents, and restores it as one object wherever it was
    one. The host registers the subclass with `Host.value_type`. A subclass defines
    ``__getitem__(key)``, which gets a table key and returns a Luau value, and `find_method` if it
    has members; both work without conversions. Where it defines ``__eq__``, scripts compare with
    that; tables tell its values apart by identity all the same.

    Attributes:
        type_name: The name that ``typeof`` returns, unique in the host.
        operators: Plain Python functions on Luau values by event, such as ``__add`` and
            ``__tostring``; without ``__eq``.
    """

    __slots__ = ()

    type_name = "value"
    operators: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def __init__(self) -> None:
        """Do nothing: the metatable is that of the type."""

    def __init_subclass__(cls) -> None:
        """Make the metatable of the type, and let tables tell its values apart."""
        super().__init_subclass__()
        meta = LuaTable(cls.operators)
        meta["__metatable"] = "The metatable is locked"
        cls.meta = meta  # type: ignore[misc]  # one for the type, not one for each value
        if cls.__dict__.get("__hash__", True) is None:  # because it defines ``__eq__``
            cls.__hash__ = object.__hash__  # type: ignore[assignment]

    @classmethod
    def empty(cls) -> Self:
        """Return a value without contents, which `fill` gives it."""
        return cls.__new__(cls)

    def contents(self) -> tuple[Any, ...]:
        """Return the Luau values that `fill` takes.

        Equal contents have to give equal documents, so their order is fixed.
        """
        raise NotImplementedError

    def fill(self, *values: Any) -> None:
        """Give an empty value its contents, which may come from a document that no VM wrote.

        Tables and other values among them may still be empty, so they are only kept here.

        Raises:
            TypeError, ValueError: `contents` never returns such values.
        """
        raise NotImplementedError
