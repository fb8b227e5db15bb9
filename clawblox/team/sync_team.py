"""Team: AsyncTeam without ``await``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

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
    suggesting,
    synchronous,
)
from clawblox.results import SavedCheckpoint
from clawblox.team.async_checkpointer import DEFAULT_EVERY_S, Outcome
from clawblox.team.async_team import AsyncTeam, StartedTeam
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

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        *,
        env: Mapping[str, str] | None = None,
        on_checkpoint: Outcome | None = None,
    ) -> Self:
        """See :meth:`AsyncTeam.resume`."""
        return make_twin(cls, AsyncTeam.resume(run_dir, env=env, on_checkpoint=on_checkpoint))

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
