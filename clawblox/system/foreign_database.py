"""Reads and changes SQLite databases of other programs, which may have any content.

The files of a database control SQLite: it deletes files named in a journal, waits for a pipe in
place of the journal, and computes views of any size. So a database is never opened in place. Its
main file and its write-ahead log, regular files of limited size, are copied into a private
directory; a rollback journal and shared memory are not. ``sqlite_program`` opens the copy, in a
process with limits. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from clawblox.system.files import (
    MAX_DATABASE_BYTES,
    PartialFile,
    partial_tree,
    sweep_partials,
    write_all,
)
from clawblox.system.process import run_briefly
from clawblox.system.regular_files import (
    PRIVATE_FILE,
    closing_fd,
    open_directory,
    open_regular,
    opened_parent,
)
from clawblox.system.sqlite_program import MAX_ANSWER_BYTES

Statement: TypeAlias = tuple[str, Sequence[str]]
"""A statement of SQL and its parameters."""

_LOG: Final = "-wal"
_SIDE_FILES: Final = (_LOG, "-shm", "-journal")
_COPY: Final = "database"
_ATTEMPTS: Final = 5
_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 20
_PROGRAM: Final = Path(__file__).with_name("sqlite_program.py")

_IS_NONE: Final = (
    *(errno.ENOENT, errno.ENOTDIR, errno.ELOOP),
    *(errno.EINVAL, errno.EISDIR, errno.ENXIO),
)
"""Errors of opening a file that is absent or not a database."""


class DatabaseCopy:
    """A private copy of a database.

    Args:
        source: The database, for messages.
        parent: Descriptor of the directory that it is in.
        directory: The private directory that contains the copy.
    """

    def __init__(self, source: Path, parent: int, directory: Path) -> None:
        self._source = source
        self._parent = parent
        self._copy = directory / _COPY

    def read(self, query: str, *values: str) -> list[list[str | int | None]]:
        """Return the rows of a query; empty if the database lacks a table or column.

        In text that is not UTF-8, invalid bytes are replaced. A value that is neither text nor an
        integer becomes None.

        Raises:
            OSError: The file is not a database, or the query names a view or exceeds a limit.
        """
        return self._run([(query, values)], is_change=False)

    def replace(self, statements: Sequence[Statement]) -> None:
        """Change the database while no program uses it.

        The change is atomic.

        Raises:
            OSError: The file is not a database, a statement fails or exceeds a limit, or the result
                cannot be written.
        """
        self._run([], is_change=True)
        # The log was merged into the copy, so the copy is the same database with or without the
        # log.
        self._publish()
        _remove(self._parent, [self._source.name + suffix for suffix in _SIDE_FILES])
        os.fsync(self._parent)
        self._run(statements, is_change=True)
        self._publish()

    def _run(
        self, statements: Sequence[Statement], *, is_change: bool
    ) -> list[list[str | int | None]]:
        request = {"name": _COPY, "statements": statements, "is_change": is_change}
        try:
            outcome = run_briefly(
                [sys.executable, "-I", "-S", str(_PROGRAM), json.dumps(request)],
                env={},
                timeout=_TIMEOUT_S,
                cwd=str(self._copy.parent),
                max_bytes=MAX_ANSWER_BYTES,
            )
        except TimeoutError as error:
            raise OSError(errno.ETIMEDOUT, str(error), str(self._source)) from error
        if outcome.status:
            raise OSError(
                errno.EIO,
                f"reading it ended with status {outcome.status}: {outcome.first_line:.200}",
                str(self._source),
            )
        answer = json.loads(outcome.output)
        if "error" in answer:
            raise OSError(errno.EIO, answer["error"], str(self._source))
        rows: list[list[str | int | None]] = answer["rows"]
        return rows

    def _publish(self) -> None:
        """Replace the database with the main file of the copy."""
        name = self._source.name
        before = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        # The descriptor is of the original directory, even if its path leads elsewhere now.
        place = f"/proc/self/fd/{self._parent}"
        with contextlib.closing(PartialFile(place, name)) as partial:
            with self._copy.open("rb") as content:
                copy_content(content.fileno(), partial.fd)
            with contextlib.suppress(PermissionError):  # only root can give files away
                os.fchown(partial.fd, before.st_uid, before.st_gid)
            partial.publish(f"{place}/{name}", overwrite=True, mode=before.st_mode & 0o777)


@contextlib.contextmanager
def copy_database(root: Path, path: str, *, scratch: Path) -> Iterator[DatabaseCopy | None]:
    """Copy a database for the duration of the block; its program may be using it.

    Args:
        root: A directory; its own path is trusted.
        path: Path of the database below ``root``; links are not followed.
        scratch: The directory for the copy; the other program should have no access to it.

    Yields:
        The copy; None if the path is not a regular file.

    Raises:
        OSError: The database cannot be copied, is too large, or keeps changing.
    """
    directory, _, name = path.rpartition("/")
    with contextlib.ExitStack() as opened:
        try:
            parent = open_directory(root, directory)
            opened.callback(os.close, parent)
            os.close(open_regular(name, dir_fd=parent))
        except OSError as error:
            if error.errno not in _IS_NONE:
                raise
            yield None
            return
        sweep_partials(scratch)
        place = opened.enter_context(partial_tree(scratch, _COPY))
        _copy_whole(parent, name, place, root / path)
        yield DatabaseCopy(root / path, parent, place)


def remove_database(root: Path, path: str) -> None:
    """Remove a database and its side files while no program uses it.

    Args:
        root: A directory; its own path is trusted.
        path: Path of the database below ``root``; links are not followed.

    Raises:
        OSError: The database cannot be removed.
    """
    with opened_parent(root, path) as (parent, name):
        # Remove the main file first; without it, SQLite itself removes the others.
        _remove(parent, [name, *(name + suffix for suffix in _SIDE_FILES)])


def _remove(parent: int, names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(name, dir_fd=parent)


def _copy_whole(parent: int, name: str, place: Path, source: Path) -> None:
    """Copy the main file and the log of a database in a consistent state.

    SQLite writes the main file only when it merges the log into it, and restarts the log only
    afterwards. So the copies are consistent if the main file did not change during the copy. SQLite
    otherwise only appends to the log, and uses the valid part of a truncated log.
    """
    for _ in range(_ATTEMPTS):
        before = _identify(parent, name)
        _copy_file(parent, name, place / _COPY)
        _copy_file(parent, name + _LOG, place / (_COPY + _LOG))
        if before is not None and before == _identify(parent, name):
            return
    raise OSError(errno.EBUSY, "keeps changing", str(source))


def _identify(parent: int, name: str) -> tuple[int, ...] | None:
    """Return values that change with the content of a file; None if it is missing."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _copy_file(parent: int, name: str, destination: Path) -> None:
    """Copy a regular file, or remove the destination if the source is missing."""
    destination.unlink(missing_ok=True)
    try:
        source = open_regular(name, dir_fd=parent, max_bytes=MAX_DATABASE_BYTES)
    except OSError as error:
        if error.errno in _IS_NONE:
            return
        raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with closing_fd(source), closing_fd(os.open(destination, flags, PRIVATE_FILE)) as target:
        copy_content(source, target)


def copy_content(source: int, target: int) -> None:
    """Copy the content of a file, up to the limit of a database; holes stay holes. Blocks.

    Args:
        source: Descriptor of the file.
        target: Descriptor of an empty file.

    Raises:
        OSError: The content cannot be read or written.
    """
    size, position = min(os.fstat(source).st_size, MAX_DATABASE_BYTES), 0
    os.ftruncate(target, size)
    while position < size:
        try:
            position = os.lseek(source, position, os.SEEK_DATA)
            end = min(size, os.lseek(source, position, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data follows
                return
            raise
        os.lseek(target, position, os.SEEK_SET)
        while position < end:
            chunk = os.pread(source, min(_CHUNK_BYTES, end - position), position)
            if not chunk:  # it was truncated
                return
            write_all(target, chunk)
            position += len(chunk)
