"""Saves of instances: makes saves, finds the last saves, and manages rows of data stores.

A checkpoint is a snapshot file with an entry in the manifest. Orchestrators save the instances that
they own; other processes save instances without an owner.

An instance that restores a snapshot starts with the rows of that snapshot, or without rows if the
snapshot has none. An instance that starts without a snapshot keeps the rows in its directory.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs

from clawblox.config.options import DEFAULT_MAX_SNAPSHOT_BYTES, SaveOptions
from clawblox.errors import ManifestError
from clawblox.results import SavedSnapshot
from clawblox.rundir.manifest import Manifest, find_checkpoint, manifest_path, read_manifest
from clawblox.rundir.manifest_entries import normal, objects_in, read_number, read_text
from clawblox.rundir.manifest_updates import checkpoint_update, retirement_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.paths import file_stamp, files_dir
from clawblox.rundir.records import InstanceRecord, PathMover
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
from clawblox.telemetry.own_log import OwnLog

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
        update = attrs.evolve(update, retired=retired)
        await writers.of(instance_dir).apply(update)
    return saved


# -- the last saves --------------------------------------------------------------------------------


_log = OwnLog(__name__)


@attrs.frozen
class LineageSave:
    """A save in a manifest; its file may be missing.

    Attributes:
        instance: Name of the instance; empty for an archive, which contains all instances.
        run_id: Id of the run; empty for a save of an older version.
        path: The file, absolute.
        time: Simulation time; None if the snapshot does not contain it.
        created_at: UTC time of the save.
        size_bytes: Size of the file.
        sha256: Digest of the file, in hexadecimal.
        removed_at: UTC time at which the file was removed on purpose; None while it is kept.
        is_autosave: Whether the save may be removed once there are later autosaves.
    """

    instance: str
    run_id: str
    path: Path
    time: float | None
    created_at: str | None
    size_bytes: int | None
    sha256: str | None
    removed_at: str | None
    is_autosave: bool


def list_saves(manifest: Manifest, move: PathMover = Path) -> Iterator[LineageSave]:
    """Yield the saves in a manifest, oldest first, with an empty instance name for archives.

    Args:
        manifest: The manifest.
        move: Returns the current location of a path in the manifest.
    """
    for entry in objects_in(manifest.checkpoints):
        path = read_text(entry, "path")
        if path is not None:
            size = read_number(entry, "size_bytes")
            yield LineageSave(
                instance=read_text(entry, "instance") or "",
                run_id=read_text(entry, "run_id") or "",
                path=move(Path(normal(path, manifest.state_root))),
                time=read_number(entry, "time"),
                created_at=read_text(entry, "created_at"),
                size_bytes=None if size is None else int(size),
                sha256=read_text(entry, "sha256"),
                removed_at=read_text(entry, "removed_at"),
                is_autosave=entry.get("autosave") is True,
            )


def last_saves_by_run(name: str, instance_dir: Path, move: PathMover) -> dict[str, LineageSave]:
    """Return the last existing save of an instance in each of its runs. Blocks.

    Args:
        name: Name of the instance.
        instance_dir: The directory with the manifest.
        move: Returns the current location of a path in the manifest.

    Returns:
        The saves by run id, the latest run first, including earlier runs in the directory.
    """
    found: dict[str, LineageSave] = {}
    for save in _saves_in(instance_dir):
        if save.instance == name and save.run_id not in found:
            path = move(save.path)
            if os.path.isfile(path):  # noqa: PTH113 - no error for a path too long
                found[save.run_id] = save if path is save.path else attrs.evolve(save, path=path)
    return found


def autosaves(instance_dir: Path, name: str, run_id: str) -> list[Path]:
    """Return the files of the autosaves of a run that were not removed, oldest first. Blocks.

    Args:
        instance_dir: The directory with the manifest.
        name: Name of the instance.
        run_id: Id of the run.
    """
    return [
        save.path
        for save in reversed(_saves_in(instance_dir))
        if save.is_autosave and save.instance == name and save.run_id == run_id
    ]


def last_saves(records: Iterable[InstanceRecord], move: PathMover) -> dict[str, LineageSave]:
    """Return the last existing save of each instance in its current run. Blocks.

    Args:
        records: The records of the instances.
        move: Returns the current location of a path in their manifests.
    """
    saves = {}
    for record in records:
        by_run = last_saves_by_run(record.name, Path(record.instance_dir), move)
        saves[record.name] = by_run.get(record.run_id)
    return {name: save for name, save in saves.items() if save is not None}


def _saves_in(instance_dir: Path) -> tuple[LineageSave, ...]:
    """Return the saves that were not removed on purpose, latest first."""
    version = file_stamp(manifest_path(instance_dir))
    if version is None:
        return ()
    latest = _latest_reading(instance_dir)
    saves = latest.get(version)
    if saves is None:
        saves = _read_saves(instance_dir)
        latest.clear()
        latest[version] = saves
    return saves


@functools.lru_cache(maxsize=1024)
def _latest_reading(_instance_dir: Path) -> dict[tuple[int, ...], tuple[LineageSave, ...]]:
    """Return the cached saves of one manifest, by the version of its file.

    A table of a run is refreshed every second, and a manifest with many saves is slow to read.
    """
    return {}


def _read_saves(instance_dir: Path) -> tuple[LineageSave, ...]:
    try:
        manifest = read_manifest(instance_dir)
    except ManifestError as error:
        _log.warning("saves not known", error=str(error))
        return ()
    return tuple(reversed([save for save in list_saves(manifest) if save.removed_at is None]))


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
