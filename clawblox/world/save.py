"""Saves instances of a fleet: one, all at once, or at an interval.

``rundir.save`` writes the file and its manifest entry. This module counts the saves, remembers
them for a restart, and removes old ones, but never the last good one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio

from clawblox.concurrency.batch import BatchOperation
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import SaveOptions
from clawblox.errors import ClawbloxError
from clawblox.instance.lifecycle import State
from clawblox.instance.supervisor import Supervisor
from clawblox.results import SavedSnapshot
from clawblox.rundir.last_saves import autosaves
from clawblox.rundir.manifest_updates import removal_update
from clawblox.rundir.rows import unlink_saves
from clawblox.rundir.save import save_snapshot
from clawblox.rundir.unlisted_saves import is_save_name
from clawblox.system.clock import format_utc, utc_now
from clawblox.system.files import available_bytes
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.fleet import Fleet
from clawblox.world.players import remember_players
from clawblox.world.progress import shown_progress

_log = OwnLog(__name__)


async def save(fleet: Fleet, supervisor: Supervisor, options: SaveOptions) -> SavedSnapshot:
    """Save a snapshot of one instance and register it; see ``AsyncWorld.save``.

    Raises:
        SnapshotError: The world gave no usable snapshot; no file or manifest entry is left.
        WorldExitedError: The instance has ended; no file or manifest entry is left.
        ManifestError: The file is complete, but not registered.

    Cancellation: leaves both the file and its manifest entry, or neither.
    """
    return await fleet.tasks.own(partial(save_now, fleet, supervisor, options))


def save_all(
    fleet: Fleet,
    supervisors: Iterable[Supervisor],
    options: SaveOptions,
    *,
    progress: bool = False,
    retention: Retention | None = None,
) -> BatchOperation[SavedSnapshot]:
    """Save snapshots of many instances at once; see ``AsyncWorld.save_all``."""
    save_one = partial(save_now, fleet, options=options, retention=retention)
    return BatchOperation(
        fleet.tasks,
        {known.instance.name: partial(save_one, known) for known in supervisors},
        progress=partial(shown_progress, "Saving", is_wanted=progress),
    )


async def save_now(
    fleet: Fleet,
    supervisor: Supervisor,
    options: SaveOptions,
    *,
    retention: Retention | None = None,
) -> SavedSnapshot:
    """Save as :func:`save` does, for a caller that is a task of the fleet itself.

    Args:
        fleet: The fleet.
        supervisor: The instance.
        options: How to save.
        retention: What removes older autosaves; None if it is no autosave.
    """
    instance = supervisor.instance
    labels = instance.launch.options.labels
    fleet.recorder.add("saves")
    begun_at = anyio.current_time()
    try:
        async with supervisor.calls.call():
            saved = await save_snapshot(
                instance.running.snapshot_source(),
                options,
                fleet.writers,
                world_dir=instance.launch.config.dir,
                instance_dir=instance.launch.instance_dir,
                run_id=lambda: instance.run_id,
                retire=None if retention is None else partial(retention.retire, supervisor),
            )
    except Exception as error:
        fleet.emit("save_failed", instance.name, labels, error=error)
        raise
    if retention is None:
        supervisor.source.add(saved)
    else:
        await retention.remove_retired(supervisor)
    kept = [one.path for one in supervisor.source.saves]
    roster = fleet.rosters.get(supervisor)
    roster.note_save(saved.path, begun_at, kept)
    remember_players(saved, roster.players_before(begun_at))
    elapsed_s = anyio.current_time() - begun_at
    fleet.recorder.observe("save_s", elapsed_s)
    fleet.recorder.add("saved_bytes", saved.size_bytes)
    fleet.emit(
        "saved",
        instance.name,
        labels,
        path=saved.path,
        size_bytes=saved.size_bytes,
        elapsed_s=elapsed_s,
    )
    return saved


class Retention:
    """Decides which autosaves of each instance are kept, and removes the others.

    Args:
        fleet: The fleet.
        keep: Number of autosaves to keep per instance. It also keeps every snapshot that an
            instance was restored from, as long as it may be needed, and all other saves.
    """

    def __init__(self, fleet: Fleet, keep: int) -> None:
        self._fleet = fleet
        self._keep = keep
        self._kept: WeakKeyDictionary[Supervisor, list[Path]] = WeakKeyDictionary()
        self._retired: WeakKeyDictionary[Supervisor, list[Path]] = WeakKeyDictionary()

    async def retire(self, supervisor: Supervisor, saved: SavedSnapshot) -> list[Path]:
        """Count a new autosave, and return the files of those that it makes superfluous.

        Its file is complete, and a restart may restore it from now on. The others are removed by
        :meth:`remove_retired`, once the manifest does not list them any more.
        """
        if supervisor not in self._kept:
            self._kept[supervisor] = await run_blocking(_find_autosaves, supervisor)
        kept = [*self._kept[supervisor], saved.path]
        supervisor.source.add(saved)
        spent: list[Path] = []
        # While it is not ready, a restart may be restoring any of them.
        if supervisor.lifecycle.state is State.READY:
            in_use = self._fleet.snapshots_in_use
            spent = [path for path in kept[: -self._keep] if path not in in_use]
            supervisor.source.remove(spent)
        self._kept[supervisor] = [path for path in kept if path not in spent]
        retired = [*self._retired.get(supervisor, ()), *spent]
        self._retired[supervisor] = retired
        return retired

    async def remove_retired(self, supervisor: Supervisor) -> None:
        """Remove the files of retired autosaves; one that cannot be removed is tried again.

        Cancellation: they are removed all the same.
        """
        if not (retired := self._retired.get(supervisor)):
            return
        try:
            with anyio.CancelScope(shield=True):
                await run_blocking(unlink_saves, retired)
        except OSError as error:
            name = supervisor.instance.name
            _log.warning("saves not removed", instance=name, error=str(error))
        else:
            self._retired[supervisor] = [
                path for path in self._retired[supervisor] if path not in retired
            ]


def _find_autosaves(supervisor: Supervisor) -> list[Path]:
    """Return the autosaves of the run of an instance, oldest first. Blocks."""
    instance = supervisor.instance
    listed = autosaves(instance.launch.instance_dir, instance.name, instance.run_id)
    # The world writes into its manifest too, and may list any file there.
    return [path for path in listed if is_save_name(path.name, instance.name)]


class Autosave:
    """Saves all instances of a fleet at an interval, and removes older autosaves of their runs.

    Args:
        fleet: The fleet.
        every: Seconds from the start of one round to that of the next.
        keep: Number of autosaves to keep per instance; see :class:`Retention`.
        min_free: Free disk space, in bytes, below which no autosave is made; None for no limit.
        options: How to save.
    """

    def __init__(
        self, fleet: Fleet, every: float, keep: int, min_free: int | None, options: SaveOptions
    ) -> None:
        self._fleet = fleet
        self._every = every
        self._retention = Retention(fleet, keep)
        self._min_free = min_free
        self._options = options
        self._is_paused = False
        self._scope = anyio.CancelScope()
        self._asked: set[Supervisor] = set()
        self._answering: set[Supervisor] = set()

    async def run(self) -> None:
        """Save until cancelled. A failed save is an event, and no older save is removed for it.

        Cancellation: a save that is under way leaves both its file and its entry, or neither.
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

    def save_soon(self, supervisor: Supervisor) -> None:
        """Save an instance in the background, because somebody has joined it.

        Those who join meanwhile are in one more save, all together.
        """
        self._asked.add(supervisor)
        if supervisor not in self._answering:
            self._answering.add(supervisor)
            self._fleet.tasks.start_soon(self._save_asked, supervisor)

    async def _save_asked(self, supervisor: Supervisor) -> None:
        try:
            while supervisor in self._asked and not self._scope.cancel_called:
                self._asked.discard(supervisor)
                if not await self._with_room([supervisor]):
                    return
                with suppress(ClawbloxError):  # it is an event
                    await save_now(
                        self._fleet, supervisor, self._options, retention=self._retention
                    )
        finally:
            self._asked.discard(supervisor)
            self._answering.discard(supervisor)

    async def _save_once(self) -> None:
        supervisors = self._fleet.supervisors
        ready = [known for known in supervisors if known.lifecycle.state is State.READY]
        roomy = await self._with_room(ready)
        await save_all(self._fleet, roomy, self._options, retention=self._retention)

    async def _with_room(self, supervisors: Sequence[Supervisor]) -> Sequence[Supervisor]:
        """Return the instances whose disks have room; a pause and its end are events."""
        if self._min_free is None or not supervisors:
            return supervisors
        places = [self._options.dir or one.instance.launch.instance_dir for one in supervisors]
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
        return [one for one, place in zip(supervisors, places, strict=True) if place not in low]


def _measure_free(directories: Iterable[Path]) -> Mapping[Path, float]:
    """Return the free bytes of disks; infinite where unknown, for the save reports why. Blocks."""
    found: dict[Path, float] = {}
    for directory in directories:
        try:
            found[directory] = available_bytes(directory)
        except OSError:
            found[directory] = math.inf
    return found


async def remove_saves(
    fleet: Fleet, supervisor: Supervisor, spent: Sequence[SavedSnapshot]
) -> None:
    """Remove saves of an instance, and note that in its manifest; a failure is logged.

    Cancellation: they are removed all the same.
    """
    paths = [save.path for save in spent]
    writer = fleet.writers.of(supervisor.instance.launch.instance_dir)
    try:
        # The manifest first: an entry may lack its file, but not a file its entry.
        with anyio.CancelScope(shield=True):
            await writer.apply(removal_update(paths, at=format_utc(utc_now())))
            await run_blocking(unlink_saves, paths)
    except (ClawbloxError, OSError) as error:
        name = supervisor.instance.name
        _log.warning("saves not removed", instance=name, error=str(error))
    else:
        supervisor.source.remove(paths)
