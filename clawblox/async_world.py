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
import anyio.to_thread
import structlog

from clawblox.access import AgentLike, join, leave, member_of
from clawblox.config import WorldConfig, read_world_config
from clawblox.errors import ManifestError, UsageError
from clawblox.events import EventHub, EventStream
from clawblox.http import InstanceClient
from clawblox.instance import Instance
from clawblox.launch import plan_attach, plan_launch
from clawblox.lifecycle import State
from clawblox.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.logs import LogReader, trim_log
from clawblox.manifest import Update, manifest_path, read_manifest
from clawblox.manifest_updates import RunStatus, agent_update, checkpoint_update, run_update
from clawblox.manifest_writer import ManifestWriter
from clawblox.metadata import WorldMetadata
from clawblox.model import SavedSnapshot, StartedWorld, StopResult
from clawblox.protocol import API_ROUTE
from clawblox.records import close_stale_records, read_running
from clawblox.snapshots import DEFAULT_MAX_BYTES as DEFAULT_SNAPSHOT_BYTES
from clawblox.snapshots import capture
from clawblox.sources import fetch_world, is_world_url
from clawblox.supervisor import DEFAULT_GRACE_S, Supervisor
from clawblox.tasks import Tasks

__all__ = ["AsyncWorld"]

_TRIM_INTERVAL_S = 2.0

_log = structlog.get_logger(__name__)


class _Block:
    """What exists between entering and leaving the block of an AsyncWorld.

    Attributes:
        stack: What leaving the block has to undo.
        services: Tasks that serve the instances to the last: manifest writers, log trimming.
        tasks: Tasks of the instances, and calls that outlive a cancelled caller.
    """

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.services = Tasks()
        self.tasks = Tasks()
        self.hub = EventHub()
        self.supervisors: dict[str, Supervisor] = {}
        self.clients: dict[str, InstanceClient] = {}
        self.writers: dict[Path, ManifestWriter] = {}
        self.names: dict[str, Instance] = {}

    async def close(self) -> None:
        """Close what the instances, which are over by now, may have needed to the last."""
        with anyio.CancelScope(shield=True):
            for client in self.clients.values():
                await client.aclose()
            for writer in self.writers.values():
                await writer.aclose()
        self.hub.close()

    def writer(self, run_dir: Path) -> ManifestWriter:
        """Return the one writer of a run's manifest."""
        if run_dir not in self.writers:
            writer = ManifestWriter(manifest_path(run_dir))
            self.writers[run_dir] = writer
            self.services.start_soon(writer.run)
        return self.writers[run_dir]

    def client(self, supervisor: Supervisor) -> InstanceClient:
        """Return the one client of an instance."""
        name = supervisor.instance.name
        if name not in self.clients:
            self.clients[name] = InstanceClient(supervisor.instance.url)
        return self.clients[name]

    async def forget(self, name: str) -> None:
        """Drop an instance that is over."""
        self.supervisors.pop(name, None)
        client = self.clients.pop(name, None)
        if client is not None:
            await client.aclose()


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
        self._block: _Block | None = None
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
        known = self._block.supervisors if self._block else {}
        return tuple(n for n, one in known.items() if one.lifecycle.state is State.READY)

    # -- the block --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._block is not None:
            raise UsageError("this world is open already", hint="use another AsyncWorld object")
        await anyio.to_thread.run_sync(lambda: self._config)
        self._block = block = _Block()
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(block.services)
                stack.push_async_callback(block.close)
                await stack.enter_async_context(block.tasks)
                block.services.start_soon(self._trim_logs, block)
                if self._attach_dir is not None:
                    await self._adopt_running(block, self._attach_dir)
                block.stack = stack.pop_all()
        except BaseException:
            self._block = None
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        block, self._block = self._block, None
        return None if block is None else await block.stack.__aexit__(exc_type, exc, traceback)

    def _require_open(self) -> _Block:
        if self._block is None:
            raise UsageError(
                "this world is not open", hint="async with AsyncWorld(dir=…) as world: …"
            )
        return self._block

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
        block = self._require_open()
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
        launch = await anyio.to_thread.run_sync(plan)
        await self._prepare_run(block, launch.run_dir)
        return await self._supervise(block, Instance(launch, names=block.names))

    async def _prepare_run(self, block: _Block, run_dir: Path) -> None:
        """See that the run has a manifest, and that an interrupted one is called so."""
        was_interrupted = await anyio.to_thread.run_sync(_close_interrupted_run, run_dir)
        update = run_update(status="interrupted") if was_interrupted else Update()
        await block.writer(run_dir).apply(update)

    async def _supervise(self, block: _Block, instance: Instance) -> StartedWorld:
        supervisor = Supervisor(instance, block.hub.emit)
        block.tasks.start_soon(supervisor.run)
        started = await self._await_start(supervisor)
        await block.forget(started.name)
        block.supervisors[started.name] = supervisor
        self._latest_started = started
        return started

    async def _await_start(self, supervisor: Supervisor) -> StartedWorld:
        is_settled = False
        try:
            started = await supervisor.wait_started()
            is_settled = True
        except Exception:
            is_settled = True
            raise
        finally:
            if not is_settled:  # given up: nothing of it may be left when this returns
                with anyio.CancelScope(shield=True):
                    await supervisor.stop(0.0)
        return started

    async def _adopt_running(self, block: _Block, run_dir: Path) -> None:
        for record in await anyio.to_thread.run_sync(read_running, run_dir):
            launch = plan_attach(self._config, run_dir, record)
            await self._supervise(block, Instance(launch, record, names=block.names))

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
        block = self._require_open()
        known = block.supervisors
        if not known or (instance is not None and instance not in known):
            return StopResult(instance or "", "not_running")
        supervisor = self._find(instance)
        try:
            return await supervisor.stop(grace_seconds)
        finally:
            if supervisor.lifecycle.is_over:
                await block.forget(supervisor.instance.name)

    def _hurry(self) -> None:
        """Leave every running stop no more time: what still lives is killed at once."""
        for supervisor in self._block.supervisors.values() if self._block else ():
            supervisor.hurry()

    def _find(self, instance: str | None) -> Supervisor:
        known = self._require_open().supervisors
        if instance is None and len(known) == 1:
            return next(iter(known.values()))
        if instance is not None and instance in known:
            return known[instance]
        names = ", ".join(known) or "none"
        asked = "no instance was named" if instance is None else f"no instance {instance!r}"
        raise UsageError(f"{asked}; there are: {names}", hint="start one, or say instance=")

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
        block, supervisor = self._require_open(), self._find(instance)
        member = member_of(agent)
        url = supervisor.instance.url
        async with supervisor.call():
            client = block.client(supervisor)
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
            await block.writer(supervisor.instance.launch.run_dir).apply(update)
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
        block, supervisor = self._require_open(), self._find(instance)
        async with supervisor.call():
            await leave(block.client(supervisor), access, timeout=timeout)

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
        block, supervisor = self._require_open(), self._find(instance)
        launch = supervisor.instance.launch
        directory = launch.files_dir / "checkpoints" if dir is None else _absolute(dir)

        async def save_and_register() -> SavedSnapshot:
            source = supervisor.instance.snapshot_source()
            async with supervisor.call():
                saved = await capture(source, directory, timeout=timeout, max_bytes=max_bytes)
            with anyio.CancelScope(shield=True):
                await block.writer(launch.run_dir).apply(checkpoint_update(saved))
            block.hub.emit("saved", saved.instance, path=saved.path, size_bytes=saved.size_bytes)
            return saved

        return await block.tasks.own(save_and_register)

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
        block = self._require_open()
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
        await block.writer(directory).apply(update)

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
        return self._find(instance).instance.log_reader(follow=follow, tail=tail)

    def events(self) -> EventStream:
        """Return the events of all instances from now on, until the world is closed.

        Returns:
            An async context manager and iterator of :class:`~clawblox.model.WorldEvent`.
        """
        return self._require_open().hub.subscribe()

    async def _trim_logs(self, block: _Block) -> None:
        while self._max_log_bytes is not None:
            await anyio.sleep(_TRIM_INTERVAL_S)
            for supervisor in tuple(block.supervisors.values()):
                path = supervisor.instance.log_file
                try:
                    if path is not None:
                        await anyio.to_thread.run_sync(trim_log, path, self._max_log_bytes)
                except OSError as error:
                    _log.warning("log not cut", path=str(path), error=str(error))


def _absolute(path: str | Path) -> Path:
    return Path(path).absolute()


def _close_interrupted_run(run_dir: Path) -> bool:
    """Close what a killed orchestrator left in the records; say whether it left the run open."""
    if not close_stale_records(run_dir):
        return False
    try:
        return read_manifest(run_dir).run.get("status") == "running"
    except ManifestError:
        return False
