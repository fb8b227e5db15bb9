"""``PhysicsService``: collision groups, and which of them collide.

At first there is only the group ``Default``, and all groups collide with each other. A part whose
group is not registered counts as part of ``Default``; a query in such a group finds only its parts,
as in the public engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.members import as_list, text_argument
from clawblox.engine.instances.spec import ClassTable
from clawblox.engine.slots import Slots
from clawblox.luau import LuaTable, RuntimeFault

DEFAULT_GROUP: Final = "Default"
MAX_GROUPS: Final = 32
_ALL: Final = (1 << MAX_GROUPS) - 1


SHAPE: Final = (
    (shapes.text, *[shapes.optional(shapes.text)] * (MAX_GROUPS - 1)),
    (shapes.mask,) * MAX_GROUPS,
)


class CollisionGroups:
    """The collision groups of a world, each a bit of 32.

    Attributes:
        changed: Called when the group or the mask of a part may have changed.
    """

    def __init__(self) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._names: list[str | None] = [DEFAULT_GROUP, *[None] * (MAX_GROUPS - 1)]
        self._masks = [_ALL] * MAX_GROUPS

    def bits(self, name: str) -> tuple[int, int]:
        """Return the bit of a group, and the bits of the groups it collides with."""
        at = self._names.index(name) if name in self._names else 0
        return 1 << at, self._masks[at]

    def names(self) -> list[str]:
        """Return the names of the registered groups."""
        return [name for name in self._names if name is not None]

    def index(self, name: str) -> int:
        """Return the number of a group.

        Raises:
            RuntimeFault: It is not registered.
        """
        if name not in self._names:
            raise RuntimeFault(f"Collision group '{name}' is not registered")
        return self._names.index(name)

    def register(self, name: str) -> int:
        """Add a group and return its number; an existing group is unchanged.

        Raises:
            RuntimeFault: The name is empty, or there are 32 groups already.
        """
        if name in self._names:
            return self._names.index(name)
        if not name:
            raise RuntimeFault("The name of a collision group cannot be empty")
        if None not in self._names:
            raise RuntimeFault(f"Cannot register more than {MAX_GROUPS} collision groups")
        at = self._names.index(None)
        self._names[at] = name
        self.changed()
        return at

    def unregister(self, name: str) -> None:
        """Remove a group; an unregistered name is ignored.

        Raises:
            RuntimeFault: It is ``Default``.
        """
        if name == DEFAULT_GROUP:
            raise RuntimeFault("Cannot unregister the Default collision group")
        if name not in self._names:
            return
        at = self._names.index(name)
        self._names[at] = None
        self._masks[at] = _ALL
        self._masks = [mask | 1 << at for mask in self._masks]
        self.changed()

    def rename(self, old: str, new: str) -> None:
        """Rename a group; parts keep the old name.

        Raises:
            RuntimeFault: It is ``Default`` or not registered, or the new name is in use or empty.
        """
        at = self.index(old)
        if old == DEFAULT_GROUP:
            raise RuntimeFault("Cannot rename the Default collision group")
        if not new or new in self._names:
            raise RuntimeFault(f"Cannot rename collision group '{old}' to '{new}'")
        self._names[at] = new
        self.changed()

    def set_collidable(self, first: str, second: str, collidable: bool) -> None:
        """Let two groups collide, or not.

        Raises:
            RuntimeFault: A group is not registered.
        """
        a, b = self.index(first), self.index(second)
        for bit, other in ((a, b), (b, a)):
            if collidable:
                self._masks[bit] |= 1 << other
            else:
                self._masks[bit] &= ~(1 << other)
        self.changed()

    def are_collidable(self, first: str, second: str) -> bool:
        """Return whether two groups collide; an unregistered group counts as ``Default``."""
        bit, _ = self.bits(first)
        _, mask = self.bits(second)
        return bool(bit & mask)

    def finds(self, group: str, other: str) -> bool:
        """Return whether a query in a group finds a part of another group.

        A query in ``Default`` or without a group finds every part.
        """
        if group in ("", DEFAULT_GROUP):
            return True
        return self.are_collidable(other, group) if group in self._names else other == group

    def document(self, slots: Slots) -> list[list[Any]]:
        """Return its part of a snapshot: names and masks."""
        return [list(self._names), list(self._masks)]

    def restore(self, document: list[list[Any]], slots: Slots) -> None:
        """Restore the groups of a snapshot."""
        names, masks = document
        self._names, self._masks = list(names), list(masks)


def _state(service: Instance) -> CollisionGroups:
    return service.extra  # type: ignore[no-any-return]


def _register(service: Instance, name: Any) -> Any:
    _state(service).register(text_argument(name, 1, "RegisterCollisionGroup"))
    return ()


def _create(service: Instance, name: Any) -> Any:
    return float(_state(service).register(text_argument(name, 1, "CreateCollisionGroup")))


def _unregister(service: Instance, name: Any) -> Any:
    _state(service).unregister(text_argument(name, 1, "UnregisterCollisionGroup"))
    return ()


def _rename(service: Instance, old: Any, new: Any) -> Any:
    method = "RenameCollisionGroup"
    _state(service).rename(text_argument(old, 1, method), text_argument(new, 2, method))
    return ()


def _set_collidable(service: Instance, first: Any, second: Any, collidable: Any) -> Any:
    method = "CollisionGroupSetCollidable"
    names = text_argument(first, 1, method), text_argument(second, 2, method)
    _state(service).set_collidable(*names, collidable not in (None, False))
    return ()


def _are_collidable(service: Instance, first: Any, second: Any) -> Any:
    method = "CollisionGroupsAreCollidable"
    names = text_argument(first, 1, method), text_argument(second, 2, method)
    return _state(service).are_collidable(*names)


def _get_groups(service: Instance) -> Any:
    groups = _state(service)
    return as_list(
        LuaTable(
            {"name": name, "id": float(groups.index(name)), "mask": float(groups.bits(name)[1])}
        )
        for name in groups.names()
    )


def _is_registered(service: Instance, name: Any) -> Any:
    return name in _state(service).names()


def _get_id(service: Instance, name: Any) -> Any:
    return float(_state(service).index(text_argument(name, 1, "GetCollisionGroupId")))


def _set_part_group(service: Instance, part: Any, name: Any) -> Any:
    shown = text_argument(name, 2, "SetPartCollisionGroup")
    _state(service).index(shown)
    _part(part, "SetPartCollisionGroup")["CollisionGroup"] = shown
    return ()


def _contains(service: Instance, name: Any, part: Any) -> Any:
    return _part(part, "CollisionGroupContainsPart")["CollisionGroup"] == name


def _part(value: Any, method: str) -> Instance:
    if not isinstance(value, Instance) or not value.is_a("BasePart"):
        raise RuntimeFault(f"invalid argument to '{method}' (BasePart expected)")
    return value


def add_physics_groups(classes: ClassTable) -> None:
    """Add the members of the service, including those that only older worlds use."""
    classes.add(
        "PhysicsService",
        methods={
            "RegisterCollisionGroup": _register,
            "UnregisterCollisionGroup": _unregister,
            "RenameCollisionGroup": _rename,
            "CollisionGroupSetCollidable": _set_collidable,
            "CollisionGroupsAreCollidable": _are_collidable,
            "GetRegisteredCollisionGroups": _get_groups,
            "IsCollisionGroupRegistered": _is_registered,
            "GetMaxCollisionGroups": lambda service: float(MAX_GROUPS),
            "CreateCollisionGroup": _create,
            "RemoveCollisionGroup": _unregister,
            "GetCollisionGroups": _get_groups,
            "GetCollisionGroupId": _get_id,
            "SetPartCollisionGroup": _set_part_group,
            "CollisionGroupContainsPart": _contains,
        },
    )
