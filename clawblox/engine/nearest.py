"""Names that a script may have meant by one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

from clawblox.luau.core.iteration import charge_work

_STEPS_PER_NAME: Final = 8
_LONGEST: Final = 64
"""No name of the engine is as long, in bytes."""


def suggest(name: Any, names: Iterable[str]) -> str:
    """Return the end of a message about an unknown name; empty if none of the names is like it.

    Args:
        name: What the script wrote, of any type.
        names: The names that exist.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
    """
    if name.__class__ is not str or len(name) > _LONGEST:
        return ""
    known = sorted(names)
    charge_work(len(known) * _STEPS_PER_NAME)
    folded = name.lower()
    same = [each for each in known if each.lower() == folded]
    likely = same or get_close_matches(name, known, n=1)
    return f"; did you mean '{likely[0]}'?" if likely else ""
