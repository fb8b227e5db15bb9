"""What killed orchestrators left in a run directory: noted as interrupted, and removed.

A file is removed only when its writer is gone: either its name tells the writer, or the lock that
the writer would hold is held here. Everything here blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from pathlib import Path

from clawblox.errors import ManifestError
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.rundir.manifest_file import ManifestFile
from clawblox.rundir.paths import files_dir, records_dir, run_lock
from clawblox.rundir.records import InstanceRecord, close_stale_records, read_records
from clawblox.rundir.status import has_owner
from clawblox.system.files import sweep_partials
from clawblox.system.locks import lock_file, lock_owner, unlock_file
from clawblox.system.process_tree import read_process
from clawblox.telemetry.own_log import OwnLog

_LOCK_WAIT_S = 1.0

_log = OwnLog(__name__)


def close_interrupted(run_dir: Path, *, without: Collection[str] = ()) -> list[Path]:
    """Note in their records that instances were interrupted; return the runs that are left open.

    Args:
        run_dir: The run directory.
        without: Names of instances that are left as they are.

    Returns:
        The directories whose manifests still say that the run goes on.
    """
    stale = close_stale_records(run_dir, without=without)
    directories = {Path(record.instance_dir) for record in stale}
    return [directory for directory in sorted(directories) if is_left_open(directory)]


def is_left_open(instance_dir: Path) -> bool:
    """Return whether a manifest says that its run goes on."""
    try:
        return read_manifest(instance_dir).run.get("status") == "running"
    except ManifestError:
        return False


def remove_leftovers(run_dir: Path) -> None:
    """Remove what killed writers left half-written in a run directory.

    What the manifests of killed writers hold is put into the manifest before. A file that cannot be
    removed stays; the next writer there tries again.
    """
    known = read_records(run_dir)
    records = [record for record in known if not (record.is_alive or has_owner(record))]
    homes = {Path(record.instance_dir) for record in records}
    for directory in sorted({run_dir, *homes}):
        _clear_manifest(directory)
    for directory in {run_dir, records_dir(run_dir), *_list_directories(records)}:
        with contextlib.suppress(OSError):
            sweep_partials(directory)
    with contextlib.suppress(OSError):
        _remove_dead_lock(run_lock(run_dir))


def _list_directories(records: Iterable[InstanceRecord]) -> set[Path]:
    """Return where instances have their files."""
    found: set[Path] = set()
    for record in records:
        home = Path(record.instance_dir)
        checkpoints = files_dir(Path(record.world_dir), home) / "checkpoints"
        found |= {home, checkpoints, Path(record.command_file).parent}
    return found


def _clear_manifest(directory: Path) -> None:
    try:
        ManifestFile(manifest_path(directory), lock_wait=_LOCK_WAIT_S).take_in_leftovers()
    except ManifestError as error:
        _log.warning("manifest not cleared", error=str(error))


def _remove_dead_lock(path: Path) -> None:
    owner = lock_owner(path)
    if owner is not None and read_process(owner.pid) is None:
        fd = lock_file(path)
        if fd is not None:
            unlock_file(path, fd)
