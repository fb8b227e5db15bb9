"""The position of a player, and the objects within reach."""

from __future__ import annotations

from clawblox.engine.instances.instance import Instance
from clawblox.engine.parts.pivots import part_box
from clawblox.engine.parts.poses import ball_overlaps
from clawblox.engine.values.vector3 import triple


def find_root(player: Instance) -> Instance | None:
    """Return the root part of a player's character, or None."""
    character = player.read("Character")
    if character is None:
        return None
    root = character.read("PrimaryPart")
    if root is None:
        root = character.find_child("HumanoidRootPart")
    return root if root is not None and root.is_a("BasePart") else None


def is_within_reach(player: Instance, part: Instance, distance: float) -> bool:
    """Return whether a part and a player are both in Workspace and near each other.

    Args:
        player: The player.
        part: The part.
        distance: Maximum distance from the part's box to the centre of the player's root part,
            in studs.
    """
    root = find_root(player)
    if root is None or not (root.in_workspace and part.in_workspace):
        return False
    return ball_overlaps(triple(root.read("Position")), distance, part_box(part))
