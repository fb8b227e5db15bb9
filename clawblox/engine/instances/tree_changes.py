"""Changes of the tree: moves, copies, destruction and tags of instances, with events."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from clawblox.engine.instances.attributes import copy_attribute
from clawblox.engine.instances.instance import ATTRIBUTE_SIGNAL, DataModel, Instance
from clawblox.luau import RuntimeFault

TAG_SERVICE: Final = "CollectionService"
TAG_ADDED: Final = "+"
"""Prefix of the names of signals that `GetInstanceAddedSignal` returns."""
TAG_REMOVED: Final = "-"
"""Prefix of the names of signals that `GetInstanceRemovedSignal` returns."""

_MOVE_STEPS: Final = 20  # moving an instance
_LEVELS_PER_STEP: Final = 2  # going up the tree
_SIBLINGS_PER_STEP: Final = 2  # looking through children, and indexing their names again
_DESTROY_STEPS: Final = 20
_WALK_STEPS: Final = 2  # finding a descendant
_WALK_START_STEPS: Final = 10
_WALKED_PER_CHARGE: Final = 16
_TAG_STEPS: Final = 5  # noting a tag
LISTED_STEPS: Final = 2  # listing a tag or an instance


def walk(instance: Instance) -> list[Instance]:
    """Return an instance's descendants, like `Instance.descendants`, and charge steps.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
    """
    scheduler = instance.model.scheduler
    scheduler.charge(_WALK_START_STEPS)
    instances = []
    for descendant in instance.descendants():
        instances.append(descendant)
        if not len(instances) % _WALKED_PER_CHARGE:
            scheduler.charge(_WALKED_PER_CHARGE * _WALK_STEPS)
    return instances


def set_parent(instance: Instance, parent: Instance | None) -> None:
    """Move an instance, and fire the events of the move in order.

    Raises:
        RuntimeFault: The instance is destroyed, or would be its own descendant.
        LuaError: The scripts have used up the steps of this tick.
        WorldHalted: The error of a handler halts the world.
    """
    if parent is instance.parent:
        return
    _refuse_service(instance)
    if instance.is_destroyed:
        raise RuntimeFault(
            f"The Parent property of {instance.name} is locked, because it is destroyed"
        )
    if parent is not None and _would_circle(instance, parent):
        raise RuntimeFault(
            f"Attempt to set parent of {instance.name} to {parent.name} would result in "
            "circular reference"
        )
    _move(instance, parent)


def _would_circle(instance: Instance, parent: Instance) -> bool:
    """Return whether a new parent is the instance or its descendant; charge steps for levels."""
    above = [parent, *parent.ancestors()]
    is_circle = instance in above
    levels = above.index(instance) if is_circle else len(above)
    instance.model.scheduler.charge(levels // _LEVELS_PER_STEP)
    return is_circle


def _charge_move(instance: Instance) -> None:
    """Charge the steps of a move in advance."""
    moved = 1 + (len(walk(instance)) if instance.children else 0)
    old = instance.parent
    siblings = 0 if old is None else len(old.children)
    instance.model.scheduler.charge(_MOVE_STEPS * moved + siblings // _SIBLINGS_PER_STEP)


def _refuse_service(instance: Instance) -> None:
    model = instance.model
    if model.services.get(instance.spec.name) is instance or instance is model.game:
        raise RuntimeFault(f"The Parent property of {instance.name} is locked")


def _move(instance: Instance, parent: Instance | None) -> None:
    _charge_move(instance)
    old = instance.parent
    if old is not None:
        _fire_on_ancestors(old, "DescendantRemoving", instance)
    instance.link(parent)
    _update_workspace(instance)
    if old is not None:
        old.fire("ChildRemoved", instance)
    if parent is not None:
        parent.fire("ChildAdded", instance)
        _fire_on_ancestors(parent, "DescendantAdded", instance)
    if instance.signals:
        instance.tell_changed("Parent")
    for member in (instance, *instance.descendants()):
        member.fire("AncestryChanged", instance, parent)
    _follow_tags(instance, old)


def _fire_on_ancestors(parent: Instance, event: str, instance: Instance) -> None:
    for ancestor in chain((parent,), parent.ancestors()):
        if event in ancestor.signals:
            for member in (instance, *instance.descendants()):
                ancestor.fire(event, member)


def _update_workspace(instance: Instance) -> None:
    parent = instance.parent
    is_inside = parent is not None and parent.in_workspace
    if instance.in_workspace is is_inside:
        return
    for found in (instance, *instance.descendants()):
        found.in_workspace = is_inside
        for call in instance.model.moved:
            call(found)


def destroy(instance: Instance) -> None:
    """Destroy an instance and its descendants; a second call has no effect.

    ``Destroying`` fires on the instance, then on its descendants, depth first. Each instance is
    unparented after its children.

    Raises:
        RuntimeFault: The instance is a service.
        WorldHalted: The error of a handler halts the world.
    """
    if instance.is_destroyed:
        return
    _refuse_service(instance)
    instance.model.scheduler.charge(_DESTROY_STEPS)
    instance.is_destroyed = True
    for call in instance.model.destroying:
        call(instance)
    instance.fire("Destroying")
    for child in tuple(instance.children):
        destroy(child)
    if instance.parent is not None:
        _move(instance, None)
    for signal in tuple(instance.signals.values()):
        for connection in tuple(signal.connections):
            connection.disconnect()


def clone(original: Instance) -> Instance:
    """Return a copy of name, properties, attributes, tags and children, without a parent.

    References to instances inside the copied tree refer to their copies. Connections are not
    copied.
    """
    copies: dict[Instance, Instance] = {}
    root = _copy(original, copies)
    for copy in copies.values():
        for name, value in copy.props.items():
            if isinstance(value, Instance) and value in copies:
                copy.props[name] = copies[value]
    for source, copy in copies.items():
        for call in original.model.copied:
            call(source, copy)
    return root


def _copy(original: Instance, copies: dict[Instance, Instance]) -> Instance:
    copy = copies[original] = original.model.make(original.spec.name)
    copy.name = original.name
    copy.props = dict(original.props)
    copy.attributes = {name: copy_attribute(value) for name, value in original.attributes.items()}
    copy.tags = dict(original.tags)
    for child in original.children:
        _copy(child, copies).link(copy)
    return copy


def set_attribute(instance: Instance, name: str, value: Any) -> None:
    """Set an attribute, or remove it with nil; fire its events, even for an equal value.

    Raises:
        RuntimeFault: A value of this type cannot be an attribute.
        WorldHalted: The error of a handler halts the world.
    """
    if value is None:
        instance.attributes.pop(name, None)
    else:
        instance.attributes[name] = copy_attribute(value)
    if instance.signals:
        instance.fire("AttributeChanged", name)
        instance.fire(ATTRIBUTE_SIGNAL + name)


# Tags


def add_tag(instance: Instance, tag: str) -> None:
    """Tag an instance; no effect if it has the tag already.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
        WorldHalted: The error of a handler halts the world.
    """
    if tag not in instance.tags:
        instance.tags[tag] = None
        if _is_in_game(instance):
            _enter(instance, tag)


def remove_tag(instance: Instance, tag: str) -> None:
    """Remove a tag from an instance; no effect without the tag.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
        WorldHalted: The error of a handler halts the world.
    """
    if tag in instance.tags:
        del instance.tags[tag]
        if _is_in_game(instance):
            _leave(instance, tag)


def find_tagged(model: DataModel, tag: str) -> list[Instance]:
    """Return the instances below ``game`` with a tag, in the order of creation.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
    """
    tagged = model.tagged.get(tag, {})
    model.scheduler.charge(len(tagged) * LISTED_STEPS)
    return [tagged[number] for number in sorted(tagged)]


def restore_tags(model: DataModel) -> None:
    """List the tagged instances of a restored tree."""
    for instance in model.game.descendants():
        for tag in instance.tags:
            model.tagged.setdefault(tag, {})[instance.number] = instance


def _follow_tags(instance: Instance, old: Instance | None) -> None:
    """Update the lists of tagged instances for a tree that has moved.

    Args:
        instance: The root of the tree.
        old: Its previous parent.
    """
    tagged = [member for member in (instance, *instance.descendants()) if member.tags]
    if not tagged:
        return
    was_in_game = old is not None and _is_in_game(old)
    if was_in_game is _is_in_game(instance):
        return
    update = _leave if was_in_game else _enter
    for member in tagged:
        for tag in tuple(member.tags):
            if (member.number in instance.model.tagged.get(tag, ())) is was_in_game:
                update(member, tag)


def _is_in_game(instance: Instance) -> bool:
    above = list(instance.ancestors())
    instance.model.scheduler.charge(len(above) // _LEVELS_PER_STEP)
    return instance.model.game in (instance, *above)


def _enter(instance: Instance, tag: str) -> None:
    model = instance.model
    model.scheduler.charge(_TAG_STEPS)
    tagged = model.tagged.setdefault(tag, {})
    tagged[instance.number] = instance
    service = model.services[TAG_SERVICE]
    if len(tagged) == 1:
        service.fire("TagAdded", tag)
    service.fire(TAG_ADDED + tag, instance)


def _leave(instance: Instance, tag: str) -> None:
    model = instance.model
    model.scheduler.charge(_TAG_STEPS)
    tagged = model.tagged[tag]
    del tagged[instance.number]
    service = model.services[TAG_SERVICE]
    if not tagged:
        del model.tagged[tag]
    service.fire(TAG_REMOVED + tag, instance)
    if not tagged:
        service.fire("TagRemoved", tag)
