"""Containers that are created on first access, such as a ``Backpack``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from clawblox.engine.instances import members
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.spec import ClassTable, methods_in

_CONTAINERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Player": ("Backpack", "StarterGear"),
    "StarterPlayer": ("StarterPlayerScripts", "StarterCharacterScripts"),
}
"""The classes of the containers (also their names), by the class of the owner."""


def open_container(parent: Instance, class_name: str) -> Instance:
    """Return the container of a class; create it if it does not exist."""
    container = parent.find_child_of_class(class_name)
    if container is None:
        container = parent.model.make(class_name)
        container.link(parent)
    return container


def _show(name: str, owner: Instance) -> Instance | None:
    """Return the child with the name of a container, of any class; create it if absent."""
    child = owner.find_child(name)
    return open_container(owner, name) if child is None and not owner.is_destroyed else child


def _look(owner: Instance, name: Any) -> None:
    if name in _CONTAINERS[owner.spec.name]:
        _show(name, owner)


def find_first_child(owner: Instance, name: Any, recursive: Any) -> Any:
    """``FindFirstChild(name, recursive)``: create the container if it is searched for."""
    _look(owner, name)
    return members.find_first_child(owner, name, recursive)


def find_first_child_of_class(owner: Instance, class_name: Any) -> Any:
    """``FindFirstChildOfClass(class)``: create the container if it is searched for."""
    _look(owner, class_name)
    return members.find_first_child_of_class(owner, class_name)


def find_first_child_which_is_a(owner: Instance, class_name: Any) -> Any:
    """``FindFirstChildWhichIsA(class)``: create the container if it is searched for."""
    _look(owner, class_name)
    return members.find_first_child_which_is_a(owner, class_name)


def wait_for_child(owner: Instance, name: Any, timeout: Any) -> Any:
    """``WaitForChild(name, timeout)``: create the container if it is searched for."""
    _look(owner, name)
    return members.wait_for_child(owner, name, timeout)


def add_containers(classes: ClassTable) -> None:
    """Add the containers to the classes of their owners."""
    methods = methods_in(globals(), "owner")
    for owner, names in _CONTAINERS.items():
        classes.add(owner, methods=methods, getters={name: partial(_show, name) for name in names})
