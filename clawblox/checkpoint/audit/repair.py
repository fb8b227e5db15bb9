"""Putting archives that are on disk back into the manifest of their run.

A save that was interrupted between publishing and registering leaves an archive that loads and
that no manifest names. Nothing is ever removed here but what killed savers left half-written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from clawblox.checkpoint.archive.reader import Archive
from clawblox.checkpoint.archive.registry import (
    ARCHIVE_FORMAT,
    describe_archive,
    register,
)
from clawblox.config.arguments import check_path
from clawblox.errors import CheckpointError
from clawblox.results import SavedCheckpoint
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.system.files import sweep_partials
from clawblox.system.regular_files import open_regular

_PATTERN: Final = "*.ckpt"


@attrs.frozen(kw_only=True)
class Repair:
    """Outcome of repairing a run. Paths are in order.

    Attributes:
        registered: Archives that the manifest did not list as they are, and lists now.
        intact: Number of archives that it listed already.
        refused: Archives that are not sound, with the reason; they were left as they are.
        missing: Archives that the manifest lists and that are gone; their entries stay as a
            record.
    """

    registered: tuple[Path, ...]
    intact: int
    refused: Mapping[Path, CheckpointError]
    missing: tuple[Path, ...]


def repair_checkpoints(run_dir: str | os.PathLike[str]) -> Repair:
    """Register every sound archive of a run that its manifest lacks. Blocks.

    Args:
        run_dir: The run directory; its archives are those in it and below ``checkpoints`` in it.

    Raises:
        CheckpointError: It is not a directory, or cannot be listed.
        ManifestError: The manifest cannot be read or written; nothing was registered.
        ConfigError: ``run_dir`` is not a path.
    """
    root = check_path(run_dir, "run_dir").absolute()
    known = _known_entries(root)
    registered: dict[Path, SavedCheckpoint] = {}
    refused: dict[Path, CheckpointError] = {}
    found = _find_archives(root)
    for path in found:
        try:
            if not _is_known(path, known.get(path)):
                registered[path] = _verify(path)
        except CheckpointError as error:
            refused[path] = error
    if registered:
        register(root, *registered.values())
    return Repair(
        registered=tuple(registered),
        intact=len(found) - len(registered) - len(refused),
        refused=refused,
        missing=tuple(sorted(path for path in known if not path.exists())),
    )


def _find_archives(root: Path) -> list[Path]:
    try:
        directories = [root, *_directories_below(root / "checkpoints")]
        for directory in directories:
            sweep_partials(directory)
        return sorted(path for directory in directories for path in directory.glob(_PATTERN))
    except OSError as error:
        message = f"the archives of a run cannot be looked for: {error.strerror}"
        raise CheckpointError(message, path=root) from error


def _directories_below(directory: Path) -> Iterator[Path]:
    return (Path(found) for found, _, _ in os.walk(directory))


def _known_entries(root: Path) -> dict[Path, ManifestEntry]:
    if not manifest_path(root).exists():
        return {}
    manifest = read_manifest(root)
    return {
        Path(os.path.normpath(manifest.resolve(entry["path"]))): entry
        for entry in manifest.checkpoints
        if _names_archive(entry)
    }


def _names_archive(entry: object) -> bool:
    """Return whether an entry is about an archive; worlds write to the manifest, too."""
    return (
        isinstance(entry, dict)
        and entry.get("format") == ARCHIVE_FORMAT
        and isinstance(entry.get("path"), str)
    )


def _is_known(path: Path, entry: ManifestEntry | None) -> bool:
    """Return whether the manifest lists this archive; another may have had its name."""
    if entry is None:
        return False
    with Archive.open(path) as archive:
        created_at = archive.metadata.get("created_at")
    return (entry.get("size_bytes"), entry.get("created_at")) == (path.stat().st_size, created_at)


def _verify(path: Path) -> SavedCheckpoint:
    with Archive.open(path) as archive:
        archive.verify()
        metadata = archive.metadata
    fd = open_regular(path)
    try:
        return describe_archive(path, fd, metadata)
    finally:
        os.close(fd)
