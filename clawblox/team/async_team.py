"""AsyncTeam: a world and the agents in it, started, saved together and resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import attrs

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.layout import AGENTS_DIR
from clawblox.agents.prompts import check_text
from clawblox.agents.values import AgentResult, StartedAgent
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_grace, check_path, check_seconds, check_size, mismatch
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import ClawbloxError, UsageError
from clawblox.results import SavedCheckpoint, StartedWorld
from clawblox.rundir.paths import SESSION_FILE, resolve_run_dir
from clawblox.team.checkpoints import DEFAULT_EVERY_S, Outcome
from clawblox.team.crew import Crew
from clawblox.team.pointer import CHECKPOINTS_DIR, read_pointer
from clawblox.team.record import TeamRecord, Texts, read_team
from clawblox.team.resume import TeamResume, find_record
from clawblox.world.async_world import AsyncWorld
from clawblox.world.resume import find_resumable


@attrs.frozen(kw_only=True)
class StartedTeam:
    """A team that was started or resumed.

    Attributes:
        world: The facts of the instance.
        agents: The facts of each agent, in their order.
    """

    world: StartedWorld
    agents: tuple[StartedAgent, ...]


class AsyncTeam:
    """A world and the agents in it: they start, are saved, stop and continue together.

    Use it as an async context manager: it opens the world and the agents that are not open, and
    leaving it stops the agents and the instance. The run directory has a record of the team,
    without any value of an environment variable, from which :meth:`resume` continues it.

    Args:
        world: The world; or a directory with a ``world.toml``, or its address, as for
            ``AsyncWorld``.
        agents: The agents, at least one. The directory of each is ``agents/<name>`` in the run
            directory.
        run_dir: The run directory; it is created if it is missing.
        checkpoint_every: Seconds from the beginning of one checkpoint to that of the next, the
            first when the agents have started; 0 makes none at an interval, and none at the end.
        min_free: Free disk space below which no checkpoint is made at the interval, in bytes or as
            text such as ``"5 GB"``; None for no limit.
        on_checkpoint: Called with each checkpoint made at the interval or at the end, or with the
            error; None for no calls.

    Raises:
        ConfigError: An argument is wrong.
        FetchError: The folder of the world cannot be downloaded.
    """

    def __init__(
        self,
        world: AsyncWorld | str | Path,
        agents: Sequence[AsyncAgent],
        *,
        run_dir: str | Path,
        checkpoint_every: float = DEFAULT_EVERY_S,
        min_free: int | str | None = None,
        on_checkpoint: Outcome | None = None,
    ) -> None:
        self._run_dir = check_path(run_dir, "run_dir").absolute()
        check_seconds(checkpoint_every, "checkpoint_every", may_be_zero=True)
        if min_free is not None:
            check_size(min_free, "min_free")
        if not isinstance(world, AsyncWorld):
            world = AsyncWorld(world, run_dir=run_dir)
        self._world = world
        self._agents = tuple(agents)
        _check_agents(self._agents, self._run_dir)
        self._record = TeamRecord(agents=(), checkpoint_every=checkpoint_every, min_free=min_free)
        self._crew = Crew(
            world=self._world,
            agents=self._agents,
            on_checkpoint=on_checkpoint or (lambda _outcome: None),
        )
        self._stack = AsyncExitStack()
        self._instance: str | None = None
        self._interrupted: str | None = None
        self._env: Mapping[str, str] | None = None

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        *,
        env: Mapping[str, str] | None = None,
        on_checkpoint: Outcome | None = None,
    ) -> Self:
        """Return the team of a run that has ended; :meth:`start` continues it. Blocks.

        World and agents continue from the latest checkpoint of both, with the same options. This
        also applies to runs of ``clawblox run --agent``.

        Args:
            run_dir: The run directory.
            env: Values for the world's environment variables, which are never recorded; they
                override those of this process.
            on_checkpoint: As in the constructor.

        Raises:
            ConfigError: An argument is wrong, or the world is gone.
            ClawbloxError: The run has no team, or its record cannot be read.
        """
        directory = resolve_run_dir(run_dir)
        record, instance = read_team(directory), find_record(directory)
        if record is None or instance is None:
            raise ClawbloxError(
                f"There is no team in '{directory}' to resume",
                hint="World.resume_all continues instances without agents",
            )
        team = cls(
            instance.world_dir,
            [AsyncAgent(**attrs.asdict(agent, recurse=False)) for agent in record.agents],
            run_dir=directory,
            checkpoint_every=record.checkpoint_every,
            min_free=record.min_free,
            on_checkpoint=on_checkpoint,
        )
        team._record, team._interrupted, team._env = record, instance.name, env
        return team

    @property
    def world(self) -> AsyncWorld:
        """The world; open within the block."""
        return self._world

    @property
    def agents(self) -> tuple[AsyncAgent, ...]:
        """The agents, in their order; open within the block."""
        return self._agents

    @property
    def run_dir(self) -> Path:
        """The run directory, absolute."""
        return self._run_dir

    @property
    def latest(self) -> SavedCheckpoint | None:
        """The latest checkpoint of this object; None before the first."""
        return self._crew.latest

    async def __aenter__(self) -> Self:
        self._run_dir = await run_blocking(resolve_run_dir, self._run_dir)
        async with AsyncExitStack() as stack:
            if not self._world.is_open:
                await stack.enter_async_context(self._world)
            stack.push_async_callback(self._stop_instance)
            await stack.enter_async_context(self._crew)
            self._tasks = await stack.enter_async_context(Tasks())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        return await self._stack.__aexit__(*exc_info)

    async def check(self) -> None:
        """Check that the programs of all agents can run, without starting them.

        Raises:
            AgentSetupError: A program is missing, too old, or not logged in.

        Cancellation: changes nothing.
        """
        await self._crew.check()

    async def start(
        self,
        prompt: str | Mapping[str, str] | None = None,
        *,
        system_prompt: str | Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        instance: StartedWorld | None = None,
    ) -> StartedTeam:
        """Start the world, then connect the agents, start them one by one, and save both.

        An agent that has a conversation, as after a start of the world from an archive, continues
        it.

        Args:
            prompt: First message of a new conversation, which follows the address of the world; or
                the messages of the agents by name. None means the recorded message, or ``"Begin"``.
            system_prompt: System prompt of a new conversation, or the prompts of the agents by
                name; None means the recorded prompt, or the default.
            env: Variables for the agents' programs, also after a restart. They are kept in memory
                only.
            instance: The instance in which they act, as ``team.world.start(…)`` returned it; None
                starts one with default options, or continues the run's instance.

        Returns:
            The facts of the instance and the agents; frozen.

        Raises:
            UsageError: The team was started before; or a new world would meet an agent that has
                acted in another.
            ConfigError: An argument is wrong.
            ClawbloxError: The world or an agent could not be started, or there is nothing to
                resume. Leaving the block stops world and agents.

        Cancellation: leaving the block stops world and agents.
        """
        if self._instance is not None:
            raise UsageError("this team was started already", hint="use another AsyncTeam object")
        texts = await run_blocking(self._choose_texts, prompt, system_prompt)
        instance = await self._choose_instance(instance)
        self._instance = instance.name
        record = self._record
        if record.command_line is None:
            agents = tuple(agent.options for agent in self._agents)
            record = attrs.evolve(record, agents=agents, texts=tuple(texts))
        started = await self._crew.start(instance, record, texts, env=env)
        self._tasks.start_soon(self._follow_world, instance.name)
        return StartedTeam(world=instance, agents=tuple(started))

    async def _choose_instance(self, given: StartedWorld | None) -> StartedWorld:
        if self._interrupted is not None:
            if given is not None:
                raise mismatch("instance", "None for a team that is resumed", given.name)
            return await self._continue(self._interrupted)
        if given is not None:
            if given.run_dir != self._run_dir:
                raise mismatch("instance", f"one in {self._run_dir}", str(given.run_dir))
            return given
        await run_blocking(self._require_new)
        return await self._world.start(run_dir=self._run_dir)

    def _require_new(self) -> None:
        for agent in self._agents:
            if (agent.dir / SESSION_FILE).exists():
                raise UsageError(
                    f"the agent {agent.name!r} has acted in '{self._run_dir}' before, and its world"
                    " would start over",
                    hint="AsyncTeam.resume(RUN_DIR) continues both; else give another run_dir",
                )

    async def _continue(self, name: str) -> StartedWorld:
        """Restore the instance and the directories of the agents from the latest checkpoint."""
        archive = await run_blocking(read_pointer, self._run_dir / CHECKPOINTS_DIR)
        if archive is None:
            raise ClawbloxError(
                f"No state of the team in '{self._run_dir}' was saved yet",
                hint="start another team in another run directory",
            )
        found = await find_resumable(self._run_dir, [name])
        find = partial(TeamResume.find, self._run_dir, archive, name, found, self._record)
        resume = await run_blocking(find)
        await run_blocking(resume.restore)
        batch = await self._world.resume_all(
            self._run_dir, instances=[name], env=self._env, found=resume.found
        )
        return batch[name]

    def _choose_texts(
        self,
        prompt: str | Mapping[str, str] | None,
        system_prompt: str | Mapping[str, str] | None,
    ) -> Sequence[Texts]:
        known = self._record.read_texts() or [Texts()] * len(self._agents)
        names = [agent.name for agent in self._agents]
        prompts = _texts_by_name(prompt, "prompt", names)
        systems = _texts_by_name(system_prompt, "system_prompt", names)
        return [
            Texts(prompts.get(name, texts.prompt), systems.get(name, texts.system_prompt))
            for name, texts in zip(names, known, strict=True)
        ]

    async def _follow_world(self, instance: str) -> None:
        """Stop the agents of a world that has ended."""
        with suppress(UsageError):  # the world was closed in the meantime
            await self._world.wait(instance)
            await self._crew.stop(reason="its world has ended")

    async def _stop_instance(self) -> None:
        if self._instance is not None:
            with anyio.CancelScope(shield=True), suppress(UsageError):  # it was just closed
                await self._world.stop(self._instance)

    async def checkpoint(self, *, idle_wait: float | None = None) -> SavedCheckpoint:
        """Save the world and all agents in one archive, which the next resume continues from.

        Args:
            idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn;
                None means the default of ``AsyncCheckpointer``.

        Returns:
            The checkpoint; frozen.

        Raises:
            UsageError: The team was not started.
            ClawbloxError: The checkpoint failed, as in ``AsyncWorld.checkpoint``.

        Cancellation: the archive is complete or absent.
        """
        return await self._crew.save_team(idle_wait=idle_wait)

    async def wait(self) -> tuple[AgentResult, ...]:
        """Wait until all agents have ended; they are stopped when the world ends for good.

        Returns:
            How each agent ended, in their order; frozen.

        Cancellation: the agents keep running.
        """
        return tuple(await self._crew.wait())

    async def stop(self, *, grace_seconds: float = DEFAULT_GRACE_S) -> tuple[AgentResult, ...]:
        """Stop the agents, make a checkpoint of their end, and stop the instance. Idempotent.

        Args:
            grace_seconds: Seconds between TERM and KILL; 0 kills immediately, without a checkpoint.

        Returns:
            How each agent ended, in their order; frozen.

        Raises:
            ConfigError: The grace is not a number of seconds, 0 or more.

        Cancellation: the agents are stopped regardless, and leaving the block stops the instance.
        """
        check_grace(grace_seconds)
        results = await self._crew.stop(grace_seconds=grace_seconds)
        if grace_seconds and self._instance in self._world.instances:
            await self._crew.settle()
        if self._instance is not None:
            await self._world.stop(self._instance, grace_seconds=grace_seconds)
        return tuple(results)

    def kill_now(self) -> None:
        """Cut short the grace of a stop that is under way."""
        self._crew.kill_now()
        self._world.kill_now()


def _check_agents(agents: Sequence[AsyncAgent], run_dir: Path) -> None:
    if not agents or len({agent.name for agent in agents}) < len(agents):
        raise mismatch("agents", "agents with different names, at least one", len(agents))
    for agent in agents:
        expected = run_dir / AGENTS_DIR / agent.name
        if agent.dir != expected:
            raise mismatch(f"agents.{agent.name}.dir", f"{expected}", str(agent.dir))


def _texts_by_name(
    given: str | Mapping[str, str] | None, key: str, names: Sequence[str]
) -> Mapping[str, str]:
    """Return the texts that a caller gave, by the names of the agents.

    Raises:
        ConfigError: A value is not a text, or a name is not that of an agent of the team.
    """
    texts = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
    for name, text in texts.items():
        if name not in names:
            raise mismatch(key, f"a text, or texts by {', '.join(names)}", name)
        if text is not None:
            check_text(text, key)
    return {name: text for name, text in texts.items() if text is not None}
