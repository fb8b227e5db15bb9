"""The order in which the reference iterates over the string keys of a table literal.

Scripts written for the reference may depend on it. It follows from the reference's hash table:
`string_hash` is its string hash (Lua 5.1's for short strings), and new keys go to their main
position or to the last free node, as in Lua 5.1's ``ltable.c``.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_LONG = 32
_BLOCK = 12


def string_hash(text: str) -> int:
    """Return the reference's hash of a string."""
    data = text.encode("latin-1")
    a = b = 0
    value = len(data)
    while len(data) >= _LONG:
        block = [int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8)]
        a, b, value = (a + block[0]) & _MASK, (b + block[1]) & _MASK, (value + block[2]) & _MASK
        a = ((a ^ value) - _turn(value, 14)) & _MASK
        b = ((b ^ a) - _turn(a, 11)) & _MASK
        value = ((value ^ b) - _turn(b, 25)) & _MASK
        data = data[_BLOCK:]
    for byte in reversed(data):
        value ^= ((value << 5) + (value >> 2) + byte) & _MASK
    return value


def _turn(value: int, by: int) -> int:
    return (value >> by | value << (32 - by)) & _MASK


def literal_order(keys: list[str]) -> list[str]:
    """Return different keys, inserted in this order into a new table, in iteration order."""
    size = 1
    while size < len(keys):
        size *= 2
    nodes: list[str | None] = [None] * size
    free = size
    for key in keys:
        home = string_hash(key) & (size - 1)
        occupant = nodes[home]
        if occupant is not None:
            while nodes[free := free - 1] is not None:
                pass
            if string_hash(occupant) & (size - 1) == home:
                nodes[free] = key
                continue
            nodes[free] = occupant
        nodes[home] = key
    return [key for key in nodes if key is not None]
