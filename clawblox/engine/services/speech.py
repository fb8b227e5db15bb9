"""Chat: the audience of a message, and ``Chatted``.

In ``global`` speech everyone hears every message. In ``proximity`` speech only players hear a
message, and only if their root parts are within the hearing radius of the speaker's root part when
it is sent. Scripts get every message: in the next tick, after the inputs, ``Player.Chatted`` fires
for each message.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import ClassVar, Final

from clawblox.engine import shapes
from clawblox.engine.errors import to_luau_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.saved_state import Layouts, SavedState, object_slot
from clawblox.luau import Vector

MAX_SAID: Final = 1000
"""Maximum number of messages waiting for a tick; the oldest are dropped first."""


class Speech(SavedState):
    """The messages of players since the last tick.

    Args:
        model: The data model.
    """

    layouts: ClassVar[Layouts] = {"_said": [(object_slot(Instance), shapes.text)]}

    def __init__(self, model: DataModel) -> None:
        self._model = model
        self._said: deque[tuple[Instance, str]] = deque(maxlen=MAX_SAID)

    def add(self, player: Instance, content: str) -> None:
        """Let ``Chatted`` fire for a message in the next tick."""
        if len(self._said) == MAX_SAID:
            self._model.scheduler.warn_once(
                f"Chatted: more than {MAX_SAID} messages wait for a tick; the oldest are dropped"
            )
        self._said.append((player, to_luau_text(content)))

    def process(self) -> None:
        """Fire ``Chatted(message)`` for each message, in the order of arrival.

        Raises:
            WorldHalted: The error of a handler halts the world.
        """
        while self._said:
            player, content = self._said.popleft()
            if player.parent is not None:  # otherwise the player has left
                player.fire("Chatted", content)


def within_hearing(
    speaker: Vector, players: Iterable[tuple[str, Vector]], radius: float
) -> list[str]:
    """Return the ids of the players within hearing.

    Args:
        speaker: Position of the speaker.
        players: Ids and positions.
        radius: The hearing radius, in studs.
    """
    at = (speaker.x, speaker.y, speaker.z)
    return [
        agent_id
        for agent_id, position in players
        if math.dist(at, (position.x, position.y, position.z)) <= radius
    ]
