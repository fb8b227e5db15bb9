"""Saves of the instances of a fleet: one, all at once, again and again, and before the end.

How a snapshot becomes a file is ``snapshots``' business. Here it is registered in the manifest of
its instance, remembered for a restart, and counted; and old ones are removed, never the last good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import anyio
import attrs

from clawblox.concurrency.batch import BatchOperation
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_count, check_seconds
from clawblox.errors import ClawbloxError
from clawblox.instance.lifecycle import State
from clawblox.instance.supervisor import Supervisor
from clawblox.results import SavedSnapshot
from clawblox.rundir.manifest_updates import checkpoint_update, removal_update
from clawblox.snapshot.capture import DEFAULT_MAX_BYTES, capture
from clawblox.system.clock import format_utc, utc_now
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.fleet import Fleet

__all__ = ["DEFAULT_KEEP", "DEFAULT_TIMEOUT_S", "Autosave", "SaveOptions", "save", "save_all"]

DEFAULT_TIMEOUT_S = 300.0
"""Seconds for one transfer when nobody says otherwise."""

DEFAULT_KEEP = 3
"""So many of its own saves an autosave keeps for each instance."""

_log = OwnLog(__name__)


@attrs.frozen
class SaveOptions:
    """How to save.

    Attributes:
        dir: Where the files go; None means ``checkpoints`` beside the other files of each instance.
        timeout: Seconds for a transfer.
        max_bytes: Largest snapshot that is accepted.
    """

    dir: Path | None = None
    timeout: float = DEFAULT_TIMEOUT_S
    max_bytes: int = DEFAULT_MAX_BYTES

    def __attrs_post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: One of them cannot be; names it.
        """
        check_seconds(self.timeout, "timeout")
        check_count(self.max_bytes, "max_bytes")


async def save(fleet: Fleet, supervisor: Supervisor, options: SaveOptions) -> SavedSnapshot:
    """Save a snapshot of one instance and register it; see ``AsyncWorld.save``."""
    return await fleet.tasks.own(partial(_save, fleet, supervisor, options))


def save_all(
    fleet: Fleet, supervisors: Iterable[Supervisor], options: SaveOptions
) -> BatchOperation[SavedSnapshot]:
    """Save snapshots of many instances at once; see ``AsyncWorld.save_all``."""
    return BatchOperation(
        fleet.tasks,
        {one.instance.name: partial(_save, fleet, one, options) for one in supervisors},
    )


async def _save(fleet: Fleet, supervisor: Supervisor, options: SaveOptions) -> SavedSnapshot:
    name = supervisor.instance.name
    fleet.recorder.add("saves")
    begun_at = anyio.current_time()
    try:
        saved = await _save_and_register(fleet, supervisor, options)
    except Exception as error:
        fleet.emit("save_failed", name, error=error)
        raise
    elapsed_s = anyio.current_time() - begun_at
    fleet.recorder.observe("save_s", elapsed_s)
    fleet.recorder.add("saved_bytes", saved.size_bytes)
    fleet.emit("saved", name, path=saved.path, size_bytes=saved.size_bytes, elapsed_s=elapsed_s)
    return saved


async def _save_and_register(
    fleet: Fleet, supervisor: Supervisor, options: SaveOptions
) -> SavedSnapshot:
    launch = supervisor.instance.launch
    source = supervisor.instance.snapshot_source()
    directory = options.dir or launch.files_dir / "checkpoints"
    async with supervisor.calls.call():
        saved = await capture(
            source, directory, timeout=options.timeout, max_bytes=options.max_bytes
        )
    with anyio.CancelScope(shield=True):
        update = checkpoint_update(saved, run_id=supervisor.instance.run_id)
        await fleet.writers.of(launch.instance_dir).apply(update)
    supervisor.note_saved(saved)
    return saved


class Autosave:
    """Saves every instance of a fleet again and again, and removes its own older saves.

    Args:
        fleet: The fleet.
        every: Seconds from the beginning of one round to that of the next.
        keep: So many of its saves stay for each instance. What a running instance was restored
            from stays too, and so does everything that somebody else saved.
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
        """Save until it is cancelled; a failed save is an event, and costs no older one.

        Cancellation: a save that is under way leaves no file and no entry, or both.
        """
        with self._scope:
            while True:
                begun_at = anyio.current_time()
                await self._save_once()
                await anyio.sleep(max(0.0, begun_at + self._every - anyio.current_time()))

    def cancel(self) -> None:
        """End it."""
        self._scope.cancel()

    async def _save_once(self) -> None:
        states = ((one, one.lifecycle.state) for one in self._fleet.supervisors)
        ready = {one.instance.name: one for one, state in states if state is State.READY}
        batch = await save_all(self._fleet, ready.values(), self._options)
        for name, saved in batch.done.items():
            await self._retain(ready[name], saved)

    async def _retain(self, supervisor: Supervisor, saved: SavedSnapshot) -> None:
        """Remove what is too old now that there is ``saved``."""
        saves = [*self._saves.get(supervisor, ()), saved]
        if supervisor.lifecycle.state is not State.READY:
            self._saves[supervisor] = saves  # it may be about to be restored from any of them
            return
        self._saves[supervisor] = saves[-self._keep :]
        in_use = self._fleet.snapshots_in_use
        spent = [one for one in saves[: -self._keep] if one.path not in in_use]
        if spent:
            await self._remove(supervisor, spent)

    async def _remove(self, supervisor: Supervisor, spent: Sequence[SavedSnapshot]) -> None:
        paths = [one.path for one in spent]
        writer = self._fleet.writers.of(supervisor.instance.launch.instance_dir)
        try:
            # First the manifest: a file that is listed may be gone, but not the other way round.
            with anyio.CancelScope(shield=True):
                await writer.apply(removal_update(paths, at=format_utc(utc_now())))
                await run_blocking(_unlink, paths)
        except (ClawbloxError, OSError) as error:
            name = supervisor.instance.name
            _log.warning("old saves not removed", instance=name, error=str(error))
        else:
            supervisor.note_removed(spent)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
