"""Team and Checkpointer: AsyncTeam and AsyncCheckpointer without ``await``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from clawblox.agents.sync_agent import Agent
from clawblox.concurrency.synchronous import (
    Mirrored,
    OpenTwin,
    Twin,
    converting,
    immediate,
    make_twin,
    mirrored,
    opening,
    suggesting,
    synchronous,
    unwrap,
)
from clawblox.config.agent_arguments import Agents
from clawblox.results import SavedCheckpoint
from clawblox.team.async_team import AsyncTeam, StartedTeam
from clawblox.team.checkpoints import (
    DEFAULT_CHECKPOINTER_IDLE_WAIT_S,
    DEFAULT_EVERY_S,
    DEFAULT_IDLE_QUIET_S,
    AsyncCheckpointer,
    Outcome,
)
from clawblox.world.instance_calls import AsyncStartedInstance
from clawblox.world.sync_world import StartedInstance, World


def _bind(started: StartedTeam) -> StartedTeam:
    world = started.world
    bound = StartedInstance.bind(world, world) if isinstance(world, AsyncStartedInstance) else world
    return attrs.evolve(started, world=bound)


class Team(OpenTwin[AsyncTeam]):
    """A world and the agents in it: they start, are saved, stop and continue together.

    It opens the world and the agents that are not open. Leaving the optional ``with`` block, or the
    end of the interpreter, stops the agents and the instance. The run directory has a record of
    the team, without any value of an environment variable, from which :meth:`resume` continues it.

    Args:
        world: The world; or a directory with a ``world.toml``, or its address, as for ``World``.
        agents: The agents, at least one. The directory of each is ``agents/<name>`` in the run
            directory.
        run_dir: The run directory; it is created if it is missing.
        checkpoint_every: Seconds from the beginning of one checkpoint to that of the next, the
            first when the agents have started; 0 makes none at an interval, and none at the end.
        min_free: Free disk space below which no checkpoint is made at the interval, in bytes or as
            text such as ``"5 GB"``; None for no limit.
        on_checkpoint: Called in another thread with each checkpoint made at the interval or at the
            end, or with the error; None for no calls.

    Raises:
        ConfigError: An argument is wrong.
        FetchError: The folder of the world cannot be downloaded.
    """

    _world: World | None = None
    _agents: tuple[Agent, ...] = ()
    _opened: Sequence[World | Agent] = ()

    @suggesting
    def __init__(
        self,
        world: World | str | Path,
        agents: Sequence[Agent],
        *,
        run_dir: str | Path,
        checkpoint_every: float = DEFAULT_EVERY_S,
        min_free: int | str | None = None,
        on_checkpoint: Outcome | None = None,
    ) -> None:
        twin: World = World(world, run_dir=run_dir) if isinstance(world, str | Path) else world
        self._world = twin
        self._agents = tuple(agents)
        target = AsyncTeam(
            twin._async,
            [agent._async for agent in agents],
            run_dir=run_dir,
            checkpoint_every=checkpoint_every,
            min_free=min_free,
            on_checkpoint=on_checkpoint,
        )
        Twin.__init__(self, target)

    resume = opening(AsyncTeam.resume)

    @property
    def world(self) -> World:
        """See :attr:`AsyncTeam.world`."""
        if self._world is None:
            self._world = make_twin(World, self._async.world)
        return self._world

    @property
    def agents(self) -> tuple[Agent, ...]:
        """See :attr:`AsyncTeam.agents`."""
        if not self._agents:
            self._agents = tuple(make_twin(Agent, agent) for agent in self._async.agents)
        return self._agents

    def _enter(self) -> None:
        if not self._is_open:
            twins: tuple[World | Agent, ...] = (self.world, *self.agents)
            self._opened = [twin for twin in twins if not twin._is_open]
            for twin in self._opened:
                twin.open()
        super()._enter()

    def _leave(self, error: BaseException | None = None) -> None:
        with ExitStack() as stack:
            for twin in self._opened:
                stack.callback(twin.close)
            super()._leave(error)

    run_dir: Mirrored[Path] = mirrored(AsyncTeam.run_dir)
    latest: Mirrored[SavedCheckpoint | None] = mirrored(AsyncTeam.latest)
    check = synchronous(AsyncTeam.check)
    start = converting(AsyncTeam.start, _bind, returns="StartedTeam")
    checkpoint = synchronous(AsyncTeam.checkpoint)
    wait = synchronous(AsyncTeam.wait)
    stop = synchronous(AsyncTeam.stop)
    kill_now = immediate(AsyncTeam.kill_now)


class Checkpointer(Twin[AsyncCheckpointer]):
    """Saves archives of a world and its agents at an interval while its ``with`` block runs.

    Args:
        world: The world.
        agents: Its agents, or their directories by name.
        dir: Directory for the archives; it is created if it is missing.
        every: Seconds from the beginning of one checkpoint to that of the next.
        idle_quiet: Seconds without output after which an agent that does not report its state may
            be between two turns.
        idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn.
        keep: Number of this object's archives to keep; None keeps all.
        min_free: Free disk space below which no checkpoint is made at the interval, in bytes or as
            text such as ``"5 GB"``; None for no limit.
        metadata: JSON values for the top level of the archives' metadata; None for none.
        instance: Name of the instance; not needed while there is only one.
        pointer: The file that names the latest archive; None means ``checkpoint.json`` in ``dir``.
        elapsed: Seconds that the run had lasted before it was resumed.
        on_outcome: Called in another thread with each checkpoint made at the interval, or with the
            error; None for no calls.

    Raises:
        ConfigError: An argument is wrong.
    """

    @suggesting
    def __init__(
        self,
        world: World,
        agents: Agents,
        *,
        dir: str | os.PathLike[str],  # noqa: A002 - the word of the API
        every: float = DEFAULT_EVERY_S,
        idle_quiet: float = DEFAULT_IDLE_QUIET_S,
        idle_wait: float = DEFAULT_CHECKPOINTER_IDLE_WAIT_S,
        keep: int | None = None,
        min_free: int | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        instance: str | None = None,
        pointer: str | os.PathLike[str] | None = None,
        elapsed: float = 0.0,
        on_outcome: Outcome | None = None,
    ) -> None:
        target = AsyncCheckpointer(
            unwrap(world),
            agents,
            dir=dir,
            every=every,
            idle_quiet=idle_quiet,
            idle_wait=idle_wait,
            keep=keep,
            min_free=min_free,
            metadata=metadata,
            instance=instance,
            pointer=pointer,
            elapsed=elapsed,
            on_outcome=on_outcome,
        )
        Twin.__init__(self, target)

    latest: Mirrored[SavedCheckpoint | None] = mirrored(AsyncCheckpointer.latest)
    run = synchronous(AsyncCheckpointer.run)
    save = synchronous(AsyncCheckpointer.save)
