"""Publishes an archive as a file, and registers it in the manifest of its run.

The run is the nearest directory above an archive with a manifest. An archive outside any run needs
no entry.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from clawblox.errors import CheckpointError
from clawblox.results import Excluded, SavedCheckpoint
from clawblox.rundir.manifest import (
    find_checkpoint,
    manifest_path,
    try_read_manifest,
)
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import checkpoint_update, removal_update
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import PartialFile, fsync_directory, make_private_dir, sweep_partials
from clawblox.system.locks import is_file_at

ARCHIVE_FORMAT: Final = "clawblox-ckpt-v1"
"""Format of archives' entries in a manifest, which also lists snapshots of worlds."""

_LOCK_WAIT_S: Final = 10.0


def find_runs(path: Path) -> tuple[Path, ...]:
    """Return the run directories that contain ``path``, the innermost first. Blocks."""
    return tuple(directory for directory in above(path) if manifest_path(directory).exists())


def above(path: Path) -> tuple[Path, ...]:
    """Return the directories above ``path`` without resolving links, the innermost first."""
    return tuple(Path(os.path.abspath(path)).parents)  # noqa: PTH100 - no link is followed


def read_lineage(runs: tuple[Path, ...], snapshot: Path | None) -> dict[str, str | None]:
    """Return id and origin of the innermost run; unknown values are None. Blocks.

    Args:
        runs: The run directories that contain the archive, the innermost first.
        snapshot: The world's snapshot. If it belongs to an earlier run of the same directory, that
            run's id is returned.
    """
    run = try_read_manifest(runs[0]).run if runs else {}
    registered = None if snapshot is None else find_checkpoint(snapshot)
    run_id = None if registered is None else _text(registered[1].get("run_id"))
    if run_id is not None and run_id != run.get("id"):
        run = {"id": run_id} if "id" in run else {**run, "id": run_id}
    resume_from = _text(run.get("resume_from"))
    return {
        "run_id": _text(run.get("id")),
        "resume_from": None if resume_from is None else _portable(resume_from),
        "parent_sha256": _text(run.get("parent_sha256")),
    }


def describe_archive(path: Path, fd: int, metadata: Mapping[str, Any]) -> SavedCheckpoint:
    """Return the facts of a complete archive. Blocks; reads the whole archive.

    Args:
        path: The present or future path of the archive.
        fd: The archive, open for reading.
        metadata: Its metadata.

    Raises:
        OSError: The archive cannot be read.
    """
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        digest, size = hashlib.file_digest(file, "sha256").hexdigest(), file.tell()
    return SavedCheckpoint(
        path=path.absolute(),
        size_bytes=size,
        sha256=digest,
        metadata=metadata,
        excluded=tuple(
            Excluded(path=entry["path"], reason=entry["reason"])
            for entry in metadata.get("excluded", ())
        ),
    )


def register(run_dir: Path, *archives: SavedCheckpoint) -> None:
    """Add archives to the manifest of a run, durably. Blocks.

    Raises:
        ManifestError: The archives were not added, or perhaps not durably.
    """
    manifest = ManifestFile(manifest_path(run_dir), lock_wait=_LOCK_WAIT_S)
    manifest.apply([checkpoint_update(_entry(archive)) for archive in archives])


def _entry(archive: SavedCheckpoint) -> ManifestEntry:
    world, lineage = (archive.metadata.get(key) or {} for key in ("world", "lineage"))
    run_id = _text(lineage.get("run_id"))
    return {
        **({} if run_id is None else {"run_id": run_id}),
        "path": str(archive.path),
        "format": ARCHIVE_FORMAT,
        "time": world.get("time"),
        "created_at": archive.metadata.get("created_at"),
        "size_bytes": archive.size_bytes,
        "sha256": archive.sha256,
    }


def remove(path: Path) -> None:
    """Remove an archive, and record the removal in the manifest of its run. Blocks.

    Raises:
        ManifestError: The removal cannot be recorded; the archive still exists.
        OSError: The archive cannot be removed.
    """
    # Update the manifest first: an entry may lack its file, but a file must not lack its entry.
    for run_dir in find_runs(path)[:1]:
        manifest = ManifestFile(manifest_path(run_dir), lock_wait=_LOCK_WAIT_S)
        manifest.apply([removal_update([path], at=format_utc(utc_now()))])
    path.unlink(missing_ok=True)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _portable(path: str) -> str:
    # A path outside the run is useless on another machine, and reveals names of this machine.
    return PurePath(path).name if PurePath(path).is_absolute() else path


@contextlib.contextmanager
def partial_file(path: Path) -> Iterator[PartialFile]:
    """Create a private partial file next to ``path``; remove it unless the block publishes it.

    Partial files of killed savers are also removed.

    Raises:
        OSError: The file cannot be created.
    """
    _make_directory(path.parent)
    sweep_partials(path.parent)
    partial = PartialFile(path.parent, path.name)
    try:
        yield partial
    finally:
        # The archive is already synced, and a later save removes a remaining partial file.
        with contextlib.suppress(OSError):
            partial.close()


def publish(partial: PartialFile, path: Path, *, overwrite: bool) -> None:
    """Publish a partial file as the archive.

    Raises:
        CheckpointError: An archive already exists; or the new archive is complete, but perhaps not
            durable.
        OSError: The archive was not published.
    """
    try:
        partial.publish(path, overwrite=overwrite)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        if not is_file_at(path, partial.fd):
            raise
        message = f"the archive is complete, but a power loss may erase it: {error.strerror}"
        raise CheckpointError(message, path=path) from error


def refuse_existing(path: Path) -> None:
    """Check that a path does not exist.

    Raises:
        CheckpointError: The path exists.
    """
    if os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> CheckpointError:
    hint = "choose another name, or replace it with overwrite=True"
    return CheckpointError("a file of that name already exists", path=path, hint=hint)


def _make_directory(path: Path) -> None:
    if path.is_dir():
        return
    _make_directory(path.parent)
    make_private_dir(path)
    fsync_directory(path.parent)
