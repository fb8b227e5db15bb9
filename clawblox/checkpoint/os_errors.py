"""Operating system errors as checkpoint errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from clawblox.errors import CheckpointError


@contextlib.contextmanager
def os_errors_as(message: str, path: Path, *, entry: str | None = None) -> Iterator[None]:
    """Raise a CheckpointError for an OSError of the block.

    Args:
        message: What cannot be done; the reason is appended.
        path: Path of the file in question.
        entry: Its name in the archive.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{message}: {reason}", path=path, entry=entry) from error
