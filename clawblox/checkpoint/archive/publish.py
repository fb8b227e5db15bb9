"""From a partial file to the archive: complete or absent, durable, and no other archive is lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from clawblox.errors import CheckpointError
from clawblox.system.files import PartialFile, fsync_directory, make_private_dir, sweep_partials


@contextlib.contextmanager
def partial_file(path: Path) -> Iterator[PartialFile]:
    """Make a private partial file beside ``path``; remove it unless it is published in the block.

    What killed savers left there is removed too.

    Raises:
        OSError: The file cannot be made.
    """
    _make_directory(path.parent)
    sweep_partials(path.parent)
    partial = PartialFile(path.parent, path.name)
    try:
        yield partial
    finally:
        # An archive is synced by now; a partial file that stays is swept another time.
        with contextlib.suppress(OSError):
            partial.close()


def publish(partial: PartialFile, path: Path, *, overwrite: bool) -> None:
    """Make a partial file the archive.

    Raises:
        CheckpointError: There is an archive already; or the new one is there and complete, but
            perhaps not durable.
        OSError: The archive was not published.
    """
    try:
        partial.publish(path, overwrite=overwrite)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        if not _is_at(path, partial.fd):
            raise
        message = f"the archive is complete, but a loss of power may take it: {error.strerror}"
        raise CheckpointError(message, path=path) from error


def refuse_existing(path: Path) -> None:
    """Refuse a path that is taken.

    Raises:
        CheckpointError: Something is there.
    """
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> CheckpointError:
    hint = "choose another name, or replace it with overwrite=True"
    return CheckpointError("there is a file of that name already", path=path, hint=hint)


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def _make_directory(path: Path) -> None:
    if path.is_dir():
        return
    _make_directory(path.parent)
    make_private_dir(path)
    fsync_directory(path.parent)
