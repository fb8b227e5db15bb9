"""The instances of one open world, and what serves them until the last has ended.

A fleet exists between entering and leaving the block of an ``AsyncWorld``. It knows which
instances there are and which one is meant; what an instance does is its supervisor's part.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import structlog

from clawblox.config import WorldConfig
from clawblox.errors import ManifestError, UsageError
from clawblox.events import EventHub
from clawblox.http import InstanceClient
from clawblox.instance import Instance
from clawblox.launch import Launch, plan_attach
from clawblox.lifecycle import State
from clawblox.logs import trim_log
from clawblox.manifest import Update, manifest_path, read_manifest
from clawblox.manifest_updates import run_update
from clawblox.manifest_writer import ManifestWriter
from clawblox.model import StartedWorld, StopResult
from clawblox.records import close_stale_records, read_running
from clawblox.supervisor import FAILED_START_GRACE_S, Supervisor
from clawblox.tasks import Tasks
from clawblox.threads import run_blocking

__all__ = ["Fleet"]

_TRIM_INTERVAL_S = 2.0

_log = structlog.get_logger(__name__)


class Fleet:
    """Instances by name, their tasks, and the writers and clients that they share.

    Leaving its block ends every instance that is not detached; what served them ends after.

    Args:
        max_log_bytes: Size at which a log is cut to its newer half; None never cuts.

    Attributes:
        tasks: Tasks of the instances, and calls that outlive a cancelled caller.
        hub: Takes and hands out events.
    """

    def __init__(self, max_log_bytes: int | None) -> None:
        self.tasks = Tasks()
        self.hub = EventHub()
        self._max_log_bytes = max_log_bytes
        self._services = Tasks()
        self._stack = AsyncExitStack()
        self._supervisors: dict[str, Supervisor] = {}
        self._names: dict[str, Instance] = {}
        self._clients: dict[str, InstanceClient] = {}
        self._writers: dict[Path, ManifestWriter] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._services)
            stack.push_async_callback(self._close_services)
            await stack.enter_async_context(self.tasks)
            self._services.start_soon(self._trim_logs)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(exc_type, exc, traceback)

    async def _close_services(self) -> None:
        """Close what the instances, which are over by now, may have needed to the last."""
        with anyio.CancelScope(shield=True):
            for client in self._clients.values():
                await client.aclose()
            for writer in self._writers.values():
                await writer.aclose()
        self.hub.close()

    # -- which instances there are ----------------------------------------------------------

    @property
    def ready_names(self) -> tuple[str, ...]:
        """Names of the instances that are ready, in the order of their starts."""
        known = self._supervisors.items()
        return tuple(name for name, one in known if one.lifecycle.state is State.READY)

    def find(self, name: str | None) -> Supervisor:
        """Return the instance that is meant: the named one, or the only one for None.

        Raises:
            UsageError: There is none of that name, or not exactly one.
        """
        known = self._supervisors
        if name is None and len(known) == 1:
            return next(iter(known.values()))
        if name is not None and name in known:
            return known[name]
        names = ", ".join(known) or "none"
        asked = "no instance was named" if name is None else f"no instance {name!r}"
        raise UsageError(f"{asked}; there are: {names}", hint="start one, or say instance=")

    # -- start and stop ---------------------------------------------------------------------

    async def start(self, launch: Launch) -> StartedWorld:
        """Start an instance and return when it is ready; see ``AsyncWorld.start``."""
        was_interrupted = await run_blocking(_close_interrupted_run, launch.run_dir)
        # An update that says nothing sees to it that there is a manifest for the world.
        update = run_update(status="interrupted") if was_interrupted else Update()
        await self.writer(launch.run_dir).apply(update)
        return await self._supervise(Instance(launch, names=self._names))

    async def attach(self, config: WorldConfig, run_dir: Path) -> list[StartedWorld]:
        """Take over the instances that run in a run directory."""
        records = await run_blocking(read_running, run_dir)
        launches = [(plan_attach(config, run_dir, record), record) for record in records]
        return [
            await self._supervise(Instance(launch, record, names=self._names))
            for launch, record in launches
        ]

    async def stop(self, name: str | None, grace_seconds: float) -> StopResult:
        """End an instance, or do nothing when it does not run; see ``AsyncWorld.stop``."""
        known = self._supervisors
        if not known or (name is not None and name not in known):
            return StopResult(name or "", "not_running")
        supervisor = self.find(name)
        try:
            return await supervisor.stop(grace_seconds)
        finally:
            if supervisor.lifecycle.is_over:
                await self._forget(supervisor.instance.name)

    def hurry(self) -> None:
        """Leave every running stop no more time: what still lives is killed at once."""
        for supervisor in self._supervisors.values():
            supervisor.hurry()

    async def _supervise(self, instance: Instance) -> StartedWorld:
        supervisor = Supervisor(instance, self.hub.emit)
        self.tasks.start_soon(supervisor.run)
        started = await _wait_started(supervisor)
        await self._forget(started.name)
        self._supervisors[started.name] = supervisor
        return started

    async def _forget(self, name: str) -> None:
        self._supervisors.pop(name, None)
        client = self._clients.pop(name, None)
        if client is not None:
            await client.aclose()

    # -- what serves them -------------------------------------------------------------------

    def writer(self, run_dir: Path) -> ManifestWriter:
        """Return the one writer of a run's manifest."""
        if run_dir not in self._writers:
            writer = ManifestWriter(manifest_path(run_dir))
            self._writers[run_dir] = writer
            self._services.start_soon(writer.run)
        return self._writers[run_dir]

    def client(self, supervisor: Supervisor) -> InstanceClient:
        """Return the one client of an instance."""
        name = supervisor.instance.name
        if name not in self._clients:
            self._clients[name] = InstanceClient(supervisor.instance.url)
        return self._clients[name]

    async def _trim_logs(self) -> None:
        while self._max_log_bytes is not None:
            await anyio.sleep(_TRIM_INTERVAL_S)
            logs = [path for one in self._supervisors.values() for path in one.instance.log_files]
            for path in logs:
                try:
                    await run_blocking(trim_log, path, self._max_log_bytes)
                except OSError as error:
                    _log.warning("log not cut", path=str(path), error=str(error))


async def _wait_started(supervisor: Supervisor) -> StartedWorld:
    """Wait for a start; whoever gives it up ends it, and waits until nothing of it is left."""
    is_settled = False
    try:
        started = await supervisor.wait_started()
        is_settled = True
    except Exception:
        is_settled = True
        raise
    finally:
        if not is_settled:
            with anyio.CancelScope(shield=True):
                await supervisor.stop(FAILED_START_GRACE_S)
    return started


def _close_interrupted_run(run_dir: Path) -> bool:
    """Close what a killed orchestrator left in the records; say whether it left the run open."""
    if not close_stale_records(run_dir):
        return False
    try:
        return read_manifest(run_dir).run.get("status") == "running"
    except ManifestError:
        return False
