"""AsyncWorld: a world and the instances of it that run here. Everything else is a room below.

One object identifies a world directory and owns any number of instances. It returns frozen
values; every operation on an instance takes its name, which is not needed while there is one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from clawblox.concurrency.batch import Batch, BatchOperation
from clawblox.concurrency.tasks import Residence
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_count, check_read_path, check_seconds
from clawblox.config.download import fetch_world, is_world_url
from clawblox.config.options import (
    DEFAULT_GRACE_S,
    DEFAULT_HEALTH_TIMEOUT_S,
    DEFAULT_HOST,
    DEFAULT_KEEP,
    DEFAULT_MAX_RESTARTS,
    DEFAULT_RESTART_WINDOW_S,
    DEFAULT_SAVE_TIMEOUT_S,
    InstanceSpec,
    ManyOptions,
    OnFailure,
    SaveOptions,
    StartOptions,
)
from clawblox.config.options import DEFAULT_MAX_SNAPSHOT_BYTES as DEFAULT_MAX_SNAPSHOT_BYTES
from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.errors import ConfigError, UsageError
from clawblox.instance.launch import Launch, plan_launch, plan_many
from clawblox.results import RestartMode, SavedSnapshot, SnapshotLike, StartedWorld, StopResult
from clawblox.rundir.manifest_updates import RunStatus, agent_update, run_update
from clawblox.rundir.paths import make_run_dir, resolve_run_dir
from clawblox.rundir.records import read_running
from clawblox.rundir.snapshot_files import find_parent, source_run_dir
from clawblox.system.ports import MAX_LEASES
from clawblox.telemetry.events import EventStream
from clawblox.telemetry.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.telemetry.logs import LogReader
from clawblox.telemetry.metrics import Metrics
from clawblox.world.access import AgentLike, join, leave, member_of
from clawblox.world.control_handlers import make_handlers
from clawblox.world.fleet import Fleet, Handlers
from clawblox.world.properties import WorldMetadata
from clawblox.world.save import Autosave, save, save_all

__all__ = ["AsyncWorld"]


class AsyncWorld(WorldMetadata):
    """A world directory, and the instances of it that this object started or attached.

    Use it as an async context manager: leaving the block stops every instance that is not
    detached, whatever the reason for leaving.

    Args:
        dir: Directory with a ``world.toml``, or the address of one in a GitHub repository,
            ``https://github.com/<owner>/<repo>/tree/<ref>/<folder>``. That one is downloaded
            when the block is entered, or when an attribute is read before.
        max_log_bytes: Size at which a log is cut to its newer half; None never cuts.

    Raises:
        ConfigError: The directory or its ``world.toml`` is missing or wrong.
        FetchError: The folder cannot be downloaded.
    """

    def __init__(
        self,
        dir: str | Path,  # noqa: A002 - the documented name
        *,
        max_log_bytes: int | None = DEFAULT_LOG_BYTES,
    ) -> None:
        self._source = str(dir)
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
        """Return the world whose detached instances run in a run directory.

        Entering the block adopts them, and leaving it leaves them running.

        Args:
            run_dir: The run directory.

        Raises:
            UsageError: Nothing runs there, or instances of several worlds do.
            ConfigError: It cannot be read.
        """
        directory = resolve_run_dir(run_dir)
        try:
            worlds = {record.world_dir for record in read_running(directory)}
        except OSError as error:
            message = f"the run directory cannot be read: {error.strerror}"
            raise ConfigError(message, key="run_dir", value=str(directory)) from error
        if len(worlds) != 1:
            raise UsageError(
                f"{directory} has running instances of {len(worlds)} worlds, attaching needs one",
                hint="clawblox ps shows what runs in a run directory",
            )
        world = cls(worlds.pop())
        world._attach_dir = directory
        return world

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
        try:
            await self._residence.__aexit__(exc_type, exc, traceback)
        finally:
            self._fleet = None
            self._autosave = None

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Fleet]:
        config = await run_blocking(lambda: self._config)
        async with Fleet(self._max_log_bytes, self._handlers).opened() as fleet:
            if self._attach_dir is not None:
                attached = await fleet.attach(config, self._attach_dir)
                self._latest_started = attached[-1] if attached else None
            yield fleet

    def _handlers(self, fleet: Fleet, run_dir: Path) -> Handlers:
        return make_handlers(fleet, self.fork, run_dir)

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
        port: int | None = None,
        record: bool = False,
        record_dir: str | Path | None = None,
        resume: SnapshotLike | None = None,
        host: str = DEFAULT_HOST,
        base_path: str = "",
        run_dir: str | Path | None = None,
        name: str | None = None,
        health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
        port_wait: float = 0.0,
        command_file: str | Path | None = None,
        log_file: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_RESTART_WINDOW_S,
        _tmux_session: str | None = None,
    ) -> StartedWorld:
        """Start an instance and return when it is ready.

        Args:
            port: Port of the world; None or 0 leases one that nobody else has.
            record: Whether the world shall record.
            record_dir: Where it records; ``recordings`` in the run directory by default.
            resume: Snapshot to restore: its path, or what :meth:`save` returned, whose digest is
                then checked. A relative path means the file in the world directory if there is
                one, else the one in the current directory. None is a fresh run.
            host: Address that the world binds.
            base_path: Prefix of its routes.
            run_dir: Directory of the run, which holds its manifest; by default the parent of
                ``record_dir``, else the world directory.
            name: Name of the instance, unique in the run directory and in this object; None
                takes the first free of ``w000``, ``w001``, …
            health_timeout: Seconds until the world must be ready.
            port_wait: Seconds to wait for a given port to become free.
            command_file: Where to write the rerunnable launch script, in an existing directory.
            log_file: Where the output goes, in an existing directory.
            env: Further environment variables.
            detach: Let the instance live on when this orchestrator ends.
            restart: What becomes of the instance when it dies: ``never`` lets it be dead,
                ``fresh`` starts it again as it was started here, ``checkpoint`` from its last
                good save, or as it was started here when there is none. Name and port stay;
                sessions do where the snapshot has them.
            max_restarts: An instance that died so often within ``restart_window`` stays dead.
            restart_window: Seconds.

        Returns:
            The facts of the instance.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: ``name`` is that of another instance of this object.
            RunLockedError: ``name`` is held by another orchestrator.
            PortInUseError: ``port`` did not become free.
            WorldCommandError: The world's command cannot be executed.
            WorldExitedBeforeReady: The world ended first; SnapshotRefusedError when it should
                have restored a snapshot.
            WorldReadyTimeout: It lives, but was not ready in time.
            WorldIdentityError: Somebody else answers on its port.
            WorldStartError: Its files or its tmux window could not be made.

        Cancellation: nothing of the instance is left.
        """
        options = StartOptions(
            port=port,
            record=record,
            record_dir=record_dir,
            resume=resume,
            host=host,
            base_path=base_path,
            run_dir=run_dir,
            name=name,
            health_timeout=health_timeout,
            port_wait=port_wait,
            command_file=command_file,
            log_file=log_file,
            env=env,
            detach=detach,
            restart=restart,
            max_restarts=max_restarts,
            restart_window=restart_window,
        )
        fleet = self._open_fleet()

        def prepare() -> Launch:
            launch = plan_launch(self._config, options, tmux_session=_tmux_session)
            make_run_dir(launch.run_dir)
            return launch

        self._latest_started = await fleet.start(prepare)
        return self._latest_started

    async def start_many(
        self,
        instances: int | Sequence[InstanceSpec | Mapping[str, Any]],
        *,
        run_dir: str | Path | None = None,
        record: bool = False,
        resume: SnapshotLike | None = None,
        env: Mapping[str, str] | None = None,
        host: str = DEFAULT_HOST,
        base_path: str = "",
        health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_RESTART_WINDOW_S,
        on_failure: OnFailure = "keep",
    ) -> Batch[StartedWorld]:
        """Start many instances at once and return when each is ready or has failed.

        Every instance has a directory of its own, ``worlds/<name>`` in the run directory, with
        manifest, logs, recordings and checkpoints. The starts begin as fast as the machine can
        take them; where that is slower than they could, a ``ramp_slowed`` event says so.

        Args:
            instances: How many (at most 12000, one for each port that can be leased), or what
                each of them has of its own: an :class:`~clawblox.config.options.InstanceSpec`, or a
                mapping with its fields.
            run_dir: Directory of the run; by default that of the latest start of this object, else
                the world directory. No other process can start many instances in it meanwhile.
            record: Whether the worlds shall record.
            resume: Snapshot to restore, as in :meth:`start`.
            env: Further environment variables.
            host: Address that the worlds bind, each on a port of its own.
            base_path: Prefix of their routes.
            health_timeout: Seconds until a world must be ready, from the moment it is spawned.
            detach: Let the instances live on when this orchestrator ends.
            restart: What becomes of an instance that dies, as in :meth:`start`.
            max_restarts: An instance that died so often within ``restart_window`` stays dead.
            restart_window: Seconds.
            on_failure: ``keep`` lets a failed start cost nothing but itself; ``stop_all`` ends
                all the others after the first.

        Returns:
            The started instances, and the errors of those that failed.

        Raises:
            ConfigError: An argument is wrong.
            RunLockedError: Another orchestrator runs many instances in the run directory.

        Cancellation: nothing of any of the instances is left.
        """
        return await self._start_many(
            _specs(instances),
            run_dir,
            ManyOptions(
                record=record,
                resume=resume,
                env=env,
                host=host,
                base_path=base_path,
                health_timeout=health_timeout,
                detach=detach,
                restart=restart,
                max_restarts=max_restarts,
                restart_window=restart_window,
                on_failure=on_failure,
            ),
            reuse=True,
        )

    async def fork(
        self,
        checkpoint: SnapshotLike,
        count: int = 1,
        *,
        run_dir: str | Path | None = None,
        reseed: int | None = None,
        record: bool = False,
        env: Mapping[str, str] | None = None,
        host: str = DEFAULT_HOST,
        base_path: str = "",
        health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_RESTART_WINDOW_S,
        on_failure: OnFailure = "keep",
    ) -> Batch[StartedWorld]:
        """Start instances that go on from one snapshot, each on its own.

        They begin in exactly the state of the snapshot, unless they are reseeded. Their names are
        new in the run directory, and their manifests name the snapshot and its digest.

        Args:
            checkpoint: The snapshot: its path, relative as for :meth:`start`, or what :meth:`save`
                returned. A digest that comes with it must be that of the file.
            count: How many instances, at most 12000.
            run_dir: Directory of the run; by default the one that the snapshot was saved in, else
                as in :meth:`start_many`.
            reseed: Seed for the random state of the first instance, 0 or more; each of the others
                gets one more. The world must say ``[run] reseed = true``. None leaves the random
                state as it is in the snapshot, so that all of them draw the same numbers.
            record: As in :meth:`start_many`, as everything that follows.
            env: Further environment variables.
            host: Address that the worlds bind.
            base_path: Prefix of their routes.
            health_timeout: Seconds until a world must be ready.
            detach: Let the instances live on when this orchestrator ends.
            restart: What becomes of an instance that dies.
            max_restarts: An instance that died so often within ``restart_window`` stays dead.
            restart_window: Seconds.
            on_failure: What becomes of the others when one fails.

        Returns:
            The started instances, and the errors of those that failed.

        Raises:
            ConfigError: An argument is wrong, or the file is not the snapshot that was saved.
            RunLockedError: Another orchestrator runs many instances in the run directory.

        Cancellation: nothing of any of the instances is left.
        """
        specs = [InstanceSpec()] * check_count(count, "count", at_most=MAX_LEASES)
        options = ManyOptions(
            record=record,
            reseed=reseed,
            env=env,
            host=host,
            base_path=base_path,
            health_timeout=health_timeout,
            detach=detach,
            restart=restart,
            max_restarts=max_restarts,
            restart_window=restart_window,
            on_failure=on_failure,
        )
        path, digest = await run_blocking(find_parent, checkpoint, self._config.dir)
        if run_dir is None:
            run_dir = await run_blocking(source_run_dir, path)
        if run_dir is None and isinstance(checkpoint, Mapping):
            run_dir = self._open_fleet().last_run_dir(checkpoint.get("instance"))
        forked = attrs.evolve(options, resume=path)
        return await self._start_many(specs, run_dir, forked, reuse=False, parent_sha256=digest)

    async def _start_many(
        self,
        specs: Sequence[InstanceSpec],
        run_dir: str | Path | None,
        options: ManyOptions,
        *,
        reuse: bool,
        parent_sha256: str | None = None,
    ) -> Batch[StartedWorld]:
        fleet = self._open_fleet()
        given = (
            run_dir if run_dir is not None else self._latest.run_dir if self._latest else self.dir
        )
        directory = await run_blocking(lambda: make_run_dir(resolve_run_dir(given)))

        def plan(names: Iterator[str]) -> list[Launch]:
            return plan_many(
                self._config, directory, options, specs, names, parent_sha256=parent_sha256
            )

        stop_all = options.on_failure == "stop_all"
        batch = await fleet.start_many(directory, plan, reuse=reuse, stop_all=stop_all)
        self._latest_started = next(reversed(list(batch)), self._latest_started)
        return batch

    async def stop(
        self, *, grace_seconds: float = DEFAULT_GRACE_S, instance: str | None = None
    ) -> StopResult:
        """Stop an instance: TERM, the grace, KILL for whatever is left, and wait for the end.

        Stopping what does not run is a no-op, and so is stopping twice.

        Args:
            grace_seconds: Seconds between TERM and KILL.
            instance: Name of the instance; not needed while there is one.

        Returns:
            The rung of the ladder that ended it, and what had to be killed.

        Raises:
            ConfigError: The grace is no number, or below 0.
            UsageError: Several instances run and none was named; or this object has started
                instances, and none of that name.
            WorldStopError: A process survived even SIGKILL.

        Cancellation: the ladder goes on without the caller.
        """
        fleet = self._open_fleet()
        return await fleet.tasks.own(partial(fleet.stop, instance, _grace_of(grace_seconds)))

    async def stop_all(self, *, grace_seconds: float = DEFAULT_GRACE_S) -> Batch[StopResult]:
        """Stop every instance, all at once; see :meth:`stop`.

        Args:
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            What it took for each, and the errors of those that could not be ended.

        Cancellation: the ladders go on without the caller.
        """
        fleet = self._open_fleet()
        names = [one.instance.name for one in fleet.supervisors]
        return await fleet.stop_all(names, _grace_of(grace_seconds))

    async def drain(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> Batch[SavedSnapshot]:
        """Save every instance, then stop those whose save succeeded.

        An instance whose save failed goes on running, so that nothing of it is lost.

        Args:
            dir: Where the files go; ``checkpoints`` of each instance by default.
            timeout: Seconds for each transfer.
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            The saved snapshots of the instances that were stopped, and the errors of the others.

        Raises:
            ConfigError: An argument is wrong.

        Cancellation: what is saved stays saved, what is being stopped is stopped.
        """
        fleet = self._open_fleet()
        grace = _grace_of(grace_seconds)
        saving = self.save_all(dir=dir, timeout=timeout)
        await self.autosave(every=None)
        saves = await saving
        stops = await fleet.stop_all(saves.done, grace)
        stopped = {name: saved for name, saved in saves.done.items() if name in stops.done}
        return Batch(stopped, {**saves.failed, **stops.failed})

    def _kill_now(self) -> None:
        """Leave every running stop no more time: what still lives is killed at once."""
        if self._fleet is not None:
            self._fleet.kill_now()

    # -- agents -----------------------------------------------------------------------------

    async def connect(
        self, agent: str | AgentLike, *, instance: str | None = None, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Give an agent access to an instance.

        An agent with a directory gets its session recorded in ``<dir>/world_session.txt``; when
        that file exists, the agent rejoins the session that it names.

        Args:
            agent: An agent, or a plain name.
            instance: Name of the instance; not needed while there is one.
            timeout: Seconds for the call.

        Returns:
            A plain dict: ``session``, ``agent_id``, ``name``, ``headers``, ``base_url`` (what
            the agent may use), ``internal_base_url``, and what else the world answered.

        Raises:
            WorldSessionError: The world did not give the recorded session back.
            WorldCallError: It did not answer, or not with a session.
            WorldExitedError: The instance has ended.
            ConfigError: The agent is none, or its directory cannot be used; or the time is none.

        Cancellation: the world may have joined the agent; nothing is recorded.
        """
        fleet = self._open_fleet()
        supervisor = fleet.find(instance)
        member = member_of(agent)
        url = supervisor.instance.url
        check_seconds(timeout, "timeout")

        async def call() -> dict[str, Any]:
            async with supervisor.calls.call():
                client = fleet.client(supervisor)
                return await join(client, member, url=url, local_url=url, timeout=timeout)
            raise AssertionError("unreachable: the block returns or raises")

        access = await fleet.tasks.own(call)
        world_agent_id = access["agent_id"] if isinstance(access["agent_id"], str) else None
        if member.dir is not None or world_agent_id:
            update = agent_update(
                id=world_agent_id if member.dir is None else None,
                dir=member.dir,
                name=member.name,
                run_name=member.run_name,
                world_agent_id=world_agent_id,
                run_id=supervisor.instance.run_id,
            )
            await fleet.writers.of(supervisor.instance.launch.instance_dir).apply(update)
        return access

    async def leave(
        self, access: Mapping[str, Any], *, instance: str | None = None, timeout: float = 30.0
    ) -> None:
        """Take an agent out of an instance.

        Args:
            access: What :meth:`connect` returned.
            instance: Name of the instance; not needed while there is one.
            timeout: Seconds for the call.

        Raises:
            WorldCallError: The world did not answer, or refused.
            WorldExitedError: The instance has ended.

        Cancellation: the world may have seen the agent leave.
        """
        fleet = self._open_fleet()
        supervisor = fleet.find(instance)
        check_seconds(timeout, "timeout")

        async def call() -> None:
            async with supervisor.calls.call():
                await leave(fleet.client(supervisor), access, timeout=timeout)

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
            dir: Where the file goes; ``checkpoints`` in the run directory by default.
            instance: Name of the instance; not needed while there is one.
            timeout: Seconds for the transfer.
            max_bytes: Largest snapshot that is accepted.

        Returns:
            The saved snapshot, also a mapping: ``saved["path"]``.

        Raises:
            ConfigError: An argument is wrong.
            SnapshotError: There is no file and no entry.
            WorldExitedError: The instance has ended; there is no file and no entry.
            ManifestError: The file is complete, but not registered.

        Cancellation: either there is no file and no entry, or there are both.
        """
        fleet = self._open_fleet()
        options = SaveOptions(dir, timeout, max_bytes)
        return await save(fleet, fleet.find(instance), options)

    def save_all(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        instances: Iterable[str] | None = None,
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_MAX_SNAPSHOT_BYTES,
    ) -> BatchOperation[SavedSnapshot]:
        """Save snapshots of many instances at once, each registered in its own manifest.

        ``await`` it for a batch, or go through it with ``async for`` to have each
        :class:`~clawblox.concurrency.batch.Outcome` as it lands. A few transfers run at a time,
        in constant memory whatever their size.

        Args:
            dir: Where the files go; ``checkpoints`` of each instance by default.
            instances: Their names; None means all that are ready.
            timeout: Seconds for each transfer.
            max_bytes: Largest snapshot that is accepted.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: There is no instance of one of the names.

        Cancellation: each instance has both file and entry, or neither.
        """
        fleet = self._open_fleet()
        options = SaveOptions(dir, timeout, max_bytes)
        names = fleet.ready_names if instances is None else tuple(instances)
        return save_all(fleet, [fleet.find(name) for name in names], options)

    async def autosave(
        self,
        *,
        every: float | None,
        keep: int = DEFAULT_KEEP,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
    ) -> None:
        """Save every instance again and again, from now until the block is left.

        A save that fails is a ``save_failed`` event. Of the saves that this makes, older ones are
        removed; other files never are. A later call replaces an earlier one.

        Args:
            every: Seconds from one round of saves to the next; None ends the saving.
            keep: So many of these saves stay for each instance, 1 or more.
            dir: Where the files go; ``checkpoints`` of each instance by default.

        Raises:
            ConfigError: A number cannot be.

        Cancellation: has no effect on the saves.
        """
        fleet = self._open_fleet()
        later = None
        if every is not None:
            options = SaveOptions(dir)
            later = Autosave(
                fleet, check_seconds(every, "every"), check_count(keep, "keep"), options
            )
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

        Args:
            id: Name of the run. The checkpoints and agents of the instances that this object runs
                in the directory, or of the last one that it ran there, carry it from now on.
            index: Its place among runs, from 0.
            status: ``running``, ``complete``, ``failed`` or ``interrupted``.
            started_at: When it began; a datetime without a zone is UTC, text is ISO 8601.
            ended_at: When it ended.
            resume_from: The checkpoint it was resumed from: a path, or what ``save`` returned.
            run_dir: Directory of the run; by default that of the latest start, else the world
                directory.

        Raises:
            ConfigError: A value is not of its kind; names it.
            ManifestError: The manifest cannot be written.

        Cancellation: the label is written, or it is not.
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
        latest = self._latest.instance_dir if self._latest else self.dir
        directory = latest if run_dir is None else await run_blocking(resolve_run_dir, run_dir)
        await fleet.label_run(directory, update)

    @property
    def metrics(self) -> Metrics:
        """What was counted and measured since the block was entered."""
        return self._open_fleet().recorder.snapshot()

    # -- watching ---------------------------------------------------------------------------

    def logs(
        self, *, instance: str | None = None, follow: bool = False, tail: int | None = None
    ) -> LogReader:
        """Return the lines of an instance's log, since its start.

        Args:
            instance: Name of the instance; not needed while there is one.
            follow: Wait for more lines until the instance has ended.
            tail: Begin so many lines before the end; None begins at the start.

        Returns:
            An async context manager and iterator of :class:`~clawblox.results.LogLine`.
        """
        if tail is not None:
            check_count(tail, "tail", at_least=0)
        return (
            self._open_fleet().find(instance).instance.running.log_reader(follow=follow, tail=tail)
        )

    def events(self) -> EventStream:
        """Return the events of all instances from now on, until the world is closed.

        Returns:
            An async context manager and iterator of :class:`~clawblox.results.WorldEvent`.
        """
        return self._open_fleet().hub.subscribe()


def _specs(instances: object) -> list[InstanceSpec]:
    if isinstance(instances, int):
        return [InstanceSpec()] * check_count(instances, "instances", at_most=MAX_LEASES)
    if not isinstance(instances, Sequence) or isinstance(instances, str):
        message = "how many, or a list of what each has of its own"
        raise ConfigError(message, key="instances", value=instances)
    check_count(len(instances), "instances", at_least=0, at_most=MAX_LEASES)
    return [InstanceSpec.parse(one) for one in instances]


def _grace_of(grace_seconds: float) -> float:
    return check_seconds(grace_seconds, "grace_seconds", may_be_zero=True)
