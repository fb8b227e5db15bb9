"""The rows of data stores that belong to one instance: its file, and the copies beside its saves.

An instance that restores a snapshot begins with the rows of that snapshot, and without rows if it
has none. An instance that begins afresh keeps the rows that its directory has. Everything here
blocks.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from clawblox.config.options import DEFAULT_MAX_SNAPSHOT_BYTES
from clawblox.results import SavedSnapshot
from clawblox.rundir.manifest import find_checkpoint
from clawblox.snapshot.rows import MAX_ROWS_BYTES, rows_beside
from clawblox.system.files import (
    PartialFile,
    digest_file,
    has_digest,
    make_private_dir,
    sweep_partials,
)
from clawblox.system.foreign_database import copy_content, remove_database
from clawblox.system.regular_files import open_regular


def is_good_save(saved: SavedSnapshot) -> bool:
    """Return whether the files of a save are those that were saved."""
    most = saved.size_bytes or DEFAULT_MAX_SNAPSHOT_BYTES
    is_good = has_digest(saved.path, saved.sha256, max_bytes=most)
    return is_good and has_good_rows(saved.path, saved.rows_sha256)


def has_good_rows(snapshot: Path, sha256: object) -> bool:
    """Return whether the rows of a snapshot are those that were saved.

    Args:
        snapshot: The snapshot.
        sha256: Their digest, as a manifest has it; None without rows.
    """
    if sha256 is None:
        return True
    return has_digest(rows_beside(snapshot), str(sha256), max_bytes=MAX_ROWS_BYTES)


def unlink_saves(snapshots: Iterable[Path]) -> None:
    """Remove the files of saves, each with its rows; absent ones are no error.

    Raises:
        OSError: One cannot be removed; the others are gone.
    """
    failure: OSError | None = None
    for snapshot in snapshots:
        for path in (snapshot, rows_beside(snapshot)):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                failure = failure or error
    if failure is not None:
        raise failure


def prepare_rows(own: Path | None, snapshot: Path | None) -> None:
    """Let an instance begin with the rows of the snapshot that it restores.

    Args:
        own: Its file of rows, which no process has open; None if it has none of its own.
        snapshot: The snapshot; None if the instance begins afresh.

    Raises:
        OSError: The rows of the snapshot are missing, or not those that were saved; or its own
            file cannot be written.
    """
    if own is None or snapshot is None:
        return
    source = _find_rows(snapshot)
    if source is None and not own.parent.exists():
        return
    make_private_dir(own.parent)
    sweep_partials(own.parent)
    # What the log of the old file holds must not be taken for a part of the new one.
    remove_database(own.parent, own.name)
    if source is not None:
        _copy(source, own)


def _find_rows(snapshot: Path) -> Path | None:
    """Return the checked rows of a snapshot; None if it has none."""
    copy = rows_beside(snapshot)
    listed = find_checkpoint(snapshot)
    digest = None if listed is None else listed[1].get("rows_sha256")
    if digest is None:
        return copy if copy.exists() else None
    if digest_file(copy, max_bytes=MAX_ROWS_BYTES) != digest:
        raise OSError(errno.EIO, "not the rows that were saved: their digest differs", str(copy))
    return copy


def _copy(source: Path, own: Path) -> None:
    content = open_regular(source, max_bytes=MAX_ROWS_BYTES)
    try:
        partial = PartialFile(own.parent, own.stem)
        try:
            copy_content(content, partial.fd)
            partial.publish(own, overwrite=True)
        finally:
            partial.close()
    finally:
        os.close(content)
