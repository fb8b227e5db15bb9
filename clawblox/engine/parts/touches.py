"""``Touched`` and ``TouchEnded``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.model import DataModel

__all__ = ["Touches"]

Pair = tuple[int, int]


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
        self._touching: dict[Pair, None] = {}

    def report(self, overlapping: Iterable[Pair]) -> None:
        """Fire the events of pairs that have begun, then of those that have ended.

        Args:
            overlapping: The pairs that overlap after a step, in order.

        Raises:
            WorldHalted: A handler fails.
        """
        before = self._touching
        now = self._touching = dict.fromkeys(filter(self._can_touch, overlapping))
        began = [pair for pair in now if pair not in before]
        ended = [pair for pair in before if pair not in now]
        if not began and not ended:
            return
        with self._model.scheduler.phase("Touch event"):
            for pair in began:
                self._tell(pair, "Touched")
            for pair in ended:
                self._tell(pair, "TouchEnded")

    def _can_touch(self, pair: Pair) -> bool:
        first, second = self._members.get(pair[0]), self._members.get(pair[1])
        if first is None or second is None:
            return False
        if not (first.read("CanTouch") and second.read("CanTouch")):
            return False
        return not (self._is_anchored(first) and self._is_anchored(second))

    def _is_anchored(self, part: Instance) -> bool:
        return bool(part.read("Anchored")) and part.number not in self._characters

    def _tell(self, pair: Pair, event: str) -> None:
        first, second = self._model.find(pair[0]), self._model.find(pair[1])
        if first is None or second is None:
            return
        for part, other in ((first, second), (second, first)):
            if not first.is_destroyed and not second.is_destroyed:
                part.fire(event, other)

    def document(self) -> list[Any]:
        """Return what a snapshot holds of it."""
        return [list(pair) for pair in self._touching]

    def restore(self, document: list[Any]) -> None:
        """Take over what `document` returned."""
        self._touching = dict.fromkeys((first, second) for first, second in document)
