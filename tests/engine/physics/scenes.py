"""A random scene that drives a `Space` for any number of ticks, from any document."""

import hashlib
import json
import random
import sys

from clawblox.engine.physics.bodies import ALL_GROUPS, ANCHORED, CHARACTER, DYNAMIC, Traits
from clawblox.engine.physics.colliders import BALL, BLOCK, CYLINDER, RING, WEDGE, Shape
from clawblox.engine.physics.saved import restore_space, space_document
from clawblox.engine.physics.space import Space

SHAPES = (BLOCK, BALL, CYLINDER, WEDGE, RING)
CAPSULE = Shape(CYLINDER, 2.0, 5.0, 2.0)


def build(seed):
    choose = random.Random(seed)
    space = Space()
    space.add(1, Traits(Shape(BLOCK, 120.0, 1.0, 120.0)), (0.0, -0.5, 0.0))
    for number in range(2, 62):
        at = (choose.uniform(-40, 40), choose.uniform(0.5, 6), choose.uniform(-40, 40))
        size = Shape(choose.choice(SHAPES), *(choose.uniform(1, 6) for _ in range(3)))
        group = choose.randrange(3)
        mask = (ALL_GROUPS, ALL_GROUPS ^ 4, ALL_GROUPS ^ 2)[group]
        space.add(
            number, Traits(size, solid=choose.random() < 0.8, group=1 << group, mask=mask), at
        )
    for number in range(100, 140):
        at = (choose.uniform(-12, 12), choose.uniform(3, 20), choose.uniform(-12, 12))
        size = Shape(choose.choice(SHAPES), *(choose.uniform(0.5, 2) for _ in range(3)))
        space.add(number, Traits(size, motion=DYNAMIC, solid=choose.random() < 0.95), at)
    for number in range(200, 206):
        space.add(number, Traits(CAPSULE, motion=CHARACTER), (number - 203.0, 6.0, 0.0))
    return space


def act(space, seed, tick):
    """Carry out random script actions for a tick, determined by seed and tick."""
    choose = random.Random(seed * 100003 + tick)
    for number in range(2, 20):
        if number in space:
            x, y, z = space.position(number)
            space.place(number, (x + choose.uniform(-0.3, 0.3), y, z + 0.1))
    if choose.random() < 0.3:
        space.refresh()
        space.queries.ray((0.0, 30.0, 0.0), (choose.uniform(-1, 1), -1.0, 0.3), 100.0)
    number = 300 + tick % 40
    if number in space:
        space.remove(number)
    else:
        motion = choose.choice((DYNAMIC, ANCHORED))
        at = (choose.uniform(-12, 12), 9.0, choose.uniform(-12, 12))
        space.add(number, Traits(Shape(BLOCK, 1.0, 1.0, 1.0), motion=motion), at)
    victim = choose.randrange(100, 140)
    match choose.randrange(6):
        case 0:
            space.forces.apply_impulse(victim, (0.0, 40.0, 10.0))
        case 1:
            space.set_motion(victim, choose.choice((DYNAMIC, ANCHORED)))
        case 2:
            space.set_shape(victim, Shape(BALL, 1.5, 1.5, 1.5))
        case 3:
            space.set_solid(victim, choose.random() < 0.9)
        case 4:
            space.place(victim, (choose.uniform(-9, 9), 12.0, 0.0), (0, 0, 1, 0, 1, 0, -1, 0, 0))
        case _:
            space.gravity = choose.choice((196.2, 100.0))


def tick(space, seed, number):
    act(space, seed, number)
    space.prepare()
    moves = []
    for character in range(200, 206):
        turn = (character * 7 + number // 40) % 4
        wish = ((0.3, -0.1, 0.0), (0.0, -0.1, 0.3), (-0.3, -0.1, 0.0), (0.0, 0.4, -0.3))[turn]
        moves.append(space.move_character(character, wish))
    lost = space.step()
    assert lost == []
    act(space, seed, -number)
    return moves, space.overlaps.current(), space.moved_bodies()


def digest(space):
    return hashlib.sha256(json.dumps(space_document(space)).encode()).hexdigest()


def go_on(space, seed, first, last, every):
    """Return digests of all reports, and of the document after some of the ticks."""
    digests = []
    for number in range(first, last):
        seen = hashlib.sha256(repr(tick(space, seed, number)).encode()).hexdigest()
        is_shown = (number + 1) % every == 0
        digests.append([seen, digest(space) if is_shown else None])
    return digests


if __name__ == "__main__":
    seed, first, last, every = map(int, sys.argv[1:])
    space = Space()
    restore_space(space, json.load(sys.stdin))
    print(json.dumps(go_on(space, seed, first, last, every)))
