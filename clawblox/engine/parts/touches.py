"""``Touched`` and ``TouchEnded``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from clawblox.engine import shapes
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.model import DataModel
from clawblox.engine.slots import Slots

Pair = tuple[int, int]
Parts = tuple[Instance, Instance]


SHAPE: Final = [(shapes.whole, shapes.whole)]


class Touches:
    """The pairs of parts that touch.

    Args:
        model: The data model.
        members: The parts below Workspace, by number.
        characters: The root parts of characters.
    """

    def __init__(
        self,
        model: DataModel,
        members: Mapping[int, Instance],
        characters: Mapping[int, None],
    ) -> None:
        self._model = model
        self._members = members
        self._characters = characters
        self._touching: dict[Pair, Parts] = {}

    def report(self, overlapping: Iterable[Pair]) -> None:
        """Fire the events of pairs that have begun, then of those that have ended.

        Args:
            overlapping: The pairs that overlap after a step, in order.

        Raises:
            WorldHalted: A handler fails.
        """
        before, self._touching = self._touching, {}
        for pair in overlapping:
            parts = self._find_parts(pair)
            if parts is not None:
                self._touching[pair] = parts
        began = [parts for pair, parts in self._touching.items() if pair not in before]
        ended = [parts for pair, parts in before.items() if pair not in self._touching]
        if not began and not ended:
            return
        with self._model.scheduler.phase("Touch event"):
            for parts in began:
                _tell(*parts, "Touched")
            for parts in ended:
                _tell(*parts, "TouchEnded")

    def _find_parts(self, pair: Pair) -> Parts | None:
        """Return the parts of a pair; None if they cannot touch."""
        first, second = self._members.get(pair[0]), self._members.get(pair[1])
        if first is None or second is None:
            return None
        if not (first.read("CanTouch") and second.read("CanTouch")):
            return None
        return None if self._is_anchored(first) and self._is_anchored(second) else (first, second)

    def _is_anchored(self, part: Instance) -> bool:
        return bool(part.read("Anchored")) and part.number not in self._characters

    def document(self, slots: Slots) -> list[Any]:
        """Return what a snapshot holds of it; a part may have left the tree meanwhile."""
        return [slots.put_all(parts) for parts in self._touching.values()]

    def restore(self, document: list[Any], slots: Slots) -> None:
        """Take over what `document` returned.

        Raises:
            ValueError: The snapshot is damaged.
        """
        for numbers in document:
            first, second = (slots.take_as(number, Instance) for number in numbers)
            self._touching[first.number, second.number] = (first, second)


def _tell(first: Instance, second: Instance, event: str) -> None:
    for part, other in ((first, second), (second, first)):
        if not first.is_destroyed and not second.is_destroyed:
            part.fire(event, other)
