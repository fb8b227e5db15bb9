"""A live run: agents in one instance of a world, and joint checkpoints of them.

It prints nothing; ``clawblox run --agent`` and ``clawblox resume`` show its progress.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Self

import anyio

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.layout import AgentDir
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.values import AgentResult, StartedAgent
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import (
    AgentResumeError,
    CheckpointError,
    ClawbloxError,
    UsageError,
    WorldExitedError,
)
from clawblox.results import SavedCheckpoint, StartedWorld
from clawblox.team.async_checkpointer import AsyncCheckpointer, Outcome
from clawblox.team.run_resume import RunResume
from clawblox.world.async_world import AsyncWorld

_TRANSCRIPT_WAIT_S: Final = 10.0
"""Maximum wait, in seconds, for a program to write the conversation that it has confirmed."""
_TRANSCRIPT_POLL_S: Final = 0.1


class LiveRun:
    """Agents that act in one instance of a world, and joint checkpoints of both.

    Use it as an async context manager within that of the world; leaving it stops the agents.

    Args:
        world: The world.
        agents: The agents, which the context manager opens and closes.
        on_checkpoint: Called with each checkpoint, or with the error; None for no calls.
    """

    def __init__(
        self,
        world: AsyncWorld,
        agents: Sequence[AsyncAgent],
        *,
        on_checkpoint: Outcome | None = None,
    ) -> None:
        self._world = world
        self._agents = tuple(agents)
        self._on_checkpoint = on_checkpoint or (lambda _outcome: None)
        self._stack = AsyncExitStack()
        self._tasks: Tasks
        self._saving: anyio.CancelScope
        self._checkpointer: AsyncCheckpointer | None = None
        self._is_first_over = anyio.Event()

    async def __aenter__(self) -> Self:
        self._saving = anyio.CancelScope()
        for agent in self._agents:
            await self._stack.enter_async_context(agent)
        self._tasks = await self._stack.enter_async_context(Tasks())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def latest(self) -> SavedCheckpoint | None:
        """The latest checkpoint of this object; None before the first."""
        return None if self._checkpointer is None else self._checkpointer.latest

    async def check(self) -> None:
        """Check that the programs of all agents can work, before anything is started.

        Raises:
            AgentSetupError: A requirement is missing.

        Cancellation: changes nothing.
        """
        for agent in self._agents:
            await agent.check()

    async def resume(
        self, resume: RunResume, *, env: Mapping[str, str] | None = None
    ) -> StartedWorld:
        """Restore the agents' directories and resume the interrupted instance.

        Args:
            resume: The interrupted instance, and the checkpoint from which the run continues.
            env: Values for the world's environment variables; they override those of this process.

        Raises:
            ClawbloxError: A directory cannot be restored, or the instance cannot be started.

        Cancellation: the instance is not left running; each directory is complete, either unchanged
        or restored from the checkpoint.
        """
        directories = {agent.name: agent.dir for agent in self._agents}
        await run_blocking(resume.restore, directories)
        batch = await self._world.resume_all(
            resume.run_dir, instances=[resume.instance], env=env, found=resume.found
        )
        return batch[resume.instance]

    async def connect(self, agent: AsyncAgent, started: StartedWorld) -> dict[str, Any]:
        """Connect an agent to the instance; see ``AsyncWorld.connect``.

        Args:
            agent: One of the agents.
            started: The instance.

        Raises:
            AgentResumeError: The instance was restored from an archive with the agent's workspace
                but without its conversation.
            ClawbloxError: It could not be connected.

        Cancellation: the agent may be connected.
        """
        is_restored = started.loaded is not None and agent.name in started.loaded.agents
        if is_restored and not await run_blocking(_has_conversation, agent):
            raise AgentResumeError(
                "the archive has its workspace and not its conversation: archives hold no "
                f"conversations of the driver {agent.driver}",
                agent=agent.name,
                hint="clawblox resume RUN_DIR continues it in its own run directory; an agent of "
                "another name begins a new conversation",
            )
        return await self._world.connect(agent, instance=started.name)

    async def begin(
        self, agent: AsyncAgent, *, initial_prompt: str, system_prompt: str | None = None
    ) -> StartedAgent:
        """Start an agent; an agent that has a conversation continues it.

        Args:
            agent: One of the agents, connected.
            initial_prompt: First message of a new conversation.
            system_prompt: System prompt of a new conversation; None means the default.

        Raises:
            AgentError: It could not be started.

        Cancellation: nothing of the agent is left running.
        """
        if await run_blocking(_has_conversation, agent):
            return await agent.send(prompt=AUTO_CONTINUE)
        return await agent.start(initial_prompt=initial_prompt, system_prompt=system_prompt)

    def start_checkpoints(
        self,
        started: StartedWorld,
        *,
        dir: str | os.PathLike[str],  # noqa: A002 - the word of the API
        every: float,
        min_free: int | str | None = None,
    ) -> None:
        """Make a checkpoint immediately, whatever the agents are doing, and more at an interval.

        Args:
            started: The instance.
            dir: Directory for the archives.
            every: Seconds from the beginning of one checkpoint to that of the next.
            min_free: Free disk space below which no checkpoint is made at the interval, in bytes or
                as text such as ``"5 GB"``; None for no limit.

        Raises:
            ConfigError: An argument is wrong.
        """
        self._checkpointer = AsyncCheckpointer(
            self._world,
            self._agents,
            dir=dir,
            every=every,
            min_free=min_free,
            instance=started.name,
            on_outcome=self._on_checkpoint,
        )
        self._tasks.start_soon(self._make_checkpoints, self._checkpointer)

    async def _make_checkpoints(self, checkpointer: AsyncCheckpointer) -> None:
        with self._saving, contextlib.suppress(UsageError):  # the world was closed meanwhile
            try:
                await self._save_first(checkpointer)
            finally:
                self._is_first_over.set()
            await checkpointer.run()

    async def _save_first(self, checkpointer: AsyncCheckpointer) -> None:
        give_up_at = anyio.current_time() + _TRANSCRIPT_WAIT_S
        while True:
            try:
                self._on_checkpoint(await checkpointer.save(idle_wait=0.0))
            except ClawbloxError as error:
                # A program may not have written the beginning of its conversation yet.
                if type(error) is CheckpointError and anyio.current_time() < give_up_at:
                    await anyio.sleep(_TRANSCRIPT_POLL_S)
                    continue
                self._on_checkpoint(error)
            return

    async def wait_first_checkpoint(self) -> None:
        """Wait until the checkpoint begun by :meth:`start_checkpoints` was made or failed.

        Cancellation: changes nothing.
        """
        if self._checkpointer is not None:
            await self._is_first_over.wait()

    async def wait(self) -> list[AgentResult]:
        """Wait until all agents have ended, and return their results in order.

        Cancellation: the agents keep running.
        """
        await self.wait_first_checkpoint()
        return [await agent.wait() for agent in self._agents]

    async def stop(self, *, grace_seconds: float = DEFAULT_GRACE_S) -> list[AgentResult]:
        """Stop the checkpoints and all agents; agents that have ended are unaffected.

        Args:
            grace_seconds: Seconds between TERM and KILL.

        Returns:
            How each agent ended, in their order.

        Cancellation: the agents are stopped nevertheless.
        """
        self._saving.cancel()
        results: dict[AsyncAgent, AgentResult] = {}

        async def stop(agent: AsyncAgent) -> None:
            results[agent] = await agent.stop(grace_seconds=grace_seconds)

        async with anyio.create_task_group() as stops:
            for agent in self._agents:
                stops.start_soon(stop, agent)
        return [results[agent] for agent in self._agents]

    async def save_end(self) -> SavedCheckpoint | None:
        """Make a checkpoint of the final state of the agents.

        Returns:
            The checkpoint; None if it failed, the world has ended, or no checkpoints were started.

        Cancellation: the archive is complete or absent.
        """
        if self._checkpointer is None:
            return None
        try:
            saved = await self._checkpointer.save()
        except WorldExitedError:
            return None
        except (ClawbloxError, OSError) as error:
            self._on_checkpoint(error)
            return None
        self._on_checkpoint(saved)
        return saved

    def kill_now(self) -> None:
        """Cut short the grace of a stop that is under way."""
        for agent in self._agents:
            agent.kill_now()


def _has_conversation(agent: AsyncAgent) -> bool:
    return AgentDir(agent.dir).id_file(agent.driver).is_file()
