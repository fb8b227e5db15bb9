"""AsyncWorld: a world directory, and its instances that this process runs.

One object owns any number of instances and returns frozen values. Every operation on an instance
takes the name of the instance, which is optional while there is only one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from clawblox.concurrency.batch import Batch, BatchOperation
from clawblox.concurrency.progress import ProgressLike
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import (
    check_count,
    check_env,
    check_grace,
    check_progress,
    check_seconds,
    check_size,
)
from clawblox.config.options import (
    DEFAULT_GRACE_S,
    DEFAULT_HEALTH_TIMEOUT_S,
    DEFAULT_HOST,
    DEFAULT_KEEP,
    DEFAULT_MAX_RESTARTS,
    DEFAULT_MAX_SNAPSHOT_BYTES,
    DEFAULT_RESTART_WINDOW_S,
    DEFAULT_SAVE_TIMEOUT_S,
    InstanceSpec,
    ManyOptions,
    OnFailure,
    SaveOptions,
)
from clawblox.results import (
    DataStoreBackend,
    Labels,
    RestartMode,
    SavedSnapshot,
    SnapshotLike,
    StartedWorld,
    StopResult,
)
from clawblox.rundir.control_server import Operations
from clawblox.rundir.interrupted import InterruptedRun
from clawblox.rundir.paths import files_dir
from clawblox.rundir.snapshot_files import find_parent, source_run_dir
from clawblox.system.port_leases import MAX_LEASES
from clawblox.world.archives import take_snapshots
from clawblox.world.control_handlers import make_operations
from clawblox.world.fleet import Fleet, ManyStart
from clawblox.world.instance_calls import AsyncStartedInstance, InstanceCalls
from clawblox.world.known_instances import Plan
from clawblox.world.resume import resume_all
from clawblox.world.save import Autosave, Retention, save_all


class AsyncWorld(InstanceCalls):
    """A world directory, and its instances that this object started or attached to.

    Use it as an async context manager. Leaving the block, for any reason, stops every instance that
    is not detached.

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

    def _operations(self, fleet: Fleet, run_dir: Path) -> Operations:
        return make_operations(fleet, self.start, self.fork, run_dir)

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
        """Start many instances concurrently and return when each is ready or has failed.

        Every instance has its own directory, ``worlds/<name>`` in the run directory, with manifest,
        logs, recordings and checkpoints. Instances are started as fast as the machine allows; a
        ``ramp_slowed`` event reports a delay.

        Args:
            instances: Number of instances (at most 12000, one for each port that can be leased), or
                a list with the options of each instance: an
                :class:`~clawblox.config.options.InstanceSpec` or a mapping with its fields.
            run_dir: Directory of the run; by default that of this object, else that of its latest
                start, else the world directory. Until this object is closed, no other process can
                start many instances in it.
            record: Whether the world records.
            env: Additional environment variables.
            host: Address to which the world binds.
            base_path: Prefix of the world's routes.
            health_timeout: Seconds from spawning the world until it must be ready.
            detach: Whether the instance keeps running when this orchestrator ends.
            restart: Policy for an instance that dies: ``never`` leaves it dead, ``fresh`` starts it
                again with the same options, ``checkpoint`` restores its last good save, or starts
                it fresh if there is no save. Name and port stay the same; sessions survive if the
                snapshot contains them.
            max_restarts: Number of restarts allowed within ``restart_window``; after that the
                instance stays dead.
            restart_window: Length of that window in seconds.
            reseed: Seed of the random state of a fresh world, or set after a snapshot is restored,
                0 or more; increases by 1 from instance to instance. A world with a command must
                have ``[run] reseed = true``. None draws a seed for each fresh world, and keeps the
                random state of a snapshot.
            labels: At most 16 strings, numbers or booleans by name that describe the instance:
                ``{"model": "…", "seed": 3}``. Labels appear in the manifest, records, events,
                tables and metrics, and select instances: ``clawblox ps --filter seed=3``.
            datastore: Storage of an engine world's data stores; None means SQLite.
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
            CheckpointError: An archive is damaged, or has no snapshot of a world.
            RunLockedError: Another orchestrator runs many instances in the run directory.
            ManifestError: The instances cannot be listed in the manifest of the run.

        Cancellation: all of these instances are ended and removed.
        """
        return await self._start_many(
            InstanceSpec.parse_all(instances),
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

        The instances start in exactly the state of the snapshot, unless they are reseeded. Their
        names are new in the run directory, and their manifests name the snapshot and its digest.

        Args:
            checkpoint: The snapshot: its path, relative as for :meth:`start`, or what :meth:`save`
                returned. If that includes a digest, it must be the digest of the file. Of an
                archive, the world's snapshot is used, as in :meth:`start_many`; the agents' state
                is not.
            count: Number of instances, at most 12000.
            run_dir: Directory of the run; by default the run of the snapshot, if its manifest is
                found, else as in :meth:`start_many`.
            record: Whether the world records.
            env: Additional environment variables.
            host: Address to which the world binds.
            base_path: Prefix of the world's routes.
            health_timeout: Seconds from spawning the world until it must be ready.
            detach: Whether the instance keeps running when this orchestrator ends.
            restart: Policy for an instance that dies: ``never`` leaves it dead, ``fresh`` starts it
                again with the same options, ``checkpoint`` restores its last good save, or starts
                it fresh if there is no save. Name and port stay the same; sessions survive if the
                snapshot contains them.
            max_restarts: Number of restarts allowed within ``restart_window``; after that the
                instance stays dead.
            restart_window: Length of that window in seconds.
            reseed: Seed of the random state of a fresh world, or set after a snapshot is restored,
                0 or more; increases by 1 from instance to instance. A world with a command must
                have ``[run] reseed = true``. None draws a seed for each fresh world, and keeps the
                random state of a snapshot.
            labels: At most 16 strings, numbers or booleans by name that describe the instance:
                ``{"model": "…", "seed": 3}``. Labels appear in the manifest, records, events,
                tables and metrics, and select instances: ``clawblox ps --filter seed=3``.
            datastore: Storage of an engine world's data stores; None means SQLite.
            on_failure: ``keep`` leaves the other instances running when one fails; ``stop_all``
                stops them all at the first failure.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.

        Returns:
            The started instances, and the errors of those that failed.

        Raises:
            ConfigError: An argument is wrong, or the file is not the snapshot that was saved.
            CheckpointError: The archive is damaged, or has no snapshot of a world.
            RunLockedError: Another orchestrator runs many instances in the run directory.
            ManifestError: The instances cannot be listed in the manifest of the run.

        Cancellation: all of these instances are ended and removed.
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
        options = attrs.evolve(options, resume=path)
        return await self._start_many(
            specs, run_dir, options, reuse=False, progress=progress, parent_sha256=digest
        )

    async def resume_all(
        self,
        run_dir: str | Path | None = None,
        *,
        instances: Iterable[str] | None = None,
        env: Mapping[str, str] | None = None,
        progress: ProgressLike = False,
        found: InterruptedRun | None = None,
    ) -> Batch[AsyncStartedInstance]:
        """Resume the instances of a run that were not stopped on purpose.

        After a crash, a reboot or Ctrl-C, each instance of this world that was interrupted, died or
        failed to start continues under the same name, in the same directory and run, from the last
        good save of the run; without a save, it starts again. Queued instances start now. The
        following are left alone: instances stopped by :meth:`stop`, :meth:`stop_all`,
        :meth:`drain`, ``clawblox stop`` or the normal end of a block, worlds that ended with status
        0, detached instances, and instances of other worlds. Each restart adds an entry to
        ``restarts`` in the manifest, and emits a ``resuming`` event that names the save.

        Args:
            run_dir: Directory of the run; by default that of this object, else that of its latest
                start, else the world directory.
            instances: Names of the instances to resume, even if they were stopped on purpose; None
                means all that were interrupted.
            env: Values of environment variables. An instance needs the variables that it was
                started with. Their values are not on disk; those not given here are taken from this
                process.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.
            found: Result of :func:`clawblox.world.resume.find_resumable` for the same arguments; it
                is used unless the records have changed since. None searches.

        Returns:
            The started instances, and the errors of those that could not be resumed.

        Raises:
            ConfigError: An argument is wrong, or environment variables have no value here; the
                error names them.
            UsageError: A named instance does not exist, is running, or has finished.
            RunLockedError: Another orchestrator is running instances in the run directory.
            ManifestError: The manifest of the run cannot be written.

        Cancellation: all of the instances are ended; they can be resumed again.
        """
        fleet, names = self._open_fleet(), () if instances is None else tuple(instances)
        directory = await run_blocking(self._use_run_dir, run_dir)
        variables = check_env(env)
        batch = await resume_all(
            fleet, self._config, directory, names, variables, found=found, progress=progress
        )
        return self._bind_all(batch)

    def _bind_all(self, batch: Batch[StartedWorld]) -> Batch[AsyncStartedInstance]:
        self._note_started([*batch])
        done = {name: AsyncStartedInstance.bind(facts, self) for name, facts in batch.done.items()}
        return Batch(done, batch.failed)

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
        home = files_dir(self._config.dir, directory) / "checkpoints"
        snapshots = await take_snapshots(options, specs, self._config.dir, home)

        async def prepare() -> Plan:
            await run_blocking(fleet.leftovers.clear, directory)
            return partial(snapshots.plan, self._config, directory, parent_sha256)

        stops_all = options.on_failure == "stop_all"
        start = ManyStart(run_dir=directory, prepare=prepare, reuse=reuse, stops_all=stops_all)
        return self._bind_all(await fleet.start_many(start, progress=progress))

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

        Cancellation: the instances are still stopped.
        """
        fleet = self._open_fleet()
        names = [instance.name for instance in fleet.instances]
        return await fleet.stop_all(names, check_grace(grace_seconds), progress=progress)

    async def drain(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> Batch[SavedSnapshot]:
        """Save every instance, then stop those whose save succeeded.

        An instance whose save failed keeps running, so its state is not lost.

        Args:
            dir: Directory for the file; None means ``checkpoints`` of the instance.
            timeout: Seconds for the transfer of the snapshot.
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            The saved snapshots of the instances that were stopped, and the errors of the others.

        Raises:
            ConfigError: An argument is wrong.

        Cancellation: finished saves stay, and stops in progress are completed.
        """
        fleet = self._open_fleet()
        grace = check_grace(grace_seconds)
        saving = self.save_all(dir=dir, timeout=timeout)
        await self.autosave(every=None)
        saves = await saving
        stops = await fleet.stop_all(saves.done, grace)
        stopped = {name: saved for name, saved in saves.done.items() if name in stops.done}
        return Batch(stopped, {**saves.failed, **stops.failed})

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

        ``await`` the result for a batch, or iterate over it with ``async for`` to get each
        :class:`~clawblox.concurrency.batch.Outcome` as it arrives. Only a few transfers run at a
        time, and each takes a constant amount of memory.

        Args:
            dir: Directory for the file; None means ``checkpoints`` of the instance.
            instances: Names of the instances; None means all that are ready.
            timeout: Seconds for the transfer of the snapshot.
            max_bytes: Size limit of the snapshot, in bytes.
            progress: True shows how far it is, on standard error, in a terminal or a notebook. A
                function is called with the number done and the total, perhaps in another thread; an
                exception from it ends the call. False does neither.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: A named instance does not exist.

        Cancellation: each instance has both its file and its manifest entry, or neither.
        """
        fleet = self._open_fleet()
        options = SaveOptions(dir=dir, timeout=timeout, max_bytes=max_bytes)
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

        A save that fails emits a ``save_failed`` event. Older autosaves are removed; other files
        are kept. A later call replaces an earlier one.

        Args:
            every: Seconds from the start of one round of saves to that of the next; None turns
                autosave off.
            keep: Number of autosaves to keep per instance, 1 or more.
            min_free: Free disk space below which autosaves pause, in bytes or as text such as
                ``"5 GB"``; an ``autosave_paused`` event reports the pause, and ``autosave_resumed``
                its end. None for no limit.
            dir: Directory for the file; None means ``checkpoints`` of the instance.

        Raises:
            ConfigError: ``every``, ``keep``, ``min_free`` or ``dir`` is invalid.

        Cancellation: has no effect on the saves.
        """
        fleet = self._open_fleet()
        later = None
        if every is not None:
            options = SaveOptions(dir)
            least = None if min_free is None else check_size(min_free, "min_free")
            period, kept = check_seconds(every, "every"), check_count(keep, "keep")
            later = Autosave(fleet, period, Retention(fleet, kept), least, options)
        if self._autosave is not None:
            self._autosave.cancel()
        self._autosave = later
        if later is not None:
            fleet.tasks.start_soon(later.run)
