"""The data model: every instance of a world, how they are made, moved, copied and destroyed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakValueDictionary

from clawblox.engine.errors import to_luau_text
from clawblox.engine.instances.attributes import copy_attribute
from clawblox.engine.instances.instance import ATTRIBUTE_SIGNAL, Instance
from clawblox.engine.instances.members import ChildSearch
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.instances.tags import Tags
from clawblox.engine.scheduler import Scheduler
from clawblox.engine.signals import SignalHub
from clawblox.luau import Host, HostObject, HostType, RuntimeFault

_MAKE_STEPS: Final = 60  # making an instance
_MOVE_STEPS: Final = 20  # moving an instance
_LEVELS_PER_STEP: Final = 2  # going up the tree to tell each ancestor
_SIBLINGS_PER_STEP: Final = 2  # looking through children, and making their names anew
_DESTROY_STEPS: Final = 20
_WALK_STEPS: Final = 2  # finding one descendant
_WALK_START_STEPS: Final = 10
_WALKED_PER_CHARGE: Final = 16

Effect = Callable[[Instance, str], None]
"""Told of an assignment to a property: the instance, and the property's name."""


class DataModel:
    """The instances of one world.

    Args:
        host: What the VM borrows from the engine.
        scheduler: Runs handlers.
        classes: All classes, complete.

    Attributes:
        host: The same as the argument.
        scheduler: The same as the argument.
        classes: The same as the argument.
        hub: Makes signals and connections.
        made: The number of instances made so far, which is the number of the last one.
        game: The root of the tree.
        workspace: What is simulated.
        services: The services by class name, in the order in which they were made.
        tags: The tagged instances of the tree.
        effects: The hooks of properties, by the name that the class table gives.
        moved: Told of each instance that has entered or left Workspace.
        destroying: Told of each instance that is being destroyed, before its events.
        copied: Told of each original and its copy, when an instance is cloned.
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
        self.tags = Tags(self)
        self.effects: dict[str, Effect] = {}
        self.moved: list[Callable[[Instance], None]] = []
        self.destroying: list[Callable[[Instance], None]] = []
        self.copied: list[Callable[[Instance, Instance], None]] = []
        self.instance_type = host.type(
            HostType("Instance", operators={"__tostring": _name_as_text})
        )
        self._instances: WeakValueDictionary[int, Instance] = WeakValueDictionary()
        scheduler.searches[ChildSearch.kind] = ChildSearch.read

    def build(self, services: tuple[str, ...]) -> None:
        """Make the root and its services; a restore replaces them.

        Args:
            services: Their class names, in the order in which ``game`` has them.
        """
        self.game = self.make("DataModel", name="Game")
        for name in services:
            service = self.services[name] = self.make(name)
            service.link(self.game)
            if name == "Workspace":
                self.workspace = service
                service.in_workspace = True

    def instances(self) -> list[Instance]:
        """Return all instances, those without a parent included."""
        return list(self._instances.values())

    def make(self, class_name: str, *, name: str | None = None) -> Instance:
        """Return a new instance without a parent.

        Args:
            class_name: Its class.
            name: Its name as text; None takes that of the class.

        Raises:
            KeyError: There is no such class.
            LuaError: The scripts have used up their memory, or the steps of this tick.
        """
        spec = self.classes.find(class_name)
        if spec is None:
            raise KeyError(class_name)
        self.scheduler.charge(_MAKE_STEPS)
        self.scheduler.vm.allocate(Instance.size_bytes)
        self.made += 1
        instance = self.make_numbered(self.made, class_name)
        if name is not None:
            instance.name = to_luau_text(name)
        return instance

    def make_numbered(self, number: int, class_name: str) -> Instance:
        """Return an instance with the number that a snapshot gives.

        Raises:
            ValueError: There is no such class.
        """
        spec = self.classes.find(class_name)
        if spec is None:
            raise ValueError(f"the snapshot has an instance of an unknown class, {class_name!r}")
        instance = self._instances[number] = Instance(self, spec, number)
        return instance

    def find(self, number: int) -> Instance | None:
        """Return the instance with a number; None if there is none, or no more."""
        return self._instances.get(number)

    def find_object(self, ident: str) -> HostObject | None:
        """Return the instance, signal or connection with an id; None if there is none."""
        number, dot, event = ident.partition(".")
        if number[:1] == "c" and number[1:].isdecimal():
            return self.hub.restored_connection(int(number[1:]))
        instance = self.find(int(number)) if number.isdecimal() else None
        return instance.signal(event) if dot and instance is not None else instance

    # Changes of the tree

    def walk(self, instance: Instance) -> list[Instance]:
        """Return an instance's descendants, as `Instance.descendants`; this costs steps.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
        """
        self.scheduler.charge(_WALK_START_STEPS)
        found = []
        for each in instance.descendants():
            found.append(each)
            if not len(found) % _WALKED_PER_CHARGE:
                self.scheduler.charge(_WALKED_PER_CHARGE * _WALK_STEPS)
        return found

    def set_parent(self, instance: Instance, parent: Instance | None) -> None:
        """Move an instance, and fire the events of it in order.

        Raises:
            RuntimeFault: It is destroyed, or would be below itself.
            LuaError: The scripts have used up the steps of this tick.
            WorldHalted: A handler fails.
        """
        if parent is instance.parent:
            return
        self._refuse_service(instance)
        if instance.is_destroyed:
            raise RuntimeFault(
                f"The Parent property of {instance.name} is locked, because it is destroyed"
            )
        if parent is not None and self._would_circle(instance, parent):
            raise RuntimeFault(
                f"Attempt to set parent of {instance.name} to {parent.name} would result in "
                "circular reference"
            )
        self._move(instance, parent)

    def _would_circle(self, instance: Instance, parent: Instance) -> bool:
        """Return whether a new parent is an instance or below it; the way up costs steps."""
        levels = 0
        found: Instance | None = parent
        while found is not None and found is not instance:
            levels += 1
            found = found.parent
        self.scheduler.charge(levels // _LEVELS_PER_STEP)
        return found is not None

    def _charge_move(self, instance: Instance) -> None:
        """Take the steps of a move before anything has moved."""
        moved = 1 + (len(self.walk(instance)) if instance.children else 0)
        old = instance.parent
        siblings = 0 if old is None else len(old.children)
        self.scheduler.charge(_MOVE_STEPS * moved + siblings // _SIBLINGS_PER_STEP)

    def _refuse_service(self, instance: Instance) -> None:
        if self.services.get(instance.spec.name) is instance or instance is self.game:
            raise RuntimeFault(f"The Parent property of {instance.name} is locked")

    def _move(self, instance: Instance, parent: Instance | None) -> None:
        self._charge_move(instance)
        old = instance.parent
        if old is not None:
            self._tell_ancestors(old, "DescendantRemoving", instance)
        instance.link(parent)
        self._update_workspace(instance)
        if old is not None:
            old.fire("ChildRemoved", instance)
        if parent is not None:
            parent.fire("ChildAdded", instance)
            self._tell_ancestors(parent, "DescendantAdded", instance)
        if instance.signals:
            instance.tell_changed("Parent")
        for found in (instance, *instance.descendants()):
            found.fire("AncestryChanged", instance, parent)
        self.tags.follow(instance, old)

    def _tell_ancestors(self, parent: Instance, event: str, instance: Instance) -> None:
        ancestor: Instance | None = parent
        while ancestor is not None:
            if event in ancestor.signals:
                for found in (instance, *instance.descendants()):
                    ancestor.fire(event, found)
            ancestor = ancestor.parent

    def _update_workspace(self, instance: Instance) -> None:
        parent = instance.parent
        is_inside = parent is not None and parent.in_workspace
        if instance.in_workspace is is_inside:
            return
        for found in (instance, *instance.descendants()):
            found.in_workspace = is_inside
            for tell in self.moved:
                tell(found)

    def destroy(self, instance: Instance) -> None:
        """Destroy an instance and all below it; a second call does nothing.

        ``Destroying`` fires on it, then on its children depth first; each is unparented after its
        own children.

        Raises:
            RuntimeFault: It is a service.
            WorldHalted: A handler fails.
        """
        if instance.is_destroyed:
            return
        self._refuse_service(instance)
        self.scheduler.charge(_DESTROY_STEPS)
        instance.is_destroyed = True
        for tell in self.destroying:
            tell(instance)
        instance.fire("Destroying")
        for child in tuple(instance.children):
            self.destroy(child)
        if instance.parent is not None:
            self._move(instance, None)
        for signal in tuple(instance.signals.values()):
            for connection in tuple(signal.connections):
                connection.disconnect()

    def clone(self, original: Instance) -> Instance:
        """Return a copy without a parent: name, properties, attributes, tags and children.

        References to instances that were copied as well point to the copies. Connections stay
        with the original.
        """
        copies: dict[Instance, Instance] = {}
        root = self._copy(original, copies)
        for copy in copies.values():
            for name, value in copy.props.items():
                if isinstance(value, Instance) and value in copies:
                    copy.props[name] = copies[value]
        for source, copy in copies.items():
            for tell in self.copied:
                tell(source, copy)
        return root

    def _copy(self, original: Instance, copies: dict[Instance, Instance]) -> Instance:
        copy = copies[original] = self.make(original.spec.name)
        copy.name = original.name
        copy.props = dict(original.props)
        copy.attributes = {name: copy_attribute(each) for name, each in original.attributes.items()}
        copy.tags = dict(original.tags)
        for child in original.children:
            self._copy(child, copies).link(copy)
        return copy

    def set_attribute(self, instance: Instance, name: str, value: Any) -> None:
        """Set an attribute, or remove it with nil; fire its events, also for an equal value.

        Raises:
            RuntimeFault: A value of this type cannot be an attribute.
            WorldHalted: A handler fails.
        """
        if value is None:
            instance.attributes.pop(name, None)
        else:
            instance.attributes[name] = copy_attribute(value)
        if instance.signals:
            instance.fire("AttributeChanged", name)
            instance.fire(ATTRIBUTE_SIGNAL + name)


def _name_as_text(instance: Instance) -> bytes:
    return instance.name.encode("latin-1")
