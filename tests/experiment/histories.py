"""Histories of an experiment over fakes: runs with faults of every kind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import anyio
import anyio.abc
import attrs

from clawblox.errors import UsageError
from clawblox.experiment.history.lines import About, JournalLine
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.history.state import ExperimentState
from clawblox.experiment.plan import Plan
from clawblox.experiment.running import opening
from clawblox.experiment.running.events import ExperimentEvents
from clawblox.experiment.running.experiment_run import ExperimentRun, RunContext, RunOutcome
from clawblox.experiment.running.forking import ForkRequest, plan_fork
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.ports import Room
from clawblox.experiment.tables.rows import make_row
from tests.experiment.fakes import FakeBackend, Fault
from tests.experiment.memory_journal import Killed, MemoryJournal
from tests.support.simulated_clock import SimulatedClock

MAX_JUMPS = 20_000
"""Maximum clock jumps of a run: about a week of disk checks."""


@attrs.frozen
class PauseChains:
    """A person pauses one chain or all chains."""

    chain: str | None


@attrs.frozen
class ForkChain:
    """A person forks a chain at one of its checkpoints."""

    chain: str
    checkpoint: int
    generations: int = 1
    duration_s: float | None = None


@attrs.frozen
class FillDisk:
    """The disk fills up, or space is freed."""

    free_bytes: int


@attrs.frozen
class LogIn:
    """The login of the account expires, or is renewed."""

    is_logged_in: bool


Happening: TypeAlias = PauseChains | ForkChain | FillDisk | LogIn


@attrs.frozen(kw_only=True)
class RunScript:
    """The events of a run.

    Attributes:
        happenings: Events, each with its time in seconds after the start of the run.
        faults: Faults of the next attempts, by chain.
        kill_after: Number of lines after which the orchestrator is killed; None for never.
        is_written: Whether the last of these lines is still written.
        full_after: Number of lines after which the disk is full; None for never.
        duration_s: Duration of the generations from now on; None keeps the current duration.
        dollars: Cost limit from now on.
        retries_failed: Whether chains that have failed are tried again.
        rooms: Where the attempts of a chain find room, by chain; others use this machine.
        room_after_s: Seconds after which attempts find room.
    """

    happenings: Sequence[tuple[float, Happening]] = ()
    faults: dict[str, list[Fault | None]] = attrs.field(factory=dict)
    kill_after: int | None = None
    is_written: bool = False
    full_after: int | None = None
    duration_s: float | None = None
    dollars: float | None = None
    retries_failed: bool = False
    rooms: dict[str, Room] = attrs.field(factory=dict)
    room_after_s: float = 0.0


class History:
    """An experiment over fakes, run by run.

    Args:
        plan: The plan.
        callbacks: The hooks.
    """

    def __init__(self, plan: Plan, callbacks: Callbacks) -> None:
        self.clock = SimulatedClock()
        self.journal = MemoryJournal(self.clock)
        self.backend = FakeBackend(self.clock)
        self.plans = [plan]
        self._callbacks = callbacks
        self._current: ExperimentRun
        self._recorder: JournalRecorder
        self._forking = anyio.Lock()
        self.journal.append("experiment.begun", {"plan": "plan.toml", "format": 1})

    @property
    def state(self) -> ExperimentState:
        return ExperimentState(self.journal.lines)

    @property
    def plan(self) -> Plan:
        return self.plans[-1]

    async def play(self, script: RunScript) -> RunOutcome | None:
        """Play a run; return its outcome, or None if it was killed or its disk was full."""
        self._revive()
        self._amend(script)
        self.backend.faults = {name: list(queue) for name, queue in script.faults.items()}
        self.backend.rooms = script.rooms
        self.backend.room_after_s = script.room_after_s
        begins_at = len(self.journal.lines)
        if script.kill_after is not None:
            self.journal.kill_at = begins_at + 1 + script.kill_after
            self.journal.is_written = script.is_written
        if script.full_after is not None:
            self.journal.fails_at = begins_at + 1 + script.full_after
        try:
            return await self._run(script)
        except (OSError, Killed):
            return None
        except BaseExceptionGroup as group:
            if group.subgroup(Killed) is None:
                raise
            return None

    def _revive(self) -> None:
        self.journal.kill_at = self.journal.fails_at = None
        self.journal.is_dead = False
        self.backend.open_now.clear()

    def _amend(self, script: RunScript) -> None:
        plan = self.plan
        limits = attrs.evolve(plan.limits, dollars=script.dollars)
        self.plans[-1] = plan.but(limits=limits)
        if script.duration_s is not None:
            self.plans.append(self.plan.but(duration=script.duration_s))
            revision = len(self.plans) - 1
            facts = {"revision": revision, "plan": f"plan-{revision}.toml", "changes": []}
            self.journal.append("plan.amended", facts)

    async def _run(self, script: RunScript) -> RunOutcome | None:
        journal: Any = self.journal
        plans, begins_at = Plans(self.plans, self.state), len(self.journal.lines)
        state = plans.state
        opening._end_killed_run(journal, state)
        if script.retries_failed:
            opening._retry_failed(journal, plans)

        async def call(function: Callable[[], JournalLine]) -> JournalLine:
            return function()

        def note(line: JournalLine) -> None:
            if line.type == "committed":
                row = make_row(plans, str(line.chain), int(line.generation or 0))
                self._current.note(row)

        self._recorder = JournalRecorder(journal, state, note, call)
        tasks: Any = None  # the test runs it
        self._current = ExperimentRun(
            RunContext(
                plans=plans,
                journal=journal,
                recorder=self._recorder,
                backend=self.backend,
                callbacks=self._callbacks,
                hooks={},
                events=ExperimentEvents(),
                clock=self.clock,
                tasks=tasks,
            )
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._tick)
            for after_s, happening in script.happenings:
                tasks.start_soon(self._happen, self.clock.monotonic() + after_s, happening)
            await self._current.run()
            tasks.cancel_scope.cancel()
        outcome = await self._current.wait()
        # A run whose start or end is not recorded has left as much undone as a killed run.
        is_begun = any(line.type == "session.begun" for line in self.journal.lines[begins_at:])
        return outcome if is_begun and self.state.current_run is None else None

    async def _tick(self) -> None:
        for _ in range(MAX_JUMPS):
            await self.clock.settle()
            assert self.clock.sleepers, "everything waits, and for no time"
            await self.clock.jump()
        raise AssertionError("the run does not end")

    async def _happen(self, at: float, happening: Happening) -> None:
        await self.clock.sleep_until(at)
        match happening:
            case PauseChains(chain=name):
                self._current.pause(None if name is None else [name])
            case ForkChain():
                async with self._forking:  # as an experiment does
                    await self._fork(happening)
            case FillDisk(free_bytes=free):
                self.backend.free = free
            case LogIn(is_logged_in=is_logged_in):
                self.backend.is_logged_in = is_logged_in

    async def _fork(self, wish: ForkChain) -> None:
        state = self._recorder.state
        chain = Plans(self.plans, state).chains[wish.chain]
        points = [
            point
            for generation in state.chain(wish.chain).generations.values()
            for point in generation.checkpoints()
        ]
        if not points:
            return
        fork = ForkRequest(
            source=points[wish.checkpoint % len(points)],
            generations=wish.generations,
            duration=wish.duration_s,
        )
        try:
            branches = plan_fork(fork, chain, state, self._current.running)
        except UsageError:  # its agents run outside a sandbox
            return
        with contextlib.suppress(OSError):
            for name, branch in branches:
                await self._recorder.write("chain.forked", attrs.asdict(branch), About(name))
                self._current.add([name])
