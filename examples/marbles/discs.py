"""Rigid discs on a table: walls, elastic collisions, rolling friction, thrust.

Plain Python floats in a fixed order of operations, using only + - * / and square root, which
IEEE 754 defines to the bit. The same discs and the same steps give the same result in any process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from math import sqrt

__all__ = ["Disc", "Table"]


@dataclass
class Disc:
    """A disc that rolls.

    Attributes:
        id: Name of the disc on the table.
        radius: Radius in metres.
        mass: Mass in kilograms.
        x: Position of its centre, in metres from the left wall.
        y: Position of its centre, in metres from the bottom wall.
        vx: Speed to the right, in metres per second.
        vy: Speed to the top, in metres per second.
        thrust_x: Force to the right, in newtons.
        thrust_y: Force to the top, in newtons.
        friction: Deceleration by rolling, in metres per second squared.
    """

    id: str
    radius: float
    mass: float
    x: float = 0.0
    y: float = 0.0
    vx: float = 0.0
    vy: float = 0.0
    thrust_x: float = 0.0
    thrust_y: float = 0.0
    friction: float = 0.5

    def overlaps(self, other: Disc) -> bool:
        """Return whether the two discs overlap."""
        dx, dy, reach = other.x - self.x, other.y - self.y, self.radius + other.radius
        return dx * dx + dy * dy < reach * reach

    def roll(self, dt: float) -> None:
        """Move for ``dt`` seconds: thrust, friction, then position (semi-implicit Euler)."""
        self.vx += self.thrust_x / self.mass * dt
        self.vy += self.thrust_y / self.mass * dt
        speed = sqrt(self.vx * self.vx + self.vy * self.vy)
        if speed > 0.0:
            kept = max(0.0, speed - self.friction * dt) / speed
            self.vx *= kept
            self.vy *= kept
        self.x += self.vx * dt
        self.y += self.vy * dt


@dataclass
class Table:
    """A rectangle with walls, and the discs on it.

    Attributes:
        width: Width in metres.
        height: Height in metres.
        bounce: Fraction of the speed that a collision keeps.
        on_touch: Called with the two discs of every collision.
        discs: The discs, in the order in which they move and collide.
    """

    width: float
    height: float
    bounce: float
    on_touch: Callable[[Disc, Disc], None]
    discs: list[Disc] = field(default_factory=list)

    def step(self, dt: float) -> None:
        """Advance everything by ``dt`` seconds."""
        for disc in self.discs:
            disc.roll(dt)
        for first, second in combinations(self.discs, 2):
            self._collide(first, second)
        for disc in self.discs:
            self._keep_inside(disc)

    def _collide(self, first: Disc, second: Disc) -> None:
        if not first.overlaps(second):
            return
        dx, dy = second.x - first.x, second.y - first.y
        distance = sqrt(dx * dx + dy * dy)
        nx, ny = (dx / distance, dy / distance) if distance > 0.0 else (1.0, 0.0)
        self._separate(first, second, nx, ny, first.radius + second.radius - distance)
        self._exchange_impulse(first, second, nx, ny)
        self.on_touch(first, second)

    def _separate(self, first: Disc, second: Disc, nx: float, ny: float, overlap: float) -> None:
        share = overlap / (first.mass + second.mass)
        first.x -= nx * share * second.mass
        first.y -= ny * share * second.mass
        second.x += nx * share * first.mass
        second.y += ny * share * first.mass

    def _exchange_impulse(self, first: Disc, second: Disc, nx: float, ny: float) -> None:
        approach = (second.vx - first.vx) * nx + (second.vy - first.vy) * ny
        if approach >= 0.0:
            return
        impulse = -(1.0 + self.bounce) * approach / (1.0 / first.mass + 1.0 / second.mass)
        first.vx -= impulse / first.mass * nx
        first.vy -= impulse / first.mass * ny
        second.vx += impulse / second.mass * nx
        second.vy += impulse / second.mass * ny

    def _keep_inside(self, disc: Disc) -> None:
        disc.x, disc.vx = self._reflect(disc.x, disc.vx, disc.radius, self.width - disc.radius)
        disc.y, disc.vy = self._reflect(disc.y, disc.vy, disc.radius, self.height - disc.radius)

    def _reflect(self, place: float, speed: float, low: float, high: float) -> tuple[float, float]:
        if place < low:
            return low, abs(speed) * self.bounce
        if place > high:
            return high, -abs(speed) * self.bounce
        return place, speed
