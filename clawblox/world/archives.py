"""Archives of world and agents: starts from one, and checkpoints into one.

A start of one instance loads all of an archive into its run directory. Many instances, and forks,
take only the world's snapshot: the agents' state belongs to one run. The package
``checkpoint`` is imported in worker threads, when it is first used, because it takes long to load.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import attrs

from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.concurrency.progress import Report, run_with_progress
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import (
    InstanceSpec,
    ManyOptions,
    SaveOptions,
    StartOptions,
)
from clawblox.config.world_toml import WorldConfig
from clawblox.errors import CheckpointError, ConfigError
from clawblox.instance.launch import plan_launch, plan_many
from clawblox.results import (
    LoadedCheckpoint,
    SavedCheckpoint,
    SavedSnapshot,
    SnapshotLike,
    StartedWorld,
)
from clawblox.rundir.snapshot_files import find_archive
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.fleet import Fleet
from clawblox.world.handle import InstanceHandle
from clawblox.world.known_instances import Planned
from clawblox.world.save import remove_save, save_instance

if TYPE_CHECKING:
    from clawblox.checkpoint.load.load import Loaded
    from clawblox.checkpoint.options import ArchiveOptions


_log = OwnLog(__name__)


@attrs.define(eq=False)
class ArchiveStart:
    """The start of one instance from an archive, whose state is loaded into its run directory.

    Args:
        fleet: The instances.
        config: The world.
        archive: The archive.
        options: The options of the start.
    """

    _fleet: Fleet
    _config: WorldConfig
    _archive: Path
    _options: StartOptions
    _loaded: Loaded | None = attrs.field(default=None, init=False)

    async def run(self) -> StartedWorld:
        """Load the archive and start the instance; a failure removes both.

        Raises:
            ConfigError: The run directory is the world directory.
            CheckpointError: The archive cannot be loaded, or has no snapshot of a world.
            ClawbloxError: As for ``AsyncWorld.start``.

        Cancellation: the instance and the loaded state are removed.
        """
        try:
            run_dir = await run_blocking(self._find_run_dir)
            loaded = await run_with_progress(partial(self._load, run_dir))
            options = attrs.evolve(self._options, resume=loaded.world_snapshot)
            digest = _snapshot_digest(loaded.metadata)
            started = await self._fleet.start(self._config, options, self._archive, digest)
        except BaseException:
            await self._unload()
            raise
        return attrs.evolve(started, loaded=loaded)

    async def undo(self, started: StartedWorld) -> None:
        """End the instance, whose caller was cancelled before it learned of its start."""
        await self._fleet.undo_start(started)
        await self._unload()

    def _find_run_dir(self) -> Path:
        """Return the run directory, now that all options are known to be good."""
        launch = plan_launch(self._config, attrs.evolve(self._options, resume=None))
        if launch.run_dir == launch.config.dir:
            raise ConfigError(
                "must be another directory than the world directory, for an archive",
                key="run_dir",
                value=str(launch.run_dir),
                hint="give run_dir=, a directory for this run",
            )
        return launch.run_dir

    def _load(self, run_dir: Path, report: Report) -> LoadedCheckpoint:
        """Load the archive. Blocks."""
        from clawblox.checkpoint.load.load import load, require_snapshot
        from clawblox.checkpoint.model import Limits
        from clawblox.checkpoint.options import LoadOptions

        require_snapshot(self._archive)
        options = LoadOptions(path=self._archive, run_dir=run_dir, limits=Limits(), progress=report)
        self._loaded = load(options)
        return LoadedCheckpoint(**self._loaded.result)

    async def _unload(self) -> None:
        with anyio.CancelScope(shield=True):
            await run_blocking(self._unload_now)

    def _unload_now(self) -> None:
        from clawblox.checkpoint.load.load import unload

        if self._loaded is None:
            return
        try:
            unload(self._loaded)
        except CheckpointError as error:
            run_dir = str(self._loaded.target.path)
            _log.warning("loaded state not removed", run_dir=run_dir, error=str(error))


@attrs.frozen
class Snapshots:
    """The snapshots that many instances are restored from, taken out of archives where need be.

    Attributes:
        options: The options that the instances share, without archives.
        specs: The options of each instance, without archives.
        archives: The archives, by the snapshots that were extracted.
    """

    options: ManyOptions
    specs: Sequence[InstanceSpec]
    archives: Mapping[Path | None, Path]

    def plan(
        self, config: WorldConfig, run_dir: Path, parent_sha256: str | None, names: Iterator[str]
    ) -> Planned:
        """Plan the instances. Blocks.

        Args:
            config: The world.
            run_dir: Their run directory, resolved.
            parent_sha256: Digest of the snapshot that they share; None if not known.
            names: Names for those without one.

        Raises:
            ConfigError: As for ``AsyncWorld.start_many``.
        """
        launches = plan_many(
            config,
            run_dir,
            self.options,
            self.specs,
            names,
            # An archive has its own digest, not that of the snapshot in it.
            parent_sha256=None if self.archives else parent_sha256,
        )
        listed = [
            attrs.evolve(launch, archive=self.archives.get(launch.resume_path))
            for launch in launches
        ]
        return Planned(listed)


async def take_snapshots(
    options: ManyOptions, specs: Sequence[InstanceSpec], world_dir: Path, directory: Path
) -> Snapshots:
    """Take the snapshots out of the archives among those to restore, out of each archive once.

    Args:
        options: The options that the instances share.
        specs: Those of each instance.
        world_dir: One of the places of a relative path.
        directory: Where the snapshots are put. They stay there, and are used again.

    Raises:
        ConfigError: There is no such file.
        CheckpointError: An archive is not sound, or has no snapshot of a world.

    Cancellation: each snapshot is complete or absent.
    """
    if options.resume is None and all(spec.resume is None for spec in specs):
        return Snapshots(options, specs, {})
    extracted: dict[Path, tuple[Path, str]] = {}

    def run(report: Report) -> Snapshots:
        from clawblox.checkpoint.load.load import extract_snapshot

        def take(resume: SnapshotLike | None) -> SnapshotLike | None:
            archive = find_archive(resume, world_dir, "resume")
            if archive is None:
                return resume
            if archive not in extracted:
                extracted[archive] = extract_snapshot(archive, directory, report)
            snapshot, digest = extracted[archive]
            return {"path": snapshot, "sha256": digest}

        return Snapshots(
            attrs.evolve(options, resume=take(options.resume)),
            [attrs.evolve(spec, resume=take(spec.resume)) for spec in specs],
            {snapshot: archive for archive, (snapshot, _) in extracted.items()},
        )

    return await run_with_progress(run)


async def save_archive(
    fleet: Fleet, instance: InstanceHandle, saving: SaveOptions, options: ArchiveOptions
) -> SavedCheckpoint:
    """Save an instance, and archive the save; see ``AsyncWorld.checkpoint``.

    Raises:
        ClawbloxError: As there.

    Cancellation: leaves both the save and the archive, or neither.
    """
    before = await run_blocking(_find_existing, options)
    saved = await save_instance(fleet, instance, saving)

    def write(report: Report) -> SavedCheckpoint:
        from clawblox.checkpoint.save import write_archive

        return write_archive(attrs.evolve(options, world_snapshot=saved, progress=report))

    try:
        return await run_with_progress(write, options.progress, "Archiving")
    except BaseException:
        with anyio.CancelScope(shield=True):
            # An error may come after the archive is complete: then both of them stay.
            is_complete = await run_blocking(_identity, options.path) not in (None, before)
            if not is_complete and not _may_be_restored(fleet, instance, saved):
                await remove_save(fleet, instance, saved)
        raise


async def remove_archive(fleet: Fleet, instance: InstanceHandle, archive: Path) -> None:
    """Remove an archive and its save; see ``AsyncWorld.remove_checkpoint``.

    Raises:
        ClawbloxError: As there.

    Cancellation: a removal that has begun is completed.
    """
    digest = await run_blocking(_read_digest, archive)
    with anyio.CancelScope(shield=True):
        await run_blocking(_remove, archive)
        earlier = instance.source.saves[:-1]
        for saved in earlier:
            if saved.sha256 == digest and not _may_be_restored(fleet, instance, saved):
                await remove_save(fleet, instance, saved)
                return


def _read_digest(archive: Path) -> str | None:
    """Return the digest of the snapshot in an archive; None without a snapshot. Blocks."""
    from clawblox.checkpoint.archive.reader import read_metadata

    return _snapshot_digest(read_metadata(archive))


def _snapshot_digest(metadata: Mapping[str, Any]) -> str | None:
    snapshot = metadata.get("files", {}).get(SNAPSHOT_NAME)
    return None if snapshot is None else snapshot["sha256"]


def _remove(archive: Path) -> None:
    from clawblox.checkpoint.archive import registry

    try:
        registry.remove(archive)
    except OSError as error:
        message = f"the archive cannot be removed: {error.strerror}"
        raise CheckpointError(message, path=archive) from error


def _may_be_restored(fleet: Fleet, instance: InstanceHandle, saved: SavedSnapshot) -> bool:
    is_restarting = not instance.is_ready and not instance.is_over
    return is_restarting or saved.path in fleet.snapshots_in_use


def _find_existing(options: ArchiveOptions) -> tuple[int, int] | None:
    """Return the identity of the archive to replace; None without one. Blocks.

    Raises:
        CheckpointError: There is an archive of that name already, and no ``overwrite``.
    """
    from clawblox.checkpoint.archive.registry import refuse_existing

    if not options.overwrite:
        refuse_existing(options.path)
    return _identity(options.path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which a replacement changes; None without a file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
