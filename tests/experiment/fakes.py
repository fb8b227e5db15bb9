"""Worlds and agents without processes, on a simulated clock."""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs

from clawblox.agents.values import Usage
from clawblox.concurrency.tasks import Tasks
from clawblox.errors import CheckpointError, CheckpointSecretError, WorldExitedError
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.history.lines import CheckpointKind, JournalLine
from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import AgentSpec, Plan
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.ports import (
    AgentActivity,
    AgentEnded,
    AgentFailed,
    AgentTurned,
    AttemptError,
    NodeLost,
    ProviderError,
    Room,
    SavedCheckpointFile,
    Signal,
    WorldEnded,
)
from clawblox.experiment.schedule.scheduler import Scheduler
from clawblox.protocol import ScriptErrors
from tests.experiment.memory_journal import Killed, MemoryJournal
from tests.support.simulated_clock import SimulatedClock

TOKENS_PER_S = 1.0
ACCOUNT = "claude"


@attrs.define
class Fault:
    """A fault in an attempt.

    Attributes:
        at: Seconds after its start; 0 at the start itself.
        kind: ``world``, ``node``, ``agent``, ``limit``, ``auth``, ``ended``, ``budget``,
            ``secret``, ``full``, ``broken``, ``waiting``, ``defect``, ``flaky``, ``shaky`` (every
            other checkpoint fails), ``dead`` (a world that ends unseen), ``busy`` (agents that are
            never between turns) or ``slow`` (each archive takes 7 seconds).
        lasts: Duration of a limit in seconds as its provider reports it; None if unreported.
    """

    at: float
    kind: str
    lasts: float | None = None


@attrs.define
class FakeAttempt:
    """A world with agents that produce tokens at a constant rate."""

    backend: FakeBackend
    order: AttemptOrder
    report: Callable[[Signal], object]
    fault: Fault | None
    room: Room
    started_at: float = math.nan
    working_since: float = math.nan
    worked_s: float = 0.0
    allowed_tokens: float = math.inf
    is_over: bool = False
    is_saving: bool = False
    is_shaken: bool = False
    saved: int = 0
    messages: list[str] = attrs.field(factory=list)
    mirror_age_s: float | None = None

    @property
    def _began_at(self) -> float:
        """World time at which the attempt starts."""
        ref = self.order.origin or self.order.world
        return 0.0 if ref is None else self.backend.world_times.get((ref.file, ref.attempt), 0.0)

    @property
    def _specs(self) -> Sequence[AgentSpec]:
        return self.order.chain.plan.agents

    async def start(self) -> Mapping[str, Any]:
        if self.fault is not None and self.fault.at == 0:
            self._raise(self.fault)
        self.started_at = self.working_since = self.backend.clock.monotonic()
        if self.order.message is not None:
            self.messages.append(self.order.message)
        self.is_saving = self.order.phase == "save"
        return {"agents": [self._describe(spec) for spec in self._specs]}

    def _describe(self, spec: AgentSpec) -> Mapping[str, Any]:
        name = f"{spec.name}-r{self.order.attempt_id}"
        return {"name": name, "model": spec.model, "session": f"s-{name}"}

    def _raise(self, fault: Fault) -> None:
        if fault.kind == "world":
            raise AttemptError("start", "the world did not start")
        if fault.kind in ("limit", "auth"):
            raise ProviderError(self._failure(fault))
        if fault.kind == "full":
            raise OSError(errno.ENOSPC, "no space")
        if fault.kind == "broken":
            raise OSError(errno.EIO, "input/output error")
        if fault.kind == "defect":
            raise ZeroDivisionError("a defect")

    def _failure(self, fault: Fault) -> AgentFailed:
        until = None
        if fault.lasts is not None:
            until = self.backend.clock.utc_in(fault.lasts)
        kind = {"limit": "limit", "auth": "auth"}.get(fault.kind, "crash")
        return AgentFailed(
            name=str(self._specs[0].name),
            kind=kind,  # type: ignore[arg-type]
            text=fault.kind,
            retry_at=until,
            account=ACCOUNT,
        )

    async def suffer(self) -> None:
        """Report the fault at its time."""
        fault = self.fault
        if fault is None or fault.at == 0:
            return
        await self._sleep(fault.at)
        if fault.kind in ("agent", "limit", "auth", "ended", "budget"):
            self._rest()
            self.is_over = True  # its state and its last turn are known before its end is reported
            self.report(AgentTurned())
            await anyio.sleep(0)
        match fault.kind:
            case "world":
                self.report(WorldEnded(text="the world has ended"))
            case "node":
                self.report(NodeLost(node="n1", text="the node n1 is lost"))
            case "agent" | "limit" | "auth":
                self.report(self._failure(fault))
            case "ended" | "budget":
                self._end(is_budget=fault.kind == "budget")
            case "waiting":
                self.report(AgentTurned())

    async def turn(self) -> None:
        """Report the end of each turn; an agent with a spent budget ends there."""
        turn_s = self.backend.turn_s
        turns = 0
        while turn_s and not self.is_over:
            turns += 1
            await self._sleep(turns * turn_s)
            if self._is_working and self._tokens >= self.allowed_tokens:
                self._end(is_budget=True)
            if self.is_saving:
                self._rest()
            self.report(AgentTurned())

    async def _sleep(self, after_s: float) -> None:
        """Wait until a number of seconds after the start."""
        while math.isnan(self.started_at):
            await self.backend.clock.sleep_until(self.backend.clock.monotonic() + 1.0)
        await self.backend.clock.sleep_until(self.started_at + after_s)

    def _end(self, *, is_budget: bool) -> None:
        self._rest()
        self.is_over = True
        name = str(self._specs[0].name)
        self.report(AgentEnded(name=name, is_budget=is_budget, text="it ended"))

    def _rest(self) -> None:
        if self._is_working:
            self.worked_s += self.backend.clock.monotonic() - self.working_since
        self.working_since = math.nan

    @property
    def _is_working(self) -> bool:
        return not math.isnan(self.working_since)

    @property
    def _tokens(self) -> int:
        now = self.backend.clock.monotonic()
        running_s = now - self.working_since if self._is_working else 0.0
        return int((self.worked_s + running_s) * TOKENS_PER_S)

    @property
    def _wait_s(self) -> float:
        fault = self.fault
        if fault is None or fault.kind != "waiting" or math.isnan(self.started_at):
            return 0.0
        waited = self.backend.clock.monotonic() - self.started_at - fault.at
        return max(1e-3, waited) if waited >= 0 else 0.0

    def activity(self) -> Sequence[AgentActivity]:
        return [
            AgentActivity(
                name=str(spec.name),
                is_over=self.is_over,
                is_working=self._is_working,
                provider_wait_s=self._wait_s,
                account=ACCOUNT,
            )
            for spec in self._specs
        ]

    def usage(self) -> Sequence[Usage]:
        if math.isnan(self.started_at) or self.order.phase == "score":
            return [Usage() for _ in self._specs]
        tokens = self._tokens
        cost_usd = tokens * 1e-4 if self.backend.reports_cost else None
        usage = Usage(output_tokens=tokens, cost_usd=cost_usd, turns=tokens // 10)
        self.backend.ledgers[self.order.chain.name, self.order.attempt_id] = [usage] * len(
            self._specs
        )
        return [usage for _ in self._specs]

    async def world_time(self) -> float | None:
        return self._began_at + self.backend.clock.monotonic() - self.started_at

    async def checkpoint(
        self, kind: CheckpointKind, elapsed: Callable[[], float], *, idle_wait: float
    ) -> SavedCheckpointFile:
        fault = self.fault
        if fault is not None and fault.kind == "secret":
            raise CheckpointSecretError("a secret", findings=())
        if fault is not None and fault.kind == "flaky" and kind in ("boundary", "end"):
            self.fault = None
            raise CheckpointError("the snapshot did not arrive in time")
        if fault is not None and fault.kind == "shaky":
            self.is_shaken = not self.is_shaken
            if self.is_shaken:
                raise CheckpointError("the snapshot did not arrive in time")
        if fault is not None and fault.kind == "dead" and kind == "boundary":
            raise WorldExitedError("the world has ended")
        if fault is not None and fault.kind == "full":
            raise OSError(errno.ENOSPC, "no space")
        if fault is not None and fault.kind in ("busy", "slow"):
            await self.backend.clock.sleep_until(self.backend.clock.monotonic() + idle_wait)
        begun_at = self.backend.clock.monotonic()
        self.saved += 1
        file = f"gen{self.order.generation:03}-t{int(elapsed()):06}-{self.saved}.ckpt"
        if fault is not None and fault.kind == "slow":
            await self.backend.clock.sleep_until(self.backend.clock.monotonic() + 7.0)
        self.backend.archives.add((self.order.chain.name, self.order.attempt_id, file))
        time = await self.world_time()
        self.backend.world_times[file, self.order.attempt_id] = time or 0.0
        sha256 = f"sha-{self.order.attempt_id}-{file}"
        save_s = self.backend.clock.monotonic() - begun_at
        return SavedCheckpointFile(
            file=file, sha256=sha256, size_bytes=1, save_s=save_s, world_time=time
        )

    async def remove_checkpoint(self, file: str) -> None:
        self.backend.archives.remove((self.order.chain.name, self.order.attempt_id, file))
        self.backend.changes.append("removed")

    async def set_budgets(self, used: Sequence[Usage], *, is_saving: bool) -> None:
        budget = self._specs[0].budget
        if is_saving or budget is None or budget.output_tokens is None:
            self.allowed_tokens = math.inf
        else:
            before = used[0].output_tokens if used else 0
            self.allowed_tokens = budget.output_tokens - before

    async def send(self, text: str) -> None:
        self.messages.append(text)
        self.is_over, self.is_saving = False, True
        self.working_since = self.backend.clock.monotonic()

    async def stop_agents(self) -> None:
        self._rest()

    def view(self) -> Any:
        return self

    def blocking(self, _call: Callable[..., Any]) -> Any:
        return self


class FakeBackend:
    """Creates fake attempts, and keeps the contents of their disk.

    Attributes:
        faults: Faults of the next attempts, by chain.
        surveys: Whether logins were checked before each run.
        ends: Number of earlier attempts at each time that leftovers of killed orchestrators were
            ended.
        open_now: Chains whose attempts are open.
        most_open: Largest number of attempts that were open at the same time.
        turn_s: Length in seconds of the turns whose ends agents report; 0 reports none. An agent
            finishes saving at the end of a turn.
        reports_cost: Whether the usage of agents includes its cost.
        has_room: Whether attempts find room.
        rooms: Room that the attempts of a chain find, by chain; other chains use this machine.
        room_after_s: Seconds after which attempts find room.
        waiting: Chains that wait for room.
        left: End of the host left by a killed orchestrator, by chain.
        has_errors: Whether each world reports a script error with the name of its attempt.
        changes: An entry for each archive ``removed``, each attempt ``renamed``, and each time that
            the files of the chains were ``derived`` again.
    """

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.changes: list[str] = []
        self.faults: dict[str, list[Fault | None]] = {}
        self.directories: set[tuple[str, str]] = set()
        self.archives: set[tuple[str, str, str]] = set()
        self.world_times: dict[tuple[str, str], float] = {}
        self.ledgers: dict[tuple[str, str], list[Usage]] = {}
        self.attempts: list[FakeAttempt] = []
        self.surveys: list[bool] = []
        self.ends: list[int] = []
        self.open_now: list[str] = []
        self.most_open = 0
        self.free = 10**12
        self.is_logged_in = True
        self.turn_s = 0.0
        self.has_room = True
        self.rooms: dict[str, Room] = {}
        self.room_after_s = 0.0
        self.waiting: list[str] = []
        self.left: dict[str, float] = {}
        self.reports_cost = True
        self.has_errors = False

    async def serve(self) -> None:
        pass

    def accounts(self, chain: Chain) -> Sequence[str]:
        return [ACCOUNT for _ in chain.plan.agents]

    async def survey(self, plan: Plan, *, has_worked: bool) -> None:
        self.surveys.append(not has_worked)

    async def check(self, chain: Chain) -> None:
        if not self.is_logged_in:
            failed = AgentFailed(name="Eko", kind="auth", text="no login", account=ACCOUNT)
            raise ProviderError(failed)

    async def end_left(self) -> None:
        self.ends.append(len(self.attempts))

    async def prepare(self, order: AttemptOrder) -> Mapping[str, Any]:
        if order.origin is not None:
            origin = order.origin
            assert (origin.chain, origin.attempt, origin.file) in self.archives, origin
        self.directories.add((order.chain.name, order.attempt_id))
        return {"digests": {}}

    @asynccontextmanager
    async def room(self, chain: Chain) -> AsyncIterator[Room]:
        self.waiting.append(chain.name)
        try:
            await self.clock.sleep_until(self.clock.monotonic() + self.room_after_s)
            while not self.has_room:
                await self.clock.sleep_until(self.clock.monotonic() + 1.0)
        finally:
            self.waiting.remove(chain.name)
        yield self.rooms.get(chain.name, Room())

    @asynccontextmanager
    async def open(
        self, order: AttemptOrder, report: Callable[[Signal], object], room: Room
    ) -> AsyncIterator[FakeAttempt]:
        name = order.chain.name if order.phase != "score" else order.attempt_id
        assert name not in self.open_now, "a world is alive twice"
        self.open_now.append(name)
        self.most_open = max(self.most_open, len(self.open_now))
        queue = self.faults.get(order.chain.name) or [None]
        attempt = FakeAttempt(self, order, report, queue.pop(0), room)
        chain = order.chain.name
        assert self.clock.monotonic() >= self.left.get(chain, 0.0), "a host lives twice"
        self.attempts.append(attempt)
        try:
            async with Tasks() as tasks:
                tasks.start_soon(attempt.suffer)
                tasks.start_soon(attempt.turn)
                yield attempt
        except (Killed, anyio.get_cancelled_exc_class()):
            self.left[chain] = self.clock.monotonic() + room.lease_s
            raise
        finally:
            attempt.usage()
            self.open_now.remove(name)

    async def validate(self, chain: Chain, attempt_id: str) -> Mapping[str, Any]:
        assert (chain.name, attempt_id) in self.directories
        return {"workspaces": [], "agents": []}

    async def set_aside(self, chain: str, attempt_id: str, moved_to: str) -> None:
        self.directories.discard((chain, attempt_id))
        self.directories.add((chain, moved_to))
        self.changes.append("renamed")

    async def discard(self, order: AttemptOrder) -> None:
        self.directories.discard((order.chain.name, order.attempt_id))

    async def usage(self, chain: str, attempt_id: str) -> Sequence[Usage]:
        return self.ledgers.get((chain, attempt_id), [])

    async def script_errors(self, chain: str, attempt_id: str) -> ScriptErrors | None:
        return ScriptErrors(1, attempt_id) if self.has_errors else None

    async def free_bytes(self) -> int:
        return self.free


class Simulation:
    """An experiment over fakes that survives its orchestrator.

    Args:
        plan: The plan.
    """

    def __init__(self, plan: Plan, callbacks: Callbacks | None = None) -> None:
        self.plan = plan
        self.clock = SimulatedClock()
        self.journal = MemoryJournal(self.clock)
        self.backend = FakeBackend(self.clock)
        self.callbacks = callbacks or Callbacks()
        self.scheduler: Scheduler
        self.more_chains: list[Chain] = []
        self.warnings: list[tuple[str, str]] = []

    @property
    def state(self) -> ExperimentState:
        return ExperimentState(self.journal.lines)

    @property
    def plans(self) -> Plans:
        return Plans([self.plan], self.state)

    async def run(self, during: Callable[[Scheduler], Any] | None = None) -> bool:
        """Run the experiment; return whether the run ended without a kill."""
        plans = self.plans

        async def call(function: Callable[[], JournalLine]) -> JournalLine:
            return function()

        async def derive() -> None:
            self.backend.changes.append("derived")

        recorder = JournalRecorder(self.journal, plans.state, lambda _line: None, call, derive)
        self.backend.open_now.clear()
        try:
            await recorder.write("session.begun")
            self.scheduler = Scheduler(
                plans,
                self.backend,
                recorder,
                self.clock,
                self.callbacks,
                warn=lambda kind, text: self.warnings.append((kind, text)),
            )
            await self._drive(during)
            await recorder.write("session.ended", {"elapsed_s": 0.0})
        except Killed:
            return False
        except BaseExceptionGroup as group:
            if group.subgroup(Killed) is None:
                raise
            return False
        return True

    async def _drive(self, during: Callable[[Scheduler], Any] | None) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tick)
            if during is not None:
                tasks.start_soon(during, self.scheduler)
            await self.scheduler.run([*self.plan.chains(), *self.more_chains])
            tasks.cancel_scope.cancel()

    async def _tick(self) -> None:
        while True:
            await self.clock.jump()

    async def run_until_full(self) -> None:
        """Run the experiment on a disk that becomes too full to write a line."""
        with contextlib.suppress(OSError):
            await self.run()

    def kill_at(self, seq: int | None, *, is_written: bool = False) -> None:
        self.journal.kill_at = seq
        self.journal.is_written = is_written
        self.journal.is_dead = False

    async def run_to_end(self, runs: int = 20) -> None:
        """Run the experiment repeatedly until a run ends without a kill."""
        for _ in range(runs):
            if await self.run():
                return
            self.kill_at(None)
        raise AssertionError("every run was killed")

    def types(self, chain: str = "r1") -> list[str]:
        return [line.type for line in self.journal.lines if line.chain == chain]


class FakedExperiment(AsyncExperiment):
    """An experiment over fakes.

    Args:
        clock: Its clock.
        backend: Creates its attempts.
        *args: As for an experiment.
        **options: As for an experiment.
    """

    def __init__(
        self, clock: SimulatedClock, backend: FakeBackend, *args: Any, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._clock = clock
        self._fake = backend

    def _make_backend(self, _plans: Plans) -> FakeBackend:
        return self._fake


def check_history(simulation: Simulation) -> None:
    """Check the invariants of every journal."""
    committed: dict[tuple[str, int], int] = {}
    for line in simulation.journal.lines:
        if line.type == "committed":
            key = str(line.chain), int(line.generation or 0)
            committed[key] = committed.get(key, 0) + 1
    assert all(count == 1 for count in committed.values()), committed
    open_attempts = [
        attempt.attempt_id
        for chain in simulation.state.chains.values()
        for attempt in chain.attempts
        if attempt.ending is None
    ]
    assert not open_attempts
    assert not simulation.backend.open_now


def make_plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "name": "exp",
        "duration": 3600.0,
        "save": {"before": 300.0},
        "checkpoint": {"every": 900.0, "idle_wait": 0.0},
        "retry": {"delay": 15.0},
    }
    return Plan("worlds/panda", [AgentSpec("claude", name="Eko")], **{**settings, **changes})
