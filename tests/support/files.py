"""Contents of files in a directory, facts that a change alters, and a log with a hole."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

Facts: TypeAlias = tuple[int, int, str]
"""Mode and time of the last change of a file, and the digest of its content."""


def read_all(place: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the content of each file below a directory, including files in archives."""
    for path in place.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    yield from ((path / name, archive.read(name)) for name in archive.namelist())


def look_at(place: Path) -> dict[Path, Facts]:
    """Return the facts of a file, or of a directory and its content, without following links."""
    return {path: _describe(path) for path in (place, *place.rglob("*"))}


def _describe(path: Path) -> Facts:
    status = path.lstat()
    content = b""
    if stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
    elif stat.S_ISLNK(status.st_mode):
        content = os.fsencode(path.readlink())
    return status.st_mode, status.st_mtime_ns, hashlib.sha256(content).hexdigest()


def write_hole(log: Path) -> int:
    """Write a log whose first line is followed by a terabyte that is not on disk.

    Returns:
        Offset of the end of the hole, where the end of the first of two more lines, ``behind``,
        follows.
    """
    hole = 1 << 40
    with log.open("wb") as file:
        file.write(b"before\n")
        file.truncate(hole)
        file.seek(hole)
        file.write(b" behind\nlast\n")
    return hole
