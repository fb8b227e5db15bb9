"""Registers archives on disk in the manifest of their run.

A save that is interrupted between publishing and registering leaves a valid archive that is not in
the manifest. A repair removes only the partial files of killed savers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.archive.registry import (
    ARCHIVE_FORMAT,
    describe_archive,
    register,
)
from clawblox.config.arguments import check_path
from clawblox.errors import CheckpointError
from clawblox.errors.checkpoint import os_errors_as
from clawblox.results import SavedCheckpoint
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.system.files import sweep_partials
from clawblox.system.regular_files import open_directory
from clawblox.system.trees import MAX_DEPTH, TreeWalk


@attrs.frozen(kw_only=True)
class Repair:
    """Outcome of a repair. Paths are sorted.

    Attributes:
        registered: Archives whose missing or wrong entries were repaired.
        intact: Number of archives that were already registered.
        refused: Unsound archives with the reasons; they are left unchanged.
        missing: Archives in the manifest that no longer exist; their entries are kept.
    """

    registered: tuple[Path, ...]
    intact: int
    refused: Mapping[Path, CheckpointError]
    missing: tuple[Path, ...]


def repair_checkpoints(run_dir: str | os.PathLike[str]) -> Repair:
    """Register every sound archive of a run that is missing in the manifest. Blocks.

    Args:
        run_dir: The run directory; archives are found directly in it and below its directory
            ``checkpoints``.

    Raises:
        CheckpointError: The path is not a directory, or cannot be listed.
        ManifestError: The manifest cannot be read or written; no archive was registered.
        ConfigError: ``run_dir`` is not a path.
    """
    root = check_path(run_dir, "run_dir").absolute()
    entries = _archive_entries(root)
    registered: dict[Path, SavedCheckpoint] = {}
    refused: dict[Path, CheckpointError] = {}
    archives = _find_archives(root)
    for path in archives:
        try:
            if not _is_registered(path, entries.get(path)):
                registered[path] = _verify(path)
        except CheckpointError as error:
            refused[path] = error
    if registered:
        register(root, *registered.values())
    return Repair(
        registered=tuple(registered),
        intact=len(archives) - len(registered) - len(refused),
        refused=refused,
        missing=tuple(sorted(path for path in entries if not path.exists())),
    )


def _find_archives(root: Path) -> list[Path]:
    with os_errors_as("the archives of the run cannot be listed", root):
        directories = [root, *_find_directories(root / "checkpoints")]
        for directory in directories:
            sweep_partials(directory)
        return sorted(path for directory in directories for path in directory.glob("*.ckpt"))


def _find_directories(top: Path) -> Iterator[Path]:
    """Yield a directory and its subdirectories, if they exist and can be read."""
    with contextlib.suppress(OSError), TreeWalk(open_directory(top)) as walk:
        yield top
        for entry in walk:
            if entry.kind == "directory" and walk.depth < MAX_DEPTH:
                yield top / walk.path_to(entry.name)
                with contextlib.suppress(OSError):
                    walk.enter(entry.name)


def _archive_entries(root: Path) -> dict[Path, ManifestEntry]:
    if not manifest_path(root).exists():
        return {}
    manifest = read_manifest(root)
    return {
        Path(os.path.normpath(manifest.resolve(entry["path"]))): entry
        for entry in manifest.checkpoints
        if isinstance(entry, dict)  # the manifest also has entries for worlds' snapshots
        and entry.get("format") == ARCHIVE_FORMAT
        and isinstance(entry.get("path"), str)
    }


def _is_registered(path: Path, entry: ManifestEntry | None) -> bool:
    """Return whether an entry is for this archive, not for an earlier archive of the same name."""
    if entry is None:
        return False
    with Archive.open(path) as archive:
        created_at = archive.metadata.get("created_at")
    return (entry.get("size_bytes"), entry.get("created_at")) == (path.stat().st_size, created_at)


def _verify(path: Path) -> SavedCheckpoint:
    with Archive.open(path) as archive:
        archive.verify()
        return describe_archive(path, archive.fd, archive.metadata)
