"""Cleans up after killed orchestrators: marks runs as interrupted, registers or removes files.

A file is removed only if its writer is gone: either the file's name identifies the writer, or this
process holds the lock that the writer would hold. A published but unregistered snapshot is
registered if it is newer than the last save of its run in the manifest; an older one is the remnant
of an interrupted removal, and is removed. A run directory may come from a stranger, so files that
its records name outside of it are left alone. Everything here blocks.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.config.options import DEFAULT_MAX_SNAPSHOT_BYTES
from clawblox.errors import ManifestError
from clawblox.protocol import DEFAULT_SNAPSHOT_FORMAT
from clawblox.results import SavedSnapshot
from clawblox.rundir.manifest import Manifest, manifest_path, read_manifest, try_read_manifest
from clawblox.rundir.manifest_entries import is_placed, normal, objects_in
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.manifest_updates import checkpoint_update
from clawblox.rundir.paths import files_dir, records_dir, run_lock
from clawblox.rundir.records import InstanceRecord, close_stale_records, read_records
from clawblox.rundir.saves import unlink_saves
from clawblox.rundir.status import has_owner
from clawblox.snapshot.checker import CheckerLost, DocumentCheck
from clawblox.snapshot.header import Header, InvalidDocument
from clawblox.snapshot.rows import ROWS_SUFFIX, rows_beside
from clawblox.system.files import MAX_DATABASE_BYTES, digest_file, is_below, sweep_partials
from clawblox.system.locks import lock_file, lock_owner, unlock_file
from clawblox.system.process_tree import read_process
from clawblox.system.regular_files import digest_open, open_regular
from clawblox.telemetry.own_log import OwnLog

_LOCK_WAIT_S: Final = 1.0

_log = OwnLog(__name__)


def close_interrupted(run_dir: Path, *, without: Collection[str] = ()) -> list[Path]:
    """Mark instances as interrupted in their records; return the directories of open runs.

    Args:
        run_dir: The run directory.
        without: Names of instances to leave unchanged.

    Returns:
        The directories whose manifests still list the run as running.
    """
    stale = close_stale_records(run_dir, without=without)
    directories = {Path(record.instance_dir) for record in stale if _is_inside(record, run_dir)}
    return [directory for directory in sorted(directories) if is_left_open(directory)]


def is_left_open(instance_dir: Path) -> bool:
    """Return whether a manifest lists its run as running."""
    return try_read_manifest(instance_dir).run.get("status") == "running"


def remove_leftovers(run_dir: Path) -> None:
    """Remove the half-written files of killed writers from a run directory.

    Unpublished manifests of killed writers are first merged into the manifest. The next writer
    retries to remove files that could not be removed.
    """
    known = read_records(run_dir)
    records = [record for record in known if not (record.is_alive or has_owner(record))]
    homes = {Path(record.instance_dir) for record in records if _is_inside(record, run_dir)}
    places = {run_dir, records_dir(run_dir), *homes}
    for record in records:
        places |= {_find_saves(record), Path(record.command_file).parent}
    places = {place for place in places if is_below(place, run_dir)}
    for directory in sorted({run_dir, *homes}):
        with _log.contain("manifest not cleared", expected=(ManifestError,)):
            ManifestFile(manifest_path(directory), lock_wait=_LOCK_WAIT_S).take_in_leftovers()
    for directory in places:
        with contextlib.suppress(OSError):
            sweep_partials(directory)
    with contextlib.suppress(OSError):
        lock_path = run_lock(run_dir)
        owner = lock_owner(lock_path)
        if owner is not None and read_process(owner.pid) is None:
            fd = lock_file(lock_path)
            if fd is not None:
                unlock_file(lock_path, fd)


def _is_inside(record: InstanceRecord, run_dir: Path) -> bool:
    """Return whether the files of an instance are in its run directory, as clawblox writes them."""
    return all(is_below(p, run_dir) for p in (Path(record.instance_dir), _find_saves(record)))


def _find_saves(record: InstanceRecord) -> Path:
    """Return the directory of the saves of an instance."""
    return files_dir(Path(record.world_dir), Path(record.instance_dir)) / "checkpoints"


# -- snapshots that no manifest lists --------------------------------------------------------------


_LEFT_BY_THE_DEAD: Final = ("starting", "ready", "interrupted")
_FILE_NAME: Final = re.compile(
    r"(?P<instance>.+)-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-[0-9a-f]{6}\.(json|snapshot)"
)
"""File names that ``snapshot.capture`` uses: instance, UTC time, a few random digits."""


def is_save_name(name: str, instance: str) -> bool:
    """Return whether a file name is that of a save of an instance."""
    match = _FILE_NAME.fullmatch(name)
    return match is not None and match["instance"] == instance


def settle_unlisted_saves(run_dir: Path) -> None:
    """Register or remove the snapshots of a run directory that no manifest lists.

    The snapshots of a running orchestrator are left alone, because it may be about to register
    them.
    """
    for record in read_records(run_dir):
        is_dead = not (record.is_alive or has_owner(record))
        is_left = record.run_id and record.state in _LEFT_BY_THE_DEAD
        if is_dead and is_left and _is_inside(record, run_dir):
            expected = (OSError, ManifestError, CheckerLost)
            with _log.contain("saves not registered", expected=expected, instance=record.name):
                _settle(record)


def _settle(record: InstanceRecord) -> None:
    home, place = Path(record.instance_dir), _find_saves(record)
    _remove_lone_rows(record, place)
    found = [*_find_files(record, place)]
    if not found:
        return
    manifest = read_manifest(home)
    saves = [entry for entry in manifest.checkpoints if is_placed(entry, "path")]
    listed = {normal(entry["path"], manifest.state_root) for entry in saves}
    last = _last_listed_save(manifest, record)
    updates = []
    found.sort(key=lambda save: (save[0], save[1].stat().st_mtime_ns))
    for created_at, path in found:
        if os.path.normpath(path) in listed:
            continue
        if _is_older(created_at, path, last, manifest):
            unlink_saves([path])
            continue
        is_autosave = last.get("autosave") is True
        expected = (OSError, InvalidDocument)
        with _log.contain("save not registered", expected=expected, path=str(path)):
            saved = _read_save(record.name, path, created_at)
            updates.append(checkpoint_update(saved, run_id=record.run_id, is_autosave=is_autosave))
    if updates:
        ManifestFile(manifest_path(home), lock_wait=_LOCK_WAIT_S).apply(updates)


def _is_older(created_at: str, path: Path, last: Mapping[str, Any], manifest: Manifest) -> bool:
    """Return whether a file was saved before the last listed save."""
    last_created_at = str(last.get("created_at", ""))
    if created_at != last_created_at:
        return created_at < last_created_at
    # Names have whole seconds, so an unlisted autosave may be from the same second.
    try:
        last_status = os.stat(manifest.resolve(str(last.get("path"))))  # noqa: PTH116
    except OSError:
        return False
    return path.stat().st_mtime_ns < last_status.st_mtime_ns


def _remove_lone_rows(record: InstanceRecord, place: Path) -> None:
    """Remove rows that were published without their snapshots; rows are published first."""
    for rows in place.glob(f"{glob.escape(record.name)}-*{ROWS_SUFFIX}"):
        snapshot = rows.with_name(rows.name.removesuffix(ROWS_SUFFIX))
        if is_save_name(snapshot.name, record.name) and not snapshot.exists():
            rows.unlink(missing_ok=True)


def _find_files(record: InstanceRecord, place: Path) -> Iterator[tuple[str, Path]]:
    """Yield time and path of the files in ``place`` whose names are those of a run's saves."""
    try:
        names = os.listdir(place)  # noqa: PTH208 - names are enough
    except OSError:
        return
    for name in names:
        match = _FILE_NAME.fullmatch(name)
        if match and match["instance"] == record.name:
            created_at = "{}-{}-{}T{}:{}:{}Z".format(*match.groups()[1:7])
            if created_at >= record.started_at:
                yield created_at, place / name


def _last_listed_save(manifest: Manifest, record: InstanceRecord) -> Mapping[str, Any]:
    """Return the entry of the run's newest save, the last within its second; {} if none."""
    last: Mapping[str, Any] = {}
    for entry in objects_in(manifest.checkpoints):
        is_of_the_run = entry.get("run_id") == record.run_id
        if is_of_the_run and str(entry.get("created_at", "")) >= str(last.get("created_at", "")):
            last = entry
    return last


def _read_save(instance: str, path: Path, created_at: str) -> SavedSnapshot:
    check, header = DocumentCheck(), Header()
    limit = DEFAULT_MAX_SNAPSHOT_BYTES
    with os.fdopen(open_regular(path, max_bytes=limit), "rb") as file:
        sha256 = digest_open(file.fileno(), max_bytes=limit)
        with contextlib.closing(check):
            if path.suffix == ".json":  # published files were strict JSON
                header = check.read_header(file.fileno())
        size_bytes = os.fstat(file.fileno()).st_size
    rows = rows_beside(path)
    has_rows = rows.exists()
    return SavedSnapshot(
        path=path,
        format=header.format or DEFAULT_SNAPSHOT_FORMAT,
        time=header.time,
        size_bytes=size_bytes,
        sha256=sha256,
        created_at=created_at,
        instance=instance,
        rows_sha256=digest_file(rows, max_bytes=MAX_DATABASE_BYTES) if has_rows else None,
        rows_size_bytes=rows.stat().st_size if has_rows else None,
    )
