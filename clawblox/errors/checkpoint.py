"""Errors of archives of worlds and agents, and a context manager that wraps OSError."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from clawblox.errors.general import ClawbloxError, shorten
from clawblox.printable import printable_name

if TYPE_CHECKING:
    from pathlib import Path

    from clawblox.results import Finding

_SHOWN_FINDINGS = 20
_ENTRY_CHARS = 60


class CheckpointError(ClawbloxError):
    """A ``.ckpt`` archive cannot be created, or cannot be loaded at its destination.

    Args:
        message: Description of the problem.
        path: The archive, or the file or directory that prevents loading it.
        entry: Name of the member, unchanged from the archive; shown escaped and shortened.
        hint: How to solve the problem.
    """

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        entry: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.entry = entry

    @property
    def subject(self) -> str | None:
        """The archive, or the path that prevents loading it."""
        return printable_name(str(self.path)) if self.path else None

    def details(self) -> list[str]:
        """Return the name of the member."""
        # The name comes from the archive, so it must not reach a terminal unescaped.
        entry = None if self.entry is None else shorten(repr(self.entry), _ENTRY_CHARS)
        return [] if entry is None else [f"entry: {entry}"]


class CheckpointSecretError(CheckpointError):
    """An archive would contain a secret, or a file that cannot be searched for secrets.

    Nothing was written. The error does not contain the secret itself.

    Args:
        message: The refusal.
        findings: The places of the secrets, each with rule, fingerprint and a redacted preview.
        **fields: The fields of :class:`CheckpointError`.
    """

    def __init__(self, message: str, *, findings: Sequence[Finding] = (), **fields: object) -> None:
        super().__init__(message, **fields)  # type: ignore[arg-type]
        self.findings = tuple(findings)

    def details(self) -> list[str]:
        """Return the fields of a checkpoint error and a line for each finding."""
        shown = [str(finding) for finding in self.findings[:_SHOWN_FINDINGS]]
        rest = len(self.findings) - len(shown)
        return [*super().details(), *shown, *([f"and {rest} more"] if rest else [])]


class CheckpointFormatError(CheckpointError, ValueError):
    """A file is not an archive written by clawblox; no part of the file was loaded."""


class CheckpointPathError(CheckpointFormatError):
    """A member's name is not in canonical form, or leads out of the archive's own directories."""


class CheckpointLimitError(CheckpointFormatError):
    """An archive is larger, or has more members, than its reader allows."""


class CheckpointVersionError(CheckpointFormatError):
    """An archive was written by a newer clawblox."""


@contextlib.contextmanager
def os_errors_as(message: str, path: Path, *, entry: str | None = None) -> Iterator[None]:
    """Raise a CheckpointError for an OSError in the block.

    Args:
        message: The operation that failed; the reason is appended.
        path: Path of the file in question.
        entry: Name of the file in the archive.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{message}: {reason}", path=path, entry=entry) from error
