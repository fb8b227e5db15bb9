"""``Random``: a separate stream of random numbers, with the generator of ``math.random``."""

from __future__ import annotations

import math
from typing import Any

from clawblox.engine.values.value import (
    Mutable,
    checked,
    expect_contents,
    instance_check,
    number,
    optional,
    table,
)
from clawblox.luau import LuaTable, RuntimeFault, Vector, make_vector
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.machine import current
from clawblox.luau.core.random import PcgRandom
from clawblox.luau.core.tables import border
from clawblox.luau.core.values import check_writable

_LOW_HALF = 0xFFFFFFFF
_DRAWS_MASK = 2**64 - 1
_MAX_WHOLE = 2.0**53


class Random(Mutable):
    """A stream of random numbers."""

    __slots__ = ("stream",)

    type_name = "Random"

    def __init__(self, seed: int) -> None:
        self.stream = PcgRandom(seed)

    def draw(self) -> PcgRandom:
        """Return the stream for a draw, and add its state to the fingerprint of the tick."""
        vm = current.vm
        vm.draws = (31 * vm.draws + self.stream.state) & _DRAWS_MASK
        return self.stream

    def contents(self) -> tuple[float, float]:
        """Return the state as two halves, each exact as a Luau number."""
        state = self.stream.state
        return float(state >> 32), float(state & _LOW_HALF)

    def fill(self, *values: Any) -> None:
        """Restore the contents."""
        expect_contents(values, float, float)
        self.stream = PcgRandom(0)
        self.stream.state = int(values[0]) << 32 | int(values[1])


_random = instance_check(Random, "Random")


@checked(Random.constructors, "new", optional(number, None))
def _new(seed: float | None) -> Random:
    if seed is None:
        return Random(current.vm.random.next())
    return Random(int(seed) if math.isfinite(seed) else 0)


@checked(Random.methods, "NextNumber", _random, optional(number, 0.0), optional(number, 1.0))
def _next_number(random: Random, low: float, high: float) -> float:
    return low + (high - low) * random.draw().fraction()


@checked(Random.methods, "NextInteger", _random, number, number)
def _next_integer(random: Random, low: float, high: float) -> float:
    if not (abs(low) <= _MAX_WHOLE and abs(high) <= _MAX_WHOLE):
        raise RuntimeFault("invalid argument to 'NextInteger' (interval is too large)")
    first, last = math.floor(low), math.floor(high)
    if first > last:
        raise RuntimeFault("invalid argument #2 to 'NextInteger' (interval is empty)")
    return float(_between(random.draw(), first, last))


def _between(stream: PcgRandom, first: int, last: int) -> int:
    if last - first <= _LOW_HALF:
        return stream.between(first, last)
    wide = stream.next() << 32 | stream.next()
    return first + (((last - first + 1) * wide) >> 64)


@checked(Random.methods, "NextUnitVector", _random)
def _next_unit_vector(random: Random) -> Vector:
    stream = random.draw()
    height = 2.0 * stream.fraction() - 1.0
    turn = 2.0 * math.pi * stream.fraction()
    radius = math.sqrt(1.0 - height * height)
    return make_vector(radius * math.cos(turn), radius * math.sin(turn), height)


@checked(Random.methods, "Shuffle", _random, table)
def _shuffle(random: Random, values: LuaTable) -> tuple[()]:
    check_writable(values)
    length = int(border(values))
    charge_work(length)
    items = [values.get(float(at)) for at in range(1, length + 1)]
    if None in items:
        raise RuntimeFault("invalid argument #1 to 'Shuffle' (table has holes)")
    stream = random.draw()
    for at in range(length - 1, 0, -1):
        other = stream.between(0, at)
        items[at], items[other] = items[other], items[at]
    for at, item in enumerate(items, 1):
        dict.__setitem__(values, float(at), item)
    return ()


@checked(Random.methods, "Clone", _random)
def _clone(random: Random) -> Random:
    copy = Random(0)
    copy.stream.state = random.stream.state
    return copy
