"""``checkpoint.json``, the file that names the latest archive for resuming a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import publish_changed
from clawblox.system.regular_files import read_regular

CHECKPOINTS_DIR: Final = "checkpoints"
"""Directory of a run's archives, and of an instance's saves."""
POINTER_NAME: Final = "checkpoint.json"
_MAX_BYTES: Final = 1 << 20


def write_pointer(
    pointer: Path,
    archive: Path,
    facts: Mapping[str, Any],
    *,
    written_at: str | None = None,
    is_absolute: bool = False,
) -> None:
    """Record a complete archive as the latest. Blocks.

    At every moment the file names either the previous archive or this one. It is not written if it
    has this content already.

    Args:
        pointer: The file.
        archive: The archive, absolute.
        facts: Further members of the file.
        written_at: UTC time of the archive, ``2026-06-22T18:59:25Z``; None for the present time.
        is_absolute: Whether to name the archive by its absolute path, as the public generation
            scripts do. Otherwise an archive in the file's directory or below is named by a
            relative path, so that both can be moved together.

    Raises:
        OSError: The file cannot be written.
    """
    directory = pointer.parent
    is_below = archive.is_relative_to(directory) and not is_absolute
    name = archive.relative_to(directory) if is_below else archive
    stamp = written_at or format_utc(utc_now())
    content = {**facts, "checkpoint": str(name), "written_at": stamp}
    data = json.dumps(content, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"
    publish_changed(pointer, data)


def read_pointer(directory: Path) -> Path | None:
    """Return the archive named by the pointer in a directory; None without a pointer. Blocks."""
    try:
        pointer = json.loads(read_regular(directory / POINTER_NAME, max_bytes=_MAX_BYTES))
        return directory / str(pointer["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
