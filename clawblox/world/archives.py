"""Archives of world and agents: starts from them, and checkpoints into them.

The start of one instance loads the whole archive into the run directory. Starts of many instances,
and forks, use only the world's snapshot, because the agents' state belongs to one run. The package
``checkpoint`` loads slowly, so it is imported in worker threads when it is first used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import msgspec

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


class ArchiveStart:
    """The start of one instance from an archive, whose state is loaded into the run directory.

    Args:
        fleet: The instances.
        config: The world.
        archive: The archive.
        options: The options of the start.
    """

    def __init__(
        self, fleet: Fleet, config: WorldConfig, archive: Path, options: StartOptions
    ) -> None:
        self._fleet = fleet
        self._config = config
        self._archive = archive
        self._options = options
        self._loaded: Loaded | None = None

    async def run(self) -> StartedWorld:
        """Load the archive and start the instance; a failure removes the instance and loaded state.

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
        """End the instance after its caller was cancelled before receiving the result."""
        await self._fleet.undo_start(started)
        await self._unload()

    def _find_run_dir(self) -> Path:
        """Check all options, and return the run directory."""
        launch = plan_launch(self._config, attrs.evolve(self._options, resume=None))
        if launch.run_dir == launch.config.dir:
            raise ConfigError(
                "must not be the world directory if an archive is loaded",
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


class Snapshots(msgspec.Struct, frozen=True):
    """The snapshots that many instances are restored from, extracted from archives if necessary.

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
            parent_sha256: Digest of the snapshot that the instances share; None if not known.
            names: Names for instances without a given name.

        Raises:
            ConfigError: As for ``AsyncWorld.start_many``.
        """
        launches = plan_many(
            config,
            run_dir,
            self.options,
            self.specs,
            names,
            # The digest of an archive is not the digest of its snapshot.
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
    """Extract the snapshots from the archives among the sources to restore, each once.

    Args:
        options: The options that the instances share.
        specs: The options of each instance.
        world_dir: The world directory, where relative paths are looked up first.
        directory: Directory for the snapshots. They stay there for later starts.

    Raises:
        ConfigError: A file is missing.
        CheckpointError: An archive is damaged, or has no snapshot of a world.

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
        ClawbloxError: As ``AsyncWorld.checkpoint``.

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
            # After an error with a complete archive, both the archive and the save stay.
            is_complete = await run_blocking(_identity, options.path) not in (None, before)
            if not is_complete and not _may_be_restored(fleet, instance, saved):
                await remove_save(fleet, instance, saved)
        raise


async def remove_archive(fleet: Fleet, instance: InstanceHandle, archive: Path) -> None:
    """Remove an archive and its save; see ``AsyncWorld.remove_checkpoint``.

    Raises:
        ClawbloxError: As ``AsyncWorld.remove_checkpoint``.

    Cancellation: a removal in progress is completed.
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
    """Return the identity of the archive to replace; None if there is none. Blocks.

    Raises:
        CheckpointError: The archive exists already, and ``overwrite`` is false.
    """
    from clawblox.checkpoint.archive.registry import refuse_existing

    if not options.overwrite:
        refuse_existing(options.path)
    return _identity(options.path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which changes when it is replaced; None without a file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
