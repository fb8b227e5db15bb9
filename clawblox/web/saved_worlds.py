"""The world documents of saves, read within bounds, and how two of them differ."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from clawblox.checkpoint.archive.reader import Archive, read_member
from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.differences import ABSENT, find_differences
from clawblox.errors import CheckpointError, ClawbloxError
from clawblox.foreign_values import clean_value, parse_document
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import count_words
from clawblox.views.html import Markup, element
from clawblox.views.observations import format_inline
from clawblox.web.files import opened_below
from clawblox.web.pieces import and_more, table
from clawblox.web.workspaces import ARCHIVE_LIMITS

_MAX_BYTES: Final = 8 << 20
_MAX_VALUES: Final = 200_000
_ZIP: Final = b"PK\x03\x04"
_MAX_PATHS: Final = 200
_MAX_OPEN: Final = 40
_MAX_CHARS: Final = 120


def read_world(root: Path, path: Path) -> Any:  # noqa: ANN401 - JSON
    """Return the world document of a snapshot or an archive. Blocks.

    Args:
        root: The directory that it must be in; see :func:`opened_below`.
        path: The file.

    Raises:
        OSError: It is not below the root, or cannot be read.
        CheckpointError: The archive is not sound; or there is no document, it is not JSON, or it
            is too large to be shown.
    """
    with opened_below(root, path) as fd:
        data = b"".join(_read(fd, path))
    try:
        return clean_value(parse_document(data, max_members=_MAX_VALUES))
    except ValueError as error:
        raise CheckpointError(f"no JSON document of a world: {error}", path=path) from error


def _read(fd: int, path: Path) -> Iterator[bytes]:
    if os.pread(fd, len(_ZIP), 0) != _ZIP:
        _check_size(path, os.fstat(fd).st_size)
        yield os.pread(fd, _MAX_BYTES, 0)
        return
    archive = Archive(fd, path, ARCHIVE_LIMITS)
    for entry in archive.entries:
        if entry.name == SNAPSHOT_NAME:
            _check_size(path, entry.size)
            yield from read_member(fd, path, archive.member(entry))
            return
    raise CheckpointError("it has no snapshot of a world", path=path)


def _check_size(path: Path, size: int) -> None:
    if size > _MAX_BYTES:
        size_words = f"{format_bytes(size)}, more than {format_bytes(_MAX_BYTES)}"
        raise CheckpointError(f"the world document is too large to show: {size_words}", path=path)


def draw_documents(
    root: Path, before: Path, after: Path, names: tuple[str, str] = ("Before", "After")
) -> Markup:
    """Return where the world documents of two saves differ, or why that is not known. Blocks.

    Args:
        root: The directory that they must be in; see :func:`opened_below`.
        before: The first one.
        after: The second one.
        names: What the columns of both are called.
    """
    values = []
    for path in (before, after):
        try:
            values.append(read_world(root, path))
        except (OSError, CheckpointError) as error:
            return element("p", explain(error, path), class_="muted")
    return draw_differences(values[0], values[1], names)


def draw_differences(before: Any, after: Any, names: tuple[str, str]) -> Markup:  # noqa: ANN401
    """Return where two values differ, as a table of paths with the name of each value."""
    found = find_differences(before, after)
    if not found:
        return element("p", "The world documents are equal.", class_="muted")
    rows = [
        (one.path or "all of it", _show(one.before), _show(one.after)) for one in found[:_MAX_PATHS]
    ]
    return element(
        "details",
        element("summary", f"The world documents differ in {count_words(len(found), 'path')}."),
        table("Paths that differ", ("Path", *names), rows),
        and_more(len(found) - len(rows)),
        open="" if len(rows) <= _MAX_OPEN else None,
    )


def _show(value: Any) -> str:  # noqa: ANN401 - JSON
    return "—" if value is ABSENT else format_inline(value, max_chars=_MAX_CHARS)


def explain(error: Exception, path: Path) -> str:
    """Return why a file cannot be shown, in a line."""
    if isinstance(error, FileNotFoundError):
        return f"{path.name} is gone."
    if isinstance(error, ClawbloxError):
        return f"{path.name}: {error.message}."
    return f"{path.name} {error.strerror if isinstance(error, OSError) else error}."
