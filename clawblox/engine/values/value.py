"""What the value types have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from clawblox.engine.nearest import suggest
from clawblox.engine.values.functions import Check, F, Function, Functions, checked
from clawblox.luau import HostValue, RuntimeFault
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.values import describe_key, key_value


class Value(HostValue):
    """A value that is equal to any other of its type with the same contents.

    Attributes:
        getters: Its members by name, each as a function of the value.
        methods: Its methods by name.
    """

    __slots__ = ()

    getters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    methods: ClassVar[Functions] = {}

    def __getitem__(self, key: Any) -> Any:
        getter = self.getters.get(key)
        if getter is not None:
            return getter(self)
        method = self.methods.get(key)
        if method is None:
            raise RuntimeFault(self._refusal(key))
        return method

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in self.getters:
            raise RuntimeFault(f"{key} cannot be assigned to")
        raise RuntimeFault(self._refusal(key))

    def find_method(self, name: str) -> Function | None:
        """Return a method for a call ``value:name(…)``; None if there is no such method."""
        return self.methods.get(name)

    def _refusal(self, key: Any) -> str:
        likely = suggest(key, self.names())
        return f"{describe_key(key_value(key))} is not a valid member of {self.type_name}{likely}"

    def names(self) -> Iterable[str]:
        """Return the names of its members."""
        return (*self.getters, *self.methods)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Value)
            and other.__class__ is self.__class__
            and self.contents() == other.contents()
        )


def operator(cls: type[HostValue], event: str, *checks: Check) -> Callable[[F], F]:
    """Register an operator of a type, such as ``__add``, as `checked` does."""
    return checked(vars(cls)["meta"], event, *checks)


def expect_contents(values: tuple[Any, ...], *classes: type[Any]) -> None:
    """Check the contents that a snapshot gives a value.

    Raises:
        TypeError: They are not one object of each class.
    """
    if len(values) != len(classes) or not all(map(isinstance, values, classes)):
        raise TypeError(f"expected {', '.join(each.__name__ for each in classes)}")


def numbers_text(*numbers: float) -> str:
    """Return numbers as ``tostring`` shows them within a value."""
    return ", ".join(map(format_number, numbers))
