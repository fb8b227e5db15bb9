"""Rigid bodies, moving characters and spatial queries; the only package that uses rapier3d.

It works with body numbers, tuples of floats, and bytes, without instances or Luau.

- ``space``: `Space`, the bodies, their motion and the step
- ``bodies``: the state of a body outside rapier, its construction, and its forces
- ``walking``: the controller that moves characters among solid bodies
- ``queries``: rays and overlaps
- ``overlaps``: the pairs of bodies that overlap after a step, and their maximum number
- ``colliders``: the shapes of parts, their mass and their corners
- ``numbers``: the range of numbers that rapier supports, and its quaternions
- ``saved``: a space as a document, in exact form and as plain poses
"""
