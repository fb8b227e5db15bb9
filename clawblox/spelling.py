"""Finds the intended name for a misspelled name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_LIKENESS: Final = 0.75
"""Minimum share of letters that a misspelling has in common with the intended name."""


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which ``name`` is most likely a misspelling, or None.

    All words must be similar: ``min_players`` is not a misspelling of ``max_players``. Two swapped
    letters are a misspelling even in a short name.

    Args:
        name: The written name.
        known: The candidates.
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
    """Return a hint with the result of :func:`nearest_name`, or None."""
    likely = nearest_name(name, known)
    return f"did you mean {likely}?" if likely else None


def _is_transposed(name: str, other: str) -> bool:
    """Return whether ``name`` is ``other`` with two neighbouring letters swapped."""
    if len(name) != len(other):
        return False
    differing = [index for index, letter in enumerate(name) if letter != other[index]]
    if len(differing) != 2 or differing[1] != differing[0] + 1:
        return False
    first, second = differing
    return name[first] == other[second] and name[second] == other[first]
