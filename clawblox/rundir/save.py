"""The one way in which a snapshot becomes a checkpoint: a file, and its entry in the manifest.

Orchestrators use it for the instances that they own, other processes for those without an owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs

from clawblox.config.options import SaveOptions
from clawblox.results import SavedSnapshot
from clawblox.rundir.manifest_updates import checkpoint_update, retirement_update
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.paths import files_dir
from clawblox.snapshot.capture import capture
from clawblox.snapshot.transfer import SnapshotSource

Retire: TypeAlias = Callable[[SavedSnapshot], Awaitable[Collection[Path]]]
"""Returns the files of older autosaves that a new one makes superfluous."""


async def save_snapshot(
    source: SnapshotSource,
    options: SaveOptions,
    writers: ManifestWriters,
    *,
    world_dir: Path,
    instance_dir: Path,
    run_id: Callable[[], str],
    retire: Retire | None = None,
) -> SavedSnapshot:
    """Take a snapshot of an instance and register it in the manifest of its run.

    Args:
        source: The instance.
        options: How to save.
        writers: The writers of the manifests.
        world_dir: Its world.
        instance_dir: The directory of its manifest and its files.
        run_id: Returns the id of its run, which may get another one during the transfer.
        retire: Called for an autosave once its file is complete; returns the files of older
            autosaves that are removed now that it exists. None for other saves.

    Raises:
        SnapshotError: There is no file and no entry.
        ManifestError: The file is complete, but not registered.

    Cancellation: either there is no file and no entry, or there are both.
    """
    directory = options.dir or files_dir(world_dir, instance_dir) / "checkpoints"
    saved = await capture(source, directory, timeout=options.timeout, max_bytes=options.max_bytes)
    with anyio.CancelScope(shield=True):
        spent = () if retire is None else await retire(saved)
        update = checkpoint_update(saved, run_id=run_id(), is_autosave=retire is not None)
        if spent:
            update = attrs.evolve(
                update, retired=retirement_update(spent, at=saved.created_at).retired
            )
        await writers.of(instance_dir).apply(update)
    return saved
