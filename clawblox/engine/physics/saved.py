"""A space as a document: exactly, and as poses, velocities and shapes."""

from __future__ import annotations

import base64
import platform
import zlib
from typing import Any

import rapier3d
from rapier3d import ColliderHandle, PhysicsWorld, RigidBodyHandle

from clawblox.engine.physics.bodies import Body, Motion, Traits, view
from clawblox.engine.physics.rotations import to_matrix
from clawblox.engine.physics.shapes import Shape
from clawblox.engine.physics.space import Pose, Space

Json = Any

LIBRARY = f"rapier3d {rapier3d.__version__} {platform.machine()}"
"""What must be the same for a space to go on exactly."""


def space_document(space: Space) -> Json:
    """Return everything about a space that outlives a tick."""
    return {
        "library": LIBRARY,
        "bytes": base64.b64encode(zlib.compress(space.snapshot(), 1)).decode(),
        "solver_iterations": space.solver_iterations,
        "gravity": space.gravity,
        "groups": space.group_masks,
        "bodies": [_body_entry(body) for body in space.bodies.values()],
        **space.document(),
        "overlaps": [list(pair) for pair in space.overlaps.reported],
    }


def restore_space(document: Json, *, logical: bool = False) -> Space:
    """Return the space that a document describes.

    Args:
        document: What `space_document` returned.
        logical: Build it anew from poses, velocities and shapes. It does not go on exactly: what
            lay on something may move a little.

    Raises:
        ValueError: Another version of the library, or another kind of processor, wrote the
            document, and `logical` is not set.
    """
    space = Space(solver_iterations=document["solver_iterations"])
    space.gravity = document["gravity"]
    space.set_group_masks(document["groups"])
    if logical:
        _rebuild(space, document)
        return space
    if document["library"] != LIBRARY:
        raise ValueError(
            f"The physics was saved by {document['library']} and this is {LIBRARY}: it cannot go "
            "on exactly. Restore it from poses, velocities and shapes, or where it was saved."
        )
    world = PhysicsWorld.restore(zlib.decompress(base64.b64decode(document["bytes"])))
    bodies = [_restored_body(world, entry) for entry in document["bodies"]]
    space.adopt(world, bodies, document)
    space.overlaps.reported = dict.fromkeys(
        (first, second) for first, second in document["overlaps"]
    )
    return space


def _body_entry(body: Body) -> Json:
    traits = body.traits
    rigid = body.rigid
    return [
        body.number,
        [
            traits.motion.value,
            list(traits.shape),
            traits.solid,
            traits.group,
            traits.density,
            traits.friction,
            traits.restitution,
        ],
        [body.body_handle.index, body.body_handle.generation],
        [body.collider_handle.index, body.collider_handle.generation],
        [
            rigid.translation.to_tuple(),
            rigid.rotation.to_tuple(),
            rigid.linvel.to_tuple(),
            rigid.angvel.to_tuple(),
        ],
    ]


def _traits(entry: Json) -> Traits:
    motion, shape, *others = entry
    return Traits(Motion(motion), Shape(*shape), *others)


def _restored_body(world: PhysicsWorld, entry: Json) -> Body:
    number, traits, body, collider, _ = entry
    return view(world, number, _traits(traits), RigidBodyHandle(*body), ColliderHandle(*collider))


def _rebuild(space: Space, document: Json) -> None:
    targets: dict[int, Pose] = {
        number: (tuple(at), tuple(turn)) for number, at, turn in document["targets"]
    }
    for number, entry, _, _, (at, turn, linear, angular) in document["bodies"]:
        traits = _traits(entry)
        at, turn = targets.get(number, (at, turn))
        space.add(
            number,
            traits.shape,
            tuple(at),
            to_matrix(tuple(turn)),
            motion=traits.motion,
            solid=traits.solid,
            group=traits.group,
            density=traits.density,
            friction=traits.friction,
            restitution=traits.restitution,
        )
        space.set_velocity(number, tuple(linear), tuple(angular))
