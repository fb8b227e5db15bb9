"""The scores of a generation, merged by name from its lines. Pure.

A line adds its scores to the earlier scores, and replaces scores of the same names. So an error, or
a function that returns other names, never removes an earlier score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

import attrs

from clawblox.foreign_values import finite_number

MAX_SCORE: Final = 1e300
"""Largest allowed score; the smallest is its negative."""

_SHOWN_DIGEST_CHARS: Final = 12


@attrs.frozen(kw_only=True)
class Scores:
    """Scores by name, with the versions of their functions.

    Attributes:
        values: The scores.
        versions: The version of the function that computed each score; empty if it is not recorded.
    """

    values: Mapping[str, float] = attrs.field(factory=dict)
    versions: Mapping[str, str] = attrs.field(factory=dict)

    def merge(self, data: Mapping[str, Any], version: str) -> Self:
        """Return the scores merged with a later line's; values that are not numbers are left out.

        Args:
            data: Data of a line ``scored`` or ``rescored``.
            version: Version of the function; empty if not recorded.
        """
        given = data.get("scores")
        numbers = {
            str(name): number
            for name, value in (given.items() if isinstance(given, Mapping) else ())
            if (number := read_score(value)) is not None
        }
        return attrs.evolve(
            self,
            values={**self.values, **numbers},
            versions={**self.versions, **dict.fromkeys(numbers, version)},
        )


def read_score(value: object) -> float | None:
    """Return a score, or None if the value is not a finite number within the limits."""
    return finite_number(value, low=-MAX_SCORE, high=MAX_SCORE)


def format_version(function: object) -> str:
    """Return the version of a function as text, such as ``scores:points@1f2e3d4c5b6a``.

    Args:
        function: Its name and digest, as in lines of the journal; None if not recorded.
    """
    if not isinstance(function, Mapping):
        return ""
    name, digest = function.get("name"), function.get("digest")
    return f"{name}@{str(digest)[:_SHOWN_DIGEST_CHARS]}" if digest else str(name or "")


def is_same_version(one: str, other: str) -> bool:
    """Return whether two versions have the same source, regardless of the place of import."""
    return one.rpartition("@")[2] == other.rpartition("@")[2]


def is_revision(version: str, before: str) -> bool:
    """Return whether a version has the same function as an earlier one, with another source."""
    name = version.rpartition("@")[0]
    return name != "" and name == before.rpartition("@")[0] and not is_same_version(version, before)
