"""The exceptions of the engine, conversion of text, and suggestions for unknown names.

clawblox.server.Halted
└── WorldHalted      an uncaught error of a script; the world has stopped
ValueError
├── SettingsError    the world's files are unusable
└── SnapshotMismatch this world cannot continue from the snapshot
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

from clawblox.luau.core.iteration import charge_work
from clawblox.server import Halted


class WorldHalted(Halted):
    """An uncaught error of a script has stopped the world. No ``pcall`` catches it.

    Attributes:
        where: What the engine was doing, for example ``Touch event``.
        reason: The error of the script.
        traceback: The Luau stack, newest call first; empty if unknown.
    """

    def __init__(self, where: str, reason: str, traceback: str = "") -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason
        self.traceback = traceback


class SettingsError(ValueError):
    """A ``world.toml`` or a script tree that cannot be used; the message explains how to fix it."""


class SnapshotMismatch(ValueError):  # noqa: N818 - names the condition
    """This world cannot continue from the snapshot; the message states why."""


def to_luau_text(text: str) -> str:
    """Return text as a Luau string: one character for each byte of its UTF-8 form."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def to_text(value: str) -> str:
    """Return a Luau string as text; bytes that are not UTF-8 become replacement characters."""
    return value.encode("latin-1").decode("utf-8", "replace")


_STEPS_PER_NAME: Final = 8
_LONGEST: Final = 64
"""Maximum length of the names that are compared, in bytes."""


def suggest(name: Any, names: Iterable[str]) -> str:
    """Return a hint for a message about an unknown name; empty if no name is similar.

    Args:
        name: The name in the script, of any type.
        names: The existing names.

    Raises:
        LuaError: The scripts have used up the steps of this tick.
    """
    if name.__class__ is not str or len(name) > _LONGEST:
        return ""
    candidates = sorted(names)
    charge_work(len(candidates) * _STEPS_PER_NAME)
    folded = name.lower()
    same = [candidate for candidate in candidates if candidate.lower() == folded]
    likely = same or get_close_matches(name, candidates, n=1)
    return f"; did you mean '{likely[0]}'?" if likely else ""
