"""The name that a misspelled one was probably meant to be. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LIKENESS: Final = 0.75
"""Share of letters that a misspelling has in common with the intended name."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that ``name`` is most likely a misspelling of, or None.

    All its words must be alike: ``min_players`` is no misspelling of ``max_players``. Two letters
    that changed places are a misspelling however short the name is.

    Args:
        name: The written name.
        known: The names that it may be.
    """
    from difflib import get_close_matches  # few processes need it

    def is_alike(word: str, other: str) -> bool:
        return bool(get_close_matches(word, [other], cutoff=_LIKENESS))

    names = sorted(known)
    for candidate in names:
        if _is_transposed(name, candidate):
            return candidate
    words = name.split("_")
    for candidate in get_close_matches(name, names, cutoff=_LIKENESS):
        others = candidate.split("_")
        if len(words) != len(others) or all(map(is_alike, words, others)):
            return candidate
    return None


def suggest_nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the hint with the nearest known name, as :func:`nearest_name`; None without one."""
    likely = nearest_name(name, known)
    return f"did you mean {likely}?" if likely else None


def _is_transposed(name: str, other: str) -> bool:
    """Return whether two neighbouring letters of ``other`` changed places in ``name``."""
    if len(name) != len(other):
        return False
    differing = [index for index, letter in enumerate(name) if letter != other[index]]
    if len(differing) != 2 or differing[1] != differing[0] + 1:
        return False
    first, second = differing
    return name[first] == other[second] and name[second] == other[first]
