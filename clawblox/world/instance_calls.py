"""The calls of an open world for one instance, which is found by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

import attrs

from clawblox.concurrency.progress import ProgressLike
from clawblox.concurrency.threads import run_blocking
from clawblox.config.agent_arguments import AgentLike, Agents
from clawblox.config.arguments import (
    check_count,
    check_grace,
    check_path,
    check_seconds,
)
from clawblox.config.options import (
    DEFAULT_GRACE_S,
    DEFAULT_HEALTH_TIMEOUT_S,
    DEFAULT_HOST,
    DEFAULT_IDLE_WAIT_S,
    DEFAULT_MAX_FILE_BYTES,
    DEFAULT_MAX_RESTARTS,
    DEFAULT_MAX_SNAPSHOT_BYTES,
    DEFAULT_MAX_TOTAL_BYTES,
    DEFAULT_RESTART_WINDOW_S,
    DEFAULT_SAVE_TIMEOUT_S,
    RestartOptions,
    SaveOptions,
    StartOptions,
)
from clawblox.errors import UsageError
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
from clawblox.rundir.snapshot_files import find_archive
from clawblox.telemetry.log_reader import LogReader
from clawblox.world.access import is_program, leave, make_member
from clawblox.world.archives import (
    ArchiveStart,
    remove_archive,
    save_archive,
)
from clawblox.world.http_clients import AsyncHttpClient, ClientRequests
from clawblox.world.open_world import OpenWorld
from clawblox.world.resume import restart
from clawblox.world.save import save_instance

if TYPE_CHECKING:
    import os

    from clawblox.checkpoint.model import Allowance
    from clawblox.checkpoint.options import ArchiveOptions, OnUnarchivable
    from clawblox.world.agent_client import AsyncAgentClient
_Owner = TypeVar("_Owner")
_FACTS: Final = tuple(field.name for field in attrs.fields(StartedWorld))


class InstanceCalls(OpenWorld):
    """The calls of :class:`~clawblox.world.async_world.AsyncWorld` for one instance."""

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
            port: Port of the world; None or 0 leases a free one.
            port_wait: Seconds to wait until a given port becomes free; 0 does not wait.
            record_dir: Directory for recordings; None means ``recordings`` in the run directory.
            resume: Snapshot to restore: its path, or the result of ``save``, whose digest is then
                checked. A relative path is looked up in the world directory, then in the current
                directory. An archive (``.ckpt``) is loaded into the run directory, as by
                ``load_checkpoint``, and its snapshot is restored; ``run_dir`` must then not be the
                world directory. None starts a fresh run.
            run_dir: Directory of the run, with its manifest; None means the directory of this
                object, or else the parent of ``record_dir``, or else the directory in which this
                object first started an instance, which is the world directory by default.
            name: Name of the instance, unique in the run directory and in this object; None uses
                the first free name of ``w000``, ``w001``, …
            command_file: File for the rerunnable launch script, in an existing directory; None
                means a file in ``runtime``.
            log_file: File for the output of the world, in an existing directory; None means a file
                in ``logs``.
            watch: Whether an engine world restarts when its scripts change.
            _tmux_session: tmux session, created if needed, in whose window ``world-0`` the world
                runs; None, or a resume, runs the world without tmux.

        Returns:
            The facts of the instance, with methods; ``loaded`` is the state loaded from an archive.

        Raises:
            ConfigError: An argument is wrong.
            CheckpointError: The archive has no snapshot of a world, or conflicts with files in the
                run directory; CheckpointFormatError if it is damaged.
            UsageError: Another instance of this object has the name ``name``.
            RunLockedError: Another orchestrator holds the name ``name``.
            PortInUseError: ``port`` is in use, or did not become free within ``port_wait``.
            WorldCommandError: The world's command cannot be executed.
            WorldExitedBeforeReadyError: The world ended before it was ready; SnapshotRefusedError
                if it was restoring a snapshot.
            WorldReadyTimeoutError: The world is running, but was not ready in time.
            WorldIdentityError: Another process answers on its port.
            WorldStartError: The files or the tmux window could not be created, or the instance was
                stopped before it was ready.
            ManifestError: The run cannot be registered in its manifest.

        A failure removes the files loaded from an archive.

        Cancellation: the instance is ended and removed.
        """
        run_dir = self._run_dir if run_dir is None else run_dir
        if run_dir is None and record_dir is None:
            run_dir = self._first_run_dir
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
            run_dir=run_dir,
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
        started = await start
        self._note_started([started])
        return AsyncStartedInstance.bind(started, self)

    async def stop(
        self, instance: str | None = None, *, grace_seconds: float = DEFAULT_GRACE_S
    ) -> StopResult:
        """Stop an instance: send SIGTERM, wait for the grace, send SIGKILL to the rest.

        Return when all processes of the instance have ended. Stopping an instance that is not
        running has no effect.

        Args:
            instance: Name of the instance; not needed while there is only one.
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            The way in which the instance ended (``terminated``, ``killed``, …), and the processes
        that had to be killed.

        Raises:
            ConfigError: ``grace_seconds`` is not a number, or is below 0.
            UsageError: Several instances are running and ``instance`` is None; or this object has
                started instances, but none with that name.
            WorldStopError: A process survived even SIGKILL.

        Cancellation: the instance is still stopped.
        """
        fleet = self._open_fleet()
        return await fleet.tasks.own(partial(fleet.stop, instance, check_grace(grace_seconds)))

    async def wait(self, instance: str | None = None) -> ProcessExit:
        """Wait until an instance has ended for good, through any restarts.

        Args:
            instance: Name of the instance; not needed while there is only one.

        Returns:
            The exit of the instance; returned immediately if it has already ended.

        Raises:
            UsageError: There is no such instance, or several are running and ``instance`` is None.

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

        The instance keeps its state: if it is ready, it is saved first; if it has died, it
        continues from its last good save; if it was never saved, it starts as it did the first
        time. Name, directory, port and run stay the same; sessions survive if the snapshot contains
        them. Calls in progress fail with WorldExitedError. The restart does not count against
        ``max_restarts``.

        Args:
            instance: Name of the instance; not needed while there is only one.
            save: Whether to save the instance first. Without that, it continues from its last good
                save.
            fresh: Whether to repeat the first start, without a save.
            resume: Snapshot to restart from without a save, as in :meth:`start` but not an archive.
                None means the last good save.
            reseed: Seed of the random state after this restart, 0 or more, and of later fresh
                starts of the instance. A world with a command must have ``[run] reseed = true``.
                None keeps the random state of the save, or with ``fresh`` the seed of the run.
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            The facts of the instance.

        Raises:
            ConfigError: An argument is wrong, the snapshot is missing, or the world takes no seed.
            UsageError: There is no such instance, several are running and ``instance`` is None, the
                instance was stopped, or the snapshot of its first start is gone.
            SnapshotError: The instance could not be saved, so it was not restarted.
            ManifestError: The save could not be registered, so the instance was not restarted.
            WorldStopError: A process survived even SIGKILL.
            WorldStartError: The instance did not become ready again, or was stopped in the
                meantime. The restart policy decides what happens next.

        Cancellation: a restart in progress continues; an instance that had died is ended again.
        """
        fleet = self._open_fleet()
        options = RestartOptions(
            save=save, fresh=fresh, resume=resume, reseed=reseed, grace_seconds=grace_seconds
        )
        started = await restart(fleet, fleet.find(instance), options)
        if self._latest_started is not None and self._latest_started.name == started.name:
            self._latest_started = started
        return AsyncStartedInstance.bind(started, self)

    def logs(
        self, instance: str | None = None, *, follow: bool = False, tail: int | None = None
    ) -> LogReader:
        """Return the lines of an instance's log since its start, including lines before a restart.

        Args:
            instance: Name of the instance; not needed while there is only one.
            follow: Wait for more lines until the instance has ended.
            tail: Number of latest lines to start with; None starts at the first line.

        Returns:
            An async context manager and iterator of :class:`~clawblox.results.LogLine`.

        Raises:
            ConfigError: ``tail`` is not an integer of 0 or more.
            UsageError: There is no such instance, or several are running and ``instance`` is None.
        """
        if tail is not None:
            check_count(tail, "tail", at_least=0)
        return self._open_fleet().find(instance).logs(follow=follow, tail=tail)

    # -- snapshots and archives -------------------------------------------------------------

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
            The saved snapshot, which is also a mapping: ``saved["path"]``.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: There is no such instance, or several are running and ``instance`` is None.
            SnapshotError: The world gave no usable snapshot; no file or manifest entry is left.
            WorldExitedError: The instance has ended; no file or manifest entry is left.
            ManifestError: The file is complete, but not registered.

        Cancellation: leaves both the file and its manifest entry, or neither.
        """
        fleet = self._open_fleet()
        options = SaveOptions(dir=dir, timeout=timeout, max_bytes=max_bytes)
        save = partial(save_instance, fleet, fleet.find(instance), options)
        return await fleet.tasks.own(save)

    async def simulation_time(
        self, instance: str | None = None, *, timeout: float = DEFAULT_SAVE_TIMEOUT_S
    ) -> float | None:
        """Return the simulation time of an instance, read from a temporary snapshot.

        Args:
            instance: Name of the instance; not needed while there is only one.
            timeout: Seconds for the transfer of the snapshot.

        Returns:
            The ``time`` of the snapshot, in seconds; None if the snapshot has no time.

        Raises:
            ConfigError: ``timeout`` is not a number above 0.
            UsageError: There is no such instance, or several are running and ``instance`` is None.
            SnapshotError: The world gave no usable snapshot.
            WorldExitedError: The instance has ended.

        Cancellation: the instance is unaffected; the snapshot is removed.
        """
        fleet, options = self._open_fleet(), SaveOptions(timeout=timeout)
        return await fleet.tasks.own(partial(fleet.find(instance).read_time, options))

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
        max_file_bytes: int = DEFAULT_MAX_FILE_BYTES,
        max_total_bytes: int = DEFAULT_MAX_TOTAL_BYTES,
        overwrite: bool = False,
        keep: Iterable[str] = (),
        progress: ProgressLike = False,
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_MAX_SNAPSHOT_BYTES,
    ) -> SavedCheckpoint:
        """Save an instance, and archive the save together with the state of its agents.

        This is :meth:`save` followed by ``save_checkpoint``. The manifest lists the snapshot, in
        ``checkpoints`` of the instance, and the archive if it is in a run directory.

        Args:
            path: The archive, ``*.ckpt``; its directory is created if missing.
            agents: The agents, or their directories by name; None for no agents.
            instance: Name of the instance; not needed while there is only one.
            backend: The driver of all agents, such as ``claude``; None reads it from each
                directory.
            metadata: JSON values for the top level of ``metadata.json``; None adds none.
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
            keep: Paths below workspaces to archive even though programs execute or follow them
                automatically, such as ``.helix/config.toml``; a directory includes everything in
                it. Credentials are never archived.
            progress: True shows the progress on standard error, in a terminal or a notebook. A
                function is called with the bytes done and the total (0 and 0 during the wait for an
                idle moment), perhaps in another thread; an exception from it ends the call. False
                does neither.
            timeout: Seconds for the transfer of the snapshot.
            max_bytes: Size limit of the snapshot, in bytes.

        Returns:
            The archive: its path, size and digest, its metadata, and the files left out.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: There is no such instance, or several are running and ``instance`` is None.
            SnapshotError: The world gave no usable snapshot; no file or manifest entry is left.
            WorldExitedError: The instance has ended.
            CheckpointSecretError: The archive would contain a secret.
            CheckpointError: The archive could not be created; or it is complete but may not be
                durable or is not in the manifest, as the message explains.
            ManifestError: The snapshot is complete, but not registered.

        If an error leaves no archive, the snapshot's file is removed too, and marked as removed in
        the manifest.

        Cancellation: leaves both the snapshot and the archive, or neither.
        """

        def read_options() -> ArchiveOptions:
            from clawblox.checkpoint.options import (
                ArchiveOptions,
            )  # it loads slowly

            return ArchiveOptions(
                path=path,
                agents=agents,
                backend=backend,
                metadata=metadata,
                workspace_only=workspace_only,
                known_secrets=known_secrets,
                allow=allow,
                idle_wait=idle_wait,
                on_unarchivable=on_unarchivable,
                max_file_bytes=max_file_bytes,
                max_total_bytes=max_total_bytes,
                overwrite=overwrite,
                keep=keep,
                progress=progress,
            )

        saving = SaveOptions(timeout=timeout, max_bytes=max_bytes)
        fleet = self._open_fleet()
        handle = fleet.find(instance)
        try:
            archiving = await run_blocking(read_options)
        finally:
            known_secrets, metadata = (), None  # a traceback may show local variables
        return await fleet.tasks.own(partial(save_archive, fleet, handle, saving, archiving))

    async def remove_checkpoint(
        self, path: str | os.PathLike[str], *, instance: str | None = None
    ) -> None:
        """Remove an archive that :meth:`checkpoint` made, and the save that it contains.

        The manifest marks both as removed. The latest save of an instance stays, as does a save
        that an instance was restored from, because a restart needs it.

        Args:
            path: The archive.
            instance: Name of the instance; not needed while there is only one.

        Raises:
            ConfigError: ``path`` is not a path.
            UsageError: There is no such instance, or several are running and ``instance`` is None.
            CheckpointError: The file is not an archive, or cannot be removed.
            ManifestError: The removal cannot be recorded in the manifest; the archive still exists.

        Cancellation: a removal in progress is completed.
        """
        archive = check_path(path, "path").absolute()
        fleet = self._open_fleet()
        await fleet.tasks.own(partial(remove_archive, fleet, fleet.find(instance), archive))

    # -- agents -----------------------------------------------------------------------------

    async def connect(
        self, agent: str | AgentLike, *, instance: str | None = None, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Give an agent access to an instance.

        The session of an agent with a directory is recorded in ``<dir>/world_session.txt``. If that
        file exists, the agent rejoins with the session in it.

        An agent whose program clawblox runs gets its own address, which serves only the world's API
        for agents, always with the agent's session. The address is served until the agent is
        closed.

        Args:
            agent: An agent, or a plain name.
            instance: Name of the instance; not needed while there is only one.
            timeout: Seconds for the call.

        Returns:
            A plain dict: ``session``, ``agent_id``, ``name``, ``headers``, ``base_url`` (for the
            agent), ``internal_base_url``, and all other fields of the world's answer.

        Raises:
            WorldSessionError: The world answered with a session other than the recorded one, or
                does not know the recorded session.
            WorldCallError: The world did not answer, or its answer has no session.
            WorldExitedError: The instance has ended.
            UsageError: There is no such instance, several are running and ``instance`` is None, or
                the agent is an ``AsyncAgent`` that is not open.
            ConfigError: ``agent`` is neither an agent nor a name, its directory cannot be used,
                ``timeout`` is not a number above 0, or ``[api]`` would give agents a route of the
                orchestrator.
            AgentResumeError: The address under which the agent knows its world is no longer
                available.
            AgentSetupError: No address is available for the agent, or it cannot be recorded.
            ManifestError: The agent cannot be listed in the manifest.

        Cancellation: the agent may have joined the world; its session may not be recorded.
        """
        from clawblox.world.places import FleetPlace, make_granter
        from clawblox.world.players import SavedPlayers

        fleet = self._open_fleet()
        handle, member = fleet.find(instance), make_member(agent)
        check_seconds(timeout, "timeout")
        place = FleetPlace(fleet, handle)
        granter = make_granter(place) if is_program(agent) else None
        access = await place.admit(member, None, SavedPlayers(), timeout=timeout)
        if self._autosave is not None:
            self._autosave.save_soon(handle)
        if is_program(agent) and granter is not None:
            access = await fleet.tasks.own(partial(granter, agent, access))
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
        session is known: from a join by this process or by ``clawblox act``, or from the directory
        of an agent. The client's ``rejoined`` is then true.

        Args:
            agent: An agent, or a plain name.
            instance: Name of the instance; not needed while there is only one.
            new: Join a plain name as a new player even if the save has a player of that name.
            timeout: Seconds for this call, and for each call of the client.
            wait_restart: Seconds that a call of the client waits for an instance that is being
                restarted. With None or 0, the call raises WorldExitedError immediately. An input,
                chat message or leave that was sent before the instance died always raises
                WorldExitedError, because it is never sent twice.

        Returns:
            The client; as an async context manager it leaves the world at the end of the block.

        Raises:
            WorldSessionError: The world answered with a session other than the recorded one, or
                does not know the recorded session.
            WorldCallError: The world did not answer, or its answer has no session.
            WorldExitedError: The instance has ended.
            UsageError: There is no such instance, or several are running and ``instance`` is None.
            ConfigError: ``agent`` is neither an agent nor a name, its directory cannot be used, or
                ``timeout`` or ``wait_restart`` is not a valid number of seconds.
            ManifestError: The agent cannot be listed in the manifest.

        Cancellation: the agent may have joined the world; its session may not be recorded.
        """
        from clawblox.world.agent_client import join_place
        from clawblox.world.places import FleetPlace

        fleet = self._open_fleet()
        place = FleetPlace(fleet, fleet.find(instance))
        return await join_place(place, agent, new=new, timeout=timeout, wait_restart=wait_restart)

    async def leave(
        self, access: Mapping[str, Any], *, instance: str | None = None, timeout: float = 30.0
    ) -> None:
        """Take an agent out of an instance.

        Args:
            access: Result of :meth:`connect`, or the ``access`` of a client.
            instance: Name of the instance; not needed while there is only one.
            timeout: Seconds for the call.

        Raises:
            WorldCallError: The world did not answer, or refused.
            WorldExitedError: The instance has ended.
            UsageError: There is no such instance, or several are running and ``instance`` is None.
            ConfigError: ``access`` is not a result of :meth:`connect`, or ``timeout`` is not a
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
                handle.note_leave(session)

        await fleet.tasks.own(call)

    def http(self, instance: str | None = None, *, timeout: float = 30.0) -> AsyncHttpClient:
        """Return an httpx client for an instance, without a session or token.

        Args:
            instance: Name of the instance; not needed while there is only one.
            timeout: Seconds for each step of a request.

        Returns:
            The client; the same object until it is closed, together with the world.

        Raises:
            UsageError: There is no such instance, several are running and ``instance`` is None, or
                the world is not open in this event loop.
            ConfigError: ``timeout`` is not a number above 0.
        """
        fleet = self._open_fleet()
        return fleet.http_clients.give(self._caller(instance, timeout))

    def _caller(self, instance: str | None, timeout: float) -> ClientRequests:
        """Return the request settings of an httpx client without a session."""
        url = self._open_fleet().find(instance).url
        return ClientRequests(url, None, (), check_seconds(timeout, "timeout"))


class BoundWorld(StartedWorld, Generic[_Owner]):
    """The facts of an instance, with methods that act on the instance.

    The reference to the owner is not a field: two values with the same facts are equal, and a copy
    or a pickle has only the facts.
    """

    _owner: _Owner | None = None

    @classmethod
    def bind(cls, facts: StartedWorld, owner: _Owner) -> Self:
        """Return the facts of an instance with methods.

        Args:
            facts: The facts.
            owner: The object that the methods call.
        """
        bound = cls(**{name: getattr(facts, name) for name in _FACTS})
        object.__setattr__(bound, "_owner", owner)
        return bound

    def _ready(self) -> _Owner:
        if self._owner is None:
            raise UsageError(
                f"instance {self.name!r} cannot be used through a copy of its facts",
                hint=f"call the open world with instance={self.name!r}",
            )
        return self._owner


class AsyncStartedInstance(BoundWorld[InstanceCalls]):
    """The facts of one instance as :class:`AsyncWorld` returned them, with methods.

    Each method calls the method of the same name of the world that returned the value, with the
    name of the instance; the world must be open. The facts never change; ``restart`` returns a new
    value with the new facts. A copy or a pickle has only the facts.
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
            instance=self.name, dir=dir, timeout=timeout, max_bytes=max_bytes
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

    def http(self, *, timeout: float = 30.0) -> AsyncHttpClient:
        """Return an httpx client without a session; see :meth:`AsyncWorld.http`.

        Args:
            timeout: Seconds for each step of a request.
        """
        return self._ready().http(self.name, timeout=timeout)

    def logs(self, *, follow: bool = False, tail: int | None = None) -> LogReader:
        """Return the lines of the instance's log; see :meth:`AsyncWorld.logs`."""
        return self._ready().logs(self.name, follow=follow, tail=tail)
