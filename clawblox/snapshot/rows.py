"""The rows of a world's data stores at the tick of a snapshot, in a SQLite file next to it.

The world makes the copy at the path in the request for the snapshot. The rows are separate from the
snapshot, because they are the state of a database, and each row can be large.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from clawblox.system.files import MAX_DATABASE_BYTES, digest_file
from clawblox.system.regular_files import open_regular

ROWS_SUFFIX: Final = ".rows.db"
"""Suffix of a copy's name, after the name of its snapshot."""


def rows_beside(snapshot: Path) -> Path:
    """Return the path of a snapshot's rows; the file need not exist."""
    return snapshot.with_name(snapshot.name + ROWS_SUFFIX)


class RowsCopy(msgspec.Struct):
    """A copy of rows, from its request to its publication. Everything here blocks.

    Attributes:
        partial: Path to which the world writes the copy.
        sha256: Digest of the copy, in hexadecimal; None before :meth:`take`.
        size_bytes: Size of the copy; None before :meth:`take`.
    """

    partial: Path
    sha256: str | None = None
    size_bytes: int | None = None
    _published: Path | None = None

    def take(self) -> None:
        """Make the copy durable, and compute its digest.

        Raises:
            OSError: The world has not written a regular file of the permitted size.
        """
        with os.fdopen(open_regular(self.partial, max_bytes=MAX_DATABASE_BYTES), "rb") as copy:
            os.fsync(copy)
            self.size_bytes = os.fstat(copy.fileno()).st_size
        self.sha256 = digest_file(self.partial, max_bytes=MAX_DATABASE_BYTES)

    def publish(self, snapshot: Path) -> None:
        """Publish the copy, if any, before its snapshot is published.

        Raises:
            OSError: The copy is not published; FileExistsError if its path exists.
        """
        if self.sha256 is not None:
            place = rows_beside(snapshot)
            os.link(self.partial, place, follow_symlinks=False)
            self._published = place

    def discard(self) -> None:
        """Remove the published copy."""
        if self._published is not None:
            self._published.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the partial file."""
        self.partial.unlink(missing_ok=True)
