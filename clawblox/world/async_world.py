"""AsyncWorld: a world directory and the instances of it that this process runs.

One object owns any number of instances and returns frozen values. Every operation on an instance
takes its name, which can be left out while there is only one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import attrs

from clawblox.checkpoint.model import MAX_FILE_BYTES, MAX_TOTAL_BYTES
from clawblox.concurrency.batch import Batch, BatchOperation
from clawblox.concurrency.progress import ProgressLike
from clawblox.concurrency.tasks import Residence
from clawblox.concurrency.threads import run_blocking
from clawblox.config.agent_arguments import AgentLike, Agents
from clawblox.config.arguments import (
    check_count,
    check_env,
    check_path,
    check_progress,
    check_read_path,
    check_seconds,
    check_size,
)
from clawblox.config.download import fetch_world, is_world_url
from clawblox.config.options import (
    DEFAULT_GRACE_S,
    DEFAULT_HEALTH_TIMEOUT_S,
    DEFAULT_HOST,
    DEFAULT_IDLE_WAIT_S,
    DEFAULT_KEEP,
    DEFAULT_MAX_RESTARTS,
    DEFAULT_MAX_SNAPSHOT_BYTES,
    DEFAULT_RESTART_WINDOW_S,
    DEFAULT_SAVE_TIMEOUT_S,
    InstanceSpec,
    ManyOptions,
    OnFailure,
    RestartOptions,
    SaveOptions,
    StartOptions,
)
from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.errors import ConfigError, UsageError
from clawblox.protocol import TickRate
from clawblox.results import (
    DataStoreBackend,
    Labels,
    ProcessExit,
    RestartMode,
    SavedCheckpoint,
    SavedSnapshot,
    SnapshotLike,
    StartedWorld,
    StopResult,
)
from clawblox.rundir.interrupted import Interruption
from clawblox.rundir.lineage import Lineage, read_lineage
from clawblox.rundir.manifest_updates import RunStatus, run_update
from clawblox.rundir.paths import files_dir, make_run_dir, resolve_run_dir
from clawblox.rundir.records import read_running
from clawblox.rundir.snapshot_files import find_archive, find_parent, source_run_dir
from clawblox.system.ports import MAX_LEASES
from clawblox.telemetry.events import EventStream
from clawblox.telemetry.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.telemetry.logs import LogReader
from clawblox.telemetry.metrics import Metrics
from clawblox.world.access import is_program, leave, make_member
from clawblox.world.admission import admit, settle_sessions
from clawblox.world.agent_client import AsyncAgentClient, join_place
from clawblox.world.archives import (
    ArchiveArguments,
    ArchiveStart,
    NewInstances,
    Snapshots,
    remove_archive,
    save_archive,
)
from clawblox.world.control_handlers import make_handlers
from clawblox.world.control_sockets import Handlers
from clawblox.world.fleet import Fleet
from clawblox.world.places import AccessGranter, FleetPlace
from clawblox.world.properties import WorldMetadata
from clawblox.world.restart import restart
from clawblox.world.resume import resume_all
from clawblox.world.save import Autosave, save, save_all
from clawblox.world.started import BoundWorld

if TYPE_CHECKING:
    import os

    from clawblox.checkpoint.model import Allowance
    from clawblox.checkpoint.options import OnUnarchivable


class AsyncWorld(WorldMetadata):
    """A world directory, and the instances of it that this object started or attached.

    Use it as an async context manager: leaving the block stops every instance that is not
    detached, whatever the reason for leaving.

    Args:
        dir: Directory with a ``world.toml``, or the address of one in a GitHub repository,
            ``https://github.com/<owner>/<repo>/tree/<ref>/<folder>``. A repository's folder is
            downloaded when the block is entered, or when an attribute is read before that.
        run_dir: Directory of the run, for every call that takes a ``run_dir`` and is given none;
            None leaves them their own defaults.
        max_log_bytes: Size at which a log is cut to its newer half; None never cuts.

    Raises:
        ConfigError: The directory or its ``world.toml`` is missing or wrong.
        FetchError: The folder cannot be downloaded.
    """

    def __init__(
        self,
        dir: str | Path,  # noqa: A002 - the documented name
        *,
        run_dir: str | Path | None = None,
        max_log_bytes: int | None = DEFAULT_LOG_BYTES,
    ) -> None:
        self._source = str(dir)
        self._run_dir = None if run_dir is None else check_path(run_dir, "run_dir").absolute()
        self._max_log_bytes = max_log_bytes
        self._config_read: WorldConfig | None = None
        self._latest_started: StartedWorld | None = None
        self._attach_dir: Path | None = None
        self._fleet: Fleet | None = None
        self._autosave: Autosave | None = None
        self._residence: Residence[Fleet]
        if not is_world_url(self._source):
            self._config_read = read_world_config(check_read_path(dir, "dir"))

    @classmethod
    def attach(cls, run_dir: str | Path) -> Self:
        """Return the world whose detached instances run in a run directory. Blocks.

        Entering the block adopts them, and leaving it leaves them running. Meanwhile the options of
        their starts hold: they are restarted as these say.

        Args:
            run_dir: The run directory.

        Raises:
            UsageError: No instance runs there, or instances of several worlds do.
            ConfigError: The run directory, or the ``world.toml`` of its world, cannot be read.
        """
        directory = resolve_run_dir(run_dir)
        try:
            worlds = {record.world_dir for record in read_running(directory)}
        except OSError as error:
            message = f"the run directory cannot be read: {error.strerror}"
            raise ConfigError(message, key="run_dir", value=str(directory)) from error
        if len(worlds) != 1:
            raise UsageError(
                f"attach needs instances of one world; {directory} runs those of {len(worlds)}",
                hint="clawblox ps shows what runs in a run directory",
            )
        world = cls(worlds.pop(), run_dir=directory)
        world._attach_dir = directory
        return world

    def __repr__(self) -> str:
        name = self._source if self._config_read is None else self._config_read.name
        counts = "not open" if self._fleet is None else _count_states(self._fleet)
        return f"{type(self).__name__}({name!r}, {counts})"

    @property
    def _config(self) -> WorldConfig:
        if self._config_read is None:
            self._config_read = read_world_config(fetch_world(self._source))
        return self._config_read

    @property
    def _latest(self) -> StartedWorld | None:
        return self._latest_started

    @property
    def instances(self) -> tuple[str, ...]:
        """Names of the instances that are ready, in the order of their starts."""
        return self._fleet.ready_names if self._fleet else ()

    @property
    def labels(self) -> dict[str, Labels]:
        """Labels of the instances that became ready and were not stopped, by name."""
        return {one.name: one.labels for one in self._fleet.instances} if self._fleet else {}

    @property
    def tick_rates(self) -> dict[str, TickRate]:
        """How fast the worlds of the ready instances run, by name, where they report it."""
        instances = self._fleet.instances if self._fleet else ()
        rates = {one.name: one.rate for one in instances}
        return {name: rate for name, rate in rates.items() if rate is not None}

    # -- the block --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._fleet is not None:
            raise UsageError("this world is open already", hint="use another AsyncWorld object")
        self._residence = Residence(self._opened())
        self._fleet = await self._residence.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is None and self._fleet is not None:
            self._fleet.end_on_purpose()
        try:
            await self._residence.__aexit__(exc_type, exc, traceback)
        finally:
            self._fleet = None
            self._autosave = None

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Fleet]:
        config = await run_blocking(lambda: self._config)
        async with Fleet(self._max_log_bytes, self._handlers, settle_sessions).opened() as fleet:
            if self._attach_dir is not None:
                attached = await fleet.attach(config, self._attach_dir)
                self._latest_started = attached[-1] if attached else None
            yield fleet

    def _handlers(self, fleet: Fleet, run_dir: Path) -> Handlers:
        return make_handlers(fleet, self.start, self.fork, run_dir)

    def _open_fleet(self) -> Fleet:
        if self._fleet is None:
            raise UsageError(
                "this world is not open", hint="async with AsyncWorld(dir=…) as world: …"
            )
        return self._fleet

    # -- start and stop ---------------------------------------------------------------------

    async def start(
        self,
        *,
        record: bool = False,
        env: Mapping[str, str] | None = None,
        host: str = DEFAULT_HOST,
        base_path: str = "",
        health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_RESTART_WINDOW_S,
        reseed: int | None = None,
        labels: Labels | None = None,
        datastore: DataStoreBackend | None = None,
        port: int | None = None,
        port_wait: float = 0.0,
        record_dir: str | Path | None = None,
        resume: SnapshotLike | None = None,
        run_dir: str | Path | None = None,
        name: str | None = None,
        command_file: str | Path | None = None,
        log_file: str | Path | None = None,
        watch: bool = False,
        _tmux_session: str | None = None,
    ) -> AsyncStartedInstance:
        """Start an instance and return when it is ready.

        Args:
            record: Whether the world records.
            env: Additional environment variables.
            host: Address to which the world binds.
            base_path: Prefix of its routes.
            health_timeout: Seconds from spawning the world until it must be ready.
            detach: Whether the instance keeps running when this orchestrator ends.
            restart: What happens when the instance dies: ``never`` leaves it dead, ``fresh`` starts
                it again with the same options, ``checkpoint`` restores its last good save, or
                starts it fresh if it has none. Name and port stay the same; sessions survive if the
                snapshot contains them.
            max_restarts: Number of restarts allowed within ``restart_window``; after that the
                instance stays dead.
            restart_window: Length of that window in seconds.
            reseed: Seed of the random state of a fresh world, or set after a snapshot is restored,
                0 or more; increases by 1 from instance to instance. A world with a command must
                have ``[run] reseed = true``. None draws a seed for each fresh world, and keeps the
                random state of a snapshot.
            labels: Texts, numbers or booleans by name, at most 16, that describe the instance:
                ``{"model": "…", "seed": 3}``. They appear in the manifest, records, events, tables
                and metrics, and select instances: ``clawblox ps --filter seed=3``.
            datastore: Where an engine world keeps the rows of its data stores; None means SQLite.
            port: Port of the world; None or 0 leases a free one.
            port_wait: Seconds to wait until a given port becomes free; 0 does not wait.
            record_dir: Directory for recordings; None means ``recordings`` in the run directory.
            resume: Snapshot to restore: its path, or the result of ``save``, whose digest is then
                checked. A relative path is looked up in the world directory, then in the current
                directory. An archive (``.ckpt``) is loaded into the run directory, as by
                ``load_checkpoint``, and its snapshot is restored; ``run_dir`` must then not be the
                world directory. None starts a fresh run.
            run_dir: Directory of the run, with its manifest; None means the directory of this
                object, or else the parent of ``record_dir``, or else the world directory.
            name: Name of the instance, unique in the run directory and in this object; None uses
                the first free name of ``w000``, ``w001``, …
            command_file: File for the rerunnable launch script, in an existing directory; None
                means a file in ``runtime``.
            log_file: File for the output of the world, in an existing directory; None means a file
                in ``logs``.
            watch: Whether an engine world restarts when its scripts change.
            _tmux_session: tmux session, created if needed, with a window ``world-0`` in which the
                world runs; None runs it without tmux, and so does a resume.

        Returns:
            The facts of the instance, with verbs; ``loaded`` is the state loaded from an archive.

        Raises:
            ConfigError: An argument is wrong.
            CheckpointError: The archive is not sound, has no snapshot of a world, or something is
                in its way in the run directory; CheckpointFormatError if it is not sound.
            UsageError: ``name`` is that of another instance of this object.
            RunLockedError: ``name`` is held by another orchestrator.
            PortInUseError: ``port`` is in use, or did not become free within ``port_wait``.
            WorldCommandError: The world's command cannot be executed.
            WorldExitedBeforeReadyError: The world ended before it was ready;
                SnapshotRefusedError if it was restoring a snapshot.
            WorldReadyTimeoutError: The world runs, but was not ready within ``health_timeout``.
            WorldIdentityError: Another process answers on its port.
            WorldStartError: Its files or its tmux window could not be made, or it was stopped
                before it was ready.
            ManifestError: The run cannot be registered in its manifest.

        When it fails, what was loaded from an archive is removed again.

        Cancellation: the instance is ended; nothing of it is left.
        """
        options = StartOptions(
            record=record,
            env=env,
            host=host,
            base_path=base_path,
            health_timeout=health_timeout,
            detach=detach,
            restart=restart,
            max_restarts=max_restarts,
            restart_window=restart_window,
            reseed=reseed,
            labels=labels,
            datastore=datastore,
            port=port,
            port_wait=port_wait,
            record_dir=record_dir,
            resume=resume,
            run_dir=self._run_dir if run_dir is None else run_dir,
            name=name,
            command_file=command_file,
            log_file=log_file,
            watch=watch,
            _tmux_session=_tmux_session,
        )
        fleet = self._open_fleet()
        where = partial(find_archive, resume, self._config.dir, "resume")
        archive = None if resume is None else await run_blocking(where)
        if archive is None:
            begin = partial(fleet.start, self._config, options)
            start = fleet.tasks.own(begin, undo=fleet.undo_start)
        else:
            whole = ArchiveStart(fleet, self._config, archive, options)
            start = fleet.tasks.own(whole.run, undo=whole.undo)
        self._latest_started = await start
        return AsyncStartedInstance.bind(self._latest_started, self)

    async def start_many(
        self,
        instances: int | Sequence[InstanceSpec | Mapping[str, Any]],
        *,
        run_dir: str | Path | None = None,
        record: bool = False,
        env: Mapping[str, str] | None = None,
        host: str = DEFAULT_HOST,
        base_path: str = "",
        health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_RESTART_WINDOW_S,
        reseed: int | None = None,
        labels: Labels | None = None,
        datastore: DataStoreBackend | None = None,
        resume: SnapshotLike | None = None,
        on_failure: OnFailure = "keep",
        progress: ProgressLike = False,
    ) -> Batch[AsyncStartedInstance]:
        """Start many instances at once and return when each is ready or has failed.

        Every instance has its own directory, ``worlds/<name>`` in the run directory, with
        manifest, logs, recordings and checkpoints. The starts begin as fast as the machine can
        take them; a ``ramp_slowed`` event says when they are held back.

        Args:
            instances: How many (at most 12000, one for each port that can be leased), or a list
                of what differs between them: an
                :class:`~clawblox.config.options.InstanceSpec`, or a mapping with its fields, for
                each.
            run_dir: Directory of the run; by default that of this object, else that of its latest
                start, else the world directory. Until this object is closed, no other process can
                start many instances in it.
            record: Whether the world records.
            env: Additional environment variables.
            host: Address to which the world binds.
            base_path: Prefix of its routes.
            health_timeout: Seconds from spawning the world until it must be ready.
            detach: Whether the instance keeps running when this orchestrator ends.
            restart: What happens when the instance dies: ``never`` leaves it dead, ``fresh`` starts
                it again with the same options, ``checkpoint`` restores its last good save, or
                starts it fresh if it has none. Name and port stay the same; sessions survive if the
                snapshot contains them.
            max_restarts: Number of restarts allowed within ``restart_window``; after that the
                instance stays dead.
            restart_window: Length of that window in seconds.
            reseed: Seed of the random state of a fresh world, or set after a snapshot is restored,
                0 or more; increases by 1 from instance to instance. A world with a command must
                have ``[run] reseed = true``. None draws a seed for each fresh world, and keeps the
                random state of a snapshot.
            labels: Texts, numbers or booleans by name, at most 16, that describe the instance:
                ``{"model": "…", "seed": 3}``. They appear in the manifest, records, events, tables
                and metrics, and select instances: ``clawblox ps --filter seed=3``.
            datastore: Where an engine world keeps the rows of its data stores; None means SQLite.
            resume: Snapshot to restore, as for ``start``, unless an instance has its own. From an
                archive, only the world's snapshot is used; it is put into ``checkpoints`` of the
                run directory and stays there. None starts fresh runs.
            on_failure: ``keep`` leaves the other instances running when one fails; ``stop_all``
                stops them all at the first failure.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.

        Returns:
            The started instances, and the errors of those that failed.

        Raises:
            ConfigError: An argument is wrong.
            CheckpointError: An archive is not sound, or has no snapshot of a world.
            RunLockedError: Another orchestrator runs many instances in the run directory.
            ManifestError: The instances cannot be listed in the manifest of the run.

        Cancellation: all of the instances are ended; nothing of them is left.
        """
        return await self._start_many(
            _specs(instances),
            run_dir,
            ManyOptions(
                record=record,
                env=env,
                host=host,
                base_path=base_path,
                health_timeout=health_timeout,
                detach=detach,
                restart=restart,
                max_restarts=max_restarts,
                restart_window=restart_window,
                reseed=reseed,
                labels=labels,
                datastore=datastore,
                resume=resume,
                on_failure=on_failure,
            ),
            reuse=True,
            progress=progress,
        )

    async def fork(
        self,
        checkpoint: SnapshotLike,
        count: int = 1,
        *,
        run_dir: str | Path | None = None,
        record: bool = False,
        env: Mapping[str, str] | None = None,
        host: str = DEFAULT_HOST,
        base_path: str = "",
        health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_RESTART_WINDOW_S,
        reseed: int | None = None,
        labels: Labels | None = None,
        datastore: DataStoreBackend | None = None,
        on_failure: OnFailure = "keep",
        progress: ProgressLike = False,
    ) -> Batch[AsyncStartedInstance]:
        """Start several independent instances from one snapshot.

        They begin in exactly the state of the snapshot, unless they are reseeded. Their names are
        new in the run directory, and their manifests name the snapshot and its digest.

        Args:
            checkpoint: The snapshot: its path, relative as for :meth:`start`, or what :meth:`save`
                returned. If that includes a digest, it must be the digest of the file. Of an
                archive, the world's snapshot is used, as in :meth:`start_many`; the agents'
                state is not.
            count: Number of instances, at most 12000.
            run_dir: Directory of the run; by default the one that the snapshot was saved in, which
                its manifest tells, else as in :meth:`start_many`.
            record: Whether the world records.
            env: Additional environment variables.
            host: Address to which the world binds.
            base_path: Prefix of its routes.
            health_timeout: Seconds from spawning the world until it must be ready.
            detach: Whether the instance keeps running when this orchestrator ends.
            restart: What happens when the instance dies: ``never`` leaves it dead, ``fresh`` starts
                it again with the same options, ``checkpoint`` restores its last good save, or
                starts it fresh if it has none. Name and port stay the same; sessions survive if the
                snapshot contains them.
            max_restarts: Number of restarts allowed within ``restart_window``; after that the
                instance stays dead.
            restart_window: Length of that window in seconds.
            reseed: Seed of the random state of a fresh world, or set after a snapshot is restored,
                0 or more; increases by 1 from instance to instance. A world with a command must
                have ``[run] reseed = true``. None draws a seed for each fresh world, and keeps the
                random state of a snapshot.
            labels: Texts, numbers or booleans by name, at most 16, that describe the instance:
                ``{"model": "…", "seed": 3}``. They appear in the manifest, records, events, tables
                and metrics, and select instances: ``clawblox ps --filter seed=3``.
            datastore: Where an engine world keeps the rows of its data stores; None means SQLite.
            on_failure: ``keep`` leaves the other instances running when one fails; ``stop_all``
                stops them all at the first failure.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.

        Returns:
            The started instances, and the errors of those that failed.

        Raises:
            ConfigError: An argument is wrong, or the file is not the snapshot that was saved.
            CheckpointError: The archive is not sound, or has no snapshot of a world.
            RunLockedError: Another orchestrator runs many instances in the run directory.
            ManifestError: The instances cannot be listed in the manifest of the run.

        Cancellation: all of the instances are ended; nothing of them is left.
        """
        specs = [InstanceSpec()] * check_count(count, "count", at_most=MAX_LEASES)
        options = ManyOptions(
            record=record,
            env=env,
            host=host,
            base_path=base_path,
            health_timeout=health_timeout,
            detach=detach,
            restart=restart,
            max_restarts=max_restarts,
            restart_window=restart_window,
            reseed=reseed,
            labels=labels,
            datastore=datastore,
            on_failure=on_failure,
        )
        path, digest = await run_blocking(find_parent, checkpoint, self._config.dir)
        if run_dir is None:
            run_dir = await run_blocking(source_run_dir, path)
        if run_dir is None and isinstance(checkpoint, Mapping):
            run_dir = self._open_fleet().last_run_dir(checkpoint.get("instance"))
        forked = attrs.evolve(options, resume=path)
        return await self._start_many(
            specs, run_dir, forked, reuse=False, progress=progress, parent_sha256=digest
        )

    async def resume_all(
        self,
        run_dir: str | Path | None = None,
        *,
        instances: Iterable[str] | None = None,
        env: Mapping[str, str] | None = None,
        progress: ProgressLike = False,
        found: Interruption | None = None,
    ) -> Batch[AsyncStartedInstance]:
        """Bring back the instances of a run that were not stopped on purpose.

        After a crash, a reboot or Ctrl-C, each instance of this world that was interrupted, died
        or failed to start goes on: same name, directory and run, from the last good save of its
        run, else as the run began. Those that never had their turn to start begin now. What was
        stopped by :meth:`stop`, :meth:`stop_all`, :meth:`drain`, ``clawblox stop`` or the normal
        end of a block is left alone, and so are worlds that ended with status 0, instances that
        run detached, and those of other worlds. Each restart is an entry of ``restarts`` in the
        manifest, and a ``resuming`` event that says what it goes on from.

        Args:
            run_dir: Directory of the run; by default that of this object, else that of its latest
                start, else the world directory.
            instances: Names of the instances to bring back, even if they were stopped on purpose;
                None means all that were interrupted.
            env: Values of environment variables. An instance needs those that it was started with,
                which are not on disk; those not given here are taken from this process.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.
            found: What :func:`clawblox.world.resume.find_resumable` found for the same arguments;
                unless the records have changed since, nothing is searched again. None searches.

        Returns:
            The started instances, and the errors of those that could not be brought back.

        Raises:
            ConfigError: An argument is wrong, or environment variables have no value here; names
                them.
            UsageError: There is no instance of one of the names, or it runs or has finished.
            RunLockedError: An orchestrator that lives runs instances in the run directory.
            ManifestError: The manifest of the run cannot be written.

        Cancellation: all of the instances are ended; they can be resumed again.
        """
        fleet, names = self._open_fleet(), () if instances is None else tuple(instances)
        directory = await run_blocking(self._use_run_dir, run_dir)
        batch = await resume_all(
            fleet,
            self._config,
            directory,
            names,
            check_env(env),
            found=found,
            progress=progress,
        )
        return self._bind_all(batch)

    def _bind_all(self, batch: Batch[StartedWorld]) -> Batch[AsyncStartedInstance]:
        self._latest_started = next(reversed(list(batch)), self._latest_started)
        done = {name: AsyncStartedInstance.bind(one, self) for name, one in batch.done.items()}
        return Batch(done, batch.failed)

    def _use_run_dir(self, given: str | Path | None) -> Path:
        """Return the run directory for many instances, which exists then. Blocks."""
        given = self._run_dir if given is None else given
        if given is None:
            given = self._latest.run_dir if self._latest else self.dir
        return make_run_dir(resolve_run_dir(given))

    async def _start_many(
        self,
        specs: Sequence[InstanceSpec],
        run_dir: str | Path | None,
        options: ManyOptions,
        *,
        reuse: bool,
        progress: ProgressLike,
        parent_sha256: str | None = None,
    ) -> Batch[AsyncStartedInstance]:
        check_progress(progress, "progress")
        fleet = self._open_fleet()
        directory = await run_blocking(self._use_run_dir, run_dir)
        snapshots = await Snapshots.find(
            options,
            specs,
            world_dir=self._config.dir,
            directory=files_dir(self._config.dir, directory) / "checkpoints",
        )
        start = NewInstances(
            config=self._config,
            run_dir=directory,
            snapshots=snapshots,
            reuse=reuse,
            parent_sha256=parent_sha256,
        )
        batch = await fleet.start_many(start, progress=progress)
        return self._bind_all(batch)

    async def stop(
        self, instance: str | None = None, *, grace_seconds: float = DEFAULT_GRACE_S
    ) -> StopResult:
        """Stop an instance: SIGTERM, wait for the grace, SIGKILL for the rest.

        Returns when all of its processes have ended. Stopping an instance that does not run does
        nothing.

        Args:
            instance: Name of the instance; not needed while there is only one.
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            How it ended (``terminated``, ``killed``, …), and which processes had to be killed.

        Raises:
            ConfigError: ``grace_seconds`` is not a number, or is below 0.
            UsageError: Several instances run and ``instance`` is None; or this object has started
                instances, but not one of that name.
            WorldStopError: A process survived even SIGKILL.

        Cancellation: the instance is stopped all the same.
        """
        fleet = self._open_fleet()
        return await fleet.tasks.own(partial(fleet.stop, instance, _check_grace(grace_seconds)))

    async def wait(self, instance: str | None = None) -> ProcessExit:
        """Wait until an instance has ended for good; it waits through restarts.

        Args:
            instance: Name of the instance; not needed while there is only one.

        Returns:
            How it ended; immediately if it has ended already.

        Raises:
            UsageError: There is no such instance, or several run and ``instance`` is None.

        Cancellation: the instance continues.
        """
        return await self._open_fleet().wait_ended(instance)

    async def restart(
        self,
        instance: str | None = None,
        *,
        save: bool = True,
        fresh: bool = False,
        resume: SnapshotLike | None = None,
        reseed: int | None = None,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> AsyncStartedInstance:
        """Restart an instance, and return when it is ready again.

        It keeps its state: one that is ready is saved first, one that has died continues from its
        last good save, and one that was never saved begins as the first time. Name, directory,
        port and run stay the same; sessions survive if the snapshot contains them. Calls under way
        fail with WorldExitedError. Such a restart does not count against ``max_restarts``.

        Args:
            instance: Name of the instance; not needed while there is only one.
            save: Whether to save it first. Without that it continues from its last good save.
            fresh: Whether it begins as the first time; nothing is saved then.
            resume: Snapshot to restart from, as in :meth:`start` but no archive; nothing is saved
                then. None means its last good save.
            reseed: Seed of the random state after this restart, 0 or more, and of later fresh
                starts of the instance. A world with a command must have ``[run] reseed = true``.
                None keeps the random state of the save, or with ``fresh`` the seed of the run.
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            The facts of the instance.

        Raises:
            ConfigError: An argument is wrong, the snapshot is missing, or the world takes no seed.
            UsageError: There is no such instance, several run and ``instance`` is None, it was
                stopped, or the snapshot that it first began from is gone.
            SnapshotError: It could not be saved, so it was not restarted.
            ManifestError: Its save could not be registered, so it was not restarted.
            WorldStopError: A process survived even SIGKILL.
            WorldStartError: It did not get ready again, or was stopped meanwhile. What follows is
                up to its restart policy.

        Cancellation: a restart that has begun continues; an instance that had died is ended again.
        """
        fleet = self._open_fleet()
        started = await restart(
            fleet,
            fleet.find(instance),
            RestartOptions(
                save=save, fresh=fresh, resume=resume, reseed=reseed, grace_seconds=grace_seconds
            ),
        )
        if self._latest_started is not None and self._latest_started.name == started.name:
            self._latest_started = started
        return AsyncStartedInstance.bind(started, self)

    async def stop_all(
        self, *, grace_seconds: float = DEFAULT_GRACE_S, progress: ProgressLike = False
    ) -> Batch[StopResult]:
        """Stop all instances concurrently; see :meth:`stop`.

        Args:
            grace_seconds: Seconds between TERM and KILL.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.

        Returns:
            How each ended, and the errors of those that could not be stopped.

        Raises:
            ConfigError: ``grace_seconds`` is not a number, or is below 0.

        Cancellation: the instances are stopped all the same.
        """
        fleet = self._open_fleet()
        names = [one.name for one in fleet.instances]
        return await fleet.stop_all(names, _check_grace(grace_seconds), progress=progress)

    async def drain(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> Batch[SavedSnapshot]:
        """Save every instance, then stop those whose save succeeded.

        An instance whose save failed keeps running, so that no state is lost.

        Args:
            dir: Directory for the file; None means ``checkpoints`` of the instance.
            timeout: Seconds for the transfer of the snapshot.
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            The saved snapshots of the instances that were stopped, and the errors of the others.

        Raises:
            ConfigError: An argument is wrong.

        Cancellation: finished saves stay, and instances that are being stopped are stopped.
        """
        fleet = self._open_fleet()
        grace = _check_grace(grace_seconds)
        saving = self.save_all(dir=dir, timeout=timeout)
        await self.autosave(every=None)
        saves = await saving
        stops = await fleet.stop_all(saves.done, grace)
        stopped = {name: saved for name, saved in saves.done.items() if name in stops.done}
        return Batch(stopped, {**saves.failed, **stops.failed})

    def interrupt(self) -> None:
        """Make every stop from now on an interruption, after which a resume brings back the rest.

        :meth:`resume_all` and ``clawblox resume`` leave alone what was stopped on purpose.
        """
        if self._fleet is not None:
            self._fleet.interrupt()

    def kill_now(self) -> None:
        """End the grace of every stop that is under way: what is still alive is killed."""
        if self._fleet is not None:
            self._fleet.kill_now()

    # -- agents -----------------------------------------------------------------------------

    async def connect(
        self, agent: str | AgentLike, *, instance: str | None = None, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Give an agent access to an instance.

        An agent with a directory gets its session recorded in ``<dir>/world_session.txt``; when
        that file exists, the agent rejoins the session that it names.

        An agent whose program clawblox runs gets an address of its own, where only the world's
        API for agents is served, always with the agent's session. It answers until the agent is
        closed.

        Args:
            agent: An agent, or a plain name.
            instance: Name of the instance; not needed while there is only one.
            timeout: Seconds for the call.

        Returns:
            A plain dict: ``session``, ``agent_id``, ``name``, ``headers``, ``base_url`` (for the
            agent), ``internal_base_url``, and all other fields of the world's answer.

        Raises:
            WorldSessionError: The world answered with another session than the recorded one, or
                does not know it.
            WorldCallError: The world did not answer, or its answer has no session.
            WorldExitedError: The instance has ended.
            UsageError: There is no such instance, several run and ``instance`` is None, or the
                agent is an ``AsyncAgent`` that is not open.
            ConfigError: ``agent`` is neither an agent nor a name, its directory cannot be used,
                ``timeout`` is not a number above 0, or ``[api]`` would give agents a route of the
                orchestrator.
            AgentResumeError: The agent knows its world by an address that it cannot have again.
            AgentSetupError: There is no address for the agent, or it cannot be recorded.
            ManifestError: The agent cannot be listed in the manifest.

        Cancellation: the agent may have joined the world; its session may not be recorded.
        """
        fleet = self._open_fleet()
        handle, member = fleet.find(instance), make_member(agent)
        check_seconds(timeout, "timeout")
        granter = AccessGranter.make(FleetPlace(fleet, handle)) if is_program(agent) else None
        access = await admit(fleet, handle, member, timeout=timeout)
        if self._autosave is not None:
            self._autosave.save_soon(handle)
        if is_program(agent) and granter is not None:
            access = await fleet.tasks.own(partial(granter.grant, agent, access))
        return dict(access)

    async def join(
        self,
        agent: str | AgentLike,
        *,
        instance: str | None = None,
        new: bool = False,
        timeout: float = 30.0,
        wait_restart: float | None = None,
    ) -> AsyncAgentClient:
        """Let an agent join an instance, and return a client to act as that agent.

        The agent joins as with :meth:`connect`, whose result is the client's ``access``. In a fork
        or a resumed instance, a plain name rejoins as the player of that name in the save if its
        session is known here: this process joined it, ``clawblox act`` did, or the directory of an
        agent has it. The client's ``rejoined`` reports that.

        Args:
            agent: An agent, or a plain name.
            instance: Name of the instance; not needed while there is only one.
            new: Join a plain name as a new player also where the save has one of that name.
            timeout: Seconds for this call, and for each call of the client.
            wait_restart: Seconds that a call of the client waits for an instance that is being
                restarted. None or 0 does not wait: the call raises WorldExitedError at once. An
                input, chat message or leave that was sent before the instance died raises it in
                any case, as it is never sent again.

        Returns:
            The client; as an async context manager it leaves the world at the end of the block.

        Raises:
            WorldSessionError: The world answered with another session than the recorded one, or
                does not know it.
            WorldCallError: The world did not answer, or its answer has no session.
            WorldExitedError: The instance has ended.
            UsageError: There is no such instance, or several run and ``instance`` is None.
            ConfigError: ``agent`` is neither an agent nor a name, its directory cannot be used, or
                ``timeout`` or ``wait_restart`` is not a number of seconds.
            ManifestError: The agent cannot be listed in the manifest.

        Cancellation: the agent may have joined the world; its session may not be recorded.
        """
        fleet = self._open_fleet()
        place = FleetPlace(fleet, fleet.find(instance))
        return await join_place(place, agent, new=new, timeout=timeout, wait_restart=wait_restart)

    async def leave(
        self, access: Mapping[str, Any], *, instance: str | None = None, timeout: float = 30.0
    ) -> None:
        """Take an agent out of an instance.

        Args:
            access: What :meth:`connect` returned, or the ``access`` of a client.
            instance: Name of the instance; not needed while there is only one.
            timeout: Seconds for the call.

        Raises:
            WorldCallError: The world did not answer, or refused.
            WorldExitedError: The instance has ended.
            UsageError: There is no such instance, or several run and ``instance`` is None.
            ConfigError: ``access`` is not what :meth:`connect` returned, or ``timeout`` is not a
                number above 0.

        Cancellation: the agent may have left the world.
        """
        fleet = self._open_fleet()
        handle = fleet.find(instance)
        check_seconds(timeout, "timeout")

        roster = handle.roster
        session, name = str(access.get("session")), str(access.get("name"))

        async def call() -> None:
            async with handle.calls.call():
                roster.require_kept(session, name)
                await leave(handle.connections, access, timeout=timeout)
                roster.leave(session)

        await fleet.tasks.own(call)

    # -- snapshots and the manifest ---------------------------------------------------------

    async def save(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        instance: str | None = None,
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_MAX_SNAPSHOT_BYTES,
    ) -> SavedSnapshot:
        """Save a snapshot of an instance and register it in the manifest of its run.

        Args:
            dir: Directory for the file; None means ``checkpoints`` of the instance.
            instance: Name of the instance; not needed while there is only one.
            timeout: Seconds for the transfer of the snapshot.
            max_bytes: Size limit of the snapshot, in bytes.

        Returns:
            The saved snapshot, also a mapping: ``saved["path"]``.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: There is no such instance, or several run and ``instance`` is None.
            SnapshotError: The world gave no usable snapshot; no file or manifest entry is left.
            WorldExitedError: The instance has ended; no file or manifest entry is left.
            ManifestError: The file is complete, but not registered.

        Cancellation: leaves both the file and its manifest entry, or neither.
        """
        fleet = self._open_fleet()
        options = SaveOptions(dir, timeout, max_bytes)
        return await save(fleet, fleet.find(instance), options)

    async def checkpoint(
        self,
        path: str | os.PathLike[str],
        agents: Agents | None = None,
        *,
        instance: str | None = None,
        backend: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        workspace_only: bool = False,
        known_secrets: Iterable[str] = (),
        allow: Iterable[Allowance] = (),
        idle_wait: float = DEFAULT_IDLE_WAIT_S,
        on_unarchivable: OnUnarchivable = "raise",
        max_file_bytes: int = MAX_FILE_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
        overwrite: bool = False,
        keep: Iterable[str] = (),
        progress: ProgressLike = False,
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_MAX_SNAPSHOT_BYTES,
    ) -> SavedCheckpoint:
        """Save an instance, and make an archive of the save and of its agents' state.

        Does as :meth:`save` and then ``save_checkpoint`` do; the manifest lists both the snapshot,
        in ``checkpoints`` of the instance, and the archive, if that lies in a run directory.

        Args:
            path: The archive, ``*.ckpt``; its directory is created when missing.
            agents: The agents, or their directories by name; None for no agents.
            instance: Name of the instance; not needed while there is only one.
            backend: The driver of all agents, ``claude`` for instance; None reads it from each
                directory.
            metadata: JSON values for the top level of ``metadata.json``; None for none.
            workspace_only: Whether to leave out the conversations; the right choice for archives
                that are shared.
            known_secrets: Secrets to search for, in addition to the tokens of live worlds, the
                secrets in this process's environment and those in the agents' homes.
            allow: Findings that are not secrets, in addition to ``secret-allow.json`` of the run.
            idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn.
            on_unarchivable: How to treat files and directories that this process may not read,
                whose names cannot be in an archive, or that are too large: ``raise`` refuses the
                archive, ``record`` lists them as excluded.
            max_file_bytes: Limit for the apparent size of an agent's file, in bytes. A larger file
                is not read.
            max_total_bytes: Limit for the apparent size of all these files together, in bytes. The
                largest files are left out until the rest fits.
            overwrite: Whether to replace an archive of that name.
            keep: Paths below workspaces to archive although programs run or obey them unasked, such
                as ``.helix/config.toml``; a directory includes everything in it. Credentials are
                never archived.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the bytes done and the total (0 and 0 while it waits for an
                idle moment), perhaps in another thread; an exception from it ends the call. False
                does neither.
            timeout: Seconds for the transfer of the snapshot.
            max_bytes: Size limit of the snapshot, in bytes.

        Returns:
            The archive: its path, size and digest, its metadata, and what was left out.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: There is no such instance, or several run and ``instance`` is None.
            SnapshotError: The world gave no usable snapshot; no file or manifest entry is left.
            WorldExitedError: The instance has ended.
            CheckpointSecretError: The archive would have carried a secret.
            CheckpointError: The archive cannot be made; or it is complete, and perhaps not
                durable, or not in the manifest, as the message says.
            ManifestError: The snapshot is complete, but not registered.

        An error that leaves no archive leaves no snapshot either: its file is removed, and its
        entry in the manifest says so.

        Cancellation: leaves both the snapshot and the archive, or neither.
        """
        arguments = ArchiveArguments(
            {
                "path": path,
                "agents": agents,
                "backend": backend,
                "metadata": metadata,
                "workspace_only": workspace_only,
                "known_secrets": known_secrets,
                "allow": allow,
                "idle_wait": idle_wait,
                "on_unarchivable": on_unarchivable,
                "max_file_bytes": max_file_bytes,
                "max_total_bytes": max_total_bytes,
                "overwrite": overwrite,
                "keep": keep,
                "progress": progress,
            }
        )
        del known_secrets, metadata  # a traceback may show the locals
        fleet = self._open_fleet()
        options = SaveOptions(None, timeout, max_bytes)
        handle = fleet.find(instance)
        return await fleet.tasks.own(partial(save_archive, fleet, handle, options, arguments))

    async def remove_checkpoint(
        self, path: str | os.PathLike[str], *, instance: str | None = None
    ) -> None:
        """Remove an archive that :meth:`checkpoint` made, and the save that is in it.

        The manifest says that both were removed. The latest save of an instance stays, and one that
        an instance was restored from: a restart needs them.

        Args:
            path: The archive.
            instance: Name of the instance; not needed while there is only one.

        Raises:
            ConfigError: ``path`` is not a path.
            UsageError: There is no such instance, or several run and ``instance`` is None.
            CheckpointError: It is no archive, or cannot be removed.
            ManifestError: It cannot be noted in the manifest; the archive is still there.

        Cancellation: what has begun is completed.
        """
        archive = check_path(path, "path").absolute()
        fleet = self._open_fleet()
        await fleet.tasks.own(partial(remove_archive, fleet, fleet.find(instance), archive))

    def save_all(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        instances: Iterable[str] | None = None,
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_MAX_SNAPSHOT_BYTES,
        progress: ProgressLike = False,
    ) -> BatchOperation[SavedSnapshot]:
        """Save snapshots of many instances concurrently, each registered in its own manifest.

        ``await`` it for a batch, or iterate over it with ``async for`` to get each
        :class:`~clawblox.concurrency.batch.Outcome` as it arrives. Only a few transfers run at a
        time, and each takes constant memory whatever its size.

        Args:
            dir: Directory for the file; None means ``checkpoints`` of the instance.
            instances: Their names; None means all that are ready.
            timeout: Seconds for the transfer of the snapshot.
            max_bytes: Size limit of the snapshot, in bytes.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: There is no instance of one of the names.

        Cancellation: each instance has both its file and its manifest entry, or neither.
        """
        fleet = self._open_fleet()
        options = SaveOptions(dir, timeout, max_bytes)
        names = fleet.ready_names if instances is None else tuple(instances)
        known = [fleet.find(name) for name in names]
        return save_all(fleet, known, options, progress=progress)

    async def autosave(
        self,
        every: float | None,
        *,
        keep: int = DEFAULT_KEEP,
        min_free: int | str | None = None,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
    ) -> None:
        """Save all instances at a fixed interval, from now until the block is left.

        A save that fails is a ``save_failed`` event. Older autosaves are removed; other files
        never are. A later call replaces an earlier one.

        Args:
            every: Seconds from the start of one round of saves to that of the next; None turns
                autosave off.
            keep: Number of autosaves to keep per instance, 1 or more.
            min_free: Free disk space below which autosaves pause, in bytes or as text such as
                ``"5 GB"``; an ``autosave_paused`` event reports the pause, and
                ``autosave_resumed`` its end. None for no limit.
            dir: Directory for the file; None means ``checkpoints`` of the instance.

        Raises:
            ConfigError: ``every``, ``keep``, ``min_free`` or ``dir`` is wrong.

        Cancellation: has no effect on the saves.
        """
        fleet = self._open_fleet()
        later = None
        if every is not None:
            options = SaveOptions(dir)
            least = None if min_free is None else check_size(min_free, "min_free")
            period, kept = check_seconds(every, "every"), check_count(keep, "keep")
            later = Autosave(fleet, period, kept, least, options)
        if self._autosave is not None:
            self._autosave.cancel()
        self._autosave = later
        if later is not None:
            fleet.tasks.start_soon(later.run)

    async def record_run(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the documented name
        index: int | None = None,
        status: RunStatus | None = None,
        started_at: datetime | str | None = None,
        ended_at: datetime | str | None = None,
        resume_from: str | Path | Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        """Label a run in its manifest; nothing is started, stopped or saved.

        A label that is None stays as it is in the manifest.

        Args:
            id: Id of the run. The manifest also gives it to the checkpoints and agents of the
                instances that this object runs in the directory, or of the last that it ran there.
            index: Index of the run in a series, from 0.
            status: ``running``, ``complete``, ``failed`` or ``interrupted``.
            started_at: When it began; a datetime without a zone is UTC, text is ISO 8601.
            ended_at: When it ended.
            resume_from: The checkpoint it was resumed from: a path, or what ``save`` returned.
            run_dir: Directory of the run; by default that of the latest start, else that of this
                object, else the world directory.

        Raises:
            ConfigError: A value has the wrong type or format; names it.
            ManifestError: The manifest cannot be written.

        Cancellation: the label is written completely or not at all.
        """
        fleet = self._open_fleet()
        update = run_update(
            id=id,
            index=index,
            status=status,
            started_at=started_at,
            ended_at=ended_at,
            resume_from=resume_from,
        )
        latest = self._latest.instance_dir if self._latest else self._run_dir or self.dir
        directory = latest if run_dir is None else await run_blocking(resolve_run_dir, run_dir)
        await fleet.tasks.own(partial(fleet.label_run, directory, update))

    async def lineage(self, run_dir: str | Path | None = None) -> Lineage:
        """Read what the instances of a run directory began from, their lives and their saves.

        Args:
            run_dir: The run directory; by default that of the latest start, else that of this
                object, else the world directory.

        Returns:
            What the manifests and records tell now, of running and of ended instances.

        Raises:
            ManifestError: Nothing ever ran in the run directory.
            ConfigError: ``run_dir`` is not a path.

        Cancellation: has no effect; nothing is changed.
        """
        latest = self._latest.run_dir if self._latest else self._run_dir or self.dir
        return await run_blocking(read_lineage, latest if run_dir is None else run_dir)

    @property
    def metrics(self) -> Metrics:
        """Counters and measurements since the block was entered."""
        return self._open_fleet().recorder.snapshot()

    # -- watching ---------------------------------------------------------------------------

    def logs(
        self, instance: str | None = None, *, follow: bool = False, tail: int | None = None
    ) -> LogReader:
        """Return the lines of an instance's log since its start, those before a restart included.

        Args:
            instance: Name of the instance; not needed while there is only one.
            follow: Wait for more lines until the instance has ended.
            tail: Number of lines before the end to begin with; None begins at the first line.

        Returns:
            An async context manager and iterator of :class:`~clawblox.results.LogLine`.

        Raises:
            ConfigError: ``tail`` is not a whole number, 0 or more.
            UsageError: There is no such instance, or several run and ``instance`` is None.
        """
        if tail is not None:
            check_count(tail, "tail", at_least=0)
        return self._open_fleet().find(instance).logs(follow=follow, tail=tail)

    def events(self) -> EventStream:
        """Return the events of all instances, from now until the world is closed.

        Returns:
            An async context manager and iterator of :class:`~clawblox.results.WorldEvent`.
        """
        return self._open_fleet().hub.subscribe()


class AsyncStartedInstance(BoundWorld[AsyncWorld]):
    """The facts of one instance as :class:`AsyncWorld` returned them, with verbs.

    Each verb calls the method of this name of the world that returned the value, with the name of
    the instance; the world must be open. The facts never change: after a restart, the value that
    ``restart`` returned has the new ones. A copy or a pickle has only the facts.
    """

    async def save(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_MAX_SNAPSHOT_BYTES,
    ) -> SavedSnapshot:
        """Save a snapshot of the instance; see :meth:`AsyncWorld.save`."""
        return await self._ready().save(
            dir=dir, instance=self.name, timeout=timeout, max_bytes=max_bytes
        )

    async def stop(self, *, grace_seconds: float = DEFAULT_GRACE_S) -> StopResult:
        """Stop the instance; see :meth:`AsyncWorld.stop`."""
        return await self._ready().stop(self.name, grace_seconds=grace_seconds)

    async def restart(
        self,
        *,
        save: bool = True,
        fresh: bool = False,
        resume: SnapshotLike | None = None,
        reseed: int | None = None,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> AsyncStartedInstance:
        """Restart the instance and return its new facts; see :meth:`AsyncWorld.restart`."""
        return await self._ready().restart(
            self.name,
            save=save,
            fresh=fresh,
            resume=resume,
            reseed=reseed,
            grace_seconds=grace_seconds,
        )

    async def join(
        self,
        agent: str | AgentLike,
        *,
        new: bool = False,
        timeout: float = 30.0,
        wait_restart: float | None = None,
    ) -> AsyncAgentClient:
        """Let an agent join the instance; see :meth:`AsyncWorld.join`."""
        return await self._ready().join(
            agent, instance=self.name, new=new, timeout=timeout, wait_restart=wait_restart
        )

    def logs(self, *, follow: bool = False, tail: int | None = None) -> LogReader:
        """Return the lines of the instance's log; see :meth:`AsyncWorld.logs`."""
        return self._ready().logs(self.name, follow=follow, tail=tail)


def _count_states(fleet: Fleet) -> str:
    """Return how many instances are in each state: ``8 ready, 1 starting``."""
    states = [one.state.value for one in fleet.instances]
    counts = Counter([*states, *("starting" for _ in fleet.starting)])
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no instances"


def _specs(instances: object) -> list[InstanceSpec]:
    if isinstance(instances, int):
        return [InstanceSpec()] * check_count(instances, "instances", at_most=MAX_LEASES)
    if not isinstance(instances, Sequence) or isinstance(instances, str):
        message = "a number of instances, or a list with an InstanceSpec for each"
        raise ConfigError(message, key="instances", value=instances)
    check_count(len(instances), "instances", at_least=0, at_most=MAX_LEASES)
    return [InstanceSpec.parse(spec) for spec in instances]


def _check_grace(grace_seconds: float) -> float:
    return check_seconds(grace_seconds, "grace_seconds", may_be_zero=True)
