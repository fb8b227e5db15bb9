"""The names of collision groups, and which of them collide."""

from __future__ import annotations

from typing import Any

__all__ = ["DEFAULT_GROUP", "MOST_GROUPS", "GroupNames"]

DEFAULT_GROUP = "Default"
MOST_GROUPS = 32
_ALL = 0xFFFFFFFF


class GroupNames:
    """The collision groups of a world, by name; ``Default`` is always there.

    A part in a group that does not exist belongs to ``Default``.

    Attributes:
        numbers: The number of each group, in the order of registration.
        masks: For each number the bits of the groups that it collides with.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {DEFAULT_GROUP: 0}
        self.masks = [_ALL] * MOST_GROUPS

    def number(self, name: str) -> int:
        """Return the number of a group; that of ``Default`` for an unknown one."""
        return self.numbers.get(name, 0)

    def add(self, name: str) -> bool:
        """Register a group that collides with all; return whether there was room for it."""
        if name in self.numbers:
            return True
        taken = self.numbers.values()
        free = next((number for number in range(MOST_GROUPS) if number not in taken), None)
        if free is None:
            return False
        self.numbers[name] = free
        return True

    def remove(self, name: str) -> None:
        """Take a group away; its parts belong to ``Default``."""
        number = self.numbers.pop(name, 0)
        if number == 0:
            self.numbers = {DEFAULT_GROUP: 0, **self.numbers}
            return
        self.masks[number] = _ALL
        self.masks = [mask | 1 << number for mask in self.masks]

    def set_collide(self, first: str, second: str, collide: bool) -> None:
        """Say whether members of two groups collide."""
        a, b = self.number(first), self.number(second)
        for one, other in ((a, b), (b, a)):
            if collide:
                self.masks[one] |= 1 << other
            else:
                self.masks[one] &= ~(1 << other)

    def collide(self, first: str, second: str) -> bool:
        """Return whether members of two groups collide."""
        return bool(self.masks[self.number(first)] >> self.number(second) & 1)

    def document(self) -> dict[str, Any]:
        """Return what a snapshot holds of it."""
        return {"numbers": dict(self.numbers), "masks": list(self.masks)}

    def restore(self, document: dict[str, Any]) -> None:
        """Take over what `document` returned."""
        self.numbers = dict(document["numbers"])
        self.masks = list(document["masks"])
