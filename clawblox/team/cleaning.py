"""Finds and removes unneeded files of ended runs: saves without references, half-written files.

A save is needed if it is the last good save of its instance, or if a run, restart or fork started
from it; an archive is needed if the ``checkpoint.json`` in its directory names it. References come
from the runs in the user's index and those that run on this machine. Worlds write manifests too, so
only files below the run directory with names that clawblox gives are ever removed. All functions
block.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.checkpoint.archive import registry
from clawblox.checkpoint.archive.reader import read_metadata
from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.config.options import DEFAULT_MAX_SNAPSHOT_BYTES
from clawblox.errors import ClawbloxError
from clawblox.protocol import ARCHIVE_SUFFIX
from clawblox.rundir.claims import claim_name, claim_run
from clawblox.rundir.find_runs import find_user_runs
from clawblox.rundir.leftovers import is_save_name
from clawblox.rundir.manifest import Manifest, manifest_path, read_manifest
from clawblox.rundir.manifest_entries import ManifestEntry
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import removal_update
from clawblox.rundir.paths import DATASTORE_DIR_NAME, files_dir
from clawblox.rundir.records import read_records
from clawblox.rundir.saves import has_good_rows, unlink_saves
from clawblox.snapshot.rows import rows_beside
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import find_partials, has_digest
from clawblox.system.trees import remove_tree, tree_size
from clawblox.team.pointer import CHECKPOINTS_DIR, read_pointer

FileKind: TypeAlias = Literal["autosave", "save", "archive", "half-written"]
"""Kinds of files: a save at an interval, another save, an archive made at an interval, others."""

_ARCHIVE_NAME: Final = re.compile(rf"t(\d{{6,9}})(?:-(\d{{1,9}}))?{re.escape(ARCHIVE_SUFFIX)}")
"""Names that the checkpointer gives to archives of its interval."""

_LOCK_WAIT_S: Final = 10.0


@attrs.frozen
class RunFile:
    """A file of a run directory with saved state, or a half-written one.

    Attributes:
        path: The file, absolute.
        kind: Its kind.
        size_bytes: Its size, including the rows of a save; for a half-written directory, the total
            size of its content.
        named_by: Description of its user; None if it is unneeded.
    """

    path: Path
    kind: FileKind
    size_bytes: int
    named_by: str | None = None


@contextlib.contextmanager
def held(run_dir: Path) -> Iterator[None]:
    """Lock a run directory and its instance names against starts during the block.

    Args:
        run_dir: The run directory, resolved.

    Raises:
        RunLockedError: An orchestrator runs there, or an instance of the run is alive.
        OSError: The run directory cannot be written.
    """
    with ExitStack() as claims:
        claims.callback(claim_run(run_dir).release)
        for record in read_records(run_dir):
            claims.callback(claim_name(run_dir, record.name).release)
        yield


def list_files(run_dirs: Sequence[Path]) -> dict[Path, list[RunFile]]:
    """Return the saved and half-written files of run directories, with their references.

    Args:
        run_dirs: The run directories, resolved.

    Raises:
        ManifestError: The manifest of a run cannot be read, so its references are unknown.
    """
    names = _Names()
    searched = dict.fromkeys([*run_dirs, *find_user_runs()])
    manifests = {run_dir: _manifests(run_dir) for run_dir in searched}
    for run_dir, listed in manifests.items():
        names.add_run(run_dir, listed)
    return {
        run_dir: sorted(_list(run_dir, manifests[run_dir], names), key=attrgetter("path"))
        for run_dir in run_dirs
    }


def remove_files(run_dir: Path, files: Iterable[RunFile]) -> None:
    """Remove files of a run directory, and record that in the manifests that list them.

    Args:
        run_dir: The run directory, locked by the caller with :func:`held`.
        files: Files from :func:`list_files` for that directory.

    Raises:
        ManifestError: A manifest cannot be written; the files that it lists still exist.
        OSError: A file cannot be removed.
    """
    chosen = list(files)
    saves = {file.path for file in chosen if file.kind in ("autosave", "save")}
    for manifest in _manifests(run_dir):
        listed = [path for path, _ in _entries(manifest) if path in saves]
        if listed:
            # The manifest first: an entry may lack its file, but a file must not lack its entry.
            update = removal_update(listed, at=format_utc(utc_now()))
            ManifestFile(manifest.path, lock_wait=_LOCK_WAIT_S).apply([update])
    for file in chosen:
        if file.kind == "archive":
            registry.remove(file.path)
        elif stat.S_ISDIR(file.path.lstat().st_mode):
            remove_tree(file.path)
        else:
            unlink_saves([file.path])


# -- references to saves --------------------------------------------------------------------


class _Names:
    """References in runs: to files by path, and to snapshots by digest."""

    def __init__(self) -> None:
        self._by_path: dict[Path, str] = {}
        self._by_digest: dict[str, str] = {}

    def find(self, path: Path, sha256: object) -> str | None:
        """Return the reference to a file, or None."""
        by_digest = self._by_digest.get(sha256) if isinstance(sha256, str) else None
        return self._by_path.get(_real(path)) or by_digest

    def add_run(self, run_dir: Path, manifests: Iterable[Manifest]) -> None:
        """Add the references in a run directory and its manifests."""
        for record in read_records(run_dir):
            reason = f"{record.name} of {run_dir.name} began from it"
            for origin in filter(None, (record.resume_path, record.first_resume_path)):
                self._add(Path(origin), record.first_sha256, reason)
        for manifest in manifests:
            for entry in (manifest.run, *filter(_is_object, manifest.restarts)):
                for key in ("resume_from", "resume_archive"):
                    if (path := _path(manifest, entry, key)) is not None:
                        reason = f"a run or restart in {run_dir.name} began from it"
                        self._add(path, entry.get("parent_sha256"), reason)
            for path, entry in _entries(manifest):
                if entry.get("forked") is True:
                    self._add(path, entry.get("sha256"), "a run began from it")

    def _add(self, path: Path, sha256: object, reason: str) -> None:
        self._by_path.setdefault(_real(path), reason)
        if isinstance(sha256, str):
            self._by_digest.setdefault(sha256, reason)


# -- the files of a run ----------------------------------------------------------------------


def _list(run_dir: Path, manifests: Iterable[Manifest], names: _Names) -> Iterator[RunFile]:
    archives = list(_list_archives(run_dir, names))
    archived = {_snapshot_digest(archive.path) for archive in archives}
    for manifest in manifests:
        for save, sha256 in _list_saves(run_dir, manifest, names):
            is_archived = save.kind == "save" and sha256 in archived
            yield attrs.evolve(save, kind="autosave") if is_archived else save
    yield from archives
    for directory in _directories(run_dir):
        for path in find_partials(directory):
            yield RunFile(path, "half-written", tree_size(path))


def _snapshot_digest(archive: Path) -> object:
    """Return the digest of the snapshot in an archive; None if it cannot be read."""
    try:
        return read_metadata(archive)["files"][SNAPSHOT_NAME]["sha256"]
    except (ClawbloxError, OSError, KeyError, TypeError):
        return None


def _list_saves(
    run_dir: Path, manifest: Manifest, names: _Names
) -> Iterator[tuple[RunFile, object]]:
    """Yield the saves that a manifest lists, each with its digest."""
    done: set[tuple[str, object]] = set()
    for path, entry in reversed(list(_entries(manifest))):
        instance, size = entry.get("instance"), _own_size(path, run_dir)
        if not isinstance(instance, str) or not is_save_name(path.name, instance) or size is None:
            continue
        sha256, run = entry.get("sha256"), (instance, entry.get("run_id"))
        named_by = names.find(path, sha256)
        if (
            run not in done
            and has_digest(path, str(sha256), max_bytes=DEFAULT_MAX_SNAPSHOT_BYTES)
            and has_good_rows(path, entry.get("rows_sha256"))
        ):
            done.add(run)
            named_by = named_by or f"the last save of {instance}"
        kind: FileKind = "autosave" if entry.get("autosave") is True else "save"
        rows = _own_size(rows_beside(path), run_dir) or 0
        yield RunFile(path, kind, size + rows, named_by), sha256


def _list_archives(run_dir: Path, names: _Names) -> Iterator[RunFile]:
    """Yield the archives that a checkpointer made at its interval; the latest is needed."""
    directory = run_dir / CHECKPOINTS_DIR
    if not _real(directory).is_relative_to(run_dir) or not directory.is_dir():
        return
    ages = {path: age for path in directory.iterdir() if (age := _archive_age(path)) is not None}
    needed = {read_pointer(directory), max(ages, key=ages.__getitem__, default=None)}
    for path in ages:
        if (size := _own_size(path, run_dir)) is not None:
            is_latest = path in needed
            named_by = names.find(path, None) or ("the latest archive" if is_latest else None)
            yield RunFile(path, "archive", size, named_by)


def _archive_age(path: Path) -> tuple[int, int] | None:
    """Return the age of the run at which an archive was made; None for any other file."""
    match = _ARCHIVE_NAME.fullmatch(path.name)
    return None if match is None else (int(match[1]), int(match[2] or 1))


def _own_size(path: Path, run_dir: Path) -> int | None:
    """Return the size of a regular file below the run directory; None for anything else."""
    try:
        found = path.lstat()
    except OSError:
        return None
    is_below = _real(path.parent).is_relative_to(run_dir)
    return found.st_size if is_below and stat.S_ISREG(found.st_mode) else None


def _manifests(run_dir: Path) -> list[Manifest]:
    """Return the manifests of a run directory and of the instances in it.

    Raises:
        ManifestError: One of them cannot be read.
    """
    top = _read(run_dir)
    listed = [_path(top, entry, "dir") for entry in filter(_is_object, top.instances)]
    written = [Path(record.instance_dir) for record in read_records(run_dir)]
    homes = dict.fromkeys(_real(home) for home in (*written, *listed) if home is not None)
    return [top, *(_read(home) for home in homes if home != run_dir)]


def _read(home: Path) -> Manifest:
    path = manifest_path(home)
    return read_manifest(path) if path.exists() else Manifest(path)


def _directories(run_dir: Path) -> list[Path]:
    """Return the directories below a run directory that clawblox writes to."""
    found = [run_dir, run_dir / CHECKPOINTS_DIR]
    for record in read_records(run_dir):
        home = Path(record.instance_dir)
        files = files_dir(Path(record.world_dir), home)
        found += [home, files / CHECKPOINTS_DIR, files / DATASTORE_DIR_NAME]
    places = dict.fromkeys(map(_real, found))
    return [path for path in places if path.is_relative_to(run_dir) and path.is_dir()]


def _entries(manifest: Manifest) -> Iterator[tuple[Path, ManifestEntry]]:
    """Yield the checkpoints of a manifest that were not removed, each with its path."""
    for entry in filter(_is_object, manifest.checkpoints):
        path = _path(manifest, entry, "path")
        if path is not None and "removed_at" not in entry:
            yield path, entry


def _path(manifest: Manifest, entry: ManifestEntry, key: str) -> Path | None:
    written = entry.get(key)
    if not isinstance(written, str) or "\0" in written:
        return None
    return Path(os.path.normpath(manifest.resolve(written)))


def _is_object(entry: object) -> bool:
    return isinstance(entry, dict)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
