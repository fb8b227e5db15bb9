"""Makes the attempts of an experiment, and manages their worlds and directories.

It implements :class:`~clawblox.experiment.schedule.ports.AttemptBackend`. A run directory is
complete or absent: it is made under a temporary name and renamed, or loaded from an archive in one
step.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs

from clawblox.agents.values import Usage
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import AgentError, ManifestError
from clawblox.experiment import layout
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.live.attempt_agents import AttemptAgent, make_agent
from clawblox.experiment.live.attempt_errors import as_attempt_errors
from clawblox.experiment.live.attempt_files import (
    RecordedAgent,
    has_record,
    label_run,
    read_attempt_usage,
    read_script_errors,
    require_record,
)
from clawblox.experiment.live.branches import carry_over, source_dir
from clawblox.experiment.live.credentials import Credentials
from clawblox.experiment.live.left_attempts import end_left
from clawblox.experiment.live.live_attempt import LiveAttempt
from clawblox.experiment.live.preparing import Preparation, find_attempt
from clawblox.experiment.live.run_directories import prune_agent_dir, set_aside, validate_agent_dir
from clawblox.experiment.live.survey import Stage, survey_plan
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.plan.plan import Chain, Layout, Plan
from clawblox.experiment.schedule.ports import THIS_MACHINE, Attempt, AttemptError, Room, Signal
from clawblox.protocol import ScriptErrors
from clawblox.results import Event
from clawblox.rundir.claims import instance_names
from clawblox.system.files import available_bytes
from clawblox.system.trees import discard_tree
from clawblox.world.async_world import AsyncWorld


@attrs.define
class _AttemptOpening:
    """A world that is open, or about to be."""

    world: AsyncWorld | None = None
    error: Exception | None = None
    is_settled: anyio.Event = attrs.field(factory=anyio.Event)


class SharedWorlds:
    """Opens worlds when they are first used, and closes them with the experiment.

    Attempts share worlds, since each open world has its own tasks, which are costly.
    """

    def __init__(self) -> None:
        self._openings: dict[Path | str, _AttemptOpening] = {}
        self._tasks: Tasks
        self._is_served = anyio.Event()

    async def serve(self) -> None:
        """Keep the worlds of :meth:`open` open. Start this as a task, once.

        Cancellation: all worlds are closed, which stops their instances.
        """
        async with Tasks() as self._tasks:
            self._is_served.set()
            await anyio.sleep_forever()

    async def _keep(self, directory: Path | str, opening: _AttemptOpening) -> None:
        async with AsyncExitStack() as stack:
            try:
                opening.world = await stack.enter_async_context(AsyncWorld(directory))
            except Exception as error:  # noqa: BLE001 - raised where the world is asked for
                opening.error = error
                del self._openings[directory]
            opening.is_settled.set()
            if opening.world is not None:
                await anyio.sleep_forever()

    async def open(self, directory: Path | str) -> AsyncWorld:
        """Return an open world.

        Args:
            directory: Its directory, or the address of a folder on GitHub.

        Raises:
            ClawbloxError: It cannot be opened.

        Cancellation: it may be opened regardless.
        """
        await self._is_served.wait()
        if directory not in self._openings:
            self._openings[directory] = opening = _AttemptOpening()
            self._tasks.start_soon(self._keep, directory, opening)
        opening = self._openings[directory]
        await opening.is_settled.wait()
        if opening.world is None:
            assert opening.error is not None
            raise opening.error
        return opening.world


@attrs.define(eq=False)
class LiveBackend:
    """Makes attempts with real worlds and agents; see ``schedule.ports.AttemptBackend``.

    Args:
        directory: Directory of the experiment.
        layout: Layout of the experiment.
        env: Values of the environment variables that the plan names, and of logins of programs.
        grace_s: Seconds between TERM and KILL when worlds and agents are stopped.
        on_event: Called with each event of a world or an agent, and its attempt.

    Attributes:
        directory: The same as the argument.
    """

    directory: Path
    _layout: Layout
    _env: Mapping[str, str]
    _grace_s: float = attrs.field(default=DEFAULT_GRACE_S, kw_only=True)
    _on_event: Callable[[AttemptOrder, Event], object] = attrs.field(
        default=lambda _order, _event: None, kw_only=True
    )
    _credentials: Credentials = attrs.field(init=False)
    _worlds: SharedWorlds = attrs.field(factory=SharedWorlds, init=False)
    _taken_names: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self._credentials = Credentials(self._env)

    async def serve(self) -> None:
        """Keep the worlds of the attempts open; run this as a task while attempts are made.

        Cancellation: all worlds are closed.
        """
        await self._worlds.serve()

    def accounts(self, chain: Chain) -> Sequence[str]:
        """Return the account that each agent of a chain uses, in their order."""
        return [self._credentials.account(spec) for spec in chain.plan.agents]

    async def survey(self, plan: Plan, *, has_worked: bool) -> None:
        """Check the requirements of the experiment without starting anything.

        Args:
            plan: The plan.
            has_worked: Whether agents have worked before; if so, an expired login causes a pause.

        Raises:
            ConfigError: There are faults; the error names each.

        Cancellation: has no effect.
        """
        stage: Stage = "worked" if has_worked else "recorded"
        await survey_plan(plan, self.directory, self._env, stage=stage)

    async def check(self, chain: Chain) -> None:
        """Check that the programs of a chain's agents can run, without starting them.

        Raises:
            AttemptError: A program is missing, or another check fails.
            ProviderError: A login has expired.

        Cancellation: has no effect.
        """
        with as_attempt_errors("agents not checked"):
            for spec in chain.plan.agents:
                place = self._chain_dir(chain.name) / str(spec.name)  # no file is written there
                agent = self._make_agent(spec, RecordedAgent(name=place.name), place)
                with agent.blamed():
                    await agent.agent.check(env=agent.env)

    async def end_left(self) -> None:
        """End the worlds and agents of attempts whose orchestrator was killed with its guard.

        Raises:
            ClawbloxError: Some are still running, so a new attempt must not start.
            OSError: The processes cannot be examined.

        Cancellation: some of them may have ended.
        """
        await end_left(self.directory)

    # -- directories ------------------------------------------------------------------------------

    async def prepare(self, order: AttemptOrder) -> Mapping[str, Any]:
        """Make the run directory of an attempt, or adopt a complete one.

        Raises:
            AttemptError: A template, prompt or checkpoint is unusable.
            OSError: The disk is full, for example.

        Cancellation: the run directory is complete or absent.
        """
        with as_attempt_errors("attempt not prepared"):
            return await run_checked(
                lambda check: Preparation(order, self._chain_dir, self.directory, check).run()
            )

    async def validate(self, chain: Chain, attempt_id: str) -> Mapping[str, Any]:
        """Check the files of an ended attempt, and prune files that can be recreated.

        Raises:
            AttemptError: A file is missing.

        Cancellation: has no effect.
        """
        with as_attempt_errors("attempt not checked"):
            return await run_blocking(self._validate, chain, attempt_id)

    def _validate(self, chain: Chain, attempt_id: str) -> Mapping[str, Any]:
        # An attempt with complete files may have failed after its last checkpoint.
        moved = find_attempt(self._chain_dir(chain.name), attempt_id)
        run_dir = moved or self._run_dir(chain.name, attempt_id)
        record = require_record(run_dir)
        agents = []
        for spec, recorded in zip(chain.plan.agents, record.agents, strict=True):
            agent_dir = run_dir / "agents" / recorded.name
            try:
                validate_agent_dir(agent_dir, spec.driver)
            except AgentError as error:
                raise AttemptError("agent", str(error)) from error
            if chain.plan.prune:
                prune_agent_dir(agent_dir)
            agents.append(
                {
                    "name": recorded.name,
                    "display": spec.name,
                    "model": spec.model,
                    "driver": spec.driver,
                }
            )
        label_run(run_dir, "complete")
        workspaces = [layout.workspace_path(run_dir.name, agent.name) for agent in record.agents]
        return {"workspaces": workspaces, "agents": agents}

    async def set_aside(self, chain: str, attempt_id: str, moved_to: str) -> None:
        """Rename the directory of a failed attempt, if it exists; idempotent.

        A later run of the public scripts may have taken the name; it is not renamed.

        Raises:
            OSError: It cannot be renamed.

        Cancellation: it is renamed or not.
        """

        def move() -> None:
            run_dir = self._run_dir(chain, attempt_id)
            if not has_record(run_dir):
                return
            with contextlib.suppress(ManifestError):
                label_run(run_dir, "failed")
            set_aside(self._chain_dir(chain), attempt_id, moved_to)

        await run_blocking(move)

    async def discard(self, order: AttemptOrder) -> None:
        """Remove the directory of an attempt that only computed scores; idempotent.

        Cancellation: a part may remain.
        """
        run_dir = self._run_dir(order.chain.name, order.attempt_id)

        def discard() -> None:
            removed = run_dir.with_name(f"{run_dir.name}.removed")
            with contextlib.suppress(FileNotFoundError):
                # In its original place, the world, which is still open, would recreate its control
                # socket.
                run_dir.rename(removed)
            discard_tree(removed)

        await run_blocking(discard)

    async def usage(self, chain: str, attempt_id: str) -> Sequence[Usage]:
        """Return the usage of an ended attempt, from its files.

        Cancellation: has no effect.
        """
        return await run_blocking(read_attempt_usage, self._run_dir(chain, attempt_id))

    async def script_errors(self, chain: str, attempt_id: str) -> ScriptErrors | None:
        """Return the latest errors reported by an attempt's world, from its manifest.

        Cancellation: has no effect.
        """
        return await run_blocking(read_script_errors, self._run_dir(chain, attempt_id))

    async def free_bytes(self) -> int:
        """Return the free space of the experiment's file system.

        Raises:
            OSError: It cannot be determined.

        Cancellation: has no effect.
        """
        return await run_blocking(available_bytes, self.directory)

    def _chain_dir(self, chain: str) -> Path:
        return layout.chain_dir(self.directory, chain, self._layout)

    def _run_dir(self, chain: str, attempt_id: str) -> Path:
        return layout.attempt_dir(self._chain_dir(chain), attempt_id)

    # -- attempts ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def room(self, chain: Chain) -> AsyncIterator[Room]:
        """Return room on this machine, without waiting."""
        yield THIS_MACHINE

    @asynccontextmanager
    async def open(
        self, order: AttemptOrder, report: Callable[[Signal], object], room: Room = THIS_MACHINE
    ) -> AsyncIterator[Attempt]:
        """Return an attempt; leaving it ends everything that it started.

        Raises:
            AttemptError: The attempt cannot be opened, or its bookkeeping has a defect.

        Cancellation: everything is ended.
        """
        with as_attempt_errors("attempt not opened"):
            world = await self._worlds.open(order.chain.plan.world.dir)
        with self._named_instance(world) as instance:
            with as_attempt_errors("attempt not opened"):
                attempt = await self._make(order, world, instance, report)
            async with attempt.opened():
                yield attempt

    @contextmanager
    def _named_instance(self, world: AsyncWorld) -> Iterator[str]:
        """Reserve a unique instance name for the duration of the block.

        A world reuses the names of ended instances, so without this an attempt could stop or save
        another attempt's instance.
        """
        name = next(instance_names({*self._taken_names, *world.labels}))
        self._taken_names.add(name)
        try:
            yield name
        finally:
            self._taken_names.discard(name)

    async def _make(
        self,
        order: AttemptOrder,
        world: AsyncWorld,
        instance: str,
        report: Callable[[Signal], object],
    ) -> LiveAttempt:
        plan, run_dir = order.chain.plan, self._run_dir(order.chain.name, order.attempt_id)
        record = await run_blocking(require_record, run_dir)
        prefix = layout.experiment_prefix(plan.name, given=plan.run_prefix)
        tmux = layout.tmux_session(plan.tmux, order.attempt_id, prefix) or None
        home = self._run_dir(order.chain.name, record.agents_of or order.attempt_id) / "agents"
        recorded = list(zip(plan.agents, record.agents, strict=True))
        is_started = order.phase != "score"
        if order.branch is not None:
            agents = [await self._fork(order, run_dir, *pair, tmux) for pair in recorded]
            await run_blocking(discard_tree, source_dir(run_dir))
        else:
            agents = [
                self._make_agent(spec, agent, home / agent.name, tmux, is_started=is_started)
                for spec, agent in recorded
            ]
        specs = plan.agents if is_started else ()
        secrets = [value for spec in specs for value in self._credentials.secrets(spec)]
        return LiveAttempt(
            order=order,
            run_dir=run_dir,
            record=record,
            world=world,
            instance=instance,
            agents=agents,
            secrets=secrets,
            tmux=tmux,
            report=report,
            grace_s=self._grace_s,
            pass_on=partial(self._on_event, order),
        )

    async def _fork(
        self,
        order: AttemptOrder,
        run_dir: Path,
        spec: AgentSpec,
        recorded: RecordedAgent,
        tmux: str | None,
    ) -> AttemptAgent:
        """Fork a loaded agent into the run directory of a branch.

        Raises:
            AttemptError: Its conversation cannot be continued exactly.

        Cancellation: the directory of the new agent is complete or absent.
        """
        ref, name = order.origin, recorded.forked_from
        assert ref is not None
        assert name is not None
        loaded = RecordedAgent(name=name)
        place = source_dir(run_dir) / "agents" / name
        origin = self._run_dir(ref.chain, ref.attempt) / "agents" / name
        source = self._make_agent(spec, loaded, place, tmux)
        target = run_dir / "agents" / recorded.name
        branch = await source.agent.fork(target, name=recorded.name, origin=origin)
        await run_blocking(carry_over, source, branch, run_dir)
        return attrs.evolve(source, agent=branch, before=recorded.before)

    def _make_agent(
        self,
        spec: AgentSpec,
        recorded: RecordedAgent,
        agent_dir: Path,
        tmux: str | None = None,
        *,
        is_started: bool = True,
    ) -> AttemptAgent:
        agent = make_agent(spec, recorded.name, agent_dir, tmux)
        return AttemptAgent(
            spec=spec,
            agent=agent,
            before=recorded.before,
            account=self._credentials.account(spec),
            env=self._credentials.env(spec) if is_started else {},
        )
