"""The random stream of ``math.random``: PCG32, as in the reference."""

from __future__ import annotations

_MULTIPLIER = 6364136223846793005
_INCREMENT = 105
_MASK = 2**64 - 1
DEFAULT_SEED = 0


class PcgRandom:
    """A PCG32 generator; ``state`` is its whole state."""

    def __init__(self, seed: int) -> None:
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start the stream from a seed."""
        self.state = 0
        self.next()
        self.state = (self.state + seed) & _MASK
        self.next()

    def next(self) -> int:
        """Return the next 32 bits."""
        old = self.state
        self.state = (old * _MULTIPLIER + _INCREMENT) & _MASK
        shifted = (((old >> 18) ^ old) >> 27) & 0xFFFFFFFF
        turn = old >> 59
        return ((shifted >> turn) | (shifted << (-turn & 31))) & 0xFFFFFFFF

    def fraction(self) -> float:
        """Return a number that is at least 0 and less than 1."""
        low = self.next()
        return float(low | (self.next() << 32)) * 2.0**-64

    def between(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``, inclusive."""
        return low + (((high - low + 1) * self.next()) >> 32)
