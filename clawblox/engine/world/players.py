"""Who is in a world: joining, leaving, kicks, idle players and bots."""

from __future__ import annotations

import uuid
from typing import Any, Final

import attrs

from clawblox.engine.errors import to_luau_text
from clawblox.engine.instances.instance import Instance
from clawblox.engine.instances.model import DataModel
from clawblox.engine.slots import Slots

__all__ = ["Players", "user_id"]

_USER_ID_MASK: Final = (1 << 53) - 1


def user_id(agent_id: str) -> float:
    """Return the number by which scripts know an agent: the low 53 bits of its id, never 0."""
    return float(uuid.UUID(agent_id).int & _USER_ID_MASK or 1)


@attrs.define(eq=False)
class Entry:
    """A player in the world.

    Attributes:
        agent_id: The id of its agent.
        player: Its instance.
        active_tick: The tick in which it joined or last sent an input.
    """

    agent_id: str
    player: Instance
    active_tick: int


class Players:
    """The players of one world, in the order of joining.

    Args:
        model: The data model.
    """

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Any:
        return iter(self._entries.values())

    def find(self, agent_id: str) -> Instance | None:
        """Return the player of an agent, or None."""
        entry = self._entries.get(agent_id)
        return None if entry is None else entry.player

    def add(self, agent_id: str, name: str) -> Instance:
        """Let an agent join: everything of its player exists before ``PlayerAdded`` fires.

        Raises:
            WorldHalted: A handler fails.
        """
        model = self._model
        service = model.services["Players"]
        player = model.make("Player", name=name)
        player.store("UserId", user_id(agent_id))
        player.store("DisplayName", to_luau_text(name))
        self._entries[agent_id] = Entry(agent_id, player, model.scheduler.tick)
        player.link(service)
        with model.scheduler.phase("Failed to fire PlayerAdded"):
            service.fire("PlayerAdded", player)
        return player

    def remove(self, agent_id: str) -> None:
        """Remove an agent: it is listed and has its character while ``PlayerRemoving`` fires.

        Raises:
            WorldHalted: A handler fails.
        """
        entry = self._entries.get(agent_id)
        if entry is None:
            return
        with self._model.scheduler.phase("Failed to fire PlayerRemoving"):
            self._model.services["Players"].fire("PlayerRemoving", entry.player)
            character = entry.player.read("Character")
            if character is not None:
                self._model.set_parent(character, None)
            del self._entries[agent_id]
            self._model.destroy(entry.player)

    def document(self, slots: Slots) -> Any:
        """Return what a snapshot holds of it."""
        return [[each.agent_id, slots.put(each.player), each.active_tick] for each in self]

    def restore(self, document: Any, slots: Slots) -> None:
        """Take over the players of a snapshot."""
        self._entries = {
            agent_id: Entry(agent_id, slots.take(player), active_tick)
            for agent_id, player, active_tick in document
        }
