"""A class of instances: its properties, events and methods.

The rows of `classes` are data. Modules that implement behaviour add methods and accessors to them
with `ClassTable.add`; after that the table is complete and constant.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import FunctionType
from typing import Any, Final, TypeAlias

import attrs

from clawblox.luau import Host, HostValue, RuntimeFault


@attrs.frozen
class Property:
    """A property of a class.

    Attributes:
        kind: Its type: a name in `kinds`, such as ``number``, ``Vector3`` or ``Enum.Material``.
        default: Its value in a new instance, as plain data; None for nil.
        effect: Name of the hook that is called for each assignment, or None.
        read_only: Whether scripts may not assign it.
        limits: The smallest and the largest number; assigned numbers are clamped to this range.
        may_be_infinite: Whether the components of a vector may be infinite; numbers always may.
        is_data: Whether it is only stored, saved and copied, without effect.
    """

    kind: str
    default: Any = None
    effect: str | None = attrs.field(default=None, kw_only=True)
    read_only: bool = attrs.field(default=False, kw_only=True)
    limits: tuple[float, float] | None = attrs.field(default=None, kw_only=True)
    may_be_infinite: bool = attrs.field(default=False, kw_only=True)
    is_data: bool = attrs.field(default=False, kw_only=True)


Member: TypeAlias = Property | bool | float | str
"""A member of a class, or the default of a data member."""

_KINDS: Final = {bool: "boolean", float: "number", str: "string"}


@cache
def data(kind: str, default: Any = None) -> Property:
    """Return a data member of a type, with its default as plain data."""
    return Property(kind, default, is_data=True, may_be_infinite=True)


def members(**defaults: Member) -> dict[str, Property]:
    """Return members by name; a boolean, number or text is the default of a data member."""
    return {
        name: default if isinstance(default, Property) else data(_KINDS[type(default)], default)
        for name, default in defaults.items()
    }


NEVER: Final = "never; available only for scripts that connect it"
"""`EventSpec.when` of an event that only Roblox clients would fire."""


@attrs.frozen
class EventSpec:
    """An event of a class, as shown in the class reference.

    Attributes:
        parameters: Names and types of the arguments of handlers.
        when: Condition under which it fires; empty if the name is clear enough.
    """

    parameters: str = ""
    when: str = ""


Getter = Callable[[Any], Any]
Setter = Callable[[Any, Any], None]


@attrs.define(eq=False)
class ClassSpec:
    """A class of instances.

    Attributes:
        name: Its name.
        base: The name of the class it extends; None for ``Instance``.
        properties: Its properties by name.
        events: Its events by name.
        creatable: Whether ``Instance.new`` can create it.
        is_late: Whether it is a service that a world creates when a script first asks for it, to
            keep the numbers of all other instances unchanged in worlds that do not use it.
        is_data: Whether its instances are only stored, saved and copied, without effect.
        refusal: Reason why a world cannot have it, with an alternative; empty for other classes.
        first_name: The name of a new instance; empty for the name of the class.
        lineage: The names of all classes that ``IsA`` accepts, its own name first.
        event_names: The names of its events, for lookups.
        defaults: The default values other than nil, by property.
        shared: The defaults that scripts cannot distinguish by identity.
        getters: Functions that compute properties, by property.
        setters: Functions that replace plain assignment, by property.
        methods: Methods for scripts, by name.
    """

    name: str
    base: str | None = "Instance"
    properties: Mapping[str, Property] = attrs.field(factory=dict)
    events: Mapping[str, EventSpec] = attrs.field(factory=dict)
    creatable: bool = attrs.field(default=True, kw_only=True)
    is_late: bool = attrs.field(default=False, kw_only=True)
    is_data: bool = attrs.field(default=False, kw_only=True)
    refusal: str = attrs.field(default="", kw_only=True)
    first_name: str = attrs.field(default="", kw_only=True)
    lineage: tuple[str, ...] = attrs.field(init=False, default=())
    event_names: frozenset[str] = attrs.field(init=False, default=frozenset())
    defaults: dict[str, Any] = attrs.field(init=False, factory=dict)
    shared: dict[str, Any] = attrs.field(init=False, factory=dict)
    getters: dict[str, Getter] = attrs.field(init=False, factory=dict)
    setters: dict[str, Setter] = attrs.field(init=False, factory=dict)
    methods: dict[str, Any] = attrs.field(init=False, factory=dict)


def class_row(
    name: str,
    base: str | None = "Instance",
    events: Mapping[str, EventSpec] | None = None,
    *,
    creatable: bool = True,
    is_late: bool = False,
    is_data: bool = False,
    first_name: str = "",
    **properties: Member,
) -> ClassSpec:
    """Return a row of the class table, with the members that a class adds to its base.

    The properties are given in the form that `members` takes.
    """
    return ClassSpec(
        name,
        base,
        members(**properties),
        events or {},
        creatable=creatable,
        is_late=is_late,
        is_data=is_data,
        first_name=first_name,
    )


class ClassTable:
    """All classes of a world; each is completed on first access.

    Args:
        rows: The classes, each after its base.
        host: Registry of the methods.
        make_default: Returns the Luau value of a property's type and default.
    """

    def __init__(
        self,
        rows: Iterable[ClassSpec],
        host: Host,
        make_default: Callable[[str, Any], Any],
    ) -> None:
        self._host = host
        self._make_default = make_default
        self._rows = {row.name: row for row in rows}
        self._specs: dict[str, ClassSpec] = {}
        self._added: list[tuple[str, Callable[[ClassSpec], None]]] = []

    def _complete(self, row: ClassSpec) -> ClassSpec:
        """Return the class of a row, with inherited and added members."""
        spec = self._specs[row.name] = self._inherit(row)
        for name, extend in self._added:
            if name in spec.lineage:
                extend(spec)
        return spec

    def _inherit(self, row: ClassSpec) -> ClassSpec:
        base = None if row.base is None else self.find(row.base)
        base = base or ClassSpec("")
        properties, events = {**base.properties, **row.properties}, {**base.events, **row.events}
        spec = attrs.evolve(row, properties=properties, events=events)
        spec.lineage = (row.name, *base.lineage)
        spec.event_names = frozenset(spec.events)
        spec.defaults = {
            name: self._make_default(rule.kind, rule.default)
            for name, rule in spec.properties.items()
            if rule.default is not None
        }
        for name, default in spec.defaults.items():
            if isinstance(default, HostValue):
                spec.getters[name] = _own_default(name, default)
            else:
                spec.shared[name] = default
        return spec

    def __iter__(self) -> Iterator[ClassSpec]:
        return (self._specs.get(name) or self._complete(row) for name, row in self._rows.items())

    def rows(self) -> Iterable[ClassSpec]:
        """Return the classes without inherited members, in their original order."""
        return self._rows.values()

    def find(self, name: str) -> ClassSpec | None:
        """Return a class, or None."""
        spec = self._specs.get(name)
        row = self._rows.get(name) if spec is None else None
        return spec if row is None else self._complete(row)

    def add(
        self,
        name: str,
        *,
        methods: Mapping[str, Callable[..., Any]] | None = None,
        getters: Mapping[str, Getter] | None = None,
        setters: Mapping[str, Setter] | None = None,
    ) -> None:
        """Add behaviour to a class and to all its subclasses.

        Args:
            name: The class.
            methods: Functions by name; each gets the instance and Luau values (nil for missing
                arguments) and returns its results like a Luau function.
            getters: Computed properties by name.
            setters: Functions that replace the plain assignment of a property; called with the
                checked value.
        """
        registered = {
            key: self._host.raw(f"{name}:{key}")(checked_method(name, key, function))
            for key, function in (methods or {}).items()
        }

        def extend(spec: ClassSpec) -> None:
            spec.methods.update(registered)
            spec.getters.update(getters or {})
            spec.setters.update(setters or {})

        self._added.append((name, extend))
        for spec in self._specs.values():
            if name in spec.lineage:
                extend(spec)


def methods_in(module: Mapping[str, Any], receiver: str) -> dict[str, Callable[..., Any]]:
    """Return the methods that a module defines for a class, by the names that scripts use.

    They are the public functions whose first parameter has the receiver's name. For example,
    ``get_players(service)`` is ``GetPlayers``.

    Args:
        module: The globals of the module.
        receiver: The name of the first parameter.
    """
    return {
        _luau_name(name): function
        for name, function in module.items()
        if _is_method(name, function, (receiver,)) and function.__module__ == module["__name__"]
    }


def bind_methods(state: object, receiver: str) -> dict[str, Callable[..., Any]]:
    """Return the methods that an object defines for a class, with ``self`` bound to the object."""
    return {
        _luau_name(name): getattr(state, name)
        for name, function in vars(type(state)).items()
        if _is_method(name, function, ("self", receiver))
    }


def _is_method(name: str, function: Any, first: tuple[str, ...]) -> bool:
    return (
        isinstance(function, FunctionType)
        and function.__code__.co_varnames[: len(first)] == first
        and not name.startswith("_")
    )


def _luau_name(name: str) -> str:
    return "".join(map(str.capitalize, name.split("_")))


def _own_default(name: str, default: HostValue) -> Getter:
    """Return a getter that gives an instance its own default value on the first read.

    Scripts can distinguish such values by identity, and snapshots store them.
    """

    def read(instance: Any) -> HostValue:
        own = instance.props[name] = type(default).empty()
        own.fill(*default.contents())
        return own

    return read


def checked_method(class_name: str, name: str, function: Callable[..., Any]) -> FunctionType:
    """Return a method that refuses a receiver of another class and takes any arguments.

    Luau functions take nil for missing arguments, and ignore surplus arguments.
    """
    code = function.__code__
    is_variadic = bool(code.co_flags & 0x04)
    count = code.co_argcount - (2 if inspect.ismethod(function) else 1)

    def check(receiver: Any) -> None:
        try:
            fits = class_name in receiver.spec.lineage
        except AttributeError:
            fits = False
        if not fits:
            raise RuntimeFault(f"Expected ':' not '.' calling member function {name}")

    def call_0(receiver: Any = None, *_: Any) -> Any:
        check(receiver)
        return function(receiver)

    def call_1(receiver: Any = None, first: Any = None, *_: Any) -> Any:
        check(receiver)
        return function(receiver, first)

    def call_2(receiver: Any = None, first: Any = None, second: Any = None, *_: Any) -> Any:
        check(receiver)
        return function(receiver, first, second)

    def call_many(receiver: Any = None, *values: Any) -> Any:
        check(receiver)
        if not is_variadic:
            values = (*values, *[None] * count)[:count]
        return function(receiver, *values)

    calls: list[Any] = [call_0, call_1, call_2]
    call = call_many if is_variadic or count >= len(calls) else calls[count]
    shown = call.__code__.replace(co_name=name)  # its own code object, for tracebacks
    method = FunctionType(shown, call.__globals__, name, call.__defaults__, call.__closure__)
    method.__wrapped__ = function  # type: ignore[attr-defined]  # for the reference of classes
    return method
