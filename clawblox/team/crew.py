"""Agents in one instance of an open world: connected, started, saved with it, and stopped.

It prints nothing; ``AsyncTeam`` and ``clawblox run --agent`` drive it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import anyio
import attrs

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.layout import AgentDir
from clawblox.agents.values import STOPPED, AgentResult, StartedAgent
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
from clawblox.team.checkpoints import DEFAULT_EVERY_S, AsyncCheckpointer, Outcome
from clawblox.team.pointer import CHECKPOINTS_DIR
from clawblox.team.record import TeamRecord, Texts
from clawblox.world.async_world import AsyncWorld

_TRANSCRIPT_WAIT_S: Final = 10.0
"""Maximum wait, in seconds, for a program to write the conversation that it has confirmed."""
_TRANSCRIPT_POLL_S: Final = 0.1
NO_CONVERSATION: Final = (
    "the archive has its workspace and not its conversation: archives hold no conversations of the "
    "driver {driver}"
)
"""Why an agent that was restored from an archive cannot continue."""
_OPENING: Final = (
    "You act in a world through its HTTP API. Its documentation is at {api}: read it first, "
    "for example with curl."
)


@attrs.define(eq=False, kw_only=True)
class Crew:
    """Agents that act in one instance of a world, and joint checkpoints of both.

    Use it as an async context manager within that of the world; leaving it stops the agents.

    Args:
        world: The world.
        agents: The agents; the context manager opens those that are not open, and closes them.
        on_checkpoint: Called with each checkpoint, or with the error.

    Attributes:
        record: The record of the agents; None before :meth:`start`.
    """

    _world: AsyncWorld
    agents: Sequence[AsyncAgent]
    _on_checkpoint: Outcome
    record: TeamRecord | None = attrs.field(default=None, init=False)
    _checkpointer: AsyncCheckpointer | None = attrs.field(default=None, init=False)
    _run_dir: Path = attrs.field(init=False)
    _stack: AsyncExitStack = attrs.field(init=False)
    _saving: anyio.CancelScope = attrs.field(init=False)
    _tasks: Tasks = attrs.field(init=False)
    _is_first_over: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    async def __aenter__(self) -> Self:
        self._saving = anyio.CancelScope()
        async with AsyncExitStack() as stack:
            for agent in self.agents:
                if agent.is_open:
                    stack.push_async_callback(agent.stop)
                else:
                    await stack.enter_async_context(agent)
            self._tasks = await stack.enter_async_context(Tasks())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def latest(self) -> SavedCheckpoint | None:
        """The latest checkpoint of this object; None before the first."""
        return None if self._checkpointer is None else self._checkpointer.latest

    async def check(self) -> None:
        """Check that the programs of all agents can run, before any start.

        Raises:
            AgentSetupError: A requirement is missing.

        Cancellation: changes nothing.
        """
        for agent in self.agents:
            await agent.check()

    async def start(
        self,
        started: StartedWorld,
        record: TeamRecord,
        texts: Sequence[Texts],
        *,
        env: Mapping[str, str] | None = None,
    ) -> list[StartedAgent]:
        """Connect the agents to an instance, start them one by one, and start the checkpoints.

        An agent that has a conversation continues it. The first checkpoint is made immediately,
        even in the middle of turns.

        Args:
            started: The instance.
            record: The record of the agents, which is written when all are connected.
            texts: The texts by which each starts a conversation.
            env: Variables for their programs.

        Raises:
            AgentResumeError: The instance was restored from an archive with the workspace of an
                agent but without its conversation.
            ClawbloxError: An agent could not be connected or started.

        Cancellation: started agents are stopped when the block is left.
        """
        self._run_dir = started.run_dir
        accesses = [await self._connect(agent, started) for agent in self.agents]
        self.record = attrs.evolve(record, settled=None)
        await run_blocking(self.record.write, self._run_dir)
        members = zip(self.agents, accesses, texts, strict=True)
        agents = [await self._start(*member, env) for member in members]
        self._checkpointer = AsyncCheckpointer(
            self._world,
            self.agents,
            dir=self._run_dir / CHECKPOINTS_DIR,
            every=record.checkpoint_every or DEFAULT_EVERY_S,
            min_free=record.min_free,
            instance=started.name,
            on_outcome=self._on_checkpoint,
        )
        if record.checkpoint_every:
            self._tasks.start_soon(self._save_repeatedly, self._checkpointer)
        else:
            self._is_first_over.set()
        return agents

    async def _connect(self, agent: AsyncAgent, started: StartedWorld) -> Mapping[str, Any]:
        is_loaded = started.loaded is not None and agent.name in started.loaded.agents
        if is_loaded and not await run_blocking(has_conversation, agent):
            raise AgentResumeError(
                NO_CONVERSATION.format(driver=agent.driver),
                agent=agent.name,
                hint="clawblox resume RUN_DIR continues it in its own run directory; an agent of "
                "another name starts a new conversation",
            )
        return await self._world.connect(agent, instance=started.name)

    async def _start(
        self,
        agent: AsyncAgent,
        access: Mapping[str, Any],
        texts: Texts,
        env: Mapping[str, str] | None,
    ) -> StartedAgent:
        if await run_blocking(has_conversation, agent):
            return await agent.send(env=env)
        opening = _OPENING.format(api=self._world.api_path(access=access))
        prompt = f"{opening}\n\n{texts.prompt}"
        return await agent.start(prompt, system_prompt=texts.system_prompt, env=env)

    async def _save_repeatedly(self, checkpointer: AsyncCheckpointer) -> None:
        with self._saving, contextlib.suppress(UsageError):  # the world was closed in the meantime
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
                # A program may not have written the start of its conversation yet.
                if type(error) is CheckpointError and anyio.current_time() < give_up_at:
                    await anyio.sleep(_TRANSCRIPT_POLL_S)
                    continue
                self._on_checkpoint(error)
            return

    async def wait_first_checkpoint(self) -> None:
        """Wait until the checkpoint requested by :meth:`start` has been made or has failed.

        Cancellation: changes nothing.
        """
        if self._checkpointer is not None:
            await self._is_first_over.wait()

    async def wait(self) -> list[AgentResult]:
        """Wait until all agents have ended, and return their results in order.

        Cancellation: the agents keep running.
        """
        await self.wait_first_checkpoint()
        return [await agent.wait() for agent in self.agents]

    async def save_team(self, *, idle_wait: float | None = None) -> SavedCheckpoint:
        """Make a checkpoint now; see ``AsyncCheckpointer.save``.

        Raises:
            UsageError: The agents were not started.
            ClawbloxError: The checkpoint failed.

        Cancellation: the archive is complete or absent.
        """
        if self._checkpointer is None:
            raise UsageError(
                "the agents of this team are not started yet", hint="await team.start(…)"
            )
        return await self._checkpointer.save(idle_wait=idle_wait)

    async def stop(
        self, *, grace_seconds: float = DEFAULT_GRACE_S, reason: str = STOPPED
    ) -> list[AgentResult]:
        """Stop the checkpoints and all agents; agents that have ended are unaffected.

        Args:
            grace_seconds: Seconds between TERM and KILL.
            reason: Why, in a few words, for their results.

        Returns:
            How each agent ended, in their order.

        Cancellation: the agents are stopped nevertheless.
        """
        self._saving.cancel()
        await stop_all(
            partial(agent.stop, grace_seconds=grace_seconds, reason=reason) for agent in self.agents
        )
        return [await agent.wait() for agent in self.agents]

    async def settle(self) -> None:
        """Make a checkpoint of the final state of the agents, and record that it is complete.

        No checkpoint is made if the world has ended, or without an interval.

        Cancellation: the archive is complete or absent.
        """
        if self.record is None or not self.record.checkpoint_every:
            return
        try:
            saved = await self.save_team()
            self._on_checkpoint(saved)
            self.record = attrs.evolve(self.record, settled=saved.path.name)
            await run_blocking(self.record.write, self._run_dir)
        except WorldExitedError:
            pass
        except (ClawbloxError, OSError) as error:
            self._on_checkpoint(error)

    def kill_now(self) -> None:
        """Cut short the grace of a stop that is under way."""
        for agent in self.agents:
            agent.kill_now()


def has_conversation(agent: AsyncAgent) -> bool:
    """Return whether an agent has a conversation. Blocks."""
    return AgentDir(agent.dir).id_file(agent.driver).is_file()


async def stop_all(stops: Iterable[Callable[[], Coroutine[Any, Any, object]]]) -> None:
    """Stop agents concurrently.

    Args:
        stops: A function for each agent, which stops it.

    Cancellation: they are stopped nevertheless.
    """
    async with anyio.create_task_group() as tasks:
        for stop in stops:
            tasks.start_soon(stop)
