"""The motion of a character: its target, its speed and its floor.

`Walker` uses numbers and a `Space`, but no instances. Speeds are in studs/s, times in ticks.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import attrs

from clawblox.engine import shapes
from clawblox.engine.physics.colliders import HALF_HEIGHT
from clawblox.engine.physics.space import Space
from clawblox.engine.physics.walking import GAP, Movement
from clawblox.engine.saved_state import optional, record
from clawblox.engine.scheduler import TICK_RATE, TICK_S

AIR_CONTROL: Final = 220.0
"""Horizontal deceleration in the air, and on the ground after a throw, in studs/s²."""
REACHED: Final = 0.5
"""Horizontal distance at which a target counts as reached, in studs."""
PATIENCE: Final = 8 * TICK_RATE
"""Number of ticks after which a target is abandoned."""
JUMP_KEPT: Final = 12
"""Number of ticks for which a jump request waits for ground contact."""
JUMP_PAUSE: Final = 11
"""Minimum number of ticks between two jumps: 0.18 s."""
SUPPORT_REACH: Final = 4.0
"""Search distance for a floor below a character's centre, in studs."""
CARRIED: Final = 0.6
"""Maximum gap at which a moving floor carries a character, in studs."""
CEILING: Final = 1e-4
"""A rise shortened by more than this has hit a ceiling, in studs."""
FASTEST: Final = 1e5
"""Maximum speed of a character along an axis, in studs/s."""
EDGE: Final = 1e6
"""Maximum coordinate of a character along an axis, in studs."""

Triple = tuple[float, float, float]
Pair = tuple[float, float]
STILL: Final = (0.0, 0.0, 0.0)
STOOD: Final = Movement(0.0, 0.0, 0.0, grounded=True)


class Gait(NamedTuple):
    """The parameters of motion that the Humanoid and the world set."""

    walk_speed: float
    jump_power: float
    jump_height: float
    gravity: float


class _Floor(NamedTuple):
    """A floor that carries a character: its shift in this tick and the gap to it, in studs."""

    number: int
    shift: Triple
    gap: float


@attrs.define(eq=False)
class Walker:
    """The motion of a character.

    Attributes:
        target: Target of its walk, or None.
        target_since: Start of the walk to the target.
        direction: Direction of its walk until the next request, as X and Z of length 1 at most.
        jump_asked: Time of the request for a jump that has not started; None without a request.
        jumped: Start of its last jump; None for never.
        rising: Its vertical speed.
        walking: Its horizontal velocity by walking, as X and Z.
        thrown: Its horizontal velocity by other causes, as X and Z.
        grounded: Whether it is standing on a floor.
        sinking: Distance that the floor below it has sunk without it, in studs; 0 or negative.
        idle_since: `Space.changes` when it had no request, did not move and had no movable bodies
            nearby. It stays still while these three conditions hold. None if it moved.
    """

    target: Triple | None = None
    target_since: int = 0
    direction: Pair | None = None
    jump_asked: int | None = None
    jumped: int | None = None
    rising: float = 0.0
    walking: Pair = (0.0, 0.0)
    thrown: Pair = (0.0, 0.0)
    grounded: bool = False
    sinking: float = 0.0
    idle_since: int | None = None

    def halt(self) -> None:
        """Reset the requests and the velocity, as after a teleport."""
        self.target = self.direction = self.jump_asked = None
        self.rising = 0.0
        self.walking = self.thrown = (0.0, 0.0)

    def throw(self, velocity: Triple) -> None:
        """Throw the character with a velocity; friction on the ground reduces it."""
        x, y, z = velocity
        self.rising = _limited(y)
        self.thrown = (_limited(x), _limited(z))
        self.walking = (0.0, 0.0)

    def steer(self, at: Triple, tick: int) -> bool | None:
        """End a finished walk.

        Args:
            at: Position of the character.
            tick: The current tick.

        Returns:
            Whether the target was reached; None if no walk has ended.
        """
        if self.target is None:
            return None
        if math.hypot(self.target[0] - at[0], self.target[2] - at[2]) <= REACHED:
            self.target = None
            return True
        if tick - self.target_since >= PATIENCE:
            self.target = None
            return False
        return None

    def move(self, space: Space, number: int, gait: Gait, tick: int) -> Movement:
        """Move the body of the character for one tick.

        Args:
            space: The space with the body, ready for characters to move.
            number: The body.
            gait: Parameters of the motion.
            tick: The current tick.
        """
        is_near_mover = space.queries.has_mover_near(number)
        is_idle = not is_near_mover and gait.gravity >= 0.0 and self._wants_nothing()
        if is_idle and self.idle_since == space.changes:
            return STOOD
        at = space.position(number)
        floor, push = None, (0.0, 0.0)
        if is_near_mover:
            floor = self._find_floor(space, number)
            push = _find_push(space, number, at, floor)
        self._fall_or_jump(gait, tick)
        self._walk(at, gait.walk_speed)
        is_rising = self.rising > 0.0
        is_carried = floor is not None and not is_rising
        rise = self.rising * TICK_S if is_rising or not self.grounded else 0.0
        if floor is not None and is_carried:
            rise, self.grounded = self._land_on(floor, rise)
            rise += self.sinking
        carried = STILL if floor is None else floor.shift
        wish = (
            _inside(at[0], (self.walking[0] + self.thrown[0]) * TICK_S + push[0] + carried[0]),
            _inside(at[1], rise + max(carried[1], 0.0)),
            _inside(at[2], (self.walking[1] + self.thrown[1]) * TICK_S + push[1] + carried[2]),
        )
        moved = space.move_character(number, wish)
        self.sinking = min(carried[1], 0.0)
        self._settle(wish, moved, is_standing=is_carried and self.grounded)
        self.idle_since = space.changes if is_idle and moved == STOOD else None
        return moved

    def _wants_nothing(self) -> bool:
        """Return whether it rests and would keep resting on a static floor."""
        return (
            self.grounded
            and self.target is None
            and self.direction is None
            and self.jump_asked is None
            and self.walking == (0.0, 0.0)
            and self.thrown == (0.0, 0.0)
            and not self.rising
            and not self.sinking
        )

    def _land_on(self, floor: _Floor, fall: float) -> tuple[float, bool]:
        """Return the fall onto a moving floor, and whether the character then stands on it.

        Collisions cannot show this, since they use the position of the floor before its motion.
        """
        if self.grounded or fall > GAP - floor.gap:
            return fall, self.grounded
        return min(GAP - floor.gap, 0.0), True

    def _fall_or_jump(self, gait: Gait, tick: int) -> None:
        self.rising = _limited(self.rising - gait.gravity * TICK_S)
        if self.jump_asked is None:
            return
        if tick - self.jump_asked >= JUMP_KEPT:
            self.jump_asked = None
            return
        is_rested = self.jumped is None or tick - self.jumped >= JUMP_PAUSE
        if self.grounded and self.rising <= 0.0 and is_rested:
            self.jump_asked, self.jumped = None, tick
            highest = math.sqrt(max(0.0, 2.0 * gait.gravity * gait.jump_height))
            self.rising = _limited(min(gait.jump_power, highest))

    def _walk(self, at: Triple, speed: float) -> None:
        wish_x, wish_z = self._walk_wish(at, _limited(speed))
        x, z = self.walking
        change = math.hypot(wish_x - x, wish_z - z)
        most = AIR_CONTROL * TICK_S
        if not self.grounded and change > most:
            share = most / change
            wish_x, wish_z = x + (wish_x - x) * share, z + (wish_z - z) * share
        self.walking = (wish_x, wish_z)

    def _walk_wish(self, at: Triple, speed: float) -> Pair:
        """Return the horizontal velocity that the request asks for."""
        if self.target is not None:
            x, z = self.target[0] - at[0], self.target[2] - at[2]
            rate = min(speed / math.hypot(x, z), TICK_RATE)  # do not pass the target
            return x * rate, z * rate
        if self.direction is not None:
            return self.direction[0] * speed, self.direction[1] * speed
        return 0.0, 0.0

    def _find_floor(self, space: Space, number: int) -> _Floor | None:
        """Return the moving floor that carries the character, or None."""
        if not (space.moving or self.sinking):
            return None
        support = space.queries.support(number, SUPPORT_REACH)
        if support is None:
            return None
        floor, distance = support
        gap = distance - HALF_HEIGHT
        shift = space.shift(floor, space.position(floor))
        if (shift == STILL and not self.sinking) or not (self.grounded or gap <= CARRIED):
            return None
        return _Floor(floor, shift, gap)

    def _settle(self, wish: Triple, moved: Movement, *, is_standing: bool) -> None:
        """Apply the outcome of a move request."""
        self.grounded = moved.grounded or is_standing
        if self.rising > 0.0:
            if wish[1] > 0.0 and moved.y < wish[1] - CEILING:
                self.rising = 0.0
        elif self.grounded:
            self.rising = 0.0
        x, z = self.thrown
        if x or z:
            speed = math.hypot(x, z)
            rest = speed - AIR_CONTROL * TICK_S if self.grounded else speed
            has_met_wall = 2.0 * (moved.x * x + moved.z * z) < wish[0] * x + wish[2] * z
            share = 0.0 if rest <= 0.0 or has_met_wall else rest / speed
            self.thrown = (x * share, z * share)


_PAIR: Final = (shapes.number,) * 2
WALKER: Final = record(
    Walker,
    optional((shapes.number,) * 3),
    shapes.whole,
    optional(_PAIR),
    shapes.optional(shapes.whole),
    shapes.optional(shapes.whole),
    shapes.number,
    _PAIR,
    _PAIR,
    shapes.flag,
    shapes.number,
    shapes.optional(shapes.whole),
)
"""Saved form of a walker: its attributes in their order."""


def _find_push(space: Space, number: int, at: Triple, floor: _Floor | None) -> Pair:
    """Return the largest horizontal shift of the solid parts that move into a character."""
    best, furthest = (0.0, 0.0), 0.0
    if space.moving:
        for other in space.queries.anchored_within(number):
            if floor is None or other != floor.number:
                x, _, z = space.shift(other, at)
                if math.hypot(x, z) > furthest:
                    best, furthest = (x, z), math.hypot(x, z)
    return best


def _limited(speed: float) -> float:
    return -FASTEST if speed < -FASTEST else min(speed, FASTEST)


def _inside(at: float, wish: float) -> float:
    """Return a shift along an axis, or 0 if it would cross `EDGE`."""
    return wish if -EDGE < at + wish < EDGE else 0.0
