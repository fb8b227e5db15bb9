"""The data model of a world: its instances, as scripts see them, and the registry of them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from weakref import WeakValueDictionary

from clawblox.engine.errors import suggest, to_luau_text
from clawblox.engine.instances.kinds import check_value
from clawblox.engine.instances.spec import ClassSpec, ClassTable
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.signals import Signal, SignalHub
from clawblox.luau import Host, HostObject, HostType, RuntimeFault
from clawblox.luau.core.values import describe_key, key_value

PROPERTY_SIGNAL = "@"
"""Prefix of the names of signals that `GetPropertyChangedSignal` returns."""
ATTRIBUTE_SIGNAL = "#"
"""Prefix of the names of signals that `GetAttributeChangedSignal` returns."""

_NAMES_PER_STEP: Final = 2
_MAKE_STEPS: Final = 60  # per instance created

Effect = Callable[["Instance", str], None]
"""Called when a script assigns a property: with the instance and the property's name."""


ROTATION = "Rotation\u2089"
"""Key of `Instance.props`: the rotation of a part as nine numbers, unless it is the identity.
Luau strings cannot contain the last character of the key, so scripts cannot read the tuple."""
ACCESSORIES: Final = "Accessories\u2089"
"""Key of `Instance.props`: the accessories of a HumanoidDescription."""
DESCRIPTION: Final = "Description\u2089"
"""Key of `Instance.props`: the HumanoidDescription of a Humanoid."""
METADATA: Final = "Metadata\u2089"
"""Key of `Instance.props`: the metadata of a data store's options, as JSON text."""
DISABLED_STATES: Final = "DisabledStates\u2089"
"""Key of `Instance.props`: the states that a Humanoid may not enter, separated by commas."""
MODEL_SCALE: Final = "Scale\u2089"
"""Key of `Instance.props`: the scale of a scaled model."""
TWEEN_GOALS: Final = "Goals\u2089"
"""Key of `Instance.props`: the final values of a tween, by property."""
TWEEN_STARTS: Final = "Starts\u2089"
"""Key of `Instance.props`: the initial values of a tween, from its start to its end."""
TWEEN_ELAPSED: Final = "Elapsed\u2089"
"""Key of `Instance.props`: the ticks that a paused tween had run."""


class Instance(HostObject):
    """An object of the data model.

    Scripts index it as Python code does: ``part["Position"]`` reads a property, an event, a
    method or a child. Values are Luau values throughout.

    Attributes:
        number: Its id, counted from 1 for all instances of a world.
        spec: Its class.
        model: The data model it belongs to.
        name: Its name, a Luau string.
        parent: Its parent; None outside the tree.
        children: Its children, in the order in which they were added.
        props: The properties whose values differ from the default.
        attributes: Its attributes.
        tags: Its tags, as keys in the order in which they were added.
        signals: The signals with listeners, by name.
        in_workspace: Whether it is below Workspace.
        is_destroyed: Whether `destroy` was called.
        extra: State of the module that owns its class; None for most.
    """

    __slots__ = (
        "_by_name", "_members", "attributes", "children", "extra", "in_workspace",
        "is_destroyed", "model", "name", "number", "parent", "props", "signals", "spec", "tags",
    )  # fmt: skip

    size_bytes = 1000

    def __init__(self, model: DataModel, spec: ClassSpec, number: int) -> None:
        super().__init__(model.instance_type, str(number))
        self.model = model
        self.spec = spec
        self.number = number
        self.name = spec.first_name or spec.name
        self.parent: Instance | None = None
        self.children: list[Instance] = []
        self.props: dict[str, Any] = {}
        self.attributes: dict[str, Any] = {}
        self.tags: dict[str, None] = {}
        self.signals: dict[str, Signal] = {}
        self._members: dict[str, Signal] = {}  # the signals used so far, of events of the class
        self.in_workspace = False
        self.is_destroyed = False
        self.extra: Any = None
        self._by_name: dict[str, Instance] | None = None

    def __repr__(self) -> str:
        return f"<{self.spec.name} {self.number} {self.name!r}>"

    def held(self) -> list[Any]:
        """Return the values that the instance keeps alive, to count against the memory limit."""
        values = [*self.props.values(), *self.attributes.values(), *self.signals.values()]
        return [self.parent, *self.children, *values, self.name, *self.attributes, *self.tags]

    # For scripts

    def __getitem__(self, key: Any) -> Any:
        value = self.props.get(key)
        if value is not None:
            return value
        spec = self.spec
        value = spec.shared.get(key)
        if value is not None:
            return value
        getter = spec.getters.get(key)
        if getter is not None:
            return getter(self)
        if key in spec.event_names:
            return self.signal(key)
        method = spec.methods.get(key)
        if method is not None:
            return method
        if key in spec.properties:
            return None
        return self.find_child(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        spec = self.spec
        rule = spec.properties.get(key)
        if rule is None:
            raise RuntimeFault(self._explain(key, spec.properties))
        if rule.read_only:
            raise RuntimeFault(f"property '{key}' of {spec.name} is read-only")
        value = check_value(key, rule, value)
        setter = spec.setters.get(key)
        if setter is not None:
            setter(self, value)
            return
        has_changed = bool(self.signals) and self.read(key) != value
        self._keep(key, value)
        if rule.effect is not None:
            self.model.effects[rule.effect](self, key)
        if has_changed:
            self.tell_changed(key)

    def find_method(self, name: str) -> Any:
        """Return a method by name, or None."""
        return self.spec.methods.get(name)

    def explain_missing(self, name: str) -> str:
        """Return the error text for a call ``instance:name()`` of a missing method."""
        return self._explain(name, self.spec.methods)

    def _explain(self, key: Any, names: Iterable[str]) -> str:
        shown, likely = describe_key(key_value(key)), suggest(key, names)
        return f"{shown} is not a valid member of {self.spec.name} '{self.name}'{likely}"

    # For the engine

    def read(self, name: str) -> Any:
        """Return the value of a plain property."""
        value = self.props.get(name)
        return self.spec.defaults.get(name) if value is None else value

    def store(self, name: str, value: Any) -> bool:
        """Set a plain property without effects or events; return whether it has changed."""
        old = self.read(name)
        self._keep(name, value)
        return bool(old is not value and old != value)

    def _keep(self, name: str, value: Any) -> None:
        if value is None:
            self.props.pop(name, None)
        else:
            self.props[name] = value

    def change(self, name: str, value: Any) -> None:
        """Set a plain property and fire its change events, without its effect.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        if self.store(name, value) and self.signals:
            self.tell_changed(name)

    def tell_changed(self, name: str) -> None:
        """Fire the change events of a property.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        self.fire(PROPERTY_SIGNAL + name)
        if "Changed" in self.signals and "Value" not in self.spec.properties:
            self.fire("Changed", name)

    def signal(self, name: str) -> Signal:
        """Return the signal of an event, always the same object."""
        signal = self._members.get(name)
        if signal is not None:
            return signal
        if name in self.spec.event_names or name[:1] == PROPERTY_SIGNAL:
            signal = self._members[name] = Signal(self.model.hub, self, name, self.signals)
            return signal
        signal = self.signals.get(name)
        return self.model.hub.find_signal(self, name, self.signals) if signal is None else signal

    def fire(self, event: str, *values: Any) -> None:
        """Fire an event, if it has listeners.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        signal = self.signals.get(event)
        if signal is not None:
            signal.fire(*values)

    def is_a(self, class_name: str) -> bool:
        """Return whether it is of a class or of a subclass."""
        return class_name in self.spec.lineage

    # The tree

    def find_child(self, name: Any) -> Instance | None:
        """Return the first child with a name, or None."""
        by_name = self._by_name
        if by_name is None:
            if not self.children:
                return None
            by_name = self._by_name = {}
            for child in self.children:
                by_name.setdefault(child.name, child)
        return by_name.get(name)

    def find_child_of_class(self, class_name: Any) -> Instance | None:
        """Return the first child of exactly this class, or None."""
        return next((child for child in self.children if child.spec.name == class_name), None)

    def list_in(self, instances: dict[int, Instance]) -> None:
        """Add the instance to a dict by number if it is below Workspace, else remove it."""
        if self.in_workspace:
            instances[self.number] = self
        else:
            instances.pop(self.number, None)

    def descendants(self) -> Iterator[Instance]:
        """Iterate over its descendants, depth first, parents before their children."""
        stack = self.children[::-1]
        while stack:
            instance = stack.pop()
            yield instance
            stack.extend(instance.children[::-1])

    def ancestors(self) -> Iterator[Instance]:
        """Iterate over its ancestors, from its parent up to the root."""
        ancestor = self.parent
        while ancestor is not None:
            yield ancestor
            ancestor = ancestor.parent

    def is_below(self, ancestor: Instance) -> bool:
        """Return whether another instance is one of its ancestors."""
        return ancestor in self.ancestors()

    def rename(self, name: str) -> None:
        """Set its name, without firing events.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
        """
        parent = self.parent
        if parent is not None and parent._by_name is not None:  # the next search rebuilds it
            self.model.scheduler.charge(len(parent.children) // _NAMES_PER_STEP)
            parent._by_name = None
        self.name = name

    def link(self, parent: Instance | None, at: int | None = None) -> None:
        """Move it below a parent, without firing events.

        Args:
            parent: The new parent; None takes it out of the tree.
            at: Its position among the children; None for the end.
        """
        old = self.parent
        if old is not None:
            old.children.remove(self)
            old._by_name = None
        self.parent = parent
        if parent is None:
            return
        if at is None:
            parent.children.append(self)
            if parent._by_name is not None:
                parent._by_name.setdefault(self.name, self)
        else:
            parent.children.insert(at, self)
            parent._by_name = None


class DataModel:
    """The instances of one world.

    Args:
        host: The engine's functions and objects for the VM.
        scheduler: Runs handlers.
        classes: All classes, complete.

    Attributes:
        host: The same as the argument.
        scheduler: The same as the argument.
        classes: The same as the argument.
        hub: Creates signals and connections.
        made: Number of instances created so far; also the number of the newest.
        game: The root of the tree.
        workspace: The part of the tree that is simulated.
        services: The services by class name, in the order in which they were created.
        tagged: The tagged instances below ``game``, by tag and number.
        effects: The effects of properties, by their name in the class table.
        moved: Callbacks for each instance that has entered or left Workspace.
        destroying: Callbacks for each instance that is being destroyed, before its events.
        copied: Callbacks for each original and its copy, when an instance is cloned.
    """

    game: Instance
    workspace: Instance

    def __init__(self, host: Host, scheduler: Scheduler, classes: ClassTable) -> None:
        self.host = host
        self.scheduler = scheduler
        self.classes = classes
        self.hub = SignalHub(host, scheduler)
        self.made = 0
        self.services: dict[str, Instance] = {}
        self.tagged: dict[str, dict[int, Instance]] = {}
        self.effects: dict[str, Effect] = {}
        self.moved: list[Callable[[Instance], None]] = []
        self.destroying: list[Callable[[Instance], None]] = []
        self.copied: list[Callable[[Instance, Instance], None]] = []
        self.instance_type = host.type(
            HostType("Instance", operators={"__tostring": _name_as_text})
        )
        self._instances: WeakValueDictionary[int, Instance] = WeakValueDictionary()

    def build(self, services: tuple[str, ...]) -> None:
        """Create the root and its services; a restore replaces them.

        Args:
            services: Class names of the services, in the order of ``game``'s children.
        """
        self.game = self.make("DataModel", name="Game")
        for name in services:
            service = self.services[name] = self.make(name)
            service.link(self.game)
            if name == "Workspace":
                self.workspace = service
                service.in_workspace = True

    def service(self, name: Any) -> Instance | None:
        """Return a service, or None if there is no such service; create a late service.

        Raises:
            LuaError: The scripts have used up their memory, or the steps of this tick.
        """
        spec = self.classes.find(name)
        if spec is not None and spec.is_late and name not in self.services:
            service = self.services[name] = self.make(name)
            service.link(self.game)
        return self.services.get(name)

    def instances(self) -> list[Instance]:
        """Return all instances, including those without a parent."""
        return list(self._instances.values())

    def make(self, class_name: str, *, name: str | None = None) -> Instance:
        """Return a new instance without a parent.

        Args:
            class_name: Its class.
            name: Its name as text; None for the name of the class.

        Raises:
            ValueError: There is no such class.
            LuaError: The scripts have used up their memory, or the steps of this tick.
        """
        self.scheduler.charge(_MAKE_STEPS)
        self.scheduler.vm.allocate(Instance.size_bytes)
        self.made += 1
        instance = self.make_numbered(self.made, class_name)
        if name is not None:
            instance.name = to_luau_text(name)
        return instance

    def make_numbered(self, number: int, class_name: str) -> Instance:
        """Create an instance with a given number, as in a snapshot.

        Raises:
            ValueError: There is no such class.
        """
        spec = self.classes.find(class_name)
        if spec is None:
            raise ValueError(f"there is an instance of an unknown class, {class_name!r}")
        instance = self._instances[number] = Instance(self, spec, number)
        return instance

    def find(self, number: int) -> Instance | None:
        """Return the instance with a number, or None if it does not exist."""
        return self._instances.get(number)

    def find_object(self, ident: str) -> HostObject | None:
        """Return the instance, signal or connection with an id, or None."""
        number, dot, event = ident.partition(".")
        if number[:1] == "c" and number[1:].isdecimal():
            return self.hub.restored_connection(int(number[1:]))
        instance = self.find(int(number)) if number.isdecimal() else None
        return instance.signal(event) if dot and instance is not None else instance


def _name_as_text(instance: Instance) -> bytes:
    return instance.name.encode("latin-1")
