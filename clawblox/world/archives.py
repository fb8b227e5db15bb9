"""Archives of world and agents: starts from one, and checkpoints into one.

A start of one instance loads all of an archive into its run directory. Many instances, and forks,
take only the world's snapshot: the agents' state belongs to one run. The package
``checkpoint`` is imported in worker threads, when it is first used, because it takes long to load.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import attrs

from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.checkpoint.twins import run_with_progress
from clawblox.concurrency.progress import Report
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import (
    InstanceSpec,
    ManyOptions,
    SaveOptions,
    StartOptions,
    options_of,
)
from clawblox.config.world_toml import WorldConfig
from clawblox.errors import CheckpointError, ConfigError
from clawblox.instance.launch import Launch, plan_launch, plan_many
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
from clawblox.world.known_instances import Plan, Planned
from clawblox.world.save import remove_saves, save_now

if TYPE_CHECKING:
    from clawblox.checkpoint.load.load import Loaded
    from clawblox.checkpoint.options import ArchiveOptions


_log = OwnLog(__name__)


class ArchiveStart:
    """The start of one instance from an archive, whose state is loaded into its run directory.

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
        """Load the archive and start the instance; when that fails, nothing of either is left.

        Raises:
            ConfigError: The run directory is the world directory.
            CheckpointError: The archive cannot be loaded, or has no snapshot of a world.
            ClawbloxError: As for ``AsyncWorld.start``.

        Cancellation: nothing of the instance or of the loaded state remains.
        """
        try:
            run_dir = await run_blocking(self._find_run_dir)
            options = await run_with_progress(partial(self._load, run_dir))
            started = await self._fleet.start(self._config, options, archive=self._archive)
        except BaseException:
            await self._unload()
            raise
        assert self._loaded is not None
        return attrs.evolve(started, loaded=LoadedCheckpoint(**self._loaded.result))

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

    def _load(self, run_dir: Path, report: Report) -> StartOptions:
        """Load the archive, and return the options with its snapshot. Blocks."""
        from clawblox.checkpoint.load.load import load, require_snapshot
        from clawblox.checkpoint.model import Limits
        from clawblox.checkpoint.options import LoadOptions

        require_snapshot(self._archive)
        options = LoadOptions(path=self._archive, run_dir=run_dir, limits=Limits(), progress=report)
        self._loaded = load(options)
        return attrs.evolve(self._options, resume=self._loaded.result["world_snapshot"])

    async def _unload(self) -> None:
        if self._loaded is None:
            return
        with anyio.CancelScope(shield=True):
            await run_blocking(self._unload_now, self._loaded)

    def _unload_now(self, loaded: Loaded) -> None:
        from clawblox.checkpoint.load.load import unload

        try:
            unload(loaded)
        except CheckpointError as error:
            run_dir = str(loaded.target.path)
            _log.warning("loaded state not removed", run_dir=run_dir, error=str(error))


@attrs.frozen
class Snapshots:
    """The snapshots that many instances are restored from, taken out of archives where need be.

    Attributes:
        options: The options that the instances share, without archives.
        specs: The options of each instance, without archives.
        archives: The archives, by the snapshots that were taken out of them.
    """

    options: ManyOptions
    specs: Sequence[InstanceSpec]
    archives: Mapping[Path, Path]

    @classmethod
    async def find(
        cls,
        options: ManyOptions,
        specs: Sequence[InstanceSpec],
        *,
        world_dir: Path,
        directory: Path,
    ) -> Snapshots:
        """Extract the snapshots of the archives among the files to restore.

        Args:
            options: The options that the instances share.
            specs: The options of each instance.
            world_dir: One of the places of a relative path.
            directory: Where the snapshots are put. They stay there, and are used again.

        Raises:
            ConfigError: There is no such file.
            CheckpointError: An archive is not sound, or has no snapshot of a world.

        Cancellation: each snapshot is complete or absent.
        """
        if options.resume is None and all(spec.resume is None for spec in specs):
            return cls(options, specs, {})
        extraction = _Extraction(world_dir, directory)
        return await run_with_progress(partial(extraction.run, options, specs))

    def note_archives(self, launches: Iterable[Launch]) -> list[Launch]:
        """Return launches that name the archives that their snapshots were in."""
        return [
            attrs.evolve(launch, archive=self.archives.get(launch.resume_path))
            if launch.resume_path is not None
            else launch
            for launch in launches
        ]


@attrs.frozen(kw_only=True)
class NewInstances:
    """A start of many new instances; see ``fleet.ManyStart``.

    Attributes:
        config: The world.
        run_dir: Their run directory, resolved.
        snapshots: Their options, and the archives that their snapshots were in.
        reuse: Whether the name of an instance that has ended is free.
        parent_sha256: Digest of the snapshot that they share; None if not known.
        verb: The word for it in a line of progress.
    """

    config: WorldConfig
    run_dir: Path
    snapshots: Snapshots
    reuse: bool
    parent_sha256: str | None
    verb: str = "Starting"

    @property
    def stops_all(self) -> bool:
        """Whether the first failure ends all the others."""
        return self.snapshots.options.on_failure == "stop_all"

    async def prepare(self, fleet: Fleet) -> Plan:
        """Close the runs that were interrupted, and return the plan."""
        await fleet.leftovers.clear(self.run_dir)
        return self._plan

    def _plan(self, names: Iterator[str]) -> Planned:
        # An archive has its own digest, not that of the snapshot in it.
        parent_sha256 = None if self.snapshots.archives else self.parent_sha256
        launches = plan_many(
            self.config,
            self.run_dir,
            self.snapshots.options,
            self.snapshots.specs,
            names,
            parent_sha256=parent_sha256,
        )
        return Planned(self.snapshots.note_archives(launches))


class _Extraction:
    """Takes snapshots out of archives, out of each archive once."""

    def __init__(self, world_dir: Path, directory: Path) -> None:
        self._world_dir = world_dir
        self._directory = directory
        self._found: dict[Path, tuple[Path, str]] = {}

    def run(self, options: ManyOptions, specs: Sequence[InstanceSpec], report: Report) -> Snapshots:
        take = partial(self._take, report)
        return Snapshots(
            attrs.evolve(options, resume=take(options.resume)),
            [attrs.evolve(spec, resume=take(spec.resume)) for spec in specs],
            {snapshot: archive for archive, (snapshot, _) in self._found.items()},
        )

    def _take(self, report: Report, resume: SnapshotLike | None) -> SnapshotLike | None:
        from clawblox.checkpoint.load.load import extract_snapshot

        archive = find_archive(resume, self._world_dir, "resume")
        if archive is None:
            return resume
        if archive not in self._found:
            self._found[archive] = extract_snapshot(archive, self._directory, report)
        snapshot, digest = self._found[archive]
        return {"path": snapshot, "sha256": digest}


@attrs.frozen
class ArchiveArguments:
    """The arguments of ``AsyncWorld.checkpoint``; hidden, because they may contain secrets.

    Attributes:
        values: The arguments by name; those that are no options of an archive are ignored.
    """

    values: Mapping[str, Any] = attrs.field(repr=False)

    def check(self) -> ArchiveOptions:
        """Return the options of the save. Blocks.

        Raises:
            ConfigError: An option is wrong.
            CheckpointError: There is an archive of that name already, and no ``overwrite``.
        """
        from clawblox.checkpoint.archive.registry import refuse_existing
        from clawblox.checkpoint.options import ArchiveOptions

        options = options_of(ArchiveOptions, self.values)
        if not options.overwrite:
            refuse_existing(options.path)
        return options


async def save_archive(
    fleet: Fleet, instance: InstanceHandle, saving: SaveOptions, arguments: ArchiveArguments
) -> SavedCheckpoint:
    """Save an instance, and archive the save; see ``AsyncWorld.checkpoint``.

    Raises:
        ClawbloxError: As there.

    Cancellation: leaves both the save and the archive, or neither.
    """
    options = await run_blocking(arguments.check)
    before = await run_blocking(_identity, options.path)
    saved = await save_now(fleet, instance, saving)
    try:
        write = partial(_write_archive, options, saved)
        return await run_with_progress(write, options.progress, "Archiving")
    except BaseException:
        with anyio.CancelScope(shield=True):
            # An error may come after the archive is complete: then both of them stay.
            is_complete = await run_blocking(_identity, options.path) not in (None, before)
            if not is_complete and not _may_be_restored(fleet, instance, saved):
                await remove_saves(fleet, instance, [saved])
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
                await remove_saves(fleet, instance, [saved])
                return


def _read_digest(archive: Path) -> str | None:
    """Return the digest of the snapshot in an archive; None without a snapshot. Blocks."""
    from clawblox.checkpoint.archive.reader import read_metadata

    snapshot = read_metadata(archive).get("files", {}).get(SNAPSHOT_NAME)
    return None if snapshot is None else snapshot["sha256"]


def _remove(archive: Path) -> None:
    from clawblox.checkpoint.archive import registry

    try:
        registry.remove(archive)
    except OSError as error:
        message = f"the archive cannot be removed: {error.strerror}"
        raise CheckpointError(message, path=archive) from error


def _may_be_restored(fleet: Fleet, instance: InstanceHandle, saved: SavedSnapshot) -> bool:
    return instance.is_restarting or saved.path in fleet.snapshots_in_use


def _write_archive(
    options: ArchiveOptions, saved: SavedSnapshot, report: Report
) -> SavedCheckpoint:
    from clawblox.checkpoint.save import save

    return save(attrs.evolve(options, world_snapshot=saved, progress=report))


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of a file, which a replacement changes; None without a file."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
