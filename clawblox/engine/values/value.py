"""The base of the value types: functions that check arguments, and 32-bit rounding."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from clawblox.engine.errors import suggest
from clawblox.luau import HostValue, LuaTable, RuntimeFault, Vector
from clawblox.luau.core.operators import to_text
from clawblox.luau.core.values import describe_key, key_value
from clawblox.luau.lib.support import arguments as arg

Function = Callable[..., Any]
Check = Callable[[tuple[Any, ...], int, str], Any]
"""Takes all arguments, a position from 0 and the function's name; returns the argument."""

F = TypeVar("F", bound=Function)


Getters = dict[str, Callable[[Any], Any]]
Functions = dict[str, Function]
"""Functions by the name that scripts use."""


def checked(functions: Functions | LuaTable, name: str, *checks: Check) -> Callable[[F], F]:
    """Register a function that gets exactly the arguments that its checks return.

    Args:
        functions: The registry for the function.
        name: The name in scripts and in messages.
        checks: A check for each argument; a method's first checks the object.
    """

    def register(function: F) -> F:
        checking = _with_checks(function, name, checks)
        checking.__wrapped__ = function  # type: ignore[attr-defined]  # for the reference
        functions[name] = checking
        return function

    return register


def _with_checks(function: Function, name: str, checks: tuple[Check, ...]) -> Function:
    if len(checks) == 1:
        (only,) = checks
        return lambda *args: function(only(args, 0, name))
    if len(checks) == 2:
        first, second = checks
        return lambda *args: function(first(args, 0, name), second(args, 1, name))
    places = tuple(enumerate(checks))
    return lambda *args: function(*[check(args, at, name) for at, check in places])


def instance_check(wanted: type[Any], type_name: str) -> Check:
    """Return a check for the objects of a class."""

    def check(args: tuple[Any, ...], at: int, name: str) -> Any:
        if at >= len(args) or not isinstance(args[at], wanted):
            arg.wrong_type(args, at, name, type_name)
        return args[at]

    return check


def any_value(args: tuple[Any, ...], at: int, name: str) -> Any:
    """Return an argument of any type; nil if it is missing."""
    return args[at] if at < len(args) else None


number: Check = arg.number
string: Check = arg.string
vector: Check = instance_check(Vector, "Vector3")
table: Check = instance_check(LuaTable, "table")


def optional(check: Check, default: Any) -> Check:
    """Return a check that returns a default for nil and for a missing argument."""

    def check_optional(args: tuple[Any, ...], at: int, name: str) -> Any:
        return default if at >= len(args) or args[at] is None else check(args, at, name)

    return check_optional


def operator(cls: type[HostValue], event: str, *checks: Check) -> Callable[[F], F]:
    """Register an operator of a type, such as ``__add``, in the same way as `checked`."""
    return checked(vars(cls)["meta"], event, *checks)


class Value(HostValue):
    """A value that equals any other value of its type with the same contents.

    Its contents are its fields, in order; a subclass with other contents overrides `contents` and
    `fill`.

    Attributes:
        kinds: The classes of its fields.
        getters: Its members by name, each as a function of the value.
        methods: Its methods by name.
        constructors: The functions of its library.
        constants: The values of its library.
    """

    __slots__: tuple[str, ...] = ()

    kinds: ClassVar[tuple[type[Any], ...]] = ()
    getters: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    methods: ClassVar[Functions] = {}
    constructors: ClassVar[Functions] = {}
    constants: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        """Give the type its own functions, and let ``tostring`` return `text`."""
        super().__init_subclass__()
        if "methods" not in vars(cls):  # otherwise attrs creates the class again, with its slots
            cls.methods, cls.constructors, cls.constants = {}, {}, {}
        operator(cls, "__tostring", instance_check(cls, cls.type_name))(lambda value: value.text())

    def contents(self) -> tuple[Any, ...]:
        """Return the fields."""
        return tuple([getattr(self, name) for name in self.__slots__])

    def fill(self, *values: Any) -> None:
        """Restore the fields."""
        expect_contents(values, *self.kinds)
        self.__init__(*values)  # type: ignore[misc]  # of the subclass, with its fields

    def text(self) -> str:
        """Return the text for ``tostring``."""
        return ", ".join(map(to_text, self.contents()))

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
        """Return a method for a call ``value:name(…)``, or None."""
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


class Mutable(Value):
    """A mutable value, equal only to itself."""

    __slots__ = ()

    def text(self) -> str:
        """Return the name of the type."""
        return self.type_name

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Record(Value):
    """A value with a name for each of its contents.

    Args:
        contents: The values of its members, in order.
    """

    __slots__ = ("_contents",)

    def __init__(self, *contents: Any) -> None:
        self._contents = contents

    def contents(self) -> tuple[Any, ...]:
        """Return the members."""
        return self._contents


def members(*names: str) -> Getters:
    """Return the getters of a record whose contents have these names."""
    return {name: partial(_member, at) for at, name in enumerate(names)}


def _member(at: int, record: Record) -> Any:
    return record.contents()[at]


def attributes(**paths: str) -> Getters:
    """Return the getters of members that are attributes, or attributes of attributes."""
    return {name: attrgetter(path) for name, path in paths.items()}


def add_arithmetic(
    cls: type[Value], make: Callable[..., Value], numbers: Callable[[Any], Iterable[float]]
) -> None:
    """Register component-wise addition, subtraction and negation.

    Args:
        cls: The type of the values.
        make: Creates a value from its numbers.
        numbers: Returns the numbers of a value.
    """
    check = instance_check(cls, cls.type_name)

    def register(event: str, compute: Callable[..., float], count: int) -> None:
        @operator(cls, event, *[check] * count)
        def combine(*values: Value) -> Value:
            return make(*map(compute, *map(numbers, values)))

    register("__add", float.__add__, 2)
    register("__sub", float.__sub__, 2)
    register("__unm", float.__neg__, 1)


def add_component_methods(
    methods: Functions, check: Check, make: Function, parts: Callable[[Any], tuple[float, ...]]
) -> None:
    """Add the component-wise methods of vectors.

    Args:
        methods: The registry for the methods.
        check: The check for a vector.
        make: Creates a vector from components.
        parts: Returns the components of a vector.
    """

    def add_each(name: str, compute: Callable[[float], float]) -> None:
        def call(value: Any) -> Any:
            return make(*(compute(part) if math.isfinite(part) else part for part in parts(value)))

        checked(methods, name, check)(call)

    def add_choice(name: str, choose: Callable[[float, float], float]) -> None:
        def call(*args: Any) -> Any:
            arg.charge(args)
            best = check(args, 0, name)
            for at in range(1, len(args)):
                best = make(*map(choose, parts(best), parts(check(args, at, name))))
            return best

        methods[name] = call

    add_each("Abs", math.fabs)
    add_each("Ceil", math.ceil)
    add_each("Floor", math.floor)
    add_each("Sign", lambda part: float((part > 0.0) - (part < 0.0)))
    add_choice("Max", max)
    add_choice("Min", min)


def as_list(values: Iterable[Any]) -> LuaTable:
    """Return Luau values as an array table."""
    return LuaTable({float(at): value for at, value in enumerate(values, 1)})


def expect_contents(values: tuple[Any, ...], *classes: type[Any]) -> None:
    """Check the contents of a value in a snapshot.

    Raises:
        TypeError: The contents are not exactly one object of each class.
    """
    if len(values) != len(classes) or not all(map(isinstance, values, classes)):
        raise TypeError(f"expected {', '.join(cls.__name__ for cls in classes)}")


_STRUCTS = [
    struct.Struct(f"{count}f") for count in range(13)
]  # native: numbers that are too large become inf


def singles(*values: float) -> tuple[float, ...]:
    """Return up to twelve numbers rounded to 32 bits."""
    packer = _STRUCTS[len(values)]
    return packer.unpack(packer.pack(*values))
