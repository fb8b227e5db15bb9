"""The instances that a resume continues, and the save that each continues from.

A resume continues the instances that ended without being stopped on purpose. An instance continues
from the last good save of its run, or starts as the run started. A resume first ends the orphaned
processes of instances without an orchestrator. This module only reads records, manifests and
snapshots. Everything here blocks.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from clawblox.errors import ClawbloxError, ManifestError, RunLockedError, UsageError
from clawblox.foreign_values import whole_number
from clawblox.results import SavedSnapshot, describe_end
from clawblox.rundir.claims import claim_run, describe_holder
from clawblox.rundir.manifest import Manifest, read_manifest
from clawblox.rundir.manifest_entries import ManifestEntry, objects_in, read_number, read_text
from clawblox.rundir.paths import name_lock
from clawblox.rundir.records import (
    InstanceRecord,
    former_run_dir,
    read_record,
    read_records,
    relocated,
    replace_record,
)
from clawblox.rundir.saves import is_good_save
from clawblox.rundir.status import choose_named, is_over, is_owned
from clawblox.snapshot.rows import rows_beside
from clawblox.system.files import has_digest
from clawblox.system.process_tree import boot_id

STOPPED_ON_PURPOSE: Final = "was stopped on purpose"
"""Reason for leaving an instance alone that can still be resumed by name."""


class Interrupted(msgspec.Struct, frozen=True):
    """An instance that a resume can continue.

    Attributes:
        record: Record of the instance.
        saves: The saves of the run, oldest first; the last is good. Empty if the instance starts as
            its run started.
        reason: Reason for not continuing from the newest save; None if it does.
        number: Number of this restart in the run, from 1; 0 if the run never started.
        is_labelled: Whether the manifest describes the run.
        problem: Reason why the instance cannot continue; None if it can.
    """

    record: InstanceRecord
    saves: tuple[SavedSnapshot, ...]
    reason: str | None
    number: int
    is_labelled: bool
    problem: str | None

    @property
    def last_save(self) -> SavedSnapshot | None:
        """The save that the instance continues from; None if it starts again."""
        return self.saves[-1] if self.saves else None

    @property
    def exit(self) -> str:
        """Description of the instance's end."""
        record = self.record
        if record.exit is not None or record.halt is not None:
            return describe_end(record.exit, record.halt)
        if record.state == "failed":
            return "its start failed"
        same_boot = record.boot_id == boot_id()
        return "its orchestrator was killed" if same_boot else "the machine was restarted"


class InterruptedRun(msgspec.Struct, frozen=True):
    """The instances that a resume continues, and those that it leaves alone.

    Attributes:
        instances: The instances that continue, by name.
        left: Reasons for leaving other instances alone, by name.
    """

    instances: tuple[Interrupted, ...]
    left: Mapping[str, str]

    @property
    def records(self) -> list[InstanceRecord]:
        """The records of the instances that continue."""
        return [found.record for found in self.instances]


def find_interrupted(
    run_dir: Path, names: Sequence[str] = (), *, world_dir: Path | None = None
) -> InterruptedRun:
    """Return the instances of a run directory that a resume continues, with their saves.

    Args:
        run_dir: The run directory, resolved.
        names: The instances to resume, even if they were stopped on purpose; empty means all that
            were interrupted.
        world_dir: The only world whose instances are resumed; None means all worlds.

    Raises:
        UsageError: A named instance does not exist, has finished or is running; or the directory
            was moved without the directory of an instance.
        RunLockedError: Another orchestrator, named in the error, runs instances here.
    """
    return read_interruption(*select_interrupted(run_dir, names, world_dir=world_dir))


def select_interrupted(
    run_dir: Path, names: Sequence[str] = (), *, world_dir: Path | None = None
) -> tuple[list[InstanceRecord], dict[str, str]]:
    """Return the records of instances to resume, and reasons for leaving others alone.

    Arguments and errors are those of :func:`find_interrupted`.
    """
    claim_run(run_dir).release()
    chosen: list[InstanceRecord] = []
    left: dict[str, str] = {}
    records = [relocated(run_dir, record) for record in read_records(run_dir)]
    if world_dir is not None:
        resolve, place = functools.cache(os.path.realpath), os.path.realpath(world_dir)
        records = [record for record in records if resolve(record.world_dir) == place]
    for record in choose_named(run_dir, records, names):
        why = _why_left(run_dir, record, is_named=bool(names))
        if why is None:
            chosen.append(record)
        elif names:
            raise UsageError(f"instance {record.name!r} cannot be resumed: it {why}")
        else:
            left[record.name] = why
    return chosen, left


def read_interruption(records: Iterable[InstanceRecord], left: Mapping[str, str]) -> InterruptedRun:
    """Return the saves that instances continue from; each manifest and save is read once.

    Args:
        records: Records of the instances.
        left: Reasons for leaving other instances alone, by name.
    """
    read, check = functools.cache(_read_manifest), functools.cache(_check_origin)
    return InterruptedRun(tuple(_describe(record, read, check) for record in records), left)


def read_saves(record: InstanceRecord) -> tuple[SavedSnapshot, ...]:
    """Return the saves of an instance's run that were not removed on purpose, oldest first.

    The result is empty if the manifest cannot be read.
    """
    manifest, _ = _read_manifest(Path(record.instance_dir))
    return tuple(_list_saves(manifest, record))


def can_resume(run_dir: Path, names: Sequence[str] = ()) -> bool:
    """Return whether a resume would continue any instance, without checking saves.

    Args:
        run_dir: The run directory, resolved.
        names: Names of the instances; empty means all.
    """
    try:
        chosen, _ = select_interrupted(run_dir)
    except (ClawbloxError, OSError):  # a part is elsewhere, or another orchestrator owns it now
        return False
    return any(not names or record.name in names for record in chosen)


def set_aside(run_dir: Path, names: Iterable[str]) -> None:
    """Exclude instances that have ended from later resumes.

    Args:
        run_dir: The run directory.
        names: Names of the instances; those that have not ended are left unchanged.

    Raises:
        OSError: A record cannot be written.
    """
    meant = set(names)
    for record in read_records(run_dir):
        is_noted = record.stopped_on_purpose or record.has_finished
        if record.name in meant and not is_noted and is_over(record):
            replace_record(run_dir, msgspec.structs.replace(record, stopped_on_purpose=True))


# -- selection -------------------------------------------------------------------------------------


def _why_left(run_dir: Path, record: InstanceRecord, *, is_named: bool) -> str | None:
    """Return the reason for leaving an instance alone; None if it is resumed.

    Raises:
        RunLockedError: Another running orchestrator owns the instance.
    """
    if is_owned(run_dir, record):
        if record.orchestrator_pid == os.getpid():
            return "runs"
        raise RunLockedError(
            f"instance {record.name!r} of {run_dir} is held by "
            f"{describe_holder(record.orchestrator_pid)}",
            path=name_lock(run_dir, record.name),
            pid=record.orchestrator_pid,
            hint="it is already running; clawblox ps, logs and stop still work",
        )
    if record.is_alive and record.is_detached:
        return "runs detached; World.attach(run_dir) takes it over"
    if record.has_finished:
        return "has finished"
    if record.stopped_on_purpose and not is_named:
        return STOPPED_ON_PURPOSE
    return None


# -- saves -----------------------------------------------------------------------------------------


def _read_manifest(directory: Path) -> tuple[Manifest, str | None]:
    """Return a manifest and None, or an empty manifest and the reason why it is unreadable."""
    try:
        return read_manifest(directory), None
    except ManifestError as error:
        return Manifest(directory), error.message


def _describe(
    record: InstanceRecord,
    read: Callable[[Path], tuple[Manifest, str | None]],
    check: Callable[[str | None, str | None], str | None],
) -> Interrupted:
    """Return the saves that an instance can continue from; ``read`` and ``check`` are cached."""
    manifest, problem = read(Path(record.instance_dir))
    saves, reason = _find_good_save(tuple(_list_saves(manifest, record)))
    if problem is not None:
        reason = f"its saves are unknown: {problem}"
    return Interrupted(
        record,
        saves,
        reason,
        number=_next_number(record, manifest),
        is_labelled=record.index is None or manifest.run.get("id") == record.run_id,
        problem=None if saves else check(record.first_resume_path, record.first_sha256),
    )


def _check_origin(path: str | None, sha256: str | None) -> str | None:
    """Return the reason why the origin of a run is not usable, or None."""
    if path is None:
        return None
    if not Path(path).is_file():
        return f"it has no good save, and the snapshot that it started from is missing: {path}"
    if sha256 is not None and not has_digest(Path(path), sha256):
        return f"it has no good save, and the snapshot that it started from was changed: {path}"
    return None


def _list_saves(manifest: Manifest, record: InstanceRecord) -> Iterator[SavedSnapshot]:
    """Yield the saves of an instance's run that were not removed on purpose, oldest first."""
    for entry in _list_entries(manifest.checkpoints, record.run_id):
        is_its = entry.get("instance") == record.name and "removed_at" not in entry
        if is_its and entry.get("sha256"):
            yield SavedSnapshot(
                path=manifest.resolve(str(entry.get("path"))),
                format=str(entry.get("format")),
                time=read_number(entry, "time"),
                size_bytes=int(read_number(entry, "size_bytes") or 0),
                sha256=str(entry["sha256"]),
                created_at=str(entry.get("created_at")),
                instance=record.name,
                rows_sha256=read_text(entry, "rows_sha256"),
                rows_size_bytes=whole_number(entry.get("rows_size_bytes")),
            )


def _find_good_save(
    saves: tuple[SavedSnapshot, ...],
) -> tuple[tuple[SavedSnapshot, ...], str | None]:
    """Return the saves up to the last good one, and the reason if that is not the newest."""
    reason = None if saves else "it has no save"
    for count in range(len(saves), 0, -1):
        save = saves[count - 1]
        if is_good_save(save):
            return saves[:count], reason
        is_there = save.path.exists() and (
            save.rows_sha256 is None or rows_beside(save.path).exists()
        )
        wrong = "is not the file that was saved" if is_there else "is missing"
        reason = reason or f"{save.path.name} {wrong}"
    return (), reason


def _next_number(record: InstanceRecord, manifest: Manifest) -> int:
    """Return the number of the next restart of a run; 0 for a run that never started."""
    never_began = record.state in ("planned", "interrupted") and record.pid == 0
    if never_began and not record.restarts:
        return 0
    noted = [entry.get("number") for entry in _list_entries(manifest.restarts, record.run_id)]
    # A planned restart counts only once the manifest lists it.
    begun = record.restarts - never_began
    return max(begun, *(whole_number(number) or 0 for number in noted), 0) + 1


def _list_entries(entries: Iterable[Any], run_id: str) -> Iterator[ManifestEntry]:
    return (entry for entry in objects_in(entries) if entry.get("run_id") == run_id)


def left_instances(run_dir: Path) -> dict[str, str]:
    """Return the cookies of the instances that no orchestrator owns, by name.

    Running detached instances are left out, and so are instances of another run if this run
    directory is a copy.

    Args:
        run_dir: The run directory.

    Raises:
        ManifestError: A later version of clawblox wrote a record.
    """
    return {
        record.name: record.cookie
        for record in read_records(run_dir)
        if not (
            is_owned(run_dir, record)
            or (record.is_detached and record.is_alive)
            or _is_copied(run_dir, record)
        )
    }


def _is_copied(run_dir: Path, record: InstanceRecord) -> bool:
    """Return whether the original run directory of an instance still exists elsewhere."""
    place = former_run_dir(record)
    try:
        original = read_record(place, record.name)
    except ManifestError:
        return False
    if original is None or original.cookie != record.cookie:
        return False
    return not place.samefile(run_dir)
