"""Rigid bodies, moving characters and spatial queries; the only room that knows rapier3d.

It knows bodies by number, tuples of floats and bytes, but neither instances nor Luau.

- ``space``: `Space`, the bodies, their motion and the step
- ``bodies``: the state of a body outside rapier, how it is built, and its forces
- ``walking``: the controller that moves characters among solid bodies
- ``queries``: rays and overlaps
- ``overlaps``: which pairs of bodies overlap after a step, and how many may
- ``colliders``: the shapes of parts, their mass and their corners
- ``numbers``: the range of numbers that rapier supports, and its quaternions
- ``saved``: a space as a document, exactly, and as plain poses
"""
