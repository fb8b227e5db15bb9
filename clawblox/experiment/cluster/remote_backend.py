"""Makes the attempts of an experiment on the nodes of a cluster.

It is a ``LiveBackend`` whose attempts run elsewhere: it prepares, checks and keeps run directories
here, sends each to a host, and copies it back when the attempt is closed. If a node is lost, a
driver without a cluster can still continue the experiment from its directory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from clawblox.agents.drivers import find_driver
from clawblox.concurrency.threads import run_blocking, run_checked
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import ClawbloxError
from clawblox.experiment.cluster.calls import HostCaller
from clawblox.experiment.cluster.chunks import send_file
from clawblox.experiment.cluster.connect import require_safe
from clawblox.experiment.cluster.engine import Engine
from clawblox.experiment.cluster.lease import Renewer
from clawblox.experiment.cluster.messages import AttemptOpening
from clawblox.experiment.cluster.node import MACHINE_FACTS, describe_node
from clawblox.experiment.cluster.remote_attempt import RemoteAgent, RemoteAttempt, call_host
from clawblox.experiment.cluster.trees import pack
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.inputs import digest_world
from clawblox.experiment.live.attempt_errors import as_attempt_errors
from clawblox.experiment.live.attempt_files import AttemptRecord, require_record
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.live.plan_faults import place_program
from clawblox.experiment.live.survey import Survey, check_program_here, survey_plan
from clawblox.experiment.plan.cluster import Cluster
from clawblox.experiment.plan.parts import AgentSpec
from clawblox.experiment.plan.plan import Chain, Layout, Plan
from clawblox.experiment.schedule.ports import THIS_MACHINE, Attempt, AttemptError, Room, Signal
from clawblox.results import Event
from clawblox.rundir.paths import ANSWER_FILE, SESSION_FILE
from clawblox.system.clock import SystemClock, TimeSource
from clawblox.system.files import digest_file
from clawblox.system.regular_files import read_regular
from clawblox.system.scratch import scratch_directory
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.sources import copy_sources, find_world_dir

_RETRY_S: Final = 5.0
"""Seconds before another host is requested after a failed start."""
_MAX_TRIES: Final = 10
_SURVEY_WAIT_S: Final = 60.0
"""Seconds to wait for a node that checks programs; attempts wait without limit."""
_MAX_PROMPT_BYTES: Final = 16 << 20

_log = OwnLog(__name__)


@attrs.frozen(kw_only=True)
class HostRoom(Room):
    """Room for an attempt on a node: a host with a lease.

    Attributes:
        caller: Makes its calls.
        facts: The facts of its node.
    """

    caller: HostCaller
    facts: Mapping[str, Any]


class RemoteBackend(LiveBackend):
    """Makes attempts on a cluster, as ``schedule.ports.AttemptBackend`` describes it.

    Args:
        directory: Directory of the experiment.
        layout: Layout of the experiment.
        env: Values of the environment variables that the plan names, and of logins of programs.
        cluster: The table of the plan in force, with the resources reserved for each attempt.
        connect: Connects to a cluster when a host is first needed; may block. Cancelling
            :meth:`serve` closes the connection.
        grace_s: Seconds between TERM and KILL when worlds and agents are stopped.
        on_event: Called with each event of a world or an agent, and its attempt.
        clock: Clock for the age of the copies of growing files, in seconds.
    """

    def __init__(
        self,
        directory: Path,
        layout: Layout,
        env: Mapping[str, str],
        *,
        cluster: Cluster,
        connect: Callable[[Cluster], Engine],
        grace_s: float = DEFAULT_GRACE_S,
        on_event: Callable[[AttemptOrder, Event], object] = lambda _order, _event: None,
        clock: TimeSource | None = None,
    ) -> None:
        super().__init__(directory, layout, env, grace_s=grace_s, on_event=on_event)
        self._cluster = cluster
        self._connect = connect
        self._engine: Engine | None = None
        self._connecting = anyio.Lock()
        self._lost: set[str] = set()  # nodes whose latest attempt was lost
        self._clock = clock or SystemClock()

    async def serve(self) -> None:
        """Keep the connection to the cluster open; run this as a task while attempts are made.

        Cancellation: the connection is closed.
        """
        try:
            await super().serve()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connection to the cluster, if there is one. Idempotent.

        Cancellation: it is closed regardless.
        """
        with anyio.CancelScope(shield=True):
            if self._engine is not None:
                await run_blocking(self._engine.close)

    # -- hosts ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def room(self, chain: Chain) -> AsyncIterator[Room]:
        """Wait for a host on a node; leaving it ends the host.

        A node on which a host was lost gets the next one only if no other node has room.

        Raises:
            AttemptError: Ten successive hosts ended before they were ready.
            ClawbloxError: Ten successive hosts could not start, or there is no cluster.

        Cancellation: the host is ended.
        """
        engine = await self._connected()
        for tries_left in reversed(range(_MAX_TRIES)):
            handle = await run_blocking(engine.start_host, self._cluster, frozenset(self._lost))
            renewer = Renewer(handle, self._cluster.lease)
            renewer.start()
            try:
                try:
                    room = await self._find_room(HostCaller(handle, renewer))
                except (AttemptError, ClawbloxError, OSError) as error:
                    _log.warning("host not started", chain=chain.name, error=str(error))
                    if not tries_left:
                        raise
                else:
                    try:
                        yield room
                    finally:
                        note = self._lost.add if renewer.is_lost else self._lost.discard
                        note(room.node)
                    return
            finally:
                renewer.stop()
                with anyio.CancelScope(shield=True):
                    await run_blocking(handle.end)
            await anyio.sleep(_RETRY_S)

    async def _connected(self) -> Engine:
        async with self._connecting:
            if self._engine is None:
                self._engine = await run_blocking(self._connect, self._cluster)
            return self._engine

    async def _find_room(self, caller: HostCaller) -> HostRoom:
        facts: Mapping[str, Any] = await call_host(caller, "describe")
        return HostRoom(
            node=facts["name"],
            lease_s=self._cluster.lease,
            machine={name: facts[name] for name in MACHINE_FACTS},
            caller=caller,
            facts=facts,
        )

    async def check(self, chain: Chain) -> None:
        """Check on a node that the programs of a chain's agents can run, without starting them.

        Raises:
            AttemptError: A program is missing, or another check fails.
            ProviderError: A login has expired.

        Cancellation: has no effect.
        """
        async with self.room(chain) as room:
            assert isinstance(room, HostRoom)
            await call_host(room.caller, "check", chain, await self._variables(chain))

    async def survey(self, plan: Plan, *, has_worked: bool) -> None:
        """Check the requirements of the experiment; the programs of agents are checked on one node.

        Raises:
            ConfigError: There are faults; the error names each.

        Cancellation: has no effect.
        """
        await self.survey_on_node(plan, stage="worked" if has_worked else "recorded")

    async def survey_on_node(self, plan: Plan, **how: Any) -> Survey:
        """Return the resources that the experiment will use; one node checks the agents' programs.

        Args:
            plan: The plan.
            **how: As for :func:`~clawblox.experiment.live.survey.survey_plan`.

        Raises:
            ConfigError: There are faults; the error names each.

        Cancellation: has no effect.
        """
        engine = await self._connected()
        for text in await run_blocking(engine.describe):
            _log.warning("cluster", text=text)
        async with AsyncExitStack() as stack:
            caller: HostCaller | None = None
            is_full = False

            async def check(chain: Chain, spec: AgentSpec) -> str | None:
                nonlocal caller, is_full
                if place_program(spec, chain.plan.world.dir) != spec:
                    return await check_program_here(self._credentials, chain, spec)
                if caller is None and not is_full:
                    with anyio.move_on_after(_SURVEY_WAIT_S) as wait:
                        room = await stack.enter_async_context(self.room(chain))
                        assert isinstance(room, HostRoom)
                        caller = room.caller
                    is_full = wait.cancelled_caught
                if caller is None:
                    _log.warning("programs not checked: no node has room", agent=str(spec.name))
                    return spec.version
                variables = await self._variables(chain)
                checked = partial(call_host, caller, "check_program")
                return await checked(chain, spec, variables)  # type: ignore[no-any-return]

            survey = await survey_plan(plan, self.directory, self._env, check_program=check, **how)
        return attrs.evolve(survey, rooms=await run_blocking(engine.count_rooms, self._cluster))

    async def _variables(self, chain: Chain) -> Mapping[str, str] | None:
        """Return the variables for the agents of a chain, including those of this process."""
        if self._cluster.keys == "node":
            return None
        values = {**os.environ, **self._env}
        programs = [find_driver(spec.driver).program for spec in chain.plan.agents]
        names = {name for program in programs for name in program.credential_variables}
        names |= {name for spec in chain.plan.agents for name in spec.env}
        variables = {name: values[name] for name in names if name in values}
        if variables:
            await run_blocking(require_safe, await self._connected(), self._cluster)
        return variables

    # -- attempts ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def open(
        self, order: AttemptOrder, report: Callable[[Signal], object], room: Room = THIS_MACHINE
    ) -> AsyncIterator[Attempt]:
        """Return an attempt on a node; leaving it ends everything that it started.

        Raises:
            AttemptError: The attempt cannot be opened, or its node is lost.

        Cancellation: everything is ended.
        """
        assert isinstance(room, HostRoom)
        run_dir = self._run_dir(order.chain.name, order.attempt_id)
        with as_attempt_errors("attempt not opened"):
            await run_blocking(_require_same_build, room.facts)
            record = await run_blocking(require_record, run_dir)
            opening = await self._send(order, record, run_dir, room.caller)
            agents = self._describe_agents(order, record)
        attempt = RemoteAttempt(
            order=order,
            run_dir=run_dir,
            node=room.node,
            caller=room.caller,
            agents=agents,
            report=report,
            pass_on=partial(self._on_event, order),
            clock=self._clock,
        )
        async with attempt.opened(opening):
            yield attempt

    def _describe_agents(self, order: AttemptOrder, record: AttemptRecord) -> list[RemoteAgent]:
        home = self._run_dir(order.chain.name, record.agents_of or order.attempt_id) / "agents"
        return [
            RemoteAgent(str(spec.name), agent.name, home / agent.name, account)
            for spec, agent, account in zip(
                order.chain.plan.agents, record.agents, self.accounts(order.chain), strict=True
            )
        ]

    # -- files for the node -----------------------------------------------------------------------

    async def _send(
        self, order: AttemptOrder, record: AttemptRecord, run_dir: Path, caller: HostCaller
    ) -> AttemptOpening:
        """Send the files of an attempt to its host; return the opening for the host."""
        async with scratch_directory("clawblox-send-") as place:
            await _send_tree(caller, "run", run_dir, place)
            if record.agents_of is not None:
                home = self._run_dir(order.chain.name, record.agents_of)
                agents = [f"agents/{agent.name}" for agent in record.agents]
                files = [f"{a}/{name}" for a in agents for name in (SESSION_FILE, ANSWER_FILE)]
                await _send_tree(caller, "agents", home, place, {"agents", *agents, *files})
            world = await self._send_world(order.chain.plan, caller, place)
        return AttemptOpening(
            order=order,
            world=world,
            prompts=await run_blocking(_read_prompts, order.chain.plan),
            env={} if order.phase == "score" else await self._variables(order.chain),
            grace_s=self._grace_s,
        )

    async def _send_world(self, plan: Plan, caller: HostCaller, place: Path) -> str | None:
        given = plan.world.dir
        if isinstance(given, str):
            return None
        digests = await run_checked(
            lambda check: digest_world(given, experiment_dir=self.directory, check=check)
        )
        name = hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()
        if not await call_host(caller, "has", name):
            copy = place / "world"
            await run_checked(lambda check: copy_sources(find_world_dir(given), copy, check=check))
            await _send_tree(caller, "world", copy, place)
        return name


async def _send_tree(
    caller: HostCaller, name: str, root: Path, place: Path, names: Collection[str] | None = None
) -> None:
    bundle = place / f"{name}.bundle"
    await run_checked(lambda check: pack(root, bundle, names, check=check))
    sha256 = await run_checked(lambda check: digest_file(bundle, check=check))
    size = (await run_blocking(bundle.stat)).st_size
    await call_host(caller, "expect", name, size, sha256)
    await send_file(bundle, partial(call_host, caller, "put", name))
    await run_blocking(bundle.unlink)


def _read_prompts(plan: Plan) -> list[bytes | None]:
    files = [agent.system_prompt for agent in plan.agents]
    read = partial(read_regular, max_bytes=_MAX_PROMPT_BYTES)
    return [None if file is None else read(file) for file in files]


def _require_same_build(there: Mapping[str, Any]) -> None:
    here = describe_node()
    for name in ("clawblox", "engine"):
        if here[name] != there[name]:
            raise AttemptError(
                "setup",
                f"{name} is {there[name]} on the node {there['name']} but {here[name]} here:"
                " install the same version",
            )
