"""Saves of instances: makes saves, and manages rows of data stores.

A checkpoint is a snapshot file with an entry in the manifest. Orchestrators save the instances that
they own; other processes save instances without an owner.

An instance that restores a snapshot starts with the rows of that snapshot, or without rows if the
snapshot has none. An instance that starts without a snapshot keeps the rows in its directory.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec

from clawblox.config.options import DEFAULT_MAX_SNAPSHOT_BYTES, SaveOptions
from clawblox.results import SavedSnapshot
from clawblox.rundir.manifest import find_checkpoint
from clawblox.rundir.manifest_updates import checkpoint_update, retirement_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.paths import files_dir
from clawblox.snapshot.capture import SnapshotSource, capture
from clawblox.snapshot.rows import rows_beside
from clawblox.system.files import (
    MAX_DATABASE_BYTES,
    MAX_DIGEST_BYTES,
    PartialFile,
    digest_file,
    has_digest,
    make_private_dir,
    sweep_partials,
)
from clawblox.system.regular_files import closing_fd, open_regular

Retire: TypeAlias = Callable[[SavedSnapshot], Awaitable[Collection[Path]]]
"""Returns the files of older autosaves that a new autosave replaces."""


async def save_snapshot(
    source: SnapshotSource,
    options: SaveOptions,
    writers: ManifestWriters,
    *,
    world_dir: Path,
    instance_dir: Path,
    run_id: Callable[[], str],
    retire: Retire | None = None,
) -> SavedSnapshot:
    """Take a snapshot of an instance and register it in the manifest of its run.

    Args:
        source: The instance.
        options: The options of the save.
        writers: The writers of the manifests.
        world_dir: Directory of the world.
        instance_dir: Directory of the instance's manifest and files.
        run_id: Returns the id of the run, which may change during the transfer.
        retire: Called for an autosave once its file is complete; returns the files of older
            autosaves to remove. None if the save is not an autosave.

    Raises:
        SnapshotError: The save failed, and left neither a file nor an entry.
        ManifestError: The file is complete, but not registered.

    Cancellation: leaves both the file and its manifest entry, or neither.
    """
    directory = options.dir or files_dir(world_dir, instance_dir) / "checkpoints"
    saved = await capture(source, directory, timeout=options.timeout, max_bytes=options.max_bytes)
    with anyio.CancelScope(shield=True):
        spent = () if retire is None else await retire(saved)
        update = checkpoint_update(saved, run_id=run_id(), is_autosave=retire is not None)
        retired = retirement_update(spent, at=saved.created_at).retired
        update = msgspec.structs.replace(update, retired=retired)
        await writers.of(instance_dir).apply(update)
    return saved


# -- rows of data stores ---------------------------------------------------------------------------


def is_good_save(saved: SavedSnapshot) -> bool:
    """Return whether the files of a save are unchanged."""
    # A world can write the size too.
    most = min(saved.size_bytes or DEFAULT_MAX_SNAPSHOT_BYTES, MAX_DIGEST_BYTES)
    is_good = has_digest(saved.path, saved.sha256, max_bytes=most)
    return is_good and has_good_rows(saved.path, saved.rows_sha256)


def has_good_rows(snapshot: Path, sha256: object) -> bool:
    """Return whether the rows of a snapshot are unchanged.

    Args:
        snapshot: The snapshot.
        sha256: Digest of the rows from a manifest; None without rows.
    """
    if sha256 is None:
        return True
    return has_digest(rows_beside(snapshot), str(sha256), max_bytes=MAX_DATABASE_BYTES)


def unlink_saves(snapshots: Iterable[Path]) -> None:
    """Remove the files of saves with their rows, ignoring missing files.

    Raises:
        OSError: A file cannot be removed; the others were removed.
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
    """Give an instance the rows of the snapshot that it restores.

    Args:
        own: The instance's file of rows, closed in every process; None without such a file.
        snapshot: The snapshot; None for a start without a snapshot.

    Raises:
        OSError: The rows of the snapshot are missing or have changed, or the instance's file cannot
            be written.
    """
    if own is None or snapshot is None:
        return
    source = _find_rows(snapshot)
    if source is None and not own.parent.exists():
        return
    from clawblox.system.foreign_database import remove_database  # few worlds have rows

    make_private_dir(own.parent)
    sweep_partials(own.parent)
    # The log of the old file must not be applied to the new file.
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
    if digest_file(copy, max_bytes=MAX_DATABASE_BYTES) != digest:
        raise OSError(errno.EIO, "not the rows that were saved: their digest differs", str(copy))
    return copy


def _copy(source: Path, own: Path) -> None:
    from clawblox.system.foreign_database import copy_content

    with (
        closing_fd(open_regular(source, max_bytes=MAX_DATABASE_BYTES)) as content,
        contextlib.closing(PartialFile(own.parent, own.stem)) as partial,
    ):
        copy_content(content, partial.fd)
        partial.publish(own, overwrite=True)
