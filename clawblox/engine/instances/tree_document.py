"""The tree of instances in a snapshot.

Instances are written before the VM, and created before the VM is restored. Their contents are
read afterwards, when everything that they refer to exists.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.instances.attributes import copy_attribute
from clawblox.engine.instances.classes import SERVICES
from clawblox.engine.instances.instance import (
    ACCESSORIES,
    DESCRIPTION,
    DISABLED_STATES,
    METADATA,
    MODEL_SCALE,
    ROTATION,
    TWEEN_ELAPSED,
    TWEEN_GOALS,
    TWEEN_STARTS,
    DataModel,
    Instance,
)
from clawblox.engine.instances.kinds import check_value
from clawblox.engine.instances.tree_changes import restore_tags
from clawblox.engine.signals import restore_signal, signal_document
from clawblox.engine.slots import Slots
from clawblox.engine.values.enums import EnumItem, find_enum_object
from clawblox.luau import HostValue, LuaTable, RuntimeFault, Vector

TREE_SHAPE: Final = {
    "made": shapes.whole,
    "connections": shapes.whole,
    "game": shapes.whole,
    "services": {str: shapes.whole},
    "instances": [
        (
            shapes.whole,
            shapes.text,
            shapes.optional(shapes.whole),
            shapes.text,
            {str: shapes.anything},
            {str: shapes.anything},
            [shapes.text],
            shapes.flag,
        )
    ],
}
SIGNALS_SHAPE: Final = [
    (shapes.text, [(shapes.whole, shapes.whole, shapes.flag)], [shapes.whole]),
]


_HIDDEN: Final[Mapping[str, type]] = {
    ACCESSORIES: LuaTable,
    "AngularVelocity": Vector,
    "AnimationId": str,
    "Animator": Instance,
    DESCRIPTION: Instance,
    "LinearVelocity": Vector,
    DISABLED_STATES: str,
    METADATA: str,
    MODEL_SCALE: float,
    "Offset": HostValue,
    "PlayedTo": float,
    "PlayingSince": float,
    ROTATION: tuple,
    TWEEN_ELAPSED: float,
    TWEEN_GOALS: LuaTable,
    TWEEN_STARTS: LuaTable,
    "WorldPivot": HostValue,
}
"""The entries of `Instance.props` other than properties, with their types."""


def tree_document(model: DataModel, detached: Iterable[Instance], slots: Slots) -> dict[str, Any]:
    """Return the instances for a snapshot.

    Args:
        model: The data model.
        detached: Instances outside the tree that are still referenced.
        slots: Receives the property values that scripts can distinguish by identity.
    """
    instances = _with_ancestors(model, detached)
    return {
        "made": model.made,
        "connections": model.hub.made,
        "game": model.game.number,
        "services": {name: service.number for name, service in model.services.items()},
        "instances": [_instance_document(instance, slots) for instance in instances],
    }


def _with_ancestors(model: DataModel, detached: Iterable[Instance]) -> list[Instance]:
    """Return the tree in order, then the detached trees in the order of their roots."""
    roots: dict[int, Instance] = {}
    for instance in detached:
        *_, root = (instance, *instance.ancestors())
        if root is not model.game:
            roots[root.number] = root
    instances = [model.game, *model.game.descendants()]
    for number in sorted(roots):
        instances += [roots[number], *roots[number].descendants()]
    return instances


def _instance_document(instance: Instance, slots: Slots) -> list[Any]:
    return [
        instance.number,
        instance.spec.name,
        None if instance.parent is None else instance.parent.number,
        instance.name,
        {name: write_value(value, slots) for name, value in instance.props.items()},
        {name: write_value(value, slots) for name, value in instance.attributes.items()},
        list(instance.tags),
        instance.is_destroyed,
    ]


def make_tree(model: DataModel, document: dict[str, Any]) -> list[Instance]:
    """Create the instances of a snapshot, linked but empty, and return them.

    The caller must keep the list until the VM is restored, since some instances may be referenced
    only by scripts.

    Raises:
        ValueError: The snapshot is damaged.
    """
    made: dict[int, Instance] = {}
    for number, class_name, parent, name, *_ in document["instances"]:
        if number in made:
            raise ValueError(f"the snapshot has instance {number} twice")
        if not 0 < number <= document["made"]:
            raise ValueError(f"the snapshot has instance {number} of {document['made']}")
        instance = made[number] = model.make_numbered(number, class_name)
        instance.name = name
        if parent is not None:
            instance.link(_made_before(made, parent))
    model.made = document["made"]
    model.hub.made = document["connections"]
    model.game = _made_before(made, document["game"], "DataModel")
    _check_services(model, tuple(document["services"]))
    model.services = {
        name: _made_before(made, number, name) for name, number in document["services"].items()
    }
    model.workspace = model.services["Workspace"]
    for instance in (model.workspace, *model.workspace.descendants()):
        instance.in_workspace = True
    return list(made.values())


def _check_services(model: DataModel, names: tuple[str, ...]) -> None:
    late = map(model.classes.find, names[len(SERVICES) :])
    if names[: len(SERVICES)] != SERVICES or not all(spec and spec.is_late for spec in late):
        raise ValueError(f"the snapshot must have the services {', '.join(SERVICES)}")


def _made_before(
    made: Mapping[int, Instance], number: int, class_name: str = "Instance"
) -> Instance:
    """Return an instance that a snapshot must list before a reference to it."""
    instance = made.get(number)
    if instance is None or class_name not in instance.spec.lineage:
        raise ValueError(f"the snapshot has no instance {number} of class {class_name} before it")
    return instance


def fill_tree(model: DataModel, document: dict[str, Any], slots: Slots) -> None:
    """Read the contents of the instances of a snapshot.

    Raises:
        ValueError: The snapshot is damaged.
    """
    for number, _, _, _, props, attributes, tags, is_destroyed in document["instances"]:
        instance = model.find(number)
        assert instance is not None  # created by `make_tree`
        instance.props = _read_values(model, props, slots)
        instance.attributes = _read_values(model, attributes, slots)
        _check_values(instance)
        instance.tags = dict.fromkeys(tags)
        instance.is_destroyed = is_destroyed
    restore_tags(model)


def _check_values(instance: Instance) -> None:
    """Check that the properties and attributes of an instance have valid values.

    Raises:
        ValueError: A value is invalid.
    """
    rules = instance.spec.properties
    try:
        for name, value in instance.props.items():
            if name in rules:
                check_value(name, rules[name], value)
            elif not isinstance(value, _HIDDEN.get(name, ())):
                raise ValueError(f"{name} is not a property of {instance!r}")
        for value in instance.attributes.values():
            copy_attribute(value)
    except RuntimeFault as error:
        raise ValueError(f"{instance!r}: {error}") from None


def _read_values(model: DataModel, saved: dict[str, Any], slots: Slots) -> dict[str, Any]:
    return {name: read_value(value, model, slots) for name, value in saved.items()}


def signals_document(instances: Iterable[Instance], slots: Slots) -> list[Any]:
    """Return the signals with listeners for a snapshot.

    They are sorted by number and name, since a restore loses the order of first use.
    """
    return [
        signal_document(owner.signals[name], slots)
        for owner in sorted(instances, key=lambda instance: instance.number)
        for name in sorted(owner.signals)
    ]


def restore_signals(model: DataModel, documents: list[Any], slots: Slots) -> None:
    """Reconnect the handlers of a snapshot.

    Raises:
        ValueError: The snapshot is damaged.
    """
    for ident, connections, waiting in documents:
        number, _, event = ident.partition(".")
        instance = model.find(int(number)) if number.isdecimal() else None
        if instance is None or not event:
            raise ValueError(f"the snapshot has no signal {ident}")
        restore_signal(instance.signal(event), connections, waiting, slots)


_UNUSUAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MATRIX = 9


def write_value(value: Any, slots: Slots) -> Any:
    """Return a Luau value, or a rotation matrix, as JSON."""
    if value.__class__ in (bool, str):
        return value
    if value.__class__ is float:
        return value if math.isfinite(value) else ["n", repr(value)]
    if value.__class__ is Vector:
        return ["v", *(write_value(part, slots) for part in (value.x, value.y, value.z))]
    if value.__class__ is tuple:
        return ["r", *value]
    if isinstance(value, Instance):
        return ["i", value.number]
    if isinstance(value, EnumItem):
        return ["e", value.ident]
    return ["s", slots.put(value)]


def read_value(saved: Any, model: DataModel, slots: Slots) -> Any:
    """Return a value from its JSON form.

    Args:
        saved: The result of `write_value`.
        model: The data model with the instances.
        slots: The slots with the same values as at the time of writing.

    Raises:
        ValueError: The JSON form is damaged.
    """
    value = _read(saved, model, slots)
    if value is None:
        raise ValueError(f"{saved!r} is not a value of a property or an attribute")
    return value


def _read(saved: Any, model: DataModel, slots: Slots) -> Any:
    if saved.__class__ in (bool, str):
        return saved
    if saved.__class__ in (float, int):
        return _number(saved)
    match saved:
        case ["n", str(text)]:
            return _UNUSUAL.get(text)
        case ["v", *parts] if len(parts) == 3:  # noqa: PLR2004, RUF100
            numbers = [_read(part, model, slots) for part in parts]
            return Vector(*numbers) if all(part.__class__ is float for part in numbers) else None
        case ["r", *parts] if len(parts) == _MATRIX:
            return tuple(map(_number, parts))
        case ["i", int(number)]:
            return model.find(number)
        case ["e", str(ident)]:
            item = find_enum_object(ident)
            return item if isinstance(item, EnumItem) else None
        case ["s", int(number)]:
            return slots.take(number)
    return None


def _number(saved: Any) -> float:
    if (
        saved.__class__ not in (float, int)
        or not -sys.float_info.max <= saved <= sys.float_info.max
    ):
        raise ValueError(f"{saved!r} is not a finite number")
    return float(saved)
