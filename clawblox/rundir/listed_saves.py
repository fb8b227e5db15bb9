"""Finds the saves in manifests, and the latest existing save of each instance."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from clawblox.errors import ManifestError
from clawblox.rundir.manifest import Manifest, manifest_path, read_manifest
from clawblox.rundir.manifest_entries import normal, objects_in, read_number, read_text
from clawblox.rundir.paths import file_stamp
from clawblox.rundir.records import InstanceRecord, PathMover
from clawblox.telemetry.own_log import OwnLog

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
