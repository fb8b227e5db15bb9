"""The exceptions of the engine, and text at its edges.

Exception
├── WorldHalted      an uncaught error of a script; the world has stopped
├── SettingsError    the world's files are unusable
└── SnapshotMismatch a snapshot that this world cannot continue
"""

from __future__ import annotations


class WorldHalted(Exception):  # noqa: N818 - says the condition
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
    """A ``world.toml`` or a script tree that the engine cannot use; the message says what to do."""


class SnapshotMismatch(ValueError):  # noqa: N818 - says the condition
    """A snapshot that this world cannot continue; the message says why."""


def to_luau_text(text: str) -> str:
    """Return text as a Luau string: one character for each byte of its UTF-8 form."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")


def to_text(value: str) -> str:
    """Return a Luau string as text; bytes that are not UTF-8 become replacement characters."""
    return value.encode("latin-1").decode("utf-8", "replace")
