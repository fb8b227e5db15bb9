"""The last saves of instances, as their manifests tell."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

import attrs

from clawblox.errors import ManifestError
from clawblox.rundir.manifest import manifest_path, read_manifest
from clawblox.rundir.records import InstanceRecord
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)


@attrs.frozen
class InstanceSave:
    """A save of an instance, as a manifest tells of it.

    Attributes:
        instance: Name of the instance.
        run_id: Id of its run; empty for a save of an older version.
        path: The file.
        created_at: UTC time of the save.
        sha256: Digest of the file.
        time: Simulation time.
        is_autosave: Whether it may be removed once there are later autosaves.
    """

    instance: str
    run_id: str
    path: Path
    created_at: str | None
    sha256: str | None
    time: float | None
    is_autosave: bool


def last_saves_by_run(name: str, instance_dir: Path) -> dict[str, InstanceSave]:
    """Return the last save of an instance in each of its runs that is still there. Blocks.

    Args:
        name: Name of the instance.
        instance_dir: The directory with its manifest.

    Returns:
        By the id of the run, the latest first; earlier runs in the directory are among them.
    """
    found: dict[str, InstanceSave] = {}
    for save in _saves_in(instance_dir):
        if save.instance == name and save.run_id not in found and save.path.is_file():
            found[save.run_id] = save
    return found


def autosaves(instance_dir: Path, name: str, run_id: str) -> list[Path]:
    """Return the files of the autosaves of a run that were not removed, oldest first. Blocks.

    Args:
        instance_dir: The directory with the manifest.
        name: Name of the instance.
        run_id: Id of its run.
    """
    return [
        save.path
        for save in reversed(_saves_in(instance_dir))
        if save.is_autosave and save.instance == name and save.run_id == run_id
    ]


def last_saves(records: Iterable[InstanceRecord]) -> dict[str, InstanceSave]:
    """Return the last save of each instance that is of its run and still there. Blocks."""
    records = list(records)
    run_ids = {record.name: record.run_id for record in records}
    found: dict[str, InstanceSave] = {}
    for directory in {record.instance_dir for record in records}:
        for save in _saves_in(Path(directory)):
            is_of_its_run = run_ids.get(save.instance) == save.run_id
            if is_of_its_run and save.instance not in found and save.path.is_file():
                found[save.instance] = save
    return found


def _saves_in(instance_dir: Path) -> tuple[InstanceSave, ...]:
    """Return the saves that were not removed on purpose, the last one first."""
    try:
        found = manifest_path(instance_dir).stat()
    except OSError:
        return ()
    version = found.st_ino, found.st_mtime_ns, found.st_size
    return _latest_reading(instance_dir).read(version)


@functools.lru_cache(maxsize=1024)
def _latest_reading(instance_dir: Path) -> _Reading:
    return _Reading(instance_dir)


@attrs.define
class _Reading:
    """The latest reading of one manifest.

    A table of a run looks every second, and a manifest with many saves is slow to read.
    """

    instance_dir: Path
    _latest: tuple[tuple[int, ...], tuple[InstanceSave, ...]] | None = None

    def read(self, version: tuple[int, ...]) -> tuple[InstanceSave, ...]:
        """Return the saves, those read before if the version is the same."""
        latest = self._latest
        if latest is None or latest[0] != version:
            self._latest = latest = version, _read_saves(self.instance_dir)
        return latest[1]


def _read_saves(instance_dir: Path) -> tuple[InstanceSave, ...]:
    try:
        manifest = read_manifest(instance_dir)
    except ManifestError as error:
        _log.warning("saves not known", error=str(error))
        return ()
    return tuple(
        InstanceSave(
            instance=str(entry["instance"]),
            run_id=str(entry.get("run_id", "")),
            path=manifest.resolve(str(entry.get("path"))),
            created_at=entry.get("created_at"),
            sha256=entry.get("sha256"),
            time=entry.get("time"),
            is_autosave=entry.get("autosave") is True,
        )
        for entry in reversed(manifest.checkpoints)
        # Others are archives, or what a world has put there.
        if isinstance(entry, dict) and "removed_at" not in entry and "instance" in entry
    )
