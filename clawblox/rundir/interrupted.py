"""The instances that a resume brings back, and the save that each continues from.

A resume brings back the instances that ended and were not stopped on purpose. An instance
continues from the last good save of its run, else as the run began. The processes of instances that
no orchestrator owns are orphans, which a resume ends first. Records, manifests and snapshots are
read; nothing is changed. Everything here blocks.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

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
"""Why an instance is left alone that can be resumed by its name."""


@attrs.frozen
class Interrupted:
    """An instance that a resume can bring back.

    Attributes:
        record: Its record.
        saves: The saves of its run, oldest first; the last is good. Empty if it continues as its
            run began.
        reason: Why it does not continue from its newest save; None if it does.
        number: Number of the restart of the run that this will be, from 1; 0 if it never began.
        is_labelled: Whether the manifest describes its run.
        problem: Why it cannot continue at all; None if it can.
    """

    record: InstanceRecord
    saves: tuple[SavedSnapshot, ...]
    reason: str | None
    number: int
    is_labelled: bool
    problem: str | None

    @property
    def last_save(self) -> SavedSnapshot | None:
        """The save that it continues from."""
        return self.saves[-1] if self.saves else None

    @property
    def exit(self) -> str:
        """Its end, in words."""
        record = self.record
        if record.exit is not None or record.halt is not None:
            return describe_end(record.exit, record.halt)
        if record.state == "failed":
            return "its start failed"
        same_boot = record.boot_id == boot_id()
        return "its orchestrator was killed" if same_boot else "the machine was restarted"


@attrs.frozen
class InterruptedRun:
    """The instances that a resume brings back, and those that it leaves alone.

    Attributes:
        instances: The instances that continue, by name.
        left: Why others are left alone, by name.
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
    """Return the instances of a run directory that a resume brings back, with their saves.

    Args:
        run_dir: The run directory, resolved.
        names: The instances to bring back, even when they were stopped on purpose; empty means all
            that were interrupted.
        world_dir: Leave instances of other worlds alone; None takes the instances of all worlds.

    Raises:
        UsageError: One of ``names`` is not there, has finished or runs; or the directory was moved
            without the directory of an instance.
        RunLockedError: Another orchestrator runs instances here; names it.
    """
    return read_interruption(*select_interrupted(run_dir, names, world_dir=world_dir))


def select_interrupted(
    run_dir: Path, names: Sequence[str] = (), *, world_dir: Path | None = None
) -> tuple[list[InstanceRecord], dict[str, str]]:
    """Return the records of the instances that continue, and why others are left alone.

    Takes and raises what :func:`find_interrupted` does.
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
        records: Their records.
        left: Why others are left alone, by name.
    """
    read, check = functools.cache(_read_manifest), functools.cache(_check_origin)
    return InterruptedRun(tuple(_describe(record, read, check) for record in records), left)


def read_saves(record: InstanceRecord) -> tuple[SavedSnapshot, ...]:
    """Return the saves of an instance's run that were not removed on purpose, oldest first.

    There are none in a manifest that cannot be read.
    """
    manifest, _ = _read_manifest(Path(record.instance_dir))
    return tuple(_list_saves(manifest, record))


def can_resume(run_dir: Path, names: Sequence[str] = ()) -> bool:
    """Return whether a resume would bring an instance back; saves are not looked at.

    Args:
        run_dir: The run directory, resolved.
        names: The instances that are meant; none means all.
    """
    try:
        chosen, _ = select_interrupted(run_dir)
    except (ClawbloxError, OSError):  # a part is elsewhere, or another orchestrator has it by now
        return False
    return any(not names or record.name in names for record in chosen)


def set_aside(run_dir: Path, names: Iterable[str]) -> None:
    """Note that instances that have ended are not to be brought back.

    Args:
        run_dir: The run directory.
        names: Their names; those that have not ended are left as they are.

    Raises:
        OSError: A record cannot be written.
    """
    meant = set(names)
    for record in read_records(run_dir):
        is_noted = record.stopped_on_purpose or record.has_finished
        if record.name in meant and not is_noted and is_over(record):
            replace_record(run_dir, attrs.evolve(record, stopped_on_purpose=True))


# -- which ----------------------------------------------------------------------------------------


def _why_left(run_dir: Path, record: InstanceRecord, *, is_named: bool) -> str | None:
    """Return why an instance is left alone; None if it is to be resumed.

    Raises:
        RunLockedError: Another living orchestrator owns it.
    """
    if is_owned(run_dir, record):
        if record.orchestrator_pid == os.getpid():
            return "runs"
        raise RunLockedError(
            f"instance {record.name!r} of {run_dir} is held by "
            f"{describe_holder(record.orchestrator_pid)}",
            path=name_lock(run_dir, record.name),
            pid=record.orchestrator_pid,
            hint="it runs already; clawblox ps, logs and stop work",
        )
    if record.is_alive and record.is_detached:
        return "runs detached; World.attach(run_dir) takes it over"
    if record.has_finished:
        return "has finished"
    if record.stopped_on_purpose and not is_named:
        return STOPPED_ON_PURPOSE
    return None


# -- from what ------------------------------------------------------------------------------------


def _read_manifest(directory: Path) -> tuple[Manifest, str | None]:
    """Return a manifest, empty if it cannot be read, and why not."""
    try:
        return read_manifest(directory), None
    except ManifestError as error:
        return Manifest(directory), error.message


def _describe(
    record: InstanceRecord,
    read: Callable[[Path], tuple[Manifest, str | None]],
    check: Callable[[str | None, str | None], str | None],
) -> Interrupted:
    """Return the saves that an instance can continue from; ``read`` and ``check`` remember."""
    manifest, problem = read(Path(record.instance_dir))
    saves, reason = _find_good_save(tuple(_list_saves(manifest, record)))
    if problem is not None:
        reason = f"it has no save that is known: {problem}"
    return Interrupted(
        record,
        saves,
        reason,
        number=_next_number(record, manifest),
        is_labelled=record.index is None or manifest.run.get("id") == record.run_id,
        problem=None if saves else check(record.first_resume_path, record.first_sha256),
    )


def _check_origin(path: str | None, sha256: str | None) -> str | None:
    """Return why an instance cannot continue as its run began; it never starts fresh then."""
    if path is None:
        return None
    if not Path(path).is_file():
        return f"it has no good save, and the snapshot that it began from is missing: {path}"
    if sha256 is not None and not has_digest(Path(path), sha256):
        return f"it has no good save, and the snapshot that it began from was changed: {path}"
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
    """Return the saves up to the last good save, and why that is not the newest."""
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
    """Return the number of the next restart of a run; 0 for a run that never began."""
    never_began = record.state in ("planned", "interrupted") and record.pid == 0
    if never_began and not record.restarts:
        return 0
    noted = [entry.get("number") for entry in _list_entries(manifest.restarts, record.run_id)]
    # A restart that was planned and not begun does not count, unless the manifest has it.
    begun = record.restarts - never_began
    return max(begun, *(whole_number(number) or 0 for number in noted), 0) + 1


def _list_entries(entries: Iterable[Any], run_id: str) -> Iterator[ManifestEntry]:
    return (entry for entry in objects_in(entries) if entry.get("run_id") == run_id)


def left_instances(run_dir: Path) -> dict[str, str]:
    """Return the cookies of the instances that no orchestrator owns, by name.

    Detached instances that run are left out, and so are those of another run, of which this run
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
    """Return whether the run directory in which an instance ran is still where it was."""
    place = former_run_dir(record)
    try:
        original = read_record(place, record.name)
    except ManifestError:
        return False
    if original is None or original.cookie != record.cookie:
        return False
    return not place.samefile(run_dir)
