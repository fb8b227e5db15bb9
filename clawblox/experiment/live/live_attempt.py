"""Runs an attempt at a generation with a real world and real agents.

It implements :class:`~clawblox.experiment.schedule.ports.Attempt`. The world never restarts
automatically, because the agents would remember events that the restarted world has lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import anyio
import attrs

from clawblox.agents.values import StartedAgent, Usage
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, ManifestError, WorldError
from clawblox.experiment.history.lines import CheckpointKind
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.attempt_agents import AttemptAgent
from clawblox.experiment.live.attempt_errors import as_attempt_errors
from clawblox.experiment.live.attempt_files import AttemptRecord, label_run
from clawblox.experiment.live.hooks import InstanceWorld, LiveGeneration
from clawblox.experiment.live.plan_faults import world_options
from clawblox.experiment.live.prompts import read_template, render
from clawblox.experiment.schedule.ports import (
    AgentActivity,
    AttemptError,
    SavedCheckpointFile,
    Signal,
    WorldEnded,
)
from clawblox.protocol import SECRET_ENV, display_name
from clawblox.results import Event, StartedWorld, describe_ending
from clawblox.system.clock import utc_now
from clawblox.team.checkpoints import check_agents, idle_moment, remove_archive, save_now
from clawblox.team.crew import NO_CONVERSATION, has_conversation, stop_all
from clawblox.team.pointer import CHECKPOINTS_DIR
from clawblox.telemetry.events import EventStream
from clawblox.telemetry.logs import last_lines
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.async_world import AsyncWorld

_log = OwnLog(__name__)

_MAX_LABELS: Final = 16
_LOG_LINES: Final = 12


@attrs.define(eq=False, kw_only=True)
class LiveAttempt:
    """An attempt at a generation; see :class:`~clawblox.experiment.schedule.ports.Attempt`.

    Args:
        order: The attempt.
        run_dir: Its prepared run directory.
        record: The prepared facts.
        world: The open world; other attempts may use it too.
        instance: Name of its instance, unique among open attempts.
        agents: The agents, in their order; :meth:`opened` opens and closes them.
        secrets: Values that must not occur in an archive.
        tmux: tmux session that shows world and agents, or None.
        report: Called with each signal.
        grace_s: Seconds between TERM and KILL when the world is stopped.
        pass_on: Called with each event of the world and of the agents.
    """

    order: AttemptOrder
    run_dir: Path
    record: AttemptRecord
    world: AsyncWorld
    instance: str
    agents: Sequence[AttemptAgent]
    _secrets: Sequence[str] = attrs.field(repr=False)
    _tmux: str | None
    _report: Callable[[Signal], object]
    _grace_s: float
    _pass_on: Callable[[Event], object]
    started: StartedWorld | None = attrs.field(default=None, init=False)
    _events: EventStream = attrs.field(init=False)
    _tasks: Tasks = attrs.field(init=False)
    _begun_at: float = attrs.field(default=math.inf, init=False)
    _held: ExitStack = attrs.field(factory=ExitStack, init=False)

    mirror_age_s: ClassVar[None] = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[LiveAttempt]:
        """Open the world and the agents; leaving ends everything that was started.

        Raises:
            AttemptError: The attempt's bookkeeping has a defect.

        Cancellation: everything is ended.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._note_end)
            with as_attempt_errors("world not opened"):
                self._events = await stack.enter_async_context(self.world.events())
                for agent in self.agents:
                    await stack.enter_async_context(agent.agent)
            stack.push_async_callback(self._end)
            self._tasks = await stack.enter_async_context(Tasks())
            for agent in self.agents:
                self._watch(agent.watch_turns, self._report, self._pass_on)
            yield self

    async def _end(self) -> None:
        # A cancellation reaches the world and the agents first, and they end themselves.
        with anyio.CancelScope(shield=True), self._held, suppress(ClawbloxError):
            await self.stop_agents()
            if self.started is not None:
                await self.world.stop(self.instance, grace_seconds=self._grace_s)

    async def _note_end(self) -> None:
        with anyio.CancelScope(shield=True), suppress(ManifestError):
            await run_blocking(label_run, self.run_dir, "interrupted", utc_now())

    def _watch(self, function: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
        """Run a bookkeeping task; a defect in it ends the attempt."""

        async def watch() -> None:
            with as_attempt_errors("bookkeeping of an attempt failed"):
                await function(*args)

        self._tasks.start_soon(watch)

    # -- starts -----------------------------------------------------------------------------------

    async def start(self) -> Mapping[str, Any]:
        """Start the world, then connect and start the agents one by one.

        Raises:
            AttemptError: Something could not be started.
            ProviderError: A limit or an expired login.

        Cancellation: processes that were started end when the attempt is closed.
        """
        with as_attempt_errors("attempt not started"):
            self.started = started = await self._start_world()
            await self.world.record_run(id=self.order.attempt_id, run_dir=self.run_dir)
            self._watch(self._watch_world, started)
            agents = []
            if self.order.phase != "score":
                agents = [await self._start_agent(agent) for agent in self.agents]
            self._begun_at = anyio.current_time()
        world = {"pid": started.pid, "port": started.port, "seed": started.seed}
        return {"world": world, "name": started.name, "agents": agents}

    async def _start_world(self) -> StartedWorld:
        plan, record = self.order.chain.plan, self.record
        spec = plan.world
        snapshot = None if record.snapshot is None else self.run_dir / record.snapshot
        return await self.world.start(
            run_dir=self.run_dir,
            name=self.instance,
            **world_options(spec),
            restart="never",
            resume=None if snapshot is None else {"path": snapshot, "sha256": record.sha256},
            reseed=self._seed,
            labels=self._labels(),
            _tmux_session=self._tmux,
        )

    @property
    def _seed(self) -> int | None:
        """Seed of the world's random state; None keeps the state of a snapshot."""
        if self.order.branch is not None:
            return self.order.branch.reseed
        return self.order.chain.seed if self.record.snapshot is None else None

    def _labels(self) -> dict[str, Any]:
        chain = self.order.chain
        own = {
            "experiment": chain.plan.name,
            "chain": chain.name,
            "generation": self.order.generation,
        }
        return dict([*own.items(), *({**chain.labels, **own}).items()][:_MAX_LABELS])

    async def _start_agent(self, agent: AttemptAgent) -> dict[str, Any]:
        is_continued = self.order.origin is not None
        needs_conversation = is_continued and self.order.branch is None
        if needs_conversation and not await run_blocking(has_conversation, agent.agent):
            problem = NO_CONVERSATION.format(driver=agent.agent.driver)
            raise AttemptError("start", f"{agent.name}: {problem}")
        with agent.blamed():
            access = await self.world.connect(agent.agent, instance=self.instance)
        if is_continued:
            started = await agent.send(self.order.message)
        else:
            started = await agent.start(await self._system_prompt(agent, access))
        agent.require_version(started)
        self._watch(agent.watch_end, self._report)
        return _describe_agent(agent, started, access)

    async def _system_prompt(self, agent: AttemptAgent, access: Mapping[str, Any]) -> str:
        file = agent.spec.system_prompt
        template = await run_blocking(read_template, file, self.world.dir)
        return render(
            template,
            name=display_name(agent.agent.name),
            workspace=agent.agent.visible_workspace_dir,
            base_url=access["base_url"],
            skill_url=self.world.api_path(access=access),
        )

    async def _watch_world(self, started: StartedWorld) -> None:
        """Report that the world has ended, by itself or stopped by another program."""
        async for event in self._events:
            if event.subject != self.instance:
                continue
            self._pass_on(event)
            if event.kind in ("exited", "stopped"):
                self._report(WorldEnded(text=await self._describe_end(started, event)))
                return

    async def _describe_end(self, started: StartedWorld, event: Event) -> str:
        secrets = [started.env[name] for name in SECRET_ENV if started.env.get(name)]
        read = partial(last_lines, started.log_file, count=_LOG_LINES, secrets=secrets)
        lines = [f"| {line}" for line in await run_blocking(read)]
        return "\n".join([describe_ending(event.data), *lines])

    # -- facts ------------------------------------------------------------------------------------

    def activity(self) -> Sequence[AgentActivity]:
        """Return the activity of the agents, in their order."""
        return [agent.activity() for agent in self.agents]

    def usage(self) -> Sequence[Usage]:
        """Return the usage of the agents since the start of the attempt, in their order."""
        return [agent.usage for agent in self.agents]

    async def world_time(self) -> float | None:
        """Return the world's simulation time; None if it reports none, or does not answer.

        Cancellation: has no effect.
        """
        try:
            return await self.world.simulation_time(self.instance)
        except WorldError as error:  # a signal reports its end
            _log.warning("world's time not read", attempt=self.order.attempt_id, error=str(error))
            return None

    def view(self) -> LiveGeneration:
        """Return the live view for hooks."""
        assert self.started is not None
        return LiveGeneration(
            order=self.order,
            world=InstanceWorld(self.world, self.instance),
            seed=self.started.seed,
            agents=self.agents,
            elapsed=lambda: self.order.active_s + anyio.current_time() - self._begun_at,
        )

    # -- checkpoints ------------------------------------------------------------------------------

    async def checkpoint(
        self, kind: CheckpointKind, elapsed: Callable[[], float], *, idle_wait: float
    ) -> SavedCheckpointFile:
        """Save world and agents in an archive, as ``schedule.ports.Attempt`` describes it.

        Raises:
            CheckpointSecretError: An agent's files contain a credential.
            ClawbloxError: The checkpoint failed otherwise.

        Cancellation: the archive is complete or absent.
        """
        watched = check_agents([agent.agent for agent in self.agents])
        quiet_s = self.order.chain.plan.checkpoint.idle_quiet
        async with idle_moment(watched, quiet_s=quiet_s, wait_s=idle_wait):
            begun_at = anyio.current_time()
            active_s = int(elapsed())
            stem = f"gen{self.order.generation:03d}-t{active_s:06d}"
            saved = await save_now(
                self.world,
                watched,
                self.run_dir / CHECKPOINTS_DIR,
                stem,
                instance=self.instance,
                metadata=self._metadata(kind, active_s),
                known_secrets=self._secrets,
            )
        names = {agent.agent.name: agent.name for agent in self.agents}
        return SavedCheckpointFile(
            file=saved.path.name,
            sha256=saved.sha256,
            size_bytes=saved.size_bytes,
            save_s=anyio.current_time() - begun_at,
            world_time=(saved.metadata.get("world") or {}).get("time"),
            mid_turn=tuple(names[name] for name in saved.mid_turn),
        )

    def _metadata(self, kind: CheckpointKind, active_s: int) -> dict[str, Any]:
        chain = self.order.chain
        models = {agent.spec.model for agent in self.agents}
        return {
            "generation": self.order.generation,
            "elapsed_seconds": active_s,
            "run_id": self.order.attempt_id,
            "tmux_session": self._tmux or "",
            "world_dir": str(self.world.dir),
            "model": models.pop() or "" if len(models) == 1 else "",
            "agents_per_world": len(self.agents),
            "generation_duration": chain.plan.duration,
            "experiment": chain.plan.name,
            "chain": chain.name,
            "attempt": self.order.attempt_id,
            "kind": kind,
            "plan_revision": self.order.revision,
        }

    async def remove_checkpoint(self, file: str) -> None:
        """Remove an archive of this attempt; log a failure.

        Cancellation: it is removed or not.
        """
        await remove_archive(self.world, self.run_dir / CHECKPOINTS_DIR / file, self.instance)

    # -- the agents -------------------------------------------------------------------------------

    async def set_budgets(self, used: Sequence[Usage], *, is_saving: bool) -> None:
        """Set the remaining budget of each agent; while saving, agents are not asked to continue.

        Cancellation: has no effect.
        """
        if not is_saving:
            known = itertools.chain(used, itertools.repeat(Usage()))
            for agent, spent in zip(self.agents, known, strict=False):
                agent.set_budget(spent, self.order.active_s)
            return
        save = self.order.chain.plan.save
        self._held.close()
        for agent in self.agents:
            agent.set_save_budget(None if save is None else save.budget)
            self._held.enter_context(agent.agent.hold_turns())

    async def send(self, text: str) -> None:
        """Send each agent a message, in their order.

        Raises:
            AttemptError: An agent could not be started.
            ProviderError: A limit or an expired login.

        Cancellation: some agents may have received it.
        """
        with as_attempt_errors("message not sent"):
            for agent in self.agents:
                await agent.send(text)
                self._watch(agent.watch_end, self._report)

    async def stop_agents(self) -> None:
        """Stop the agents. Idempotent.

        Cancellation: the agents are stopped regardless.
        """
        await stop_all(partial(agent.stop, self._grace_s) for agent in self.agents)


def _describe_agent(
    agent: AttemptAgent, started: StartedAgent, access: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "name": agent.agent.name,
        "model": agent.spec.model,
        "session": access["session"],
        "conversation": started.session_id,
        "base_url": access["base_url"],
        "version": started.version,
        "dir": f"agents/{agent.agent.name}",
    }
