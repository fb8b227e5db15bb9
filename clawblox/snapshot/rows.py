"""The rows of a world's data stores at the tick of a snapshot: a SQLite file beside it.

The world makes the copy, at the path that the request for the snapshot names. No snapshot contains
it, because rows are state of a database, and each of them can be large.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import attrs

from clawblox.system.files import digest_file, partial_name
from clawblox.system.foreign_database import MAX_DATABASE_BYTES
from clawblox.system.regular_files import open_regular

MAX_ROWS_BYTES: Final = MAX_DATABASE_BYTES
"""Maximum apparent size of a copy."""

ROWS_SUFFIX: Final = ".rows.db"
"""Ends the name of a copy, after that of its snapshot."""


def rows_beside(snapshot: Path) -> Path:
    """Return where the rows of a snapshot are, if it has any."""
    return snapshot.with_name(snapshot.name + ROWS_SUFFIX)


@attrs.define
class RowsCopy:
    """A copy from its request to its publication. Everything here blocks.

    Attributes:
        partial: Where the world makes it.
        sha256: Its digest, in hexadecimal; None before :meth:`take`.
        size_bytes: Its size; None before :meth:`take`.
    """

    partial: Path
    sha256: str | None = None
    size_bytes: int | None = None
    _published: Path | None = None

    @classmethod
    def wanted(cls, directory: Path, instance: str) -> RowsCopy:
        """Return a copy that is still to be made, in the directory of the snapshot."""
        return cls(directory / partial_name(f"{instance}.rows"))

    def take(self) -> None:
        """Make durable what the world has made, and read its digest.

        Raises:
            OSError: There is no regular file of the permitted size.
        """
        fd = open_regular(self.partial, max_bytes=MAX_ROWS_BYTES)
        try:
            os.fsync(fd)
            self.size_bytes = os.fstat(fd).st_size
        finally:
            os.close(fd)
        self.sha256 = digest_file(self.partial, max_bytes=MAX_ROWS_BYTES)

    def publish(self, snapshot: Path) -> None:
        """Put it beside the snapshot, which is published after it; nothing if there is none.

        Raises:
            OSError: It is not published; FileExistsError if there is such a file.
        """
        if self.sha256 is not None:
            place = rows_beside(snapshot)
            os.link(self.partial, place, follow_symlinks=False)
            self._published = place

    def discard(self) -> None:
        """Remove it again."""
        if self._published is not None:
            self._published.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove what was not published."""
        self.partial.unlink(missing_ok=True)
