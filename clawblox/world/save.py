"""Saves instances of a fleet: one, many concurrently, or all at an interval.

``rundir.saves`` writes the file and its manifest entry. This module counts the saves, remembers
them for a restart, and removes old saves, but never the last good save.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
import attrs

from clawblox.concurrency.batch import BatchOperation
from clawblox.concurrency.progress import ProgressLike
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_progress
from clawblox.config.options import SaveOptions
from clawblox.errors import ClawbloxError
from clawblox.results import SavedSnapshot
from clawblox.rundir.leftovers import is_save_name
from clawblox.rundir.listed_saves import autosaves
from clawblox.rundir.manifest_updates import removal_update
from clawblox.rundir.saves import save_snapshot, unlink_saves
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import available_bytes
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.players import remember_players

_log = OwnLog(__name__)


def save_all(
    fleet: Fleet,
    instances: Iterable[InstanceHandle],
    options: SaveOptions,
    *,
    progress: ProgressLike = False,
    retention: Retention | None = None,
) -> BatchOperation[SavedSnapshot]:
    """Save snapshots of many instances concurrently; see ``AsyncWorld.save_all``."""
    save_one = partial(save_instance, fleet, options=options, retention=retention)
    return BatchOperation(
        fleet.tasks,
        {instance.name: partial(save_one, instance) for instance in instances},
        verb="Saving",
        progress=check_progress(progress, "progress"),
    )


async def save_instance(
    fleet: Fleet,
    instance: InstanceHandle,
    options: SaveOptions,
    *,
    retention: Retention | None = None,
) -> SavedSnapshot:
    """Save a snapshot of one instance and register it, in a task of the fleet.

    Args:
        fleet: The fleet.
        instance: The instance.
        options: The options of the save.
        retention: Removes older autosaves; None if the save is not an autosave.

    Raises:
        SnapshotError: The world gave no usable snapshot; no file or manifest entry is left.
        WorldExitedError: The instance has ended; no file or manifest entry is left.
        ManifestError: The file is complete, but not registered.

    Cancellation: leaves both the file and its manifest entry, or neither.
    """
    fleet.recorder.add("saves")
    begun_at = anyio.current_time()
    retire = None if retention is None else partial(retention.retire, instance)
    try:
        async with instance.calls.call():
            saved = await save_snapshot(
                instance.instance.snapshot_source(),
                options,
                fleet.writers,
                world_dir=instance.launch.config.dir,
                instance_dir=instance.instance_dir,
                run_id=lambda: instance.run_id,
                retire=retire,
            )
    except Exception as error:
        fleet.emit("save_failed", instance.name, instance.labels, error=error)
        raise
    if retention is None:
        instance.source.add(saved)
    else:
        await retention.remove_retired(instance)
    kept = [save.path for save in instance.source.saves]
    instance.roster.note_save(saved.path, begun_at, kept)
    remember_players(saved, instance.roster.players_before(begun_at))
    elapsed_s = anyio.current_time() - begun_at
    fleet.recorder.observe("save_s", elapsed_s)
    fleet.recorder.add("saved_bytes", saved.size_bytes)
    fleet.emit(
        "saved",
        instance.name,
        instance.labels,
        path=saved.path,
        size_bytes=saved.size_bytes,
        elapsed_s=elapsed_s,
    )
    return saved


class Retention:
    """Decides which autosaves of each instance are kept, and removes the others.

    Args:
        fleet: The fleet.
        keep: Number of autosaves to keep per instance. Snapshots that an instance was restored from
            are also kept as long as they may be needed, and so are all other saves.
    """

    def __init__(self, fleet: Fleet, keep: int) -> None:
        self._fleet = fleet
        self._keep = keep
        self._kept: WeakKeyDictionary[InstanceHandle, list[Path]] = WeakKeyDictionary()
        self._retired: WeakKeyDictionary[InstanceHandle, list[Path]] = WeakKeyDictionary()

    async def retire(self, instance: InstanceHandle, saved: SavedSnapshot) -> list[Path]:
        """Count a new autosave, and return the files of the autosaves that it replaces.

        The new file is complete, and a restart may restore it from now on. :meth:`remove_retired`
        removes the other files once the manifest no longer lists them.
        """
        if instance not in self._kept:
            place = saved.path.parent
            self._kept[instance] = await run_blocking(_find_autosaves, instance, place)
        kept = [*self._kept[instance], saved.path]
        instance.source.add(saved)
        spent: list[Path] = []
        # Until the instance is ready, a restart may be restoring an autosave.
        if instance.is_ready:
            in_use = self._fleet.snapshots_in_use
            spent = [path for path in kept[: -self._keep] if path not in in_use]
            instance.source.remove(spent)
        self._kept[instance] = [path for path in kept if path not in spent]
        retired = [*self._retired.get(instance, ()), *spent]
        self._retired[instance] = retired
        return retired

    async def remove_retired(self, instance: InstanceHandle) -> None:
        """Remove the files of retired autosaves; a file that cannot be removed is retried later.

        Cancellation: the files are still removed.
        """
        if not (retired := self._retired.get(instance)):
            return
        try:
            with anyio.CancelScope(shield=True):
                await run_blocking(unlink_saves, retired)
        except OSError as error:
            _log.warning("saves not removed", instance=instance.name, error=str(error))
        else:
            self._retired[instance] = [
                path for path in self._retired[instance] if path not in retired
            ]


def _find_autosaves(instance: InstanceHandle, directory: Path) -> list[Path]:
    """Return the autosaves of the run of an instance in a directory, oldest first. Blocks."""
    place = os.path.realpath(directory)
    listed = autosaves(instance.instance_dir, instance.name, instance.run_id)
    # The world also writes to its manifest, and may list any file there.
    return [
        path
        for path in listed
        if is_save_name(path.name, instance.name) and os.path.realpath(path.parent) == place
    ]


@attrs.define(eq=False)
class Autosave:
    """Saves all instances of a fleet at an interval, and removes older autosaves of their runs.

    Args:
        fleet: The fleet.
        every: Seconds between the starts of two rounds of saves.
        retention: Removes older autosaves.
        min_free: Free disk space, in bytes, below which no autosave is made; None for no limit.
        options: The options of each save.
    """

    _fleet: Fleet
    _every: float
    _retention: Retention
    _min_free: int | None
    _options: SaveOptions
    _is_paused: bool = attrs.field(default=False, init=False)
    _scope: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _asked: set[InstanceHandle] = attrs.field(factory=set, init=False)
    _answering: set[InstanceHandle] = attrs.field(factory=set, init=False)

    async def run(self) -> None:
        """Save until cancelled. A failed save emits an event, and older saves are kept.

        Cancellation: a save in progress leaves both its file and its manifest entry, or neither.
        """
        with self._scope:
            while True:
                begun_at = anyio.current_time()
                with _log.contain("autosave failed"):  # the next one follows
                    await self._save_once()
                await anyio.sleep(max(0.0, begun_at + self._every - anyio.current_time()))

    def cancel(self) -> None:
        """Stop saving."""
        self._scope.cancel()

    def save_soon(self, instance: InstanceHandle) -> None:
        """Save an instance in the background, because an agent has joined it.

        Agents that join during the save are covered by one further save.
        """
        self._asked.add(instance)
        if instance not in self._answering:
            self._answering.add(instance)
            self._fleet.tasks.start_soon(self._save_asked, instance)

    async def _save_asked(self, instance: InstanceHandle) -> None:
        try:
            while instance in self._asked and not self._scope.cancel_called:
                self._asked.discard(instance)
                if not await self._with_room([instance]):
                    return
                with suppress(ClawbloxError):  # it is reported by an event
                    await save_instance(
                        self._fleet, instance, self._options, retention=self._retention
                    )
        finally:
            self._asked.discard(instance)
            self._answering.discard(instance)

    async def _save_once(self) -> None:
        ready = [instance for instance in self._fleet.instances if instance.is_ready]
        roomy = await self._with_room(ready)
        await save_all(self._fleet, roomy, self._options, retention=self._retention)

    async def _with_room(self, instances: Sequence[InstanceHandle]) -> Sequence[InstanceHandle]:
        """Return the instances whose disks have room; emit events for a pause and its end."""
        if self._min_free is None or not instances:
            return instances
        places = [self._options.dir or instance.instance_dir for instance in instances]
        free = await run_blocking(_measure_free, set(places))
        low = [place for place in places if free[place] < self._min_free]
        if bool(low) != self._is_paused:
            self._is_paused = bool(low)
            path = (low or places)[0]
            self._fleet.emit(
                "autosave_paused" if low else "autosave_resumed",
                "",
                {},
                path=path,
                free_bytes=free[path],
                min_free_bytes=self._min_free,
            )
        return [one for one, place in zip(instances, places, strict=True) if place not in low]


def _measure_free(directories: Iterable[Path]) -> Mapping[Path, float]:
    """Return the free bytes of disks; infinity if unknown, since the save will fail. Blocks."""
    found: dict[Path, float] = {}
    for directory in directories:
        try:
            found[directory] = available_bytes(directory)
        except OSError:
            found[directory] = math.inf
    return found


async def remove_save(fleet: Fleet, instance: InstanceHandle, spent: SavedSnapshot) -> None:
    """Remove a save of an instance, and note that in its manifest; log a failure.

    Cancellation: the save is still removed.
    """
    paths = [spent.path]
    writer = fleet.writers.of(instance.instance_dir)
    try:
        # Update the manifest first: a missing file is harmless, an unlisted file is not.
        with anyio.CancelScope(shield=True):
            await writer.apply(removal_update(paths, at=format_utc(utc_now())))
            await run_blocking(unlink_saves, paths)
    except (ClawbloxError, OSError) as error:
        _log.warning("saves not removed", instance=instance.name, error=str(error))
    else:
        instance.source.remove(paths)
