"""An open experiment: one object that owns its journal, attempts, runs and requests.

Other processes send requests through the control socket in its directory:

| ``op`` | members of the request | members of the answer |
|---|---|---|
| ``status`` | none | ``live``, the facts that only the orchestrator knows, by chain |
| ``pause`` | ``chains`` | none; they make checkpoints and stop |
| ``stop`` | ``chains``, ``now`` | none |
| ``fork`` | ``place``, ``at``, and the arguments of ``AsyncExperiment.fork`` | ``branches`` |
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError, UsageError
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import JournalLine
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.history.recorder import JournalRecorder
from clawblox.experiment.notices.notifier import Notifier
from clawblox.experiment.reading.record import ExperimentRecord
from clawblox.experiment.running.events import ExperimentEvents
from clawblox.experiment.running.experiment_run import ExperimentRun, RunContext
from clawblox.experiment.running.forking import (
    FORK_ARGUMENTS,
    ForkRequest,
    plan_fork,
    record_branches,
)
from clawblox.experiment.running.rescoring import OnRescored, Rescoring
from clawblox.experiment.schedule.callbacks import Callbacks, Score
from clawblox.experiment.schedule.ports import AttemptBackend
from clawblox.experiment.tables.derived import DerivedFiles
from clawblox.experiment.tables.rows import Row, make_row
from clawblox.experiment.tables.status import ExperimentStatus, LiveChain, encode_live, make_status
from clawblox.rundir.control_client import find_sockets, request
from clawblox.rundir.control_server import ControlServer, Operation, SendEvent
from clawblox.spelling import suggest_nearest
from clawblox.system.clock import TimeSource
from clawblox.telemetry.own_log import OwnLog

_NAME: Final = "experiment"
"""Name of the control socket."""

_log = OwnLog(__name__)


class OpenExperiment:
    """An open experiment; call :meth:`start` before its use and :meth:`close` afterwards.

    Args:
        directory: Its directory.
        journal: Its open journal.
        plans: Its plans, with the state, which is kept up to date.
        backend: Makes the attempts.
        callbacks: The hooks of generations.
        hooks: Name and digest of each hook, by its argument.
        events: Receives the events.
        clock: The clock.
        tasks: Task group of the experiment's own tasks and of its runs.
    """

    def __init__(
        self,
        directory: Path,
        journal: Journal,
        plans: Plans,
        backend: AttemptBackend,
        callbacks: Callbacks,
        *,
        hooks: Mapping[str, Mapping[str, str | None]],
        events: ExperimentEvents,
        clock: TimeSource,
        tasks: Tasks,
    ) -> None:
        self.plans = plans
        self._dir = directory
        self._files = DerivedFiles(directory, plans, journal.lines)
        derive = partial(self._files.flush, with_results=False)
        recorder = JournalRecorder(journal, plans.state, self._note, derive=derive)
        self._context = RunContext(
            plans=plans,
            journal=journal,
            recorder=recorder,
            backend=backend,
            callbacks=callbacks,
            hooks=hooks,
            events=events,
            clock=clock,
            tasks=tasks,
        )
        self._notifier = Notifier(directory, plans, journal.lines, recorder, self.status)
        self._control = ControlServer(directory, _NAME, self._operations())
        self._run: ExperimentRun | None = None
        self._forking = anyio.Lock()  # two simultaneous forks would find the same free names

    @property
    def record(self) -> ExperimentRecord:
        """The experiment as its directory records it now."""
        known = self.plans.state.seq  # a thread may have written more lines
        lines = self._context.journal.lines[:known]
        return ExperimentRecord(dir=self._dir, plans=self.plans, lines=lines)

    def status(self) -> ExperimentStatus:
        """Return the status: chains, their states and reasons, spending, and a forecast."""
        now = self._context.clock.utc()
        return make_status(self._dir, self.plans, now=now, pid=self._pid, live=self._live())

    @property
    def _pid(self) -> int | None:
        is_running = self._run is not None and self._run.is_running
        return os.getpid() if is_running else None

    def _live(self) -> Mapping[str, LiveChain]:
        return {} if self._run is None else self._run.live()

    # -- from the start to the end --------------------------------------------------------------

    async def start(self) -> None:
        """Finish steps that a crash interrupted, and start to answer requests and to write tables.

        Raises:
            OSError: The directory of a failed attempt cannot be renamed.

        Cancellation: some directories are renamed.
        """
        await self._set_aside_failed()
        start_soon = self._context.tasks.start_soon
        try:
            await self._control.open()
        except OSError as error:
            _log.warning("no control socket", path=str(self._dir), error=str(error))
        else:
            start_soon(self._control.run)
        start_soon(self._context.backend.serve)
        start_soon(self._context.events.run)
        start_soon(self._notifier.run)
        await self._files.flush()
        start_soon(self._files.run)

    async def _set_aside_failed(self) -> None:
        """Complete renames of failed attempts that a crash prevented."""
        for chain in self.plans.state.chains.values():
            for attempt in chain.attempts:
                if moved_to := attempt.end_data.get("moved_to"):
                    backend = self._context.backend
                    await backend.set_aside(chain.name, attempt.attempt_id, str(moved_to))

    async def close(self) -> None:
        """Pause all chains, and write and announce the remaining lines.

        Cancellation: takes effect only afterwards.
        """
        with anyio.CancelScope(shield=True):
            if self._run is not None and self._run.is_running:
                self._run.halt()
                await self._run.is_over.wait()
            if not self._context.journal.is_lost:  # otherwise another program has the directory
                await self._notifier.flush()
                await self._files.flush()
        await self._control.aclose()

    def _note(self, line: JournalLine) -> None:
        """Pass on a written line, and the row of the generation that it commits."""
        self._files.note(line)
        self._notifier.note(line)
        if line.type == "committed" and self._run is not None:
            assert line.chain is not None
            assert line.generation is not None
            row = make_row(self.plans, line.chain, line.generation)
            self._run.note(row)
            self._context.tasks.start_soon(self._context.events.report_row, row)
        self._context.events.note(line)

    # -- runs, forks and scores -------------------------------------------------------------

    def run(self, chains: Collection[str] | None = None) -> ExperimentRun:
        """Return a run of some chains; None means all.

        Raises:
            ConfigError: There is no such chain.
            UsageError: The experiment is running.
        """
        self._require_no_run()
        self._run = ExperimentRun(self._context, self._check_chains(chains))
        return self._run

    def pause(self, chains: Collection[str] | None = None) -> None:
        """Ask chains to make checkpoints and to stop; None means all.

        Raises:
            ConfigError: There is no such chain.
        """
        names = self._check_chains(chains)
        if self._run is not None:
            self._run.pause(names)

    async def stop(self, chains: Collection[str] | None = None, *, now: bool = False) -> None:
        """Pause chains, or end all of them now, and wait until their attempts have ended.

        Raises:
            ConfigError: There is no such chain.

        Cancellation: the chains are stopped nevertheless.
        """
        names = self._check_chains(chains)
        if self._run is None:
            return
        if now:
            self._run.cancel()
        else:
            self._run.pause(names)
        await self._run.wait_idle(names)

    def kill_now(self) -> None:
        """End all attempts without checkpoints, and do not wait for them; idempotent."""
        if self._run is not None:
            self._run.cancel()

    def _check_chains(self, chains: Collection[str] | None) -> tuple[str, ...] | None:
        known = self.plans.chains
        for name in chains or ():
            if name not in known:
                hint = suggest_nearest(name, known) or f"there are: {', '.join(known)}"
                raise ConfigError("there is no such chain", key="chains", value=name, hint=hint)
        return None if chains is None else tuple(chains)

    def _require_no_run(self, hint: str | None = None) -> None:
        if self._run is not None and self._run.is_running:
            raise UsageError("this experiment is running already", hint=hint)

    async def fork(self, fork: ForkRequest) -> list[str]:
        """Add the branches of a fork, and return their names.

        Raises:
            ConfigError: An argument is wrong, or a requirement of the branches is missing.
            UsageError: The branches cannot run in parallel, or cannot be made.

        Cancellation: branches that were recorded exist.
        """
        context = self._context
        async with self._forking:
            running = () if self._run is None else self._run.running
            chain = self.plans.chains[fork.source.ref.chain]
            branches = plan_fork(fork, chain, self.plans.state, running)
            if not running:  # not recorded if it cannot be run
                plan = context.callbacks.without_replaced(self.plans.present)
                await context.backend.survey(plan, has_worked=True)
            await record_branches(context.recorder, fork.source, branches)
        names = [name for name, _ in branches]
        if self._run is not None:
            self._run.add(names)
        return names

    async def rescore(self, score: Score | None, on_scored: OnRescored) -> list[Row]:
        """Score the committed generations again, and return the rows.

        Raises:
            ConfigError: There is no score, or it cannot be imported.
            UsageError: The experiment is running.

        Cancellation: scores that were recorded remain.
        """
        self._require_no_run(hint="stop it first")
        context = self._context
        callbacks = context.callbacks if score is None else Callbacks(score)
        rescoring = Rescoring(
            self.plans, context.backend, context.recorder, callbacks, context.clock
        )
        await rescoring.run(on_scored)
        return self.record.results().rows()

    # -- requests of other processes ------------------------------------------------------------

    def _operations(self) -> Mapping[str, Operation]:
        return {
            "status": Operation(self._answer_status),
            "pause": Operation(self._answer_pause, ("chains",)),
            "stop": Operation(self._answer_stop, ("chains", "now")),
            "fork": Operation(self._answer_fork, ("at", *FORK_ARGUMENTS), needs=("place",)),
        }

    async def _answer_status(self, _: Mapping[str, Any], _send: SendEvent) -> Mapping[str, Any]:
        return {"live": encode_live(self._live()), "pid": self._pid}

    async def _answer_pause(self, asked: Mapping[str, Any], _: SendEvent) -> Mapping[str, Any]:
        self.pause(**asked)
        return {}

    async def _answer_stop(self, asked: Mapping[str, Any], _: SendEvent) -> Mapping[str, Any]:
        await self.stop(**asked)
        return {}

    async def _answer_fork(self, asked: Mapping[str, Any], _: SendEvent) -> Mapping[str, Any]:
        arguments = {name: asked[name] for name in FORK_ARGUMENTS if name in asked}
        source = self.record.find_checkpoint(asked["place"], asked.get("at"))
        return {"branches": await self.fork(ForkRequest(source=source, **arguments))}


async def ask_experiment(
    directory: Path, op: str, arguments: Mapping[str, Any] | None = None
) -> Mapping[str, Any] | None:
    """Send a request to the orchestrator of an experiment.

    Args:
        directory: The directory of the experiment.
        op: ``status``, ``pause``, ``stop`` or ``fork``.
        arguments: The members of the request.

    Returns:
        The members of the answer; None if no orchestrator runs the experiment.

    Raises:
        ControlError: The orchestrator refused, or ended.

    Cancellation: withdraws the request.
    """
    sockets = await run_blocking(find_sockets, directory)
    if not sockets:
        return None
    return await request(sockets[0], op, dict(arguments or {}))
