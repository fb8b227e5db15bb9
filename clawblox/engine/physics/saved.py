"""A space as a document: in exact form, and as poses, velocities and shapes."""

from __future__ import annotations

import base64
import platform
import zlib
from typing import Any, Final

import rapier3d
from rapier3d import ColliderHandle, PhysicsWorld, RigidBodyHandle

from clawblox.engine import shapes
from clawblox.engine.physics.bodies import Body, Motion, Traits
from clawblox.engine.physics.colliders import Shape
from clawblox.engine.physics.numbers import to_matrix
from clawblox.engine.physics.space import POINT, TURN, Admission, Space
from clawblox.engine.slots import Slots

Json = Any

_MOST_BYTES: Final = 1 << 30

LIBRARY = f"rapier3d {rapier3d.__version__} {platform.machine()}"
"""Library version and processor for which the exact form is valid."""


_BODY_SHAPE: Final = {
    "number": shapes.integer,
    "motion": shapes.one_of(*map(shapes.constant, Motion)),
    "shape": (shapes.text, *POINT),
    "solid": shapes.flag,
    "group": shapes.mask,
    "mask": shapes.mask,
    "material": POINT,
    "handles": (shapes.mask,) * 4,
    "fixed_to": shapes.integer,
    "position": POINT,
    "rotation": TURN,
    "velocity": POINT,
    "angular_velocity": POINT,
}
SPACE_SHAPE: Final = {
    "library": shapes.text,
    "bytes": shapes.text,
    "gravity": shapes.number,
    "characters_push": shapes.flag,
    "bodies": [_BODY_SHAPE],
    "dynamic": [shapes.integer],
    **Space.shape,
    "overlaps": [(shapes.integer, shapes.integer)],
}


def space_document(space: Space) -> Json:
    """Return the whole state of a space between ticks."""
    return {
        "library": LIBRARY,
        "bytes": base64.b64encode(zlib.compress(space.snapshot(), 1)).decode(),
        "gravity": space.gravity,
        "characters_push": space.walking.pushes,
        "bodies": [_body_entry(body) for body in space.bodies.values()],
        **space.document(Slots()),
        "overlaps": [list(pair) for pair in space.overlaps.reported],
    }


def restore_space(space: Space, document: Json, *, logical: bool = False) -> None:
    """Restore a document into an empty space.

    Args:
        space: A new space.
        document: The result of `space_document`.
        logical: Whether to rebuild the space from poses, velocities and shapes. The motion is then
            not exactly the same: bodies at rest may shift a little.

    Raises:
        ValueError: Another version of the library, or another kind of processor, wrote the
            document, and `logical` is not set.
    """
    space.gravity = document["gravity"]
    space.walking.pushes = document["characters_push"]
    if logical:
        _rebuild(space, document)
        return
    if document["library"] != LIBRARY:
        raise ValueError(
            f"the physics was saved by {document['library']}, but this is {LIBRARY}: it "
            "cannot continue exactly; restore it where it was saved, or from poses and velocities "
            "only"
        )
    space.adopt(_unpack(document["bytes"]), map(_read_admission, document["bodies"]), document)
    pairs = ((first, second) for first, second in document["overlaps"])
    space.overlaps.reported = dict.fromkeys(pairs)


def _unpack(text: str) -> PhysicsWorld:
    """Return the rapier world in a document.

    Raises:
        ValueError: The document is damaged.
    """
    try:
        unpacker = zlib.decompressobj()
        saved = unpacker.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        if not unpacker.eof:
            raise ValueError("they have the wrong length")
        return PhysicsWorld.restore(saved)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the physics data is damaged: {error}") from error


def _body_entry(body: Body) -> Json:
    traits, rigid, collider = body.traits, body.rigid, body.collider
    if body.fixed_to:
        pose = collider.position_wrt_parent
        assert pose is not None  # a fixed body has a parent
    else:
        pose = rigid.position
    return {
        "number": body.number,
        "motion": traits.motion.value,
        "shape": list(traits.shape),
        "solid": traits.solid,
        "group": traits.group,
        "mask": traits.mask,
        "material": [traits.density, traits.friction, traits.restitution],
        "handles": [
            body.body_handle.index,
            body.body_handle.generation,
            body.collider_handle.index,
            body.collider_handle.generation,
        ],
        "fixed_to": body.fixed_to,
        "position": pose.translation.to_tuple(),
        "rotation": pose.rotation.to_tuple(),
        "velocity": rigid.linvel.to_tuple(),
        "angular_velocity": rigid.angvel.to_tuple(),
    }


def _read_traits(entry: Json) -> Traits:
    return Traits(
        Shape(*entry["shape"]),
        Motion(entry["motion"]),
        entry["solid"],
        entry["group"],
        entry["mask"],
        *entry["material"],
    )


def _read_admission(entry: Json) -> Admission:
    index, generation, collider_index, collider_generation = entry["handles"]
    return (
        entry["number"],
        _read_traits(entry),
        RigidBodyHandle(index, generation),
        ColliderHandle(collider_index, collider_generation),
        entry["fixed_to"],
    )


def _rebuild(space: Space, document: Json) -> None:
    """Build a space from poses, velocities and shapes."""
    targets = {number: (at, turn) for number, at, turn in document["targets"]}
    for entry in sorted(document["bodies"], key=lambda entry: bool(entry["fixed_to"])):
        number, traits = entry["number"], _read_traits(entry)
        at, turn = targets.get(number, (entry["position"], entry["rotation"]))
        pose = (tuple(at), to_matrix(tuple(turn)))
        if entry["fixed_to"]:
            space.fix(number, entry["fixed_to"], traits, *pose)
        else:
            space.add(number, traits, *pose)
            space.forces.set_velocity(
                number, tuple(entry["velocity"]), tuple(entry["angular_velocity"])
            )
