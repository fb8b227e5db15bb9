"""Grapheme clusters: sequences of code points that readers perceive as one character.

These are the extended grapheme clusters of Unicode Standard Annex #29, without the rule for Indic
conjuncts (GB9c). The classes come from the Unicode Character Database 17.0 (Unicode License v3)
instead of `unicodedata`, which depends on the version of Python, because scripts must get the same
clusters everywhere.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache

_FIRST_SYLLABLE, _LAST_SYLLABLE = 0xAC00, 0xD7A3  # of Hangul
_FINALS = 28  # endings of Hangul syllables, including none
_HANGUL = {"LL", "LV", "LY", "LZ", "YV", "YT", "VV", "VT", "ZT", "TT"}
_CARRIAGE_RETURN, _LINE_FEED = 13, 10


class Cluster:
    """Reads the code points of a cluster.

    Classes are letters: C for controls, E for extending marks, J for the zero-width joiner, S for
    spacing marks, P for prefixes, R for regional indicators, X for pictographs; L, V and T for the
    parts of Hangul syllables, Y and Z for syllables without and with an ending; O for all others.
    """

    def __init__(self) -> None:
        self._last = ""
        self._is_flag = False  # the last is the first of two regional indicators
        self._picture = (
            ""  # X after a pictograph and its marks, J after a joiner that follows these
        )

    def takes(self, code: int) -> bool:
        """Add a code point if it belongs to the cluster; return whether it does."""
        kind = _kind(code)
        if self._last and not self._joins(kind, code):
            return False
        self._is_flag = kind == "R" and not self._is_flag
        if kind == "X" or (kind == "J" and self._picture == "X"):
            self._picture = kind
        elif kind != "E" or self._picture != "X":
            self._picture = ""
        self._last = "return" if code == _CARRIAGE_RETURN else kind
        return True

    def _joins(self, kind: str, code: int) -> bool:
        last = self._last
        if kind == "C" or last in ("C", "return"):
            return last == "return" and code == _LINE_FEED
        return (
            kind in "EJS"
            or last == "P"
            or last + kind in _HANGUL
            or (kind == "X" and self._picture == "J")
            or (kind == "R" and self._is_flag)
        )


def _kind(code: int) -> str:
    if _FIRST_SYLLABLE <= code <= _LAST_SYLLABLE:
        return "Z" if (code - _FIRST_SYLLABLE) % _FINALS else "Y"
    starts, kinds = _table()
    return kinds[bisect_right(starts, code) - 1]


@cache
def _table() -> tuple[list[int], list[str]]:
    """Return the first code points of the ranges, and their classes."""
    starts, kinds, end = [0], ["O"], 0
    for gap, kind, more in re.findall(r"([0-9a-f]+)([A-Z])([0-9a-f]*)", _RANGES):
        start = end + int(gap, 16)
        end = start + 1 + int(more or "0", 16)
        starts += (start, end)
        kinds += (kind, "O")
    return starts, kinds


_RANGES = """
0C1f 5fC20 9X 3C 0X 251E6f 113E6 107E2c 1E 1E1 1E1 1E2 36P5 aEa 1C 2eE14 10E 65E6 0P 1E5 2E1 1E3
21P 1E 1eE1a 5bEa 3aE8 9E 18E3 1E8 1E2 1E4 2bE2 34P1 5E8 2aE17 0P 0E1f 0S 36E 0S 0E 1S2 0E7 0S3 0E
0S1 1E6 aE1 1dE 0S1 38E 1E 0S1 0E3 2S1 2S1 0E 9E aE1 1aE 2E1 0S 38E 1S2 0E1 4E1 2E2 3E 1eE1 3E bE1
0S 38E 1S2 0E4 1E1 0S 1S1 0E 14E1 16E5 1E 0S1 38E 1E1 0S 0E3 2S1 2S1 0E 5E4 aE1 1eE 3bE 0S 0E 0S1
3S2 1S2 0E 9E 28E 0S2 0E 37E 1E2 0S3 1E2 1E3 7E1 bE1 1dE 0S1 38E 1S 0E1 0S 0E 0S1 1E2 1E3 7E1 bE1
fS cE1 0S1 37E1 1E 0S1 0E3 1S2 1S2 0E 0P 8E aE1 1dE 0S1 46E 4E 0S1 0E2 1E 1S6 0E 12S1 3dE 1S 0E6
cE7 62E 1S 0E8 bE6 49E1 1bE 1E 1E 4S1 31Ed 0S 0E4 1E1 5Ea 1E23 9E 66E3 0S 0E5 1E1 0S1 0E1 17S1 0E1
4E2 10E3 dE 1S 0E1 6E fE 62L5f 0V47 0T57 15dE2 3b2E3 1cE2 1dE1 1eE1 40E1 0S 0E6 0S7 0E 0S1 0Ea 9E
2dE2 0C 0E 75E1 22E 76E2 0S3 0E1 0S2 4S1 0E 0S5 0E2 dbE1 0S1 0E 39S 0E 0S 0E6 1E 1E 2E7 0S5 0E9 2E
30E40 fE3 0S 2fE9 0S3 0E2 26E8 cE1 0S 1eS 0E3 0S1 0E5 38E 0S 0E1 0S2 0E 0S 0E4 30S7 0E7 0S1 0E1
98E2 1Ec 0S 0E6 4E 6E 2S 0E1 c6E3f 20bC 0E 0J 0C1 18C6 dX cX 16Cf 60E20 31X 16X 5aX5 fX1 16fX1 cX
a6X 19Xa 4X2 c7X e7X1 aX 9X 3aX3 1X4 9X 2X 2X1 2X 4X 2X 1X1 2X 3X 3X1 8X2 5X 1X 5Xb bX1 2X 1X1 1X
12X 2X1 12X5 1X 1X1 3X1 5X 2X1 4X1 bX1 5X1 2X 5X1 1X 1X1 14X1 5X5 1X3 2X 4X 2X 2X5 1X 2X 1X 1X 6X
3X 6X aX1 fX 2X 4X 1X 4X2 1X bX1 30X2 9X eX eX 174X1 1cfX2 13X1 33X 4X 199E2 8dE 60E1f 22aE5 0X cX
5bE1 1fcX 1X 73d5E3 1E9 20E1 50E1 110E 3E 4E 17S1 0E1 0S 4E 53S1 32Sf 0E1 1aE11 dE 26E7 19Ea 0S 0E
cL1c 3E2 0S 2fE 0S1 0E3 0S1 0E1 0S1 0E 24E 43E5 0S1 0E1 0S1 0E1 cE 8E 0S 2eE 33E 1E2 2E1 5E1 1E
29S 0E1 0S1 5S 0E ecS1 0E 0S1 0E 0S1 1S 0E 2bc2V16 4T30 4C7ff 1b1eE 2e1Ef 10Ef cfC 9eE1 50Cb 201E
e2E 95E4 686E2 1E1 5E3 28E2 4E a5E1 23dE3 41E4 13dE1 1eE4 20Ef 46Ea 31E3 7aS 0E 0S 35Ee 29E 2E1
aE2 0S 2dS2 0E3 0S1 0E1 2P 4E aP 32E2 24E4 0S 0E7 10S1 2cE cE1 0S 30S2 0E8 0S 0E 1P1 5E3 1S 0E
5cS2 0E2 0S1 0E3 6E 2E 9dE 0S2 0E7 15E1 0S1 37E1 1E 0S 0E 0S3 2S1 2S1 0E 9E aS1 2E6 3E4 43E 0S1
0E5 1E 2E 1E2 0S 1S1 0E2 0P 0E eE1 52S2 0E7 0S1 0E2 0S 0E 17E 51E 0S1 0E5 0S 0E 0S1 0E 0S 0E1 0S
0E1 ebE 0S1 0E3 2S3 0E1 0S 0E1 1bE1 52S2 0E7 0S1 0E 0S 0E1 6aE 0S 0E 0S1 0E7 65E 0S 0E 2E3 0S 0E4
100S2 0E8 0S 0E1 f5E 0S4 1S1 2E3 0P 0S 0P 0S 0E 8dS2 0E3 2E1 0S3 0E 3S 1cE9 28E5 0S 1E3 8E 9E5 0S1
0E2 28P5 0Ec 0S 0E1 c6E 0S 0E2 0S 0E 0S c7S 0E6 1E5 0S 0E 52E15 1S 0E6 0S 0E1 0S 0E1 7aE5 3E 1E1
1E6 0P 0E 42S4 1E1 1S1 0E 0S 0E 58E 102E1 0S1 9E1 0P 0S 30S1 0E4 3S1 0E2 17E 14d5Cf 0E 6Ee 2cc8Eb
0S2 0E2 9c0E4 3bE6 22cV 3V3 1e4E 1S36 7E3 51E bE1 4cabE1 1C3 125cE2d 2E16 1e0E1 3cE4 3E5 0C7 0E7
2E6 1eE3 94E2 bE2 8E1 2E 20E1 77eE36 4E31 8E eE 16E4 1Ee 550E6 1E10 2E6 1E1 1E4 64E a0E6 177E 3dE3
1fcE3 feE1 f3E 2E 7E1 5E 1daE6 6dE6 6b9X 27X3 64Xb fX1 fX eX1 25X9 70X1 cX1 eX 2X9 14X36 0R19 1Xe
aX 14X 2X8 1X3 9X16 6Xbb 2X6f 2X1 1X2 2X52 2X2 1X3 0E4 0Xfd 1X3e bX5 1X17 7X1 2X7 cX 2X3 2X 4X1
dX1 2X 8X1 9X 5X2 cX2 8X2 2X 1X 4X 6X 3X 6X55 30X45 5X7 2X10 3X 1X5 2Xc dcX14 1bX3 38X7 aX5 28X7
1eX1 cX3 2Xd 9X26 cX2e 1X9 1Xb8 58X7 eX91 100X3fd c0002C1f 0E5f 0C7f 0Eef 0Ce0f
"""
"""Each range: its distance from the end of the previous range, its class, and the number of code
points after its first, with hexadecimal numbers."""
