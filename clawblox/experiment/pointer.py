"""``checkpoint.json``, the file that names the latest archive for resuming a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import publish_bytes
from clawblox.system.regular_files import read_regular

POINTER_NAME: Final = "checkpoint.json"
_MAX_BYTES: Final = 1 << 20


def write_pointer(pointer: Path, archive: Path, facts: Mapping[str, Any]) -> None:
    """Record a complete archive as the latest. Blocks.

    At every moment the file names either the previous archive or this one. An archive in the file's
    directory or below is named by a relative path, so that both can be moved together.

    Args:
        pointer: The file.
        archive: The archive, absolute.
        facts: Further members of the file.

    Raises:
        OSError: The file cannot be written.
    """
    directory = pointer.parent
    name = archive.relative_to(directory) if archive.is_relative_to(directory) else archive
    content = {**facts, "checkpoint": str(name), "written_at": format_utc(utc_now())}
    publish_bytes(
        pointer, json.dumps(content, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"
    )


def read_pointer(directory: Path) -> Path | None:
    """Return the archive named by the pointer in a directory; None without a pointer. Blocks."""
    try:
        pointer = json.loads(read_regular(directory / POINTER_NAME, max_bytes=_MAX_BYTES))
        return directory / str(pointer["checkpoint"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
