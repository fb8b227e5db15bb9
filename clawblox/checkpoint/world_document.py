"""The world's document in an archive: it travels as it is, and says its format and time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from clawblox.checkpoint.model import Source
from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.errors import CheckpointError
from clawblox.protocol import DEFAULT_SNAPSHOT_FORMAT
from clawblox.snapshot.checker import Check, CheckerLost
from clawblox.snapshot.header import Header, InvalidDocument

__all__ = ["read_world", "world_source"]


def world_source(path: Path) -> Source:
    """Return the document as a file for the archive."""
    return Source(name=SNAPSHOT_NAME, path=path, open=lambda: _open(path))


def read_world(path: Path) -> dict[str, Any]:
    """Return ``format`` and ``time`` of a document; an opaque one has the format that says so.

    Blocks; a large document is looked through in a process of its own.

    Raises:
        CheckpointError: It cannot be read.
    """
    try:
        header = _read_header(path)
    except (CheckerLost, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(
            f"the world's document cannot be read: {reason}", path=path
        ) from error
    return {"format": header.format or DEFAULT_SNAPSHOT_FORMAT, "time": header.time}


def _read_header(path: Path) -> Header:
    fd = _open(path)
    check = Check()
    try:
        # Nothing can be mapped of an empty file.
        return check.read_header(fd) if os.fstat(fd).st_size else Header()
    except InvalidDocument:
        return Header()
    finally:
        check.close()
        os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
