"""Rigid bodies, moving characters and spatial queries; the only room that knows rapier3d.

It knows bodies by number, tuples of floats and bytes; nothing of instances or Luau.

- ``space``: `Space`, the bodies, their motion and the step
- ``bodies``: the state of a body outside rapier, how it is built, and its forces
- ``walking``: the controller that moves characters among solid bodies
- ``queries``: rays and overlaps
- ``overlaps``: which pairs of bodies overlap after a step, and how many may
- ``colliders``: the shapes of parts, their mass and their corners
- ``numbers``: the range of numbers that rapier supports, and its quaternions
- ``saved``: a space as a document, exactly, and as plain poses
"""

from clawblox.engine.physics.bodies import (
    ALL_GROUPS,
    ANCHORED,
    CHARACTER,
    DYNAMIC,
    FIXED,
    Motion,
    Traits,
)
from clawblox.engine.physics.colliders import (
    BALL,
    BLOCK,
    CYLINDER,
    HALF_HEIGHT,
    RING,
    WEDGE,
    Shape,
    volume,
)
from clawblox.engine.physics.overlaps import TooCrowdedError
from clawblox.engine.physics.queries import Hit
from clawblox.engine.physics.saved import LIBRARY, SPACE_SHAPE, restore_space, space_document
from clawblox.engine.physics.space import Space
from clawblox.engine.physics.walking import GAP, Movement

__all__ = [
    "ALL_GROUPS",
    "ANCHORED",
    "BALL",
    "BLOCK",
    "CHARACTER",
    "CYLINDER",
    "DYNAMIC",
    "FIXED",
    "GAP",
    "HALF_HEIGHT",
    "LIBRARY",
    "RING",
    "SPACE_SHAPE",
    "WEDGE",
    "Hit",
    "Motion",
    "Movement",
    "Shape",
    "Space",
    "TooCrowdedError",
    "Traits",
    "restore_space",
    "space_document",
    "volume",
]
