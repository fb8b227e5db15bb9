"""The members that every instance has, as scripts call them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.errors import suggest
from clawblox.engine.instances import tree_changes as tree
from clawblox.engine.instances.attributes import copy_attribute
from clawblox.engine.instances.instance import ATTRIBUTE_SIGNAL, PROPERTY_SIGNAL, Instance
from clawblox.engine.instances.spec import ClassTable, methods_in
from clawblox.engine.saved_state import from_json, object_slot, optional, record, to_json
from clawblox.engine.scheduler import Scheduler, ticks_in
from clawblox.engine.slots import Slots
from clawblox.engine.values.value import as_list
from clawblox.luau import LuaTable, RuntimeFault
from clawblox.luau.core.errors import MAX_MESSAGE
from clawblox.luau.core.numbers import format_number
from clawblox.luau.core.operators import shown_type

_LEVELS_PER_CHARGE: Final = 8
_LIST_STEPS: Final = 5
_MEMBER_STEPS: Final = 2  # per attribute or tag listed
_CHILDREN_PER_STEP: Final = 2  # in a search among children


def as_text(value: Any) -> Any:
    """Return a number as ``tostring`` formats it, and NaN or any other value unchanged."""
    return format_number(value) if value.__class__ is float and value == value else value


def text_argument(value: Any, at: int, function: str) -> str:
    """Return an argument that must be a string, or a number other than NaN.

    Raises:
        RuntimeFault: The argument has another type, or is NaN.
    """
    text = value if value.__class__ is str else as_text(value)
    if text.__class__ is not str:
        raise wrong_argument(value, at, function, "string")
    return text


def number_argument(value: Any, at: int, function: str) -> float:
    """Return an argument that must be a number.

    Raises:
        RuntimeFault: The argument has another type.
    """
    if value.__class__ is not float:
        raise wrong_argument(value, at, function, "number")
    return float(value)


def instance_argument(value: Any, at: int, function: str, class_name: str = "Instance") -> Instance:
    """Return an argument that must be an instance of a class.

    Raises:
        RuntimeFault: The argument has another type or class.
    """
    if not isinstance(value, Instance) or not value.is_a(class_name):
        raise wrong_argument(value, at, function, class_name)
    return value


def wrong_argument(value: Any, at: int, function: str, wanted: str) -> RuntimeFault:
    """Return the error for an argument of the wrong type, or for NaN."""
    is_nan = value.__class__ is float and value != value
    got = "NaN" if is_nan else shown_type(value)
    return RuntimeFault(f"invalid argument #{at} to '{function}' ({wanted} expected, got {got})")


@attrs.frozen(eq=False)
class ChildSearch:
    """The child that ``WaitForChild`` waits for.

    Attributes:
        parent: The future parent of the child.
        name: The name of the child.
        until: The tick in which the search ends with nil; None for no timeout.
    """

    kind: ClassVar = "child"

    parent: Instance
    name: str
    until: int | None

    def find(self, tick: int) -> tuple[Any, ...] | None:
        """Return the child, or nil after the timeout; None to search again."""
        child = self.parent.find_child(self.name)
        if child is not None:
            return (child,)
        return (None,) if self.until is not None and tick >= self.until else None

    def document(self, slots: Slots) -> list[Any]:
        """Return the search as saved in a snapshot."""
        return [self.kind, *to_json(_SEARCH, self, slots)]

    @staticmethod
    def read(saved: list[Any], slots: Slots) -> ChildSearch:
        """Return the search saved in a snapshot."""
        shapes.check_shape(saved, _SEARCH.shape, "a search for a child")
        search: ChildSearch = from_json(_SEARCH, saved, slots)
        return search


_SEARCH: Final = record(ChildSearch, object_slot(Instance), shapes.text, optional(shapes.whole))


def set_attribute(instance: Instance, name: Any, value: Any) -> Any:
    """``SetAttribute(name, value)``: set an attribute, or remove it with nil."""
    tree.set_attribute(instance, text_argument(name, 1, "SetAttribute"), value)
    return ()


def get_attribute(instance: Instance, name: Any) -> Any:
    """``GetAttribute(name)``, with a copy of the table at each call."""
    value = instance.attributes.get(name if name.__class__ is str else as_text(name))
    return copy_attribute(value) if isinstance(value, LuaTable) else value


def get_attributes(instance: Instance) -> Any:
    """``GetAttributes()``: return a table of all attributes."""
    instance.model.scheduler.charge(len(instance.attributes) * _MEMBER_STEPS)
    return LuaTable({name: copy_attribute(value) for name, value in instance.attributes.items()})


def get_attribute_changed_signal(instance: Instance, name: Any) -> Any:
    """``GetAttributeChangedSignal(name)``: return the signal of an attribute's changes."""
    text = text_argument(name, 1, "GetAttributeChangedSignal")
    return instance.signal(ATTRIBUTE_SIGNAL + text)


def get_property_changed_signal(instance: Instance, name: Any) -> Any:
    """``GetPropertyChangedSignal(name)``: return the signal of a property's changes."""
    text, spec = text_argument(name, 1, "GetPropertyChangedSignal"), instance.spec
    if text not in spec.properties:
        shown, likely = text[:MAX_MESSAGE], suggest(text, spec.properties)
        raise RuntimeFault(f"{shown} is not a valid property name of {spec.name}{likely}")
    return instance.signal(PROPERTY_SIGNAL + text)


def add_tag(instance: Instance, tag: Any) -> Any:
    """``AddTag(tag)``: add a tag to the instance."""
    tree.add_tag(instance, text_argument(tag, 1, "AddTag"))
    return ()


def has_tag(instance: Instance, tag: Any) -> Any:
    """``HasTag(tag)``: return whether the instance has a tag."""
    return as_text(tag) in instance.tags


def remove_tag(instance: Instance, tag: Any) -> Any:
    """``RemoveTag(tag)``: remove a tag from the instance."""
    tree.remove_tag(instance, text_argument(tag, 1, "RemoveTag"))
    return ()


def get_tags(instance: Instance) -> Any:
    """``GetTags()``, in the order in which they were added."""
    instance.model.scheduler.charge(len(instance.tags) * _MEMBER_STEPS)
    return as_list(instance.tags)


def clone(instance: Instance) -> Any:
    """``Clone()``: return a copy with all descendants, without a parent."""
    return tree.clone(instance)


def destroy(instance: Instance) -> Any:
    """``Destroy()``: destroy the instance and its descendants."""
    tree.destroy(instance)
    return ()


def clear_all_children(instance: Instance) -> Any:
    """``ClearAllChildren()``: destroy all children."""
    for child in tuple(instance.children):
        tree.destroy(child)
    return ()


def find_first_child(instance: Instance, name: Any, recursive: Any) -> Any:
    """``FindFirstChild(name, recursive)``; the recursive search is depth first."""
    name = as_text(name)
    if recursive is None or recursive is False:
        return instance.find_child(name)
    return next((descendant for descendant in tree.walk(instance) if descendant.name == name), None)


def find_first_child_of_class(instance: Instance, class_name: Any) -> Any:
    """``FindFirstChildOfClass(class)``, without subclasses."""
    instance.model.scheduler.charge(len(instance.children) // _CHILDREN_PER_STEP)
    return instance.find_child_of_class(class_name)


def find_first_child_which_is_a(instance: Instance, class_name: Any) -> Any:
    """``FindFirstChildWhichIsA(class)``, including subclasses."""
    instance.model.scheduler.charge(len(instance.children) // _CHILDREN_PER_STEP)
    return next((child for child in instance.children if class_name in child.spec.lineage), None)


def _ancestors(instance: Instance) -> Iterator[Instance]:
    """Iterate over the ancestors of an instance, innermost first, and charge steps for levels."""
    for levels, ancestor in enumerate(instance.ancestors(), 1):
        yield ancestor
        if not levels % _LEVELS_PER_CHARGE:
            instance.model.scheduler.charge(_LEVELS_PER_CHARGE)


def find_first_ancestor(instance: Instance, name: Any) -> Any:
    """``FindFirstAncestor(name)``: return the nearest ancestor with a name, or nil."""
    name = as_text(name)
    return next((ancestor for ancestor in _ancestors(instance) if ancestor.name == name), None)


def find_first_ancestor_of_class(instance: Instance, class_name: Any) -> Any:
    """``FindFirstAncestorOfClass(class)``, without subclasses."""
    return next((node for node in _ancestors(instance) if node.spec.name == class_name), None)


def find_first_ancestor_which_is_a(instance: Instance, class_name: Any) -> Any:
    """``FindFirstAncestorWhichIsA(class)``, including subclasses."""
    return next((node for node in _ancestors(instance) if class_name in node.spec.lineage), None)


def find_first_descendant(instance: Instance, name: Any) -> Any:
    """``FindFirstDescendant(name)``, depth first."""
    return find_first_child(instance, name, True)


def get_children(instance: Instance) -> Any:
    """``GetChildren()``, in the order in which the children were added."""
    instance.model.scheduler.charge(_LIST_STEPS + len(instance.children))
    return as_list(instance.children)


def get_descendants(instance: Instance) -> Any:
    """``GetDescendants()``, depth first, parents before their children."""
    return as_list(tree.walk(instance))


def get_debug_id(instance: Instance) -> Any:
    """``GetDebugId()``: the number of the instance, as text."""
    return instance.ident


def get_full_name(instance: Instance) -> Any:
    """``GetFullName()``: return the names from below ``game`` on, joined with dots."""
    game = instance.model.game
    names = [instance.name, *(node.name for node in _ancestors(instance) if node is not game)]
    return ".".join(reversed(names))


def is_a(instance: Instance, class_name: Any) -> Any:
    """``IsA(class)``: return false for an unknown class."""
    return class_name in instance.spec.lineage


def is_descendant_of(instance: Instance, ancestor: Any) -> Any:
    """``IsDescendantOf(ancestor)``: return whether an instance is an ancestor."""
    return isinstance(ancestor, Instance) and ancestor in _ancestors(instance)


def is_ancestor_of(instance: Instance, descendant: Any) -> Any:
    """``IsAncestorOf(descendant)``: return whether an instance is a descendant."""
    return isinstance(descendant, Instance) and instance in _ancestors(descendant)


def wait_for_child(instance: Instance, name: Any, timeout: Any) -> Any:
    """``WaitForChild(name, timeout)``: return now if the child exists, else in a later tick."""
    text = text_argument(name, 1, "WaitForChild")
    child = instance.find_child(text)
    if child is not None:
        return child
    scheduler = instance.model.scheduler
    until = scheduler.tick + ticks_in(timeout) if timeout.__class__ is float else None
    raise scheduler.wait_for(ChildSearch(instance, text, until))


def _set_name(instance: Instance, name: str) -> None:
    if name != instance.name:
        instance.rename(name)
        if instance.signals:
            instance.tell_changed("Name")


def add_members(classes: ClassTable, scheduler: Scheduler) -> None:
    """Add the members of all instances; let snapshots store threads in ``WaitForChild``."""
    scheduler.searches[ChildSearch.kind] = ChildSearch.read
    classes.add(
        "Instance",
        methods=methods_in(globals(), "instance"),
        getters={
            "Name": lambda instance: instance.name,
            "ClassName": lambda instance: instance.spec.name,
            "Parent": lambda instance: instance.parent,
        },
        setters={"Name": _set_name, "Parent": tree.set_parent},
    )
