"""AsyncWorld: a world and the instances of it that run here. Everything else is a room below.

One object identifies a world directory and owns any number of instances. It returns frozen
values; every operation on an instance takes its name, which is not needed while there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from clawblox.access import AgentLike, join, leave, member_of
from clawblox.config import WorldConfig, read_world_config
from clawblox.errors import UsageError
from clawblox.events import EventStream
from clawblox.fleet import Fleet
from clawblox.launch import plan_launch
from clawblox.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.logs import LogReader
from clawblox.manifest_updates import RunStatus, agent_update, checkpoint_update, run_update
from clawblox.metadata import WorldMetadata
from clawblox.model import SavedSnapshot, StartedWorld, StopResult
from clawblox.protocol import API_ROUTE
from clawblox.records import read_running
from clawblox.snapshots import DEFAULT_MAX_BYTES as DEFAULT_SNAPSHOT_BYTES
from clawblox.snapshots import capture
from clawblox.sources import fetch_world, is_world_url
from clawblox.supervisor import DEFAULT_GRACE_S
from clawblox.threads import run_blocking

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
        self._stack = AsyncExitStack()
        if not is_world_url(self._source):
            self._config_read = read_world_config(Path(dir))

    @classmethod
    def attach(cls, run_dir: str | Path) -> Self:
        """Return the world whose detached instances run in a run directory.

        Entering the block adopts them, and leaving it leaves them running.

        Args:
            run_dir: The run directory.

        Raises:
            UsageError: Nothing runs there, or instances of several worlds do.
        """
        directory = Path(run_dir).absolute()
        worlds = {record.world_dir for record in read_running(directory)}
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
        config = await run_blocking(lambda: self._config)
        async with AsyncExitStack() as stack:
            fleet = await stack.enter_async_context(Fleet(self._max_log_bytes))
            if self._attach_dir is not None:
                attached = await fleet.attach(config, self._attach_dir)
                self._latest_started = attached[-1] if attached else None
            self._stack = stack.pop_all()
        self._fleet = fleet
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        try:
            return await self._stack.__aexit__(exc_type, exc, traceback)
        finally:
            self._fleet = None

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
        resume: str | Path | None = None,
        host: str = "127.0.0.1",
        base_path: str = "",
        run_dir: str | Path | None = None,
        name: str | None = None,
        health_timeout: float = 60.0,
        port_wait: float = 0.0,
        command_file: str | Path | None = None,
        log_file: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        detach: bool = False,
        _tmux_session: str | None = None,
    ) -> StartedWorld:
        """Start an instance and return when it is ready.

        Args:
            port: Port of the world; None or 0 leases one that nobody else has.
            record: Whether the world shall record.
            record_dir: Where it records; ``recordings`` in the run directory by default.
            resume: Snapshot to restore; a relative path is taken from the world directory.
                None is a fresh run.
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
        fleet = self._open_fleet()
        plan = partial(
            plan_launch,
            self._config,
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
            tmux_session=_tmux_session,
        )
        launch = await run_blocking(plan)
        self._latest_started = await fleet.start(launch)
        return self._latest_started

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
            UsageError: Several instances run and none was named.
            WorldStopError: A process survived even SIGKILL.

        Cancellation: the ladder goes on without the caller.
        """
        return await self._open_fleet().stop(instance, grace_seconds)

    def _hurry(self) -> None:
        """Leave every running stop no more time: what still lives is killed at once."""
        if self._fleet is not None:
            self._fleet.hurry()

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
            ConfigError: The agent is none, or its directory cannot be used.

        Cancellation: the world may have joined the agent; nothing is recorded.
        """
        fleet = self._open_fleet()
        supervisor = fleet.find(instance)
        member = member_of(agent)
        url = supervisor.instance.url
        async with supervisor.call():
            client = fleet.client(supervisor)
            access = await join(client, member, url=url, local_url=url, timeout=timeout)
        world_agent_id = access["agent_id"] if isinstance(access["agent_id"], str) else None
        if member.dir is not None or world_agent_id:
            update = agent_update(
                id=world_agent_id if member.dir is None else None,
                dir=member.dir,
                name=member.name,
                run_name=member.run_name,
                world_agent_id=world_agent_id,
            )
            await fleet.writer(supervisor.instance.launch.run_dir).apply(update)
        return access

    def api_path(self, *, path: str = API_ROUTE, access: Mapping[str, Any]) -> str:
        """Return the address of a document or route, to be put into a prompt.

        Args:
            path: Route below the world's address.
            access: What :meth:`connect` returned.
        """
        return f"{access['base_url']}{path}"

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
        async with supervisor.call():
            await leave(fleet.client(supervisor), access, timeout=timeout)

    # -- snapshots and the manifest ---------------------------------------------------------

    async def save(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        instance: str | None = None,
        timeout: float = 300.0,
        max_bytes: int = DEFAULT_SNAPSHOT_BYTES,
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
            SnapshotError: There is no file and no entry.
            WorldExitedError: The instance has ended; there is no file and no entry.
            ManifestError: The file is complete, but not registered.

        Cancellation: either there is no file and no entry, or there are both.
        """
        fleet = self._open_fleet()
        supervisor = fleet.find(instance)
        launch = supervisor.instance.launch
        directory = launch.files_dir / "checkpoints" if dir is None else _absolute(dir)

        async def save_and_register() -> SavedSnapshot:
            source = supervisor.instance.snapshot_source()
            async with supervisor.call():
                saved = await capture(source, directory, timeout=timeout, max_bytes=max_bytes)
            with anyio.CancelScope(shield=True):
                await fleet.writer(launch.run_dir).apply(checkpoint_update(saved))
            fleet.hub.emit("saved", saved.instance, path=saved.path, size_bytes=saved.size_bytes)
            return saved

        return await fleet.tasks.own(save_and_register)

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
            id: Name of the run.
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
        latest = self._latest.run_dir if self._latest else self.dir
        directory = latest if run_dir is None else _absolute(run_dir)
        await fleet.writer(directory).apply(update)

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
            An async context manager and iterator of :class:`~clawblox.model.LogLine`.
        """
        return self._open_fleet().find(instance).instance.log_reader(follow=follow, tail=tail)

    def events(self) -> EventStream:
        """Return the events of all instances from now on, until the world is closed.

        Returns:
            An async context manager and iterator of :class:`~clawblox.model.WorldEvent`.
        """
        return self._open_fleet().hub.subscribe()


def _absolute(path: str | Path) -> Path:
    return Path(path).absolute()
