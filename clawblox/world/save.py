"""Saves instances of a fleet: one, all at once, or at an interval.

``rundir.save`` writes the file and its manifest entry. This module counts the saves, remembers
them for a restart, and removes old ones, but never the last good one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from clawblox.rundir.save import save_snapshot
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.fleet import Fleet
from clawblox.world.progress import shown_progress

__all__ = ["Autosave", "remove_saves", "save", "save_all", "save_now"]

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
    is_autosave: bool = False,
) -> BatchOperation[SavedSnapshot]:
    """Save snapshots of many instances at once; see ``AsyncWorld.save_all``."""
    save_one = partial(save_now, fleet, options=options, is_autosave=is_autosave)
    return BatchOperation(
        fleet.tasks,
        {known.instance.name: partial(save_one, known) for known in supervisors},
        progress=partial(shown_progress, "Saving", is_wanted=progress),
    )


async def save_now(
    fleet: Fleet, supervisor: Supervisor, options: SaveOptions, *, is_autosave: bool = False
) -> SavedSnapshot:
    """Save as :func:`save` does, for a caller that is a task of the fleet itself."""
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
                is_autosave=is_autosave,
            )
    except Exception as error:
        fleet.emit("save_failed", instance.name, labels, error=error)
        raise
    supervisor.note_saved(saved)
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


class Autosave:
    """Saves all instances of a fleet at an interval, and removes older autosaves of their runs.

    Args:
        fleet: The fleet.
        every: Seconds from the start of one round to that of the next.
        keep: Number of autosaves to keep per instance. It also keeps every snapshot that an
            instance was restored from, and all other saves.
        options: How to save.
    """

    def __init__(self, fleet: Fleet, every: float, keep: int, options: SaveOptions) -> None:
        self._fleet = fleet
        self._every = every
        self._keep = keep
        self._options = options
        self._scope = anyio.CancelScope()
        self._saves: WeakKeyDictionary[Supervisor, list[SavedSnapshot]] = WeakKeyDictionary()

    async def run(self) -> None:
        """Save until cancelled. A failed save is an event, and no older save is removed for it.

        Cancellation: a save that is under way leaves both its file and its entry, or neither.
        """
        with self._scope:
            while True:
                begun_at = anyio.current_time()
                await self._save_once()
                await anyio.sleep(max(0.0, begun_at + self._every - anyio.current_time()))

    def cancel(self) -> None:
        """Stop saving."""
        self._scope.cancel()

    async def _save_once(self) -> None:
        ready = {
            known.instance.name: known
            for known in self._fleet.supervisors
            if known.lifecycle.state is State.READY
        }
        batch = await save_all(self._fleet, ready.values(), self._options, is_autosave=True)
        for name, saved in batch.done.items():
            await self._retain(ready[name], saved)

    async def _retain(self, supervisor: Supervisor, saved: SavedSnapshot) -> None:
        """Remove the saves of an instance that are no longer needed now that ``saved`` exists."""
        if supervisor not in self._saves:
            self._saves[supervisor] = await run_blocking(_find_autosaves, supervisor, saved)
        saves = [*self._saves[supervisor], saved]
        if supervisor.lifecycle.state is not State.READY:
            self._saves[supervisor] = saves  # a restart may be restoring any of them
            return
        self._saves[supervisor] = saves[-self._keep :]
        in_use = self._fleet.snapshots_in_use
        spent = [save for save in saves[: -self._keep] if save.path not in in_use]
        if spent:
            await remove_saves(self._fleet, supervisor, spent)


def _find_autosaves(supervisor: Supervisor, latest: SavedSnapshot) -> list[SavedSnapshot]:
    """Return the autosaves of the run of an instance before the latest, oldest first. Blocks."""
    earlier = [save for save in supervisor.source.saves if save is not latest]
    known = autosaves(supervisor.instance.launch.instance_dir) if earlier else ()
    return [save for save in earlier if save.path in known]


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
            await run_blocking(_unlink, paths)
    except (ClawbloxError, OSError) as error:
        name = supervisor.instance.name
        _log.warning("saves not removed", instance=name, error=str(error))
    else:
        supervisor.note_removed(spent)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
