"""A run of an experiment: one process runs its chains."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeAlias

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks, outlast
from clawblox.concurrency.threads import run_abandonable, run_blocking
from clawblox.errors import JournalLostError
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.machine import Commit, Finished, next_step
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.running.events import ExperimentEvents
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.pauses import PauseRequest, blame_journal
from clawblox.experiment.schedule.ports import AttemptBackend
from clawblox.experiment.schedule.scheduler import Scheduler
from clawblox.experiment.tables.rows import Row
from clawblox.experiment.tables.status import LiveChain
from clawblox.system.append_log import LogChangedError
from clawblox.system.clock import TimeSource, parse_utc
from clawblox.system.guard import guard
from clawblox.telemetry.events import Hub
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_REQUEST = PauseRequest(reason="request", text="stopped on request")

RunStatus: TypeAlias = Literal["done", "failed", "paused", "stopped"]
"""Outcomes of a run: all generations are committed, a chain has failed, chains are paused by a
temporary condition, or a person has stopped the run."""

EXIT_STATUS: Final = {"done": 0, "failed": 1, "paused": 75, "stopped": 130}
"""Exit status of a command for each outcome; 75 is EX_TEMPFAIL of sysexits.h."""


@attrs.frozen(kw_only=True)
class RunOutcome:
    """The outcome of a run of an experiment.

    Attributes:
        status: The kind of outcome.
        text: Why chains are paused or have failed, a line for each; empty if all are done.
        rows: The rows of the generations that the run committed.
    """

    status: RunStatus
    text: str
    rows: Sequence[Row] = attrs.field(repr=False)

    @property
    def exit_status(self) -> int:
        """Exit status for a command: 0, 1, 75 or 130."""
        return EXIT_STATUS[self.status]

    def __str__(self) -> str:
        generations = f"{len(self.rows)} generation{'' if len(self.rows) == 1 else 's'} committed"
        failed = sum(bool(row.error) for row in self.rows)
        scores = f", {failed} score{'' if failed == 1 else 's'} failed" if failed else ""
        return "\n".join(filter(None, (f"{self.status}: {generations}{scores}", self.text)))


@attrs.frozen(kw_only=True)
class RunContext:
    """The parts of an open experiment that its runs use.

    Attributes:
        plans: Its plans, with the state.
        journal: Its open journal.
        recorder: Writes the lines.
        backend: Makes the attempts.
        callbacks: The hooks of generations.
        hooks: Name and digest of each hook, by its argument.
        events: Receives warnings, and knows the latest actions of agents.
        clock: The clock.
        tasks: Task group of the runs.
    """

    plans: Plans
    journal: Journal
    recorder: JournalRecorder
    backend: AttemptBackend
    callbacks: Callbacks
    hooks: Mapping[str, Mapping[str, str | None]]
    events: ExperimentEvents
    clock: TimeSource
    tasks: Tasks


class ExperimentRun:
    """Runs chains of an open experiment; starts when it is awaited or iterated.

    ``await run`` returns the :class:`RunOutcome`. ``async for row in run`` yields the row
    of each generation as it is committed; the run continues when the loop is left early, until
    the block of the experiment is left.

    Args:
        context: The parts of the experiment.
        chosen: Names of the chains to run; None means all.

    Attributes:
        is_over: Set when no chain of the run is running.

    Cancellation: cancelling ``await run`` pauses the run and waits for its checkpoints.
    """

    def __init__(self, context: RunContext, chosen: Collection[str] | None = None) -> None:
        self._context = context
        self._plans = context.plans
        self._hooks = context.hooks
        self._scope = anyio.CancelScope()
        self._checking = anyio.CancelScope()
        self._error: Exception | None = None
        self._is_begun = False
        self._is_stopped = False
        self._chosen = None if chosen is None else set(chosen)
        self._rows: list[Row] = []
        self._hub: Hub[Row] = Hub()
        self._stream = self._hub.subscribe()
        self._scheduler = Scheduler(
            context.plans,
            context.backend,
            context.recorder,
            context.clock,
            context.callbacks,
            wall_s=context.plans.state.wall_s,
            warn=context.events.warn,
        )
        self.is_over = anyio.Event()

    def __await__(self) -> Generator[Any, Any, RunOutcome]:
        """Run the chains and return the outcome.

        Raises:
            UsageError: The experiment is closed.
            ClawbloxError: The run failed.
        """
        return self._gather().__await__()

    def __aiter__(self) -> Self:
        """Run the chains and yield the row of each committed generation."""
        self._start()
        return self

    async def __anext__(self) -> Row:
        """Return the next row."""
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            await self.wait()
            raise

    async def _gather(self) -> RunOutcome:
        self._start()
        try:
            return await self.wait()
        except BaseException:
            self.halt()
            await outlast(self.is_over)
            raise

    def _start(self) -> None:
        if not self._is_begun:
            self._context.tasks.start_soon(self.run)
            self._context.tasks.start_soon(self.watch_lease)
            self._is_begun = True

    @property
    def is_running(self) -> bool:
        """True between the start and the end of the run."""
        return self._is_begun and not self.is_over.is_set()

    @property
    def running(self) -> Collection[str]:
        """Names of the chains with a running attempt."""
        return self._scheduler.runners.keys()

    async def run(self) -> None:
        """Run the chains to their ends; :meth:`wait` raises the errors.

        Cancellation: worlds and agents are ended; their attempts are interrupted.
        """
        begun_at = self._context.clock.monotonic()
        try:
            with self._scope:
                with self._checking:
                    await self._check()
                if self._checking.cancelled_caught:
                    return
                if await self._begin():
                    self._recall_limits()
                    await self._scheduler.run(self._chains())
            facts = {
                "reason": self._outcome().status,
                "elapsed_s": self._context.clock.monotonic() - begun_at,
                "waits": self._describe_waits(),
            }
            await self._write_end(facts)
        except Exception as error:  # noqa: BLE001 - raised where the outcome is awaited
            self._error = error
        finally:
            self.is_over.set()
            self._hub.close()

    async def _check(self) -> None:
        """Check the requirements of the run, and import the score of the plan.

        A run that does not start agents needs neither their programs nor their variables.

        Raises:
            ConfigError: There are faults.
        """
        plan = self._plans.present
        if any(map(self._starts_agents, self._chains())):
            surveyed = self._context.callbacks.without_replaced(plan)
            await self._context.backend.survey(surveyed, has_worked=self._has_worked())
        if plan.score is not None:
            self._hooks = await run_blocking(self._context.callbacks.load, plan)

    def _starts_agents(self, chain: Chain) -> bool:
        """Return whether a chain has work left besides the score of its last generation."""
        plans, latest = self._plans, self._plans.state.chain(chain.name).latest
        step = next_step(plans, chain)
        if isinstance(step, Finished):
            return False
        if latest is None or latest.is_over or latest.number < plans.last_generation(chain):
            return True
        is_at_end = any(point.kind == "end" for point in latest.ancestry()[:1])
        return not is_at_end and not isinstance(step, Commit)

    async def _begin(self) -> bool:
        """Write the first line of the run; return whether the disk had room."""
        hooks, before = self._hooks, self._plans.state.hooks
        facts = {"pid": os.getpid(), **self._context.journal.facts, "hooks": hooks}
        try:
            await self._context.recorder.write("session.begun", facts)
        except OSError as error:
            self._scheduler.halt(blame_journal(error))
            return False
        for name, known in before.items():
            if name not in hooks:
                text = f"{name}: {known['name']} of the previous run was not given again"
                self._context.events.warn("hook.changed", text)
            elif hooks[name] != known:
                text = f"{name}: {hooks[name]['name']} differs from the previous run"
                self._context.events.warn("hook.changed", text)
        return True

    async def _write_end(self, facts: Mapping[str, Any]) -> None:
        try:
            await self._context.recorder.write("session.ended", facts)
        except JournalLostError:
            raise
        except OSError as error:  # the disk is full; the next run records this run's end
            _log.warning("end of a run not recorded", error=str(error))

    async def watch_lease(self) -> None:
        """End everything once another process drives the experiment, or the lease expires.

        If the file system hangs, this cannot end anything; then the guard kills this process with
        its worlds and agents at the end of the lease, since another process may drive from then on.

        Cancellation: stops watching the run.
        """
        lease = self._context.journal.lease
        quarter_s = lease.driver.lease_s / 4
        while True:
            with anyio.move_on_after(quarter_s):
                await self.is_over.wait()
                return
            try:
                with anyio.fail_after(max(lease.remaining_s - quarter_s, quarter_s)):
                    await run_abandonable(lambda _call: lease.require_held())
            except (LogChangedError, TimeoutError) as error:
                _log.error(
                    "lease of an experiment lost",
                    error=str(error) or "its file system does not respond",
                )
                self.cancel()
                rest_s = float("inf") if isinstance(error, LogChangedError) else quarter_s
                while rest_s > 0:  # longer if the file system recovers
                    with anyio.move_on_after(rest_s):
                        await self.is_over.wait()
                        return
                    rest_s = lease.remaining_s
                await run_abandonable(lambda _call: guard.lease(1.0))  # long ago: kill immediately
                return

    async def wait(self) -> RunOutcome:
        """Wait for the end of the run, and return its outcome.

        Raises:
            Exception: The run failed.

        Cancellation: the run continues.
        """
        await self.is_over.wait()
        if self._error is not None:
            raise self._error
        return self._outcome()

    def halt(self) -> None:
        """Ask all chains to make checkpoints and stop; an unstarted run starts none."""
        self._is_stopped = True
        self._scheduler.halt(_REQUEST)
        self._checking.cancel()  # it would wait forever on a cluster without room

    def pause(self, chains: Collection[str] | None) -> None:
        """Ask chains to make checkpoints and to stop; None means all."""
        if chains is None:
            self.halt()
        else:
            self._scheduler.pause(_REQUEST, chains)

    def cancel(self) -> None:
        """End everything without checkpoints."""
        self._is_stopped = True
        self._scope.cancel()

    async def wait_idle(self, chains: Collection[str] | None) -> None:
        """Wait until some chains have no running attempt; None means all chains.

        Cancellation: has no effect.
        """
        if chains is not None:
            await self._scheduler.wait_idle(chains)
        elif self._is_begun:
            await self.is_over.wait()

    def add(self, chains: Collection[str]) -> None:
        """Run chains added to the experiment."""
        if self._chosen is not None:
            self._chosen.update(chains)
        for name in chains:
            self._scheduler.add(self._plans.chains[name])

    def note(self, row: Row) -> None:
        """Pass on the row of a committed generation."""
        self._rows.append(row)
        self._hub.publish(row)

    def live(self) -> Mapping[str, LiveChain]:
        """Return the facts by chain that only this process knows."""
        left, awaits = self._scheduler.spending.left, self._scheduler.awaits.items()
        waiting = {name: LiveChain(reason=why, spent=left(name)) for name, why in awaits}
        return waiting | {
            name: LiveChain(
                active_s=runner.active_clock.active_s,
                world_time=runner.world_time,
                agents=() if runner.attempt is None else tuple(runner.attempt.activity()),
                used=runner.used,
                spent=runner.usage,
                last=self._context.events.last_actions.get(name, ""),
                mirror_age_s=None if runner.attempt is None else runner.attempt.mirror_age_s,
            )
            for name, runner in self._scheduler.runners.items()
        }

    def _chains(self) -> list[Chain]:
        chains = self._plans.chains.values()
        return [chain for chain in chains if self._chosen is None or chain.name in self._chosen]

    def _has_worked(self) -> bool:
        """Return whether agents have worked before; if so, an expired login only pauses the run."""
        chains = self._plans.state.chains.values()
        return any(attempt.working for chain in chains for attempt in chain.attempts)

    def _recall_limits(self) -> None:
        """Take over the account limits that an earlier run has met."""
        for account, facts in self._plans.state.accounts.items():
            until = parse_utc(facts.get("until"))
            self._scheduler.accounts.recall(account, facts["reason"], until)

    # -- the outcome ----------------------------------------------------------------------------

    def _find_end(self, chain: Chain) -> Finished | None:
        """Return the end of a chain; None if it is not over."""
        step = next_step(self._plans, chain)
        return step if isinstance(step, Finished) else None

    def _find_pause(self, chain: Chain) -> PauseRequest | None:
        return self._scheduler.pauses.get(chain.name) or self._scheduler.halted

    def _describe_waits(self) -> list[dict[str, Any]]:
        """Return for the journal why unfinished chains wait."""
        chains: dict[PauseRequest, list[str]] = {}
        for chain in self._chains():
            pause = self._find_pause(chain)
            if pause is not None and self._find_end(chain) is None:
                chains.setdefault(pause, []).append(chain.name)
        return [
            {"reason": pause.reason, "text": pause.text, "chains": names}
            for pause, names in chains.items()
        ]

    def _outcome(self) -> RunOutcome:
        texts = dict(self._scheduler.failures)
        has_failed = bool(texts)
        is_paused = False
        for chain in self._chains():
            step = self._find_end(chain)
            if step is None:
                is_paused = True
                pause = self._find_pause(chain)
                texts.setdefault(chain.name, "paused" if pause is None else pause.text)
            elif step.status == "failed":
                has_failed = True
                ending = self._plans.state.chain(chain.name).last_ending
                text = "failed" if ending is None else str(ending.data.get("text", "failed"))
                texts.setdefault(chain.name, text)
        lines = [f"{name}: {text}" for name, text in texts.items()]
        return RunOutcome(
            status=self._status(has_failed=has_failed, is_paused=is_paused),
            text="\n".join(lines),
            rows=tuple(self._rows),
        )

    def _status(self, *, has_failed: bool, is_paused: bool) -> RunStatus:
        if is_paused and self._is_stopped:
            return "stopped"
        if has_failed:
            return "failed"
        return "paused" if is_paused else "done"
