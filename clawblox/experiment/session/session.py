"""A session of an experiment: the time in which one process runs its chains."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import anyio

from clawblox.concurrency.threads import run_abandonable, run_blocking
from clawblox.errors import JournalLostError
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.machine import Commit, Over, next_step
from clawblox.experiment.history.recorder import Recorder
from clawblox.experiment.history.state import ChainState, ExperimentState
from clawblox.experiment.plan.plan import Chain
from clawblox.experiment.schedule.callbacks import Callbacks
from clawblox.experiment.schedule.pauses import Pause, blame_journal
from clawblox.experiment.schedule.ports import Workshop
from clawblox.experiment.schedule.scheduler import Scheduler
from clawblox.experiment.session.experiment_run import RunOutcome, RunStatus
from clawblox.experiment.session.opening import OpenExperiment
from clawblox.experiment.tables.rows import Row, make_row
from clawblox.experiment.tables.status import LiveChain
from clawblox.system.append_log import LogChangedError
from clawblox.system.clock import Clock, parse_utc
from clawblox.system.guard import guard
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_REQUEST = Pause(reason="request", text="stopped on request")


class Session:
    """Runs the chains of an open experiment.

    Args:
        opened: The experiment.
        workshop: Makes the attempts.
        recorder: Writes the lines.
        clock: The clock.
        callbacks: The hooks.
        hooks: Name and digest of each hook, by its argument; None for none.
        chosen: Names of the chains to run; None means all.
        warn: Called with the kind and the text of a warning.

    Attributes:
        is_over: Set when nothing of it runs any longer.
        on_row: Called with the row of each committed generation, and with None at the end.
    """

    def __init__(
        self,
        opened: OpenExperiment,
        workshop: Workshop,
        recorder: Recorder,
        clock: Clock,
        callbacks: Callbacks,
        *,
        hooks: Mapping[str, Mapping[str, str | None]] | None = None,
        chosen: Collection[str] | None = None,
        warn: Callable[[str, str], object] = lambda _kind, _text: None,
    ) -> None:
        self._opened = opened
        self._workshop = workshop
        self._recorder = recorder
        self._clock = clock
        self._callbacks = callbacks
        self._hooks = hooks or {}
        self._warn = warn
        self._scope = anyio.CancelScope()
        self._checking = anyio.CancelScope()
        self._error: Exception | None = None
        self._is_stopped = False
        self._chosen = None if chosen is None else set(chosen)
        self._rows: list[Row] = []
        self._scheduler = Scheduler(
            opened.plans,
            workshop,
            recorder,
            clock,
            callbacks,
            wall_s=opened.state.wall_s,
            warn=warn,
        )
        self.is_over = anyio.Event()
        self.on_row: Callable[[Row | None], object] = lambda _row: None

    @property
    def running(self) -> Collection[str]:
        """Names of the chains that have an attempt under way."""
        return self._scheduler.runners.keys()

    @property
    def pid(self) -> int | None:
        """The process that runs it: this one; None when it is over."""
        return None if self.is_over.is_set() else os.getpid()

    async def run(self) -> None:
        """Run the chains to their ends; what fails is raised by :meth:`wait`.

        Cancellation: worlds and agents are ended; their attempts are interrupted.
        """
        begun_at = self._clock.monotonic()
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
                "elapsed_s": self._clock.monotonic() - begun_at,
                "waits": self._describe_waits(),
            }
            await self._write_end(facts)
        except Exception as error:  # noqa: BLE001 - raised where the outcome is awaited
            self._error = error
        finally:
            self.is_over.set()
            self.on_row(None)

    async def _check(self) -> None:
        """Check everything that the session needs, and import the score of the plan.

        A session that starts no agent needs neither programs nor the variables of agents.

        Raises:
            ConfigError: There are faults.
        """
        plan = self._opened.plans.present
        if any(map(self._starts_agents, self._chains())):
            surveyed = self._callbacks.without_replaced(plan)
            await self._workshop.survey(surveyed, has_worked=self._has_worked())
        if plan.score is not None:
            self._hooks = await run_blocking(self._callbacks.load, plan)

    def _starts_agents(self, chain: Chain) -> bool:
        """Return whether a chain does more than to score and commit its last generation."""
        plans, latest = self._opened.plans, self._opened.state.chain(chain.name).latest
        step = next_step(plans, chain)
        if isinstance(step, Over):
            return False
        if latest is None or latest.is_over or latest.number < plans.last_generation(chain):
            return True
        is_at_end = any(point.kind == "end" for point in latest.ancestry()[:1])
        return not is_at_end and not isinstance(step, Commit)

    async def _begin(self) -> bool:
        """Write that the session begins; return whether that was possible."""
        hooks, before = self._hooks, self._opened.state.hooks
        facts = {"pid": os.getpid(), **self._opened.journal.facts, "hooks": hooks}
        try:
            await self._recorder.write("session.begun", facts)
        except OSError as error:
            self._scheduler.halt(blame_journal(error))
            return False
        for name, known in before.items():
            if name not in hooks:
                text = f"{name}: {known['name']} of the session before was not given again"
                self._warn("hook.changed", text)
            elif hooks[name] != known:
                text = f"{name}: {hooks[name]['name']} is not as in the session before"
                self._warn("hook.changed", text)
        return True

    async def _write_end(self, facts: Mapping[str, Any]) -> None:
        try:
            await self._recorder.write("session.ended", facts)
        except JournalLostError:
            raise
        except OSError as error:  # on a full disk; the next session ends it
            _log.warning("end of a session not recorded", error=str(error))

    async def watch_lease(self) -> None:
        """End everything once another process drives the experiment, or the lease is not renewed.

        Where the file system hangs, nothing may end: the guard kills this process at the end of
        the lease, with its worlds and agents, since another process may drive from then on.

        Cancellation: the session is not watched any longer.
        """
        lease = self._opened.journal.lease
        quarter_s = lease.driver.lease_s / 4
        while True:
            with anyio.move_on_after(quarter_s):
                await self.is_over.wait()
                return
            try:
                with anyio.fail_after(max(lease.remaining_s - quarter_s, quarter_s)):
                    await run_abandonable(lambda _call: lease.require_held())
            except (LogChangedError, TimeoutError) as error:
                _log.error("lease of an experiment lost", error=str(error) or "its files hang")
                self.cancel()
                rest_s = float("inf") if isinstance(error, LogChangedError) else quarter_s
                while rest_s > 0:  # longer if the file system answers again
                    with anyio.move_on_after(rest_s):
                        await self.is_over.wait()
                        return
                    rest_s = lease.remaining_s
                await run_abandonable(lambda _call: guard.lease(1.0))  # long ago: kill at once
                return

    async def wait(self) -> RunOutcome:
        """Return the outcome, at the end.

        Raises:
            Exception: The session could not be run.

        Cancellation: the session continues.
        """
        await self.is_over.wait()
        if self._error is not None:
            raise self._error
        return self._outcome()

    def halt(self) -> None:
        """Ask everything to make checkpoints and to stop; before that began, begin nothing."""
        self._is_stopped = True
        self._scheduler.halt(_REQUEST)
        self._checking.cancel()  # on a cluster without room it would wait forever

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
        """Wait until nothing of some chains runs; None means all.

        Cancellation: has no effect.
        """
        if chains is None:
            await self.is_over.wait()
            return
        await self._scheduler.wait_idle(chains)

    def add(self, chains: Collection[str]) -> None:
        """Run chains that were added to the experiment."""
        if self._chosen is not None:
            self._chosen.update(chains)
        for name in chains:
            self._scheduler.add(self._opened.plans.chains[name])

    def note(self, line: Line) -> None:
        """Hand out the row of a generation that a line has committed."""
        if line.type == "committed":
            assert line.chain is not None
            assert line.generation is not None
            row = make_row(self._opened.plans, line.chain, line.generation)
            self._rows.append(row)
            self.on_row(row)

    def live(self, last_actions: Mapping[str, str]) -> Mapping[str, LiveChain]:
        """Return the facts by chain that only this process knows.

        Args:
            last_actions: The latest action of an agent, by chain.
        """
        left, awaits = self._scheduler.spending.left, self._scheduler.awaits.items()
        waiting = {name: LiveChain(reason=why, spent=left(name)) for name, why in awaits}
        return waiting | {
            name: LiveChain(
                active_s=runner.meter.active_s,
                world_time=runner.world_time,
                agents=() if runner.attempt is None else tuple(runner.attempt.activity()),
                used=runner.used,
                spent=runner.usage,
                last=last_actions.get(name, ""),
                mirror_age_s=None if runner.attempt is None else runner.attempt.mirror_age_s,
            )
            for name, runner in self._scheduler.runners.items()
        }

    def _chains(self) -> list[Chain]:
        chains = self._opened.plans.chains.values()
        return [chain for chain in chains if self._chosen is None or chain.name in self._chosen]

    def _has_worked(self) -> bool:
        """Return whether agents have worked before: then an expired login is a pause."""
        chains = self._opened.state.chains.values()
        return any(attempt.working for chain in chains for attempt in chain.attempts)

    def _recall_limits(self) -> None:
        """Take the limits into account that an earlier session has met."""
        for account, facts in self._opened.state.accounts.items():
            until = parse_utc(facts.get("until"))
            self._scheduler.accounts.recall(account, facts["reason"], until)

    # -- the outcome ----------------------------------------------------------------------------

    def _find_end(self, chain: Chain) -> Over | None:
        """Return how a chain is over; None if it is not."""
        step = next_step(self._opened.plans, chain)
        return step if isinstance(step, Over) else None

    def _find_pause(self, chain: Chain) -> Pause | None:
        return self._scheduler.pauses.get(chain.name) or self._scheduler.halted

    def _describe_waits(self) -> list[dict[str, Any]]:
        """Return why chains wait that are not over, for the journal."""
        chains: dict[Pause, list[str]] = {}
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
            state = self._opened.state.chain(chain.name)
            step = self._find_end(chain)
            if step is None:
                is_paused = True
                pause = self._find_pause(chain)
                texts.setdefault(chain.name, "paused" if pause is None else pause.text)
            elif step.status == "failed":
                has_failed = True
                texts.setdefault(chain.name, _describe_failure(state))
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


async def set_aside_failed(workshop: Workshop, state: ExperimentState) -> None:
    """Repeat the renames of failed attempts that a crash has prevented.

    Raises:
        OSError: A directory cannot be renamed.

    Cancellation: some are renamed.
    """
    for chain in state.chains.values():
        for attempt in chain.attempts:
            moved_to = attempt.ending and attempt.ending.data.get("moved_to")
            if moved_to:
                await workshop.set_aside(chain.name, attempt.run_id, str(moved_to))


def _describe_failure(chain: ChainState) -> str:
    ending = chain.last_ending
    return "failed" if ending is None else str(ending.data.get("text", "failed"))
