"""Tags: which instances of the tree have which, and the signals of their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from clawblox.engine.instances.instance import Instance

if TYPE_CHECKING:
    from clawblox.engine.instances.model import DataModel


TAG_SERVICE: Final = "CollectionService"
TAG_ADDED: Final = "+"
"""Begins the name of a signal that `GetInstanceAddedSignal` returns."""
TAG_REMOVED: Final = "-"
"""Begins the name of a signal that `GetInstanceRemovedSignal` returns."""

_LEVELS_PER_STEP: Final = 2  # going up the tree
_TAG_STEPS: Final = 5  # noting a tag
_LISTED_STEPS: Final = 2  # listing a tag or an instance


class Tags:
    """The tagged instances below ``game``.

    Args:
        model: The data model.
    """

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._tagged: dict[str, dict[int, Instance]] = {}

    def add(self, instance: Instance, tag: str) -> None:
        """Tag an instance; nothing happens if it has the tag.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
            WorldHalted: A handler fails.
        """
        if tag not in instance.tags:
            instance.tags[tag] = None
            if self._is_in_game(instance):
                self._enter(instance, tag)

    def remove(self, instance: Instance, tag: str) -> None:
        """Remove a tag of an instance; nothing happens if it does not have it.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
            WorldHalted: A handler fails.
        """
        if tag in instance.tags:
            del instance.tags[tag]
            if self._is_in_game(instance):
                self._leave(instance, tag)

    def follow(self, instance: Instance, old: Instance | None) -> None:
        """Note that an instance has another parent.

        Args:
            instance: The instance.
            old: The parent that it had.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
            WorldHalted: A handler fails.
        """
        tagged = [each for each in (instance, *instance.descendants()) if each.tags]
        if not tagged:
            return
        was_in_game = old is not None and self._is_in_game(old)
        if was_in_game is self._is_in_game(instance):
            return
        note = self._leave if was_in_game else self._enter
        for each in tagged:
            for tag in tuple(each.tags):
                if (each.number in self._tagged.get(tag, ())) is was_in_game:
                    note(each, tag)

    def tagged(self, tag: str) -> list[Instance]:
        """Return the instances below ``game`` with a tag, in the order in which they were made.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
        """
        found = self._tagged.get(tag, {})
        self._model.scheduler.charge(len(found) * _LISTED_STEPS)
        return [found[number] for number in sorted(found)]

    def names(self) -> list[str]:
        """Return the tags that instances below ``game`` have, sorted.

        Raises:
            LuaError: The scripts have used up the steps of this tick.
        """
        self._model.scheduler.charge(len(self._tagged) * _LISTED_STEPS)
        return sorted(self._tagged)

    def restore(self) -> None:
        """Note the tags of the restored tree."""
        for instance in self._model.game.descendants():
            for tag in instance.tags:
                self._tagged.setdefault(tag, {})[instance.number] = instance

    def _is_in_game(self, instance: Instance) -> bool:
        levels, found = 0, instance
        while found.parent is not None:
            found, levels = found.parent, levels + 1
        self._model.scheduler.charge(levels // _LEVELS_PER_STEP)
        return found is self._model.game

    def _enter(self, instance: Instance, tag: str) -> None:
        self._model.scheduler.charge(_TAG_STEPS)
        tagged = self._tagged.setdefault(tag, {})
        tagged[instance.number] = instance
        service = self._model.services[TAG_SERVICE]
        if len(tagged) == 1:
            service.fire("TagAdded", tag)
        service.fire(TAG_ADDED + tag, instance)

    def _leave(self, instance: Instance, tag: str) -> None:
        self._model.scheduler.charge(_TAG_STEPS)
        tagged = self._tagged[tag]
        del tagged[instance.number]
        service = self._model.services[TAG_SERVICE]
        if not tagged:
            del self._tagged[tag]
        service.fire(TAG_REMOVED + tag, instance)
        if not tagged:
            service.fire("TagRemoved", tag)
