"""Resolves snapshots that a caller names: their files, and the runs that saved them.

A caller may also name an archive that contains a snapshot; ``world.archives`` extracts it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from clawblox import protocol
from clawblox.config.arguments import check_path, check_snapshot
from clawblox.errors import ConfigError
from clawblox.results import SnapshotLike
from clawblox.rundir.manifest import find_checkpoint
from clawblox.rundir.paths import run_dir_candidates
from clawblox.rundir.records import has_records
from clawblox.system.files import digest_file, has_digest
from clawblox.system.regular_files import open_regular

_LOCAL_HEADER_BYTES: Final = 30
_FIRST_MEMBER: Final = b"metadata.json"


def find_archive(given: SnapshotLike | None, world_dir: Path, key: str) -> Path | None:
    """Return the archive that a caller names instead of a snapshot. Blocks.

    Args:
        given: A path, or a mapping with ``path`` and optionally ``sha256``.
        world_dir: A base of relative paths, see :func:`find_snapshot`.
        key: Name of the argument, for errors.

    Returns:
        Path of the archive; None for a snapshot or for None.

    Raises:
        ConfigError: The file is missing, ambiguous, or different from the one that was saved.
    """
    if given is None:
        return None
    named, digest = check_snapshot(given, key)
    path = find_snapshot(named, world_dir, key)
    return _check_digest(path, digest, key) if is_archive(path) else None


def is_archive(path: Path) -> bool:
    """Return whether a file is an archive, by its suffix or its first bytes. Blocks."""
    if path.suffix == protocol.ARCHIVE_SUFFIX:
        return True
    try:
        with os.fdopen(open_regular(os.path.realpath(path)), "rb") as file:
            start = file.read(_LOCAL_HEADER_BYTES + len(_FIRST_MEMBER))
    except OSError:
        return False
    # From the header of a zip file's first member: the signature, and the length of its name.
    length = len(_FIRST_MEMBER).to_bytes(2, "little")
    expected = (b"PK\x03\x04", length, _FIRST_MEMBER)
    return (start[:4], start[26:28], start[_LOCAL_HEADER_BYTES:]) == expected


def find_resume(resume: SnapshotLike | None, world_dir: Path) -> tuple[Path | None, str | None]:
    """Return the path of the snapshot to restore, and its digest if given. Blocks."""
    if resume is None:
        return None, None
    given, digest = check_snapshot(resume, "resume")
    return _check_digest(find_snapshot(given, world_dir, "resume"), digest, "resume"), digest


def find_parent(checkpoint: SnapshotLike, world_dir: Path) -> tuple[Path, str]:
    """Return the path and the digest of the snapshot that instances are forked from. Blocks.

    Args:
        checkpoint: A path, or a mapping with ``path`` and optionally ``sha256``.
        world_dir: A base of relative paths, see :func:`find_snapshot`.

    Raises:
        ConfigError: The file cannot be read, or is different from the one that was saved.
    """
    given, known = check_snapshot(checkpoint, "checkpoint")
    path = find_snapshot(given, world_dir, "checkpoint")
    try:
        digest = digest_file(path)
    except OSError as error:
        message = f"the snapshot to fork from cannot be read: {error.strerror}"
        raise ConfigError(message, path=path, key="checkpoint") from error
    if known not in (None, digest):
        raise _other_digest(path, "checkpoint", known)
    return path, digest


def find_snapshot(given: object, world_dir: Path, key: str) -> Path:
    """Return the file of a snapshot that a caller names. Blocks.

    A relative path names the file in the world directory if it exists, else the file in the current
    directory.

    Args:
        given: Path of the snapshot.
        world_dir: The world directory, absolute.
        key: Name of the argument, for errors.

    Raises:
        ConfigError: The file is missing or ambiguous.
    """
    places = snapshot_places(given, world_dir, key)
    try:
        found = [place for place in places if place.is_file()]
        if not found:
            raise _no_snapshot(places, key, given)
        if not all(place.samefile(found[0]) for place in found):
            raise ConfigError(
                f"there are two files of this name: {found[0]} and {found[1]}",
                key=key,
                value=str(given),
                hint="give the absolute path of the intended file",
            )
    except OSError as error:
        message = f"the snapshot cannot be searched for: {error.strerror}"
        raise ConfigError(message, key=key, value=str(given)) from error
    return found[0]


def snapshot_places(given: object, world_dir: Path, key: str) -> list[Path]:
    """Return the possible paths of a snapshot that a caller names: two for a relative path.

    Raises:
        ConfigError: ``given`` is not a path.
    """
    path = check_path(given, key)
    return list(dict.fromkeys((world_dir / path, path.absolute())))


def source_run_dir(snapshot: Path) -> Path | None:
    """Return the run directory that a snapshot was saved in. Blocks.

    Returns:
        The run directory; None if no manifest above the file lists it.
    """
    found = find_checkpoint(snapshot)
    if found is None:
        return None
    home = found[0].state_root
    return next((path for path in run_dir_candidates(home) if has_records(path)), home)


def _no_snapshot(places: Sequence[Path], key: str, given: object) -> ConfigError:
    if existing := [place for place in places if place.exists()]:
        message, path = "the snapshot is not a file", existing[0]
    elif len(places) == 1:
        message, path = "the snapshot does not exist", places[0]
    else:
        message, path = f"the snapshot does not exist: neither {places[0]} nor {places[1]}", None
    return ConfigError(message, path=path, key=key, value=str(given))


def _check_digest(path: Path, digest: str | None, key: str) -> Path:
    if digest is not None and not has_digest(path, digest):
        raise _other_digest(path, key, digest)
    return path


def _other_digest(path: Path, key: str, known: str | None) -> ConfigError:
    message = "the file is not the snapshot that was saved: its digest differs"
    return ConfigError(message, path=path, key=key, value=known)
