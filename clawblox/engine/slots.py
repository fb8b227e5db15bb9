"""Luau values held by the engine, numbered for a snapshot.

Handlers, threads and their arguments belong to the heap of the VM. A snapshot stores them in one
table among the VM's roots, and the documents of the engine's modules refer to them by number. A
value with several holders therefore remains a single value.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from clawblox.luau import VM, LuaTable, Vector
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.values import is_function

T = TypeVar("T")

_ROOT: Final = "engine"
_PLAIN: Final = (float, str, bool, Vector)


class Slots:
    """The numbered values of a snapshot; position 0 means nil."""

    def __len__(self) -> int:
        return len(self._values)

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._numbers: dict[int, int] = {}

    def put(self, value: Any) -> int:
        """Store a Luau value; return its number."""
        if value is None:
            return 0
        if value.__class__ in _PLAIN:  # a restore does not preserve their identity
            self._values.append(value)
            return len(self._values)
        number = self._numbers.get(id(value))
        if number is None:
            self._values.append(value)
            number = self._numbers[id(value)] = len(self._values)
        return number

    def take(self, number: int) -> Any:
        """Return the value with a number.

        Raises:
            ValueError: There is no such value.
        """
        if number == 0:
            return None
        if number.__class__ is not int or not 0 < number <= len(self._values):
            raise ValueError(f"the snapshot has no Luau value number {number}")
        return self._values[number - 1]

    def take_as(self, number: int, kind: type[T]) -> T:
        """Return the value with a number, after checking its class.

        Raises:
            ValueError: There is no such value, or its class differs.
        """
        value = self.take(number)
        if not isinstance(value, kind):
            raise _wrong_value(number, value, kind.__name__)
        return value

    def take_function(self, number: int) -> Any:
        """Return the function with a number.

        Raises:
            ValueError: There is no such value, or it is not a function.
        """
        value = self.take(number)
        if not is_function(value):
            raise _wrong_value(number, value, "function")
        return value

    def store(self, vm: VM) -> None:
        """Put the values among the VM's roots, just before the VM is saved."""
        pairs = enumerate(self._values, 1)
        vm.roots[_ROOT] = LuaTable({float(number): value for number, value in pairs})

    @staticmethod
    def clear(vm: VM) -> None:
        """Remove the values from the VM's roots, after saving the VM or restoring the engine."""
        vm.roots.pop(_ROOT, None)

    @classmethod
    def load(cls, vm: VM) -> Slots:
        """Return the values among the roots of a restored VM.

        Raises:
            ValueError: The roots lack the values.
        """
        table = vm.roots.get(_ROOT)
        if not isinstance(table, LuaTable):
            raise ValueError("the snapshot has no table of the engine's Luau values")
        slots = cls()
        for number in range(1, len(table) + 1):
            slots.put(table.get(float(number)))
        return slots


def _wrong_value(number: int, value: Any, wanted: str) -> ValueError:
    return ValueError(
        f"the snapshot has a {shown_type(value)} as Luau value number {number}, which must "
        f"be a {wanted}"
    )
