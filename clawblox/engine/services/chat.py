"""Chat: who hears what is said.

In ``global`` speech everyone hears everything. In ``proximity`` speech a message is heard by the
players whose root parts are within the hearing radius of the speaker's root part when it is said;
who comes closer later does not hear it, and spectators do not either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from clawblox.luau import Vector

__all__ = ["within_hearing"]


def within_hearing(
    speaker: Vector, players: Iterable[tuple[str, Vector]], radius: float
) -> list[str]:
    """Return the ids of the players who hear what is said.

    Args:
        speaker: Where the speaker is.
        players: Ids and positions.
        radius: The hearing radius, in studs.
    """
    at = (speaker.x, speaker.y, speaker.z)
    return [
        agent_id
        for agent_id, position in players
        if math.dist(at, (position.x, position.y, position.z)) <= radius
    ]
