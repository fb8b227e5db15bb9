"""Rigid bodies, moving characters and spatial queries; the only room that knows rapier3d.

It knows bodies by number, tuples of floats and bytes; nothing of instances or Luau.

- ``space``: `Space`, the bodies, their motion and one step of it
- ``bodies``: what is kept about each body beside rapier, and how it is built
- ``walking``: the controller that moves characters among solid bodies
- ``crowding``: how many bodies may be in one place
- ``forces``: velocities, impulses and forces
- ``queries``: rays and overlaps
- ``overlaps``: which pairs of bodies overlap after a step
- ``shapes``: the shapes of parts, their mass and their corners
- ``rotations``: matrices and rapier's quaternions
- ``numbers``: what rapier can calculate with
- ``saved``: a space as a document, exactly, and as plain poses
"""

from clawblox.engine.physics.bodies import ALL_GROUPS, ANCHORED, CHARACTER, DYNAMIC, FIXED, Motion
from clawblox.engine.physics.crowding import TooCrowdedError
from clawblox.engine.physics.queries import Hit
from clawblox.engine.physics.saved import LIBRARY, SPACE_SHAPE, restore_space, space_document
from clawblox.engine.physics.shapes import (
    BALL,
    BLOCK,
    CYLINDER,
    HALF_HEIGHT,
    RING,
    WEDGE,
    Shape,
    volume,
)
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
    "restore_space",
    "space_document",
    "volume",
]
