"""Errors of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clawblox.errors.general import VALUE_CHARS, ClawbloxError, shorten

if TYPE_CHECKING:
    from clawblox.results import PlanChange


class PlanChangedError(ClawbloxError):
    """A plan differs from the plan with which its experiment was begun.

    Args:
        message: What differs, and how many fields.
        changes: The changed fields.
        hint: How to solve the problem.
    """

    exit_code = 2

    def __init__(
        self, message: str, *, changes: Sequence[PlanChange] = (), hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.changes = tuple(changes)

    def details(self) -> list[str]:
        """Name each field with its old and its new value, and the ways to continue."""
        return [
            *(f"{change.field}: {_describe(change)}" for change in self.changes),
            *_list_ways(self.changes),
        ]


class JournalLostError(ClawbloxError, OSError):
    """Another program has changed the journal of an experiment while the experiment ran.

    Args:
        message: What was changed.
        journal: The journal.
        kept: The file with the history of the session; None if it could not be written.
        hint: How to continue.
    """

    def __init__(
        self,
        message: str,
        *,
        journal: Path | None = None,
        kept: Path | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.journal = journal
        self.kept = kept

    def details(self) -> list[str]:
        """Name the journal, and the file with the history of the session."""
        return [
            *([f"journal: {self.journal}"] if self.journal else []),
            *([f"kept: {self.kept}"] if self.kept else []),
        ]


def _join_words(words: Sequence[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _describe(change: PlanChange) -> str:
    old, new = (_show(value) for value in (change.old, change.new))
    return f"was {old}, is {new}"


def _show(value: object) -> str:
    return "not set" if value is None else shorten(repr(value), VALUE_CHARS)


def _list_ways(changes: Sequence[PlanChange]) -> list[str]:
    amended = dict.fromkeys(c.accept_as for c in changes if c.kind == "amendment")
    never = [change.field for change in changes if change.kind == "never"]
    accept = " ".join(f"--accept {name}" for name in amended)
    return [
        *([f"accept for later generations: {accept}"] if amended else []),
        *(
            [f"to change {_join_words(never)}: begin another experiment (--name NEW), or fork"]
            if never
            else []
        ),
    ]
