"""The read-only view of a generation for hooks: its world and its agents.

A ``stop`` hook is called while the agents work, a ``score`` hook after they have been stopped, with
the world still running.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import anyio.lowlevel
import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.trajectory import export_trajectory
from clawblox.agents.values import AgentEvent, Usage
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import UsageError
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.results import Labels, SavedSnapshot
from clawblox.world.access import make_member, read_session
from clawblox.world.agent_client import AsyncAgentClient
from clawblox.world.async_world import AsyncWorld


@attrs.frozen
class _Observer:
    """An agent in the world: its name, and the directory that records its session."""

    name: str
    dir: Path


class ViewedAgent(Protocol):
    """The facts of an agent for hooks."""

    @property
    def name(self) -> str:
        """Its display name."""

    @property
    def full_name(self) -> str:
        """Its full name, run suffix included."""

    @property
    def dir(self) -> Path:
        """Its directory."""

    @property
    def usage(self) -> Usage:
        """Its usage since the start of the attempt."""

    @property
    def events(self) -> Iterable[AgentEvent]:
        """Its latest events."""


class _AgentView:
    """Facts of an agent of a generation.

    Args:
        agent: The agent of the attempt.
    """

    def __init__(self, agent: ViewedAgent) -> None:
        self._agent = agent

    @property
    def name(self) -> str:
        """Its display name."""
        return self._agent.name

    @property
    def full_name(self) -> str:
        """Its full name, run suffix included."""
        return self._agent.full_name

    @property
    def dir(self) -> Path:
        """Its directory. The agent may change everything in it, so do not follow links there."""
        return self._agent.dir

    @property
    def workspace(self) -> Path:
        """Its workspace. The agent may change everything in it, so do not follow links there."""
        return AgentDir(self.dir).workspace

    @property
    def usage(self) -> Usage:
        """Its usage since the start of the attempt."""
        return self._agent.usage

    @property
    def events(self) -> Sequence[AgentEvent]:
        """Its latest events, at most 256, oldest first."""
        return tuple(self._agent.events)


class LiveAgent(_AgentView):
    """An agent of a running generation, or of one whose agents have just been stopped."""

    async def trajectory(self) -> dict[str, Any]:
        """Return its trajectory so far in the format ATIF 1.7.

        Raises:
            UsageError: It has not started a conversation.
            ClawbloxError: A file of the agent is unreadable.
            OSError: A file cannot be read.

        Cancellation: has no effect.
        """
        return await run_blocking(export_trajectory, self.dir)


class EndedAgent(_AgentView):
    """An agent of a generation at its end."""

    def trajectory(self) -> dict[str, Any]:
        """Return its trajectory in the format ATIF 1.7; see :class:`LiveAgent`. Blocks."""
        return export_trajectory(self.dir)


class _GenerationView:
    """Facts of a generation.

    Args:
        order: The attempt.
        seed: Seed of the world's random state.
    """

    def __init__(self, order: AttemptOrder, seed: int | None) -> None:
        self._order = order
        self._seed = seed

    @property
    def chain(self) -> str:
        """Name of its chain."""
        return self._order.chain.name

    @property
    def generation(self) -> int:
        """Its number, from 1."""
        return self._order.generation

    @property
    def labels(self) -> Labels:
        """Labels of its chain."""
        return self._order.chain.labels

    @property
    def seed(self) -> int | None:
        """Seed of the world's random state; None if a snapshot's random state continues."""
        return self._seed


class ViewedWorld(Protocol):
    """The calls that :class:`LiveGeneration` makes to the world of its attempt."""

    async def observe(self, agent: ViewedAgent) -> Any:  # noqa: ANN401 - the world decides
        """Return what an agent would observe now."""

    async def snapshot(self) -> SavedSnapshot:
        """Save a snapshot."""

    async def simulation_time(self) -> float | None:
        """Return the simulation time; None if the world reports none."""

    async def fetch(self) -> None:
        """Update the files of an attempt that runs on another machine."""


class InstanceWorld:
    """The world of an attempt on this machine; see :class:`ViewedWorld`.

    Args:
        world: The world, open.
        instance: Name of the attempt's instance.
    """

    def __init__(self, world: AsyncWorld, instance: str) -> None:
        self._world = world
        self._instance = instance
        self._clients: dict[str, AsyncAgentClient] = {}

    async def observe(self, agent: ViewedAgent) -> Any:  # noqa: ANN401 - the world decides
        """Return what an agent would observe now; see :meth:`LiveGeneration.observe`.

        Cancellation: has no effect on the world.
        """
        if agent.name not in self._clients:
            observer = _Observer(agent.full_name, agent.dir)
            if await run_blocking(read_session, make_member(observer)) is None:
                raise UsageError(f"the agent {agent.name!r} has not joined the world")
            client = await self._world.join(observer, instance=self._instance)
            self._clients[agent.name] = client
        return await self._clients[agent.name].observe()

    async def snapshot(self) -> SavedSnapshot:
        """Save a snapshot; see :meth:`LiveGeneration.snapshot`.

        Cancellation: leaves both the file and its manifest entry, or neither.
        """
        return await self._world.save(instance=self._instance)

    async def simulation_time(self) -> float | None:
        """Return the simulation time; see :meth:`LiveGeneration.world_time`.

        Cancellation: has no effect on the world.
        """
        return await self._world.simulation_time(self._instance)

    async def fetch(self) -> None:
        """Do nothing, since the files are local.

        Cancellation: has no effect.
        """
        await anyio.lowlevel.checkpoint()


class LiveGeneration(_GenerationView):
    """The view for async hooks of a generation that runs or whose agents have just been stopped.

    Args:
        order: The attempt.
        world: The world of the attempt.
        seed: Seed of the world's random state.
        agents: Its agents.
        elapsed: Returns the seconds of the generation so far.
    """

    def __init__(
        self,
        order: AttemptOrder,
        world: ViewedWorld,
        seed: int | None,
        agents: Sequence[ViewedAgent],
        elapsed: Callable[[], float],
    ) -> None:
        super().__init__(order, seed)
        self._world = world
        self._viewed_agents = tuple(agents)
        self._agents = tuple(map(LiveAgent, agents))
        self._elapsed = elapsed

    @property
    def elapsed_s(self) -> float:
        """Seconds since the agents were started, including those of earlier attempts."""
        return self._elapsed()

    @property
    def agents(self) -> Sequence[LiveAgent]:
        """Its agents, in the order of the plan."""
        return self._agents

    async def observe(self, agent: str | None = None) -> Any:  # noqa: ANN401 - the world decides
        """Return what an agent would observe now, without affecting the agent.

        Args:
            agent: Its display name; None means the first.

        Returns:
            The JSON value of the world's answer.

        Raises:
            UsageError: There is no such agent, or it has not joined the world.
            WorldError: The world did not answer, or has ended.

        Cancellation: has no effect on the world.
        """
        return await self._world.observe(self._find(agent))

    async def snapshot(self) -> SavedSnapshot:
        """Save a snapshot of the world, in ``checkpoints`` of its run directory.

        Raises:
            WorldError: The world gave no usable snapshot, or has ended.
            ManifestError: The file is complete, but not registered.

        Cancellation: leaves both the file and its manifest entry, or neither.
        """
        return await self._world.snapshot()

    async def world_time(self) -> float | None:
        """Return the world's simulation time; None if it reports none.

        Raises:
            WorldError: The world gave no usable answer, or has ended.

        Cancellation: has no effect on the world.
        """
        return await self._world.simulation_time()

    async def fetch(self) -> None:
        """Update the copies of workspaces and conversations of agents on another node.

        They are already up to date when a score function is called.

        Raises:
            ClawbloxError: They did not arrive, or the node is lost.

        Cancellation: some files may not be updated.
        """
        await self._world.fetch()

    def blocking(self, call: Callable[..., Any]) -> GenerationEnd:
        """Return the view for a score function that is not async.

        Args:
            call: Runs a function of this view in the event loop, and returns its result.
        """
        return GenerationEnd(self, call)

    def _find(self, name: str | None) -> ViewedAgent:
        for agent in self._viewed_agents:
            if name in (None, agent.name):
                return agent
        names = ", ".join(agent.name for agent in self._agents)
        raise UsageError(f"there is no agent {name!r}", hint=f"the agents are {names}")


class GenerationEnd(_GenerationView):
    """The view for score functions that are not async: a generation at its end.

    It has the members of :class:`LiveGeneration`, with blocking methods for the thread of the
    function. After the function's time limit they fail.

    Args:
        live: The view of async hooks.
        call: Runs a function of that view in the event loop, and returns its result.
    """

    def __init__(self, live: LiveGeneration, call: Callable[..., Any]) -> None:
        super().__init__(live._order, live._seed)
        self._agents = tuple(map(EndedAgent, live._viewed_agents))
        self._live = live
        self._call = call

    @property
    def elapsed_s(self) -> float:
        """Seconds since the agents were started, including those of earlier attempts."""
        return self._call(lambda: self._live.elapsed_s)  # type: ignore[no-any-return]

    @property
    def agents(self) -> Sequence[EndedAgent]:
        """Its agents, in the order of the plan."""
        return self._agents

    def observe(self, agent: str | None = None) -> Any:  # noqa: ANN401 - the world decides
        """Return what an agent would observe now; see :meth:`LiveGeneration.observe`."""
        return self._call(self._live.observe, agent)

    def snapshot(self) -> SavedSnapshot:
        """Save a snapshot of the world; see :meth:`LiveGeneration.snapshot`."""
        return self._call(self._live.snapshot)  # type: ignore[no-any-return]

    def world_time(self) -> float | None:
        """Return the world's simulation time; see :meth:`LiveGeneration.world_time`."""
        return self._call(self._live.world_time)  # type: ignore[no-any-return]
