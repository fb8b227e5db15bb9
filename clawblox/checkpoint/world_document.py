"""The world's document in an archive: it travels as it is, and says its format and time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from clawblox.checkpoint.model import Source
from clawblox.checkpoint.names import ROWS_NAME, SNAPSHOT_NAME
from clawblox.errors import CheckpointError
from clawblox.protocol import DEFAULT_SNAPSHOT_FORMAT
from clawblox.snapshot.checker import Check, CheckerLost
from clawblox.snapshot.header import Header, InvalidDocument
from clawblox.snapshot.rows import rows_beside
from clawblox.system.regular_files import open_regular


def world_sources(path: Path) -> Iterator[Source]:
    """Yield the document as a file for the archive, and the rows beside it, if there are any."""
    yield Source(name=SNAPSHOT_NAME, path=path, open=lambda: _open(path))
    rows = rows_beside(path)
    if os.path.lexists(rows):
        yield Source(name=ROWS_NAME, path=rows, open=lambda: _open(rows))


class WorldDocument:
    """The document while a save looks at it; a context manager. Blocks.

    A large one is looked through in a process of its own, which boots from here on.

    Args:
        path: Where it is.

    Raises:
        CheckpointError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._check = Check()
        with self._translated(), contextlib.ExitStack() as stack:
            self._fd = _open(path)
            stack.callback(os.close, self._fd)
            self._size = os.fstat(self._fd).st_size
            stack.pop_all()
        self._check.prepare(self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._check.close()
        os.close(self._fd)

    def describe(self) -> dict[str, Any]:
        """Return its ``format`` and ``time``; an opaque one has the format that says so.

        Raises:
            CheckpointError: It cannot be read.
        """
        with self._translated():
            try:
                # Nothing can be mapped of an empty file.
                header = self._check.read_header(self._fd) if self._size else Header()
            except InvalidDocument:
                header = Header()
        return {"format": header.format or DEFAULT_SNAPSHOT_FORMAT, "time": header.time}

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (CheckerLost, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            message = f"the world's document cannot be read: {reason}"
            raise CheckpointError(message, path=self._path) from error


def _open(path: Path) -> int:
    return open_regular(os.path.realpath(path))  # a caller may name a link
