"""``math.noise``: Perlin's improved noise in 32-bit arithmetic, as the reference computes it.

The permutation is the one of Ken Perlin's "Improving Noise" (2002).
"""

from __future__ import annotations

import math

from clawblox.luau.core.numbers import single

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


def noise(x: float, y: float, z: float) -> float:
    """Return the noise at a point."""
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
