"""``PhysicsService``: collision groups, and the pairs of groups that collide.

A new world has only the group ``Default``, and all groups collide with each other. A part with an
unregistered group counts as part of ``Default``. As in Roblox, a query in such a group finds
only the parts of this group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from clawblox.engine import shapes
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import text_argument
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.saved_state import SavedState
from clawblox.engine.slots import Slots
from clawblox.engine.values.value import as_list
from clawblox.luau import LuaTable, RuntimeFault

DEFAULT_GROUP: Final = "Default"
MAX_GROUPS: Final = 32
_ALL: Final = (1 << MAX_GROUPS) - 1


class CollisionGroups(SavedState):
    """The collision groups of a world, each represented by one of 32 bits.

    Args:
        model: The data model; the methods of ``PhysicsService`` are added to it.

    Attributes:
        changed: Called when the group or the mask of a part may have changed.
    """

    shape: ClassVar[shapes.Shape] = (
        (shapes.text, *[shapes.optional(shapes.text)] * (MAX_GROUPS - 1)),
        (shapes.mask,) * MAX_GROUPS,
    )

    def __init__(self, model: DataModel) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._names: list[str | None] = [DEFAULT_GROUP, *[None] * (MAX_GROUPS - 1)]
        self._masks = [_ALL] * MAX_GROUPS
        model.classes.add("PhysicsService", methods=bind_methods(self, "service"))

    def bits(self, name: str) -> tuple[int, int]:
        """Return the bit of a group, and the bits of the groups that collide with it."""
        at = self._names.index(name) if name in self._names else 0
        return 1 << at, self._masks[at]

    def _index(self, name: Any, at: int, method: str) -> int:
        """Return the number of the group that an argument names."""
        group = text_argument(name, at, method)
        if group not in self._names:
            raise RuntimeFault(f"Collision group '{group}' is not registered")
        return self._names.index(group)

    def _collide(self, first: str, second: str) -> bool:
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
        return self._collide(other, group) if group in self._names else other == group

    # Snapshots

    def document(self, slots: Slots) -> list[list[Any]]:
        """Return names and masks for a snapshot."""
        return [list(self._names), list(self._masks)]

    def restore(self, document: list[list[Any]], slots: Slots) -> None:
        """Restore the groups of a snapshot."""
        names, masks = document
        self._names, self._masks = list(names), list(masks)

    # Methods of the service, some for older worlds only

    def register_collision_group(self, service: Instance, name: Any) -> Any:
        """``RegisterCollisionGroup(name)``, without effect on an existing group."""
        self._register(text_argument(name, 1, "RegisterCollisionGroup"))
        return ()

    def create_collision_group(self, service: Instance, name: Any) -> Any:
        """``CreateCollisionGroup(name)``: register a group, and return its number."""
        return float(self._register(text_argument(name, 1, "CreateCollisionGroup")))

    def _register(self, name: str) -> int:
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

    def unregister_collision_group(self, service: Instance, name: Any) -> Any:
        """``UnregisterCollisionGroup(name)``: ignore an unregistered name."""
        group = text_argument(name, 1, "UnregisterCollisionGroup")
        if group == DEFAULT_GROUP:
            raise RuntimeFault("Cannot unregister the Default collision group")
        if group in self._names:
            at = self._names.index(group)
            self._names[at] = None
            self._masks[at] = _ALL
            self._masks = [mask | 1 << at for mask in self._masks]
            self.changed()
        return ()

    remove_collision_group = unregister_collision_group

    def rename_collision_group(self, service: Instance, old: Any, new: Any) -> Any:
        """``RenameCollisionGroup(old, new)``, while parts keep the old name."""
        name = text_argument(new, 2, "RenameCollisionGroup")
        at = self._index(old, 1, "RenameCollisionGroup")
        if old == DEFAULT_GROUP:
            raise RuntimeFault("Cannot rename the Default collision group")
        if not name or name in self._names:
            raise RuntimeFault(f"Cannot rename collision group '{old}' to '{name}'")
        self._names[at] = name
        self.changed()
        return ()

    def collision_group_set_collidable(
        self, service: Instance, first: Any, second: Any, collidable: Any
    ) -> Any:
        """``CollisionGroupSetCollidable(first, second, collidable)``: set whether they collide."""
        method = "CollisionGroupSetCollidable"
        a, b = self._index(first, 1, method), self._index(second, 2, method)
        for at, other in ((a, b), (b, a)):
            if collidable in (None, False):
                self._masks[at] &= ~(1 << other)
            else:
                self._masks[at] |= 1 << other
        self.changed()
        return ()

    def collision_groups_are_collidable(self, service: Instance, first: Any, second: Any) -> Any:
        """``CollisionGroupsAreCollidable(first, second)``: return whether two groups collide."""
        method = "CollisionGroupsAreCollidable"
        return self._collide(text_argument(first, 1, method), text_argument(second, 2, method))

    def get_registered_collision_groups(self, service: Instance) -> Any:
        """``GetRegisteredCollisionGroups()``: return the name, number and mask of each group."""
        groups = zip(self._names, self._masks, strict=True)
        return as_list(
            LuaTable({"name": name, "id": float(at), "mask": float(mask)})
            for at, (name, mask) in enumerate(groups)
            if name is not None
        )

    get_collision_groups = get_registered_collision_groups

    def is_collision_group_registered(self, service: Instance, name: Any) -> Any:
        """``IsCollisionGroupRegistered(name)``: return whether a group is registered."""
        return name is not None and name in self._names

    def get_max_collision_groups(self, service: Instance) -> Any:
        """``GetMaxCollisionGroups()``: return 32."""
        return float(MAX_GROUPS)

    def get_collision_group_id(self, service: Instance, name: Any) -> Any:
        """``GetCollisionGroupId(name)``: return the number of a group."""
        return float(self._index(name, 1, "GetCollisionGroupId"))

    def set_part_collision_group(self, service: Instance, part: Any, name: Any) -> Any:
        """``SetPartCollisionGroup(part, name)``: set the group of a part."""
        self._index(name, 2, "SetPartCollisionGroup")
        _part(part, "SetPartCollisionGroup")["CollisionGroup"] = name
        return ()

    def collision_group_contains_part(self, service: Instance, name: Any, part: Any) -> Any:
        """``CollisionGroupContainsPart(name, part)``: return whether a part is in a group."""
        return _part(part, "CollisionGroupContainsPart")["CollisionGroup"] == name


def _part(value: Any, method: str) -> Instance:
    if not isinstance(value, Instance) or not value.is_a("BasePart"):
        raise RuntimeFault(f"invalid argument to '{method}' (BasePart expected)")
    return value
