"""An attempt that a host runs on a node, as the driver sees it.

It implements :class:`~clawblox.experiment.schedule.ports.Attempt`: each method is a call. Activity
and usage of the agents are as old as the last answer to any call; the methods document when the
files of the attempt are copied here.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.agents.values import AgentEvent, Usage
from clawblox.checkpoint.archive import registry
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError
from clawblox.experiment.cluster.calls import HostCaller, HostLostError
from clawblox.experiment.cluster.chunks import TransferError, receive_file
from clawblox.experiment.cluster.host import NEWS_WAIT_S
from clawblox.experiment.cluster.messages import (
    AttemptAgents,
    AttemptOpening,
    Changes,
    News,
    Reply,
    unpack_event,
)
from clawblox.experiment.cluster.mirror import Mirror
from clawblox.experiment.cluster.trees import apply
from clawblox.experiment.history.lines import CheckpointKind
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.attempt_errors import as_attempt_errors
from clawblox.experiment.live.hooks import LiveGeneration, ViewedAgent
from clawblox.experiment.schedule.ports import (
    AgentActivity,
    AgentFailed,
    AttemptError,
    NodeLost,
    ProviderError,
    SavedCheckpointFile,
    Signal,
)
from clawblox.results import Event, SavedSnapshot
from clawblox.rundir.manifest import MANIFEST_NAME
from clawblox.rundir.paths import STATE_DIR_NAME
from clawblox.snapshot.rows import ROWS_SUFFIX
from clawblox.system.clock import TimeSource
from clawblox.system.files import make_private_dir
from clawblox.system.scratch import scratch_directory
from clawblox.telemetry.own_log import OwnLog

_MANIFEST: Final = f"{STATE_DIR_NAME}/{MANIFEST_NAME}"
_MAX_EVENTS: Final = 256
_LEVELS: Final = frozenset({"debug", "info", "warning", "error"})

_log = OwnLog(__name__)


@attrs.define(eq=False)
class RemoteAgent:
    """An agent of the attempt; see :class:`~clawblox.experiment.live.hooks.ViewedAgent`.

    Attributes:
        name: Its display name.
        full_name: Its full name, run suffix included.
        dir: The driver's copy of its directory.
        account: Name of the account that it uses.
        usage: Its usage since the start of the attempt.
        events: Its latest events.
    """

    name: str
    full_name: str
    dir: Path
    account: str
    usage: Usage = attrs.field(factory=Usage, init=False)
    events: Sequence[AgentEvent] = attrs.field(default=(), init=False, repr=False)

    def note(self, event: AgentEvent) -> None:
        """Keep an event."""
        self.events = (*self.events, event)[-_MAX_EVENTS:]


@attrs.define(eq=False, kw_only=True)
class RemoteAttempt:
    """An attempt on a node; see :class:`~clawblox.experiment.schedule.ports.Attempt`.

    Args:
        order: The attempt.
        run_dir: The driver's copy of its run directory.
        node: Name of the node.
        caller: Makes the calls.
        agents: Its agents, in their order.
        report: Called with each signal.
        pass_on: Called with each event of the world and of the agents.
        clock: Clock for the age of the copies, in seconds.
    """

    order: AttemptOrder
    run_dir: Path
    node: str
    caller: HostCaller
    agents: Sequence[RemoteAgent]
    _report: Callable[[Signal], object]
    _pass_on: Callable[[Event], object]
    _clock: TimeSource
    _mirror: Mirror = attrs.field(init=False)
    _state: AttemptAgents | None = attrs.field(default=None, init=False)
    _token: int = attrs.field(default=0, init=False)
    _seed: int | None = attrs.field(default=None, init=False)
    _begun_at: float = attrs.field(default=math.inf, init=False)
    _reading: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)
    _pulling: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    @asynccontextmanager
    async def opened(self, opening: AttemptOpening) -> AsyncIterator[RemoteAttempt]:
        """Open the attempt on the node; leaving ends it and copies its run directory here.

        Args:
            opening: What the host opens; its files were sent.

        Raises:
            AttemptError: It cannot be opened, the node is lost, or its bookkeeping has a defect.

        Cancellation: everything is ended.
        """
        self._mirror = Mirror(self.run_dir, self._clock.monotonic)
        async with Tasks() as tasks:
            with as_attempt_errors("attempt not opened"):
                await self._ask("open", opening)
            try:
                tasks.start_soon(self._follow)
                yield self
            except BaseException:
                with anyio.CancelScope(shield=True), suppress(AttemptError):
                    await self._close()
                raise
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _close(self) -> None:
        await self._ask("close")
        await self._drain()
        await self._pull("")
        await self._ask("remove")

    async def _ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - methods differ
        try:
            return await call_host(self.caller, name, *arguments, note=self._note_state)
        except ProviderError as error:
            raise ProviderError(self._rename_account(error.failure)) from error

    def _note_state(self, state: AttemptAgents) -> None:
        if self._state is not None and state.number < self._state.number:
            return
        self._state = state
        for agent, usage in zip(self.agents, state.usage, strict=True):
            agent.usage = usage

    def _rename_account(self, failure: AgentFailed) -> AgentFailed:
        """Replace the account in a failure by its name on this machine."""
        accounts = {agent.name: agent.account for agent in self.agents}
        return attrs.evolve(failure, account=accounts[failure.name])

    # -- what it reports --------------------------------------------------------------------------

    async def _follow(self) -> None:
        with as_attempt_errors("news of a node not taken"):
            try:
                while True:
                    await self._read_news(NEWS_WAIT_S)
            except AttemptError as error:
                if error.cause != "node":
                    raise
                self._report(NodeLost(node=self.node, text=error.text))

    async def _read_news(self, wait_s: float) -> bool:
        """Apply the news; return whether a file has grown."""
        async with self._reading:
            news: News = await self._ask("news", self._mirror.marks, wait_s)
            with _as_transfer_errors(self.node):
                await run_blocking(self._mirror.apply, news.growths)
        for level, text, fields in news.log:
            if level in _LEVELS:
                getattr(_log, level)(text, **{**fields, "node": self.node})
        for event in map(unpack_event, news.events):
            self._note_event(event)
        for signal in news.signals:
            if isinstance(signal, AgentFailed):
                signal = self._rename_account(signal)
            self._report(signal)
        return bool(news.growths)

    def _note_event(self, event: Event) -> None:
        if isinstance(event, AgentEvent):
            for agent in self.agents:
                if agent.full_name == event.subject:
                    agent.note(event)
        self._pass_on(event)

    async def _drain(self) -> None:
        while await self._read_news(0.0):
            pass

    @property
    def mirror_age_s(self) -> float | None:
        """Seconds since the copies of growing files were up to date; None before there are any."""
        last_at = self._mirror.last_at
        return None if last_at is None else self._clock.monotonic() - last_at

    def activity(self) -> Sequence[AgentActivity]:
        """Return the activity of the agents, in their order."""
        if self._state is None:
            return ()
        pairs = zip(self._state.activity, self.agents, strict=True)
        return [attrs.evolve(activity, account=agent.account) for activity, agent in pairs]

    def usage(self) -> Sequence[Usage]:
        """Return the usage of the agents since the start of the attempt, in their order."""
        return [agent.usage for agent in self.agents]

    async def world_time(self) -> float | None:
        """Return the world's simulation time; None if it reports none.

        Raises:
            AttemptError: The node is lost.

        Cancellation: has no effect.
        """
        return await self._ask("world_time")  # type: ignore[no-any-return] # of LiveAttempt

    # -- what it is told --------------------------------------------------------------------------

    async def start(self) -> Mapping[str, Any]:
        """Start the world, then connect and start the agents one by one.

        Raises:
            AttemptError: Something could not be started, or the node is lost.
            ProviderError: A limit or an expired login.

        Cancellation: processes that were started end when the attempt is closed.
        """
        started: Mapping[str, Any] = await self._ask("start")
        self._seed = started["world"]["seed"]
        self._begun_at = anyio.current_time()
        return started

    async def set_budgets(self, used: Sequence[Usage], *, is_saving: bool) -> None:
        """Set the remaining budget of each agent.

        Raises:
            AttemptError: The node is lost.

        Cancellation: the budgets may be set.
        """
        await self._ask("set_budgets", tuple(used), is_saving)

    async def send(self, text: str) -> None:
        """Send each agent a message, in their order.

        Raises:
            AttemptError: An agent could not be started, or the node is lost.
            ProviderError: A limit or an expired login.

        Cancellation: some agents may have received it.
        """
        await self._ask("send", text)

    async def stop_agents(self) -> None:
        """Stop the agents, and copy their directories here. Idempotent.

        Raises:
            AttemptError: The node is lost.

        Cancellation: the agents are stopped regardless.
        """
        await self._ask("stop_agents")
        await self.fetch()

    # -- what comes here --------------------------------------------------------------------------

    async def checkpoint(
        self, kind: CheckpointKind, elapsed: Callable[[], float], *, idle_wait: float
    ) -> SavedCheckpointFile:
        """Save world and agents in an archive, and copy it here.

        Raises:
            CheckpointSecretError: An agent's files contain a credential.
            ClawbloxError: The checkpoint failed otherwise.
            AttemptError: The node is lost.

        Cancellation: the archive is here, complete, or absent.
        """
        saved: SavedCheckpointFile = await self._ask("checkpoint", kind, elapsed(), idle_wait)
        begun_at = anyio.current_time()
        try:
            await self._receive(saved.file, saved.size_bytes, saved.sha256)
        except (TransferError, OSError) as error:
            await self._ask("remove_checkpoint", saved.file)
            if isinstance(error, OSError):
                raise
            raise ClawbloxError(f"the archive did not arrive from {self.node}: {error}") from error
        await self._pull(_MANIFEST)
        return attrs.evolve(saved, save_s=saved.save_s + anyio.current_time() - begun_at)

    async def remove_checkpoint(self, file: str) -> None:
        """Remove an archive of this attempt on both machines; log a failure.

        Raises:
            AttemptError: The node is lost.

        Cancellation: it is removed or not.
        """
        await self._ask("remove_checkpoint", file)
        try:
            await run_blocking(registry.remove, self._archive(file))
        except (ClawbloxError, OSError) as error:
            _log.warning("checkpoint not removed", path=file, error=str(error))

    def _archive(self, file: str) -> Path:
        """Return the local path of an archive or snapshot with a name from a node."""
        if Path(file).name != file or file.startswith("."):
            raise AttemptError(
                "node", f"the node {self.node} sent the invalid archive name {file!r}"
            )
        return self.run_dir / "checkpoints" / file

    async def _receive(self, file: str, size: int, sha256: str) -> None:
        target = self._archive(file)
        await run_blocking(make_private_dir, target.parent)
        async with self._pulling:
            await receive_file(size, sha256, partial(self._ask, "read", file), target)

    async def _pull(self, part: str) -> None:
        """Copy the changes in a part of the run directory to this machine."""
        async with self._pulling:
            changes: Changes = await self._ask("changes", part, self._token)
            async with scratch_directory("clawblox-pull-") as place:
                bundle, read = place / "changes", partial(self._ask, "read", "changes")
                with _as_transfer_errors(self.node):
                    await receive_file(changes.size, changes.sha256, read, bundle)
                    await run_blocking(apply, bundle, self.run_dir, changes.gone)
            self._token = changes.token

    async def fetch(self) -> None:
        """Update the copies of the agents' directories.

        Raises:
            AttemptError: The node is lost, or a file did not arrive.

        Cancellation: some files may not be updated.
        """
        await self._drain()
        await self._pull("agents/")

    # -- the view of hooks ------------------------------------------------------------------------

    def view(self) -> LiveGeneration:
        """Return the live view for hooks."""
        return LiveGeneration(
            order=self.order,
            world=self,
            seed=self._seed,
            agents=self.agents,
            elapsed=lambda: self.order.active_s + anyio.current_time() - self._begun_at,
        )

    async def observe(self, agent: ViewedAgent) -> Any:  # noqa: ANN401 - the world decides
        """Return what an agent would observe now.

        Raises:
            UsageError: It has not joined the world.
            WorldError: The world did not answer.
            AttemptError: The node is lost.

        Cancellation: has no effect on the world.
        """
        return await self._ask("observe", agent.name)

    async def simulation_time(self) -> float | None:
        """Return the world's simulation time; None if it reports none.

        Raises:
            WorldError: The world gave no usable answer.
            AttemptError: The node is lost.

        Cancellation: has no effect on the world.
        """
        return await self._ask("simulation_time")  # type: ignore[no-any-return] # of LiveGeneration

    async def snapshot(self) -> SavedSnapshot:
        """Save a snapshot of the world, and copy it here.

        Raises:
            WorldError: The world gave no usable snapshot.
            AttemptError: The node is lost, or it did not arrive.

        Cancellation: the copy is complete or absent.
        """
        saved: SavedSnapshot = await self._ask("snapshot")
        name = saved.path.name
        with _as_transfer_errors(self.node):
            await self._receive(name, saved.size_bytes, saved.sha256)
            if saved.rows_sha256 is not None and saved.rows_size_bytes is not None:
                rows = f"{name}{ROWS_SUFFIX}"
                await self._receive(rows, saved.rows_size_bytes, saved.rows_sha256)
        await self._pull(_MANIFEST)
        return attrs.evolve(saved, path=self._archive(name))


@contextmanager
def _as_transfer_errors(node: str) -> Iterator[None]:
    """Raise transfer errors as :class:`AttemptError`."""
    try:
        yield
    except TransferError as error:
        raise AttemptError("node", f"a file did not arrive from {node}: {error}") from error


async def call_host(
    caller: HostCaller,
    name: str,
    *arguments: object,
    note: Callable[[AttemptAgents], object] = lambda _state: None,
) -> Any:  # noqa: ANN401 - the methods of hosts differ
    """Call a method of a host.

    Args:
        caller: Makes the call.
        name: The method, of :class:`~clawblox.experiment.cluster.host.AttemptHost`.
        *arguments: Its arguments.
        note: Called with the state of the host's attempt, if it has one.

    Raises:
        AttemptError: The host is lost.
        Exception: What the method raises.

    Cancellation: the method may have been called.
    """
    try:
        reply: Reply = await caller.call(name, *arguments)
    except HostLostError as error:
        raise AttemptError("node", str(error)) from error
    if reply.state is not None:
        note(reply.state)
    if reply.error is not None:
        raise reply.error
    return reply.value
