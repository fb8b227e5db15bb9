"""The ``math`` library."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from clawblox.luau.core.errors import RuntimeFault
from clawblox.luau.core.iteration import charge_work
from clawblox.luau.core.machine import current
from clawblox.luau.core.numbers import divide, raise_to, rounding, single
from clawblox.luau.lib.support import arguments as arg
from clawblox.luau.lib.support.registry import install

_NOISE_STEPS = 16
CONSTANTS: dict[str, Any] = {
    "math.pi": math.pi,
    "math.huge": math.inf,
    "math.nan": math.nan,
    "math.e": math.e,
    "math.tau": math.tau,
    "math.phi": (1 + math.sqrt(5)) / 2,
    "math.sqrt2": math.sqrt(2),
}


def _add_unary(name: str, compute: Callable[[float], Any]) -> None:
    """Register a function of one number."""

    def apply(*args: Any) -> Any:
        value = args[0] if args and args[0].__class__ is float else arg.number(args, 0, name)
        return compute(value)

    install(f"math.{name}", apply)


def _add_guarded(name: str, compute: Callable[[float], float], at_overflow: float) -> None:
    """Register a function of one number, with C's results where Python raises errors."""

    def apply(*args: Any) -> float:
        value = args[0] if args and args[0].__class__ is float else arg.number(args, 0, name)
        try:
            return float(compute(value))
        except ValueError:
            return math.nan
        except OverflowError:
            return math.copysign(at_overflow, value) if at_overflow < 0 else at_overflow

    install(f"math.{name}", apply)


def _add_binary(name: str, compute: Callable[[float, float], float]) -> None:
    """Register a function of two numbers."""

    def apply(*args: Any) -> float:
        return compute(arg.number(args, 0, name), arg.number(args, 1, name))

    install(f"math.{name}", apply)


def _add_choice(name: str, choose: Callable[[Iterable[float]], float]) -> None:
    """Register a function that returns one of its arguments."""

    def apply(*args: Any) -> float:
        if len(args) > arg.FEW:
            arg.charge(args)
        for value in args or (None,):
            if value.__class__ is not float:
                return choose(arg.numbers(args, name, max(len(args), 1)))
        return choose(args)

    install(f"math.{name}", apply)


def _logarithm(value: float) -> float:
    return -math.inf if value == 0 else math.log(value)


def _round(value: float) -> float:
    whole = math.floor(abs(value))
    return whole + (abs(value) - whole >= 0.5)


def _frexp(value: float) -> tuple[float, float]:
    mantissa, exponent = math.frexp(value)
    return mantissa, float(exponent)


def _fmod(left: float, right: float) -> float:
    try:
        return math.fmod(left, right)
    except ValueError:
        return math.nan


_OVERFLOWS = {"sinh": -math.inf, "cosh": math.inf, "exp": math.inf}
for _name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "sqrt"):
    _add_guarded(_name, getattr(math, _name), _OVERFLOWS.get(_name, math.nan))
_add_guarded("log10", lambda value: -math.inf if value == 0 else math.log10(value), math.inf)
_add_unary("abs", abs)
_add_unary("ceil", rounding(math.ceil))
_add_unary("deg", lambda value: value / (math.pi / 180.0))
_add_unary("floor", rounding(math.floor))
_add_unary("frexp", _frexp)
_add_unary("isfinite", math.isfinite)
_add_unary("isinf", math.isinf)
_add_unary("isnan", math.isnan)
_add_unary("modf", lambda value: math.modf(value)[::-1])
_add_unary("rad", lambda value: value * (math.pi / 180.0))
_add_unary("round", rounding(_round))
_add_unary("sign", lambda value: float((value > 0) - (value < 0)))
_add_binary("atan2", math.atan2)
_add_binary("fmod", _fmod)
_add_binary("pow", raise_to)
_add_choice("max", max)
_add_choice("min", min)


def log(*args: Any) -> float:
    """Return a logarithm, natural or to a base.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    value = arg.number(args, 0, "log")
    if len(args) < 2 or args[1] is None:
        return math.nan if value < 0 else _logarithm(value)
    base = arg.number(args, 1, "log")
    if value < 0 or base < 0:
        return math.nan
    if value > 0 and base == 2.0:
        return math.log2(value)
    if value > 0 and base == 10.0:
        return math.log10(value)
    return divide(_logarithm(value), _logarithm(base))


def ldexp(*args: Any) -> float:
    """Return ``x * 2 ^ exponent``.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    value = arg.number(args, 0, "ldexp")
    try:
        return math.ldexp(value, max(-5000, min(5000, arg.integer(args, 1, "ldexp"))))
    except OverflowError:
        return math.copysign(math.inf, value)


def clamp(*args: Any) -> float:
    """Return a number clamped to bounds.

    Raises:
        RuntimeFault: An argument is not a number, or the bounds are in the wrong order.
    """
    value, low, high = arg.numbers(args, "clamp", 3)
    if not low <= high:
        arg.wrong(2, "clamp", "max must be greater than or equal to min")
    return low if value < low else high if value > high else value


def lerp(*args: Any) -> float:
    """Return a linear interpolation between two numbers; exactly the second if t is 1.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    low, high, t = arg.numbers(args, "lerp", 3)
    return high if t == 1.0 else low + (high - low) * t


def map_(*args: Any) -> float:
    """Return a number mapped from one range to another.

    Raises:
        RuntimeFault: An argument is not a number.
    """
    x, in_low, in_high, out_low, out_high = arg.numbers(args, "map", 5)
    return out_low + divide((x - in_low) * (out_high - out_low), in_high - in_low)


def noise(*args: Any) -> float:
    """Return Perlin noise.

    Raises:
        RuntimeFault: An argument is missing or of the wrong type.
    """
    charge_work(_NOISE_STEPS)
    return _perlin(
        arg.number(args, 0, "noise"),
        arg.optional_number(args, 1, "noise", 0.0),
        arg.optional_number(args, 2, "noise", 0.0),
    )


def _int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def random(*args: Any) -> float:
    """Return a random fraction, or a random integer up to or between bounds.

    Trailing nil bounds count as absent.

    Raises:
        RuntimeFault: A bound is not a number, the bounds are in the wrong order, or there are more
            than two.
    """
    generator = current.vm.random
    given = len(args)
    while given and args[given - 1] is None:
        given -= 1
    if not given:
        return generator.fraction()
    if given > 2:
        raise RuntimeFault("wrong number of arguments")
    bounds = [_int32(arg.integer(args, at, "random")) for at in range(given)]
    low, high = bounds if given == 2 else (1, *bounds)
    if low > high:
        arg.wrong(given - 1, "random", "interval is empty")
    if high - low >= 2**32 - 1:
        arg.wrong(given - 1, "random", "interval is too large")
    return float(generator.between(low, high))


def randomseed(*args: Any) -> tuple[()]:
    """Start the random stream from a seed.

    Raises:
        RuntimeFault: The argument is not a number.
    """
    current.vm.random.seed(_int32(arg.integer(args, 0, "randomseed")))
    return ()


_PERMUTATION = (
    151, 160, 137, 91, 90, 15, 131, 13, 201, 95, 96, 53, 194, 233, 7, 225, 140, 36, 103, 30, 69,
    142, 8, 99, 37, 240, 21, 10, 23, 190, 6, 148, 247, 120, 234, 75, 0, 26, 197, 62, 94, 252, 219,
    203, 117, 35, 11, 32, 57, 177, 33, 88, 237, 149, 56, 87, 174, 20, 125, 136, 171, 168, 68, 175,
    74, 165, 71, 134, 139, 48, 27, 166, 77, 146, 158, 231, 83, 111, 229, 122, 60, 211, 133, 230,
    220, 105, 92, 41, 55, 46, 245, 40, 244, 102, 143, 54, 65, 25, 63, 161, 1, 216, 80, 73, 209, 76,
    132, 187, 208, 89, 18, 169, 200, 196, 135, 130, 116, 188, 159, 86, 164, 100, 109, 198, 173,
    186, 3, 64, 52, 217, 226, 250, 124, 123, 5, 202, 38, 147, 118, 126, 255, 82, 85, 212, 207, 206,
    59, 227, 47, 16, 58, 17, 182, 189, 28, 42, 223, 183, 170, 213, 119, 248, 152, 2, 44, 154, 163,
    70, 221, 153, 101, 155, 167, 43, 172, 9, 129, 22, 39, 253, 19, 98, 108, 110, 79, 113, 224, 232,
    178, 185, 112, 104, 218, 246, 97, 228, 251, 34, 242, 193, 238, 210, 144, 12, 191, 179, 162, 241,
    81, 51, 145, 235, 249, 14, 239, 107, 49, 192, 214, 31, 181, 199, 106, 157, 184, 84, 204, 176,
    115, 121, 50, 45, 127, 4, 150, 254, 138, 236, 205, 93, 222, 114, 67, 29, 24, 72, 243, 141, 128,
    195, 78, 66, 215, 61, 156, 180, 151,
)  # fmt: skip
_GRADIENTS = (
    (1, 1, 0), (-1, 1, 0), (1, -1, 0), (-1, -1, 0), (1, 0, 1), (-1, 0, 1), (1, 0, -1), (-1, 0, -1),
    (0, 1, 1), (0, -1, 1), (0, 1, -1), (0, -1, -1), (1, 1, 0), (0, -1, 1), (-1, 1, 0), (0, -1, -1),
)  # fmt: skip


def _fade(t: float) -> float:
    inner = single(single(t * single(single(t * 6.0) - 15.0)) + 10.0)
    return single(single(single(t * t) * t) * inner)


def _lerp(t: float, a: float, b: float) -> float:
    return single(a + single(t * single(b - a)))


def _gradient(code: int, x: float, y: float, z: float) -> float:
    g = _GRADIENTS[code & 15]
    return single(single(single(g[0] * x) + single(g[1] * y)) + single(g[2] * z))


def _split(value: float) -> tuple[int, float]:
    if value != value or math.isinf(value):
        return 0, math.nan
    whole = math.floor(value)
    return whole & 255, single(value - whole)


def _perlin(x: float, y: float, z: float) -> float:
    """Return Perlin's improved noise in 32-bit arithmetic, as in the reference."""
    xi, xf = _split(single(x))
    yi, yf = _split(single(y))
    zi, zf = _split(single(z))
    u, v, w = _fade(xf), _fade(yf), _fade(zf)
    p = _PERMUTATION
    a, b = (p[xi] + yi) & 255, (p[xi + 1] + yi) & 255
    aa, ab = (p[a] + zi) & 255, (p[a + 1] + zi) & 255
    ba, bb = (p[b] + zi) & 255, (p[b + 1] + zi) & 255
    x1, y1, z1 = single(xf - 1.0), single(yf - 1.0), single(zf - 1.0)
    low_a = _lerp(u, _gradient(p[aa], xf, yf, zf), _gradient(p[ba], x1, yf, zf))
    low_b = _lerp(u, _gradient(p[ab], xf, y1, zf), _gradient(p[bb], x1, y1, zf))
    high_a = _lerp(u, _gradient(p[aa + 1], xf, yf, z1), _gradient(p[ba + 1], x1, yf, z1))
    high_b = _lerp(u, _gradient(p[ab + 1], xf, y1, z1), _gradient(p[bb + 1], x1, y1, z1))
    return _lerp(w, _lerp(v, low_a, low_b), _lerp(v, high_a, high_b))
