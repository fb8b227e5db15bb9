"""AsyncExperiment: runs, pauses, resumes and forks the chains of a plan, in a directory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Self

import anyio

from clawblox.concurrency.tasks import Residence, Tasks
from clawblox.concurrency.threads import run_blocking, run_checked, run_interruptible
from clawblox.config.arguments import check_env, check_grace, check_path
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import UsageError
from clawblox.experiment.history.checkpoints import Checkpoint, CheckpointRef
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.reading.record import ExperimentRecord
from clawblox.experiment.running.backends import make_backend
from clawblox.experiment.running.events import (
    EventHook,
    ExperimentEvent,
    ExperimentEvents,
    RowHook,
)
from clawblox.experiment.running.experiment_run import ExperimentRun
from clawblox.experiment.running.forking import ForkRequest
from clawblox.experiment.running.open_experiment import OpenExperiment
from clawblox.experiment.running.opening import begin_or_continue
from clawblox.experiment.running.rescoring import OnRescored, ignore_rescored
from clawblox.experiment.schedule.callbacks import Callbacks, Score, StopHook
from clawblox.experiment.schedule.ports import AttemptBackend
from clawblox.experiment.tables.results import Results
from clawblox.experiment.tables.rows import Row
from clawblox.experiment.tables.status import ExperimentStatus
from clawblox.system.clock import SystemClock, TimeSource
from clawblox.telemetry.events import Subscription
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)


class AsyncExperiment:
    """A plan, its directory, and the runs of its chains.

    Leaving the ``async with`` block pauses all running chains, with checkpoints, and stops them.
    The same call continues an experiment that was interrupted by Ctrl-C, SIGKILL or a reboot.

    Args:
        plan: The plan. It is compared with the recorded plan if the directory has an experiment.
        dir: Directory of the experiment; None means ``experiments/<name>``.
        score: Returns a number, or numbers by name, for a generation, in place of the plan's score.
            Its agents have stopped, its world runs. An async function takes a
            :class:`LiveGeneration`; a plain function is called in a thread with a
            :class:`GenerationEnd`. After a crash the call may be repeated.
        stop: Returns why a generation should close now, or None; takes the same as ``score``, and
            is called at the end of turns and every 30 seconds.
        on_event: Called with each event, in a thread unless it is async.
        on_generation_end: Called with the row of each committed generation, in a thread unless it
            is async.
        env: Values of the environment variables that the plan names, and of the logins of programs
            that this process does not have; None uses the environment of this process. They are
            never written to disk.
        accept: Accepted changes: ``duration``, ``save``, ``stop``, ``world``, ``prompts``,
            ``templates``; of agents, also ``budget``, ``version`` and limits, by their keys.
        retry_failed: Whether failed chains are retried.
        resume_from: An archive of this package or of the public generation scripts, from which the
            only chain continues its generation; None for none.
        grace_seconds: Seconds between TERM and KILL when worlds and agents are stopped.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        plan: Plan | None,
        *,
        dir: str | os.PathLike[str] | None = None,  # noqa: A002 - the word of the API
        score: Score | None = None,
        stop: StopHook | None = None,
        on_event: EventHook | None = None,
        on_generation_end: RowHook | None = None,
        env: Mapping[str, str] | None = None,
        accept: Collection[str] = (),
        retry_failed: bool = False,
        resume_from: str | os.PathLike[str] | None = None,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> None:
        if dir is None and plan is None:
            raise UsageError("an experiment needs a plan or a directory")
        place = Path("experiments", plan.name) if dir is None and plan is not None else dir
        self._dir = check_path(place, "dir").absolute()
        self._given = plan
        self._callbacks = Callbacks(score=score, stop=stop)
        self._grace_s = check_grace(grace_seconds)
        self._events = ExperimentEvents(on_event, on_generation_end)
        self._env = dict(os.environ if env is None else check_env(env))
        self._accept = tuple(accept)
        self._retry_failed = retry_failed
        archive = None if resume_from is None else check_path(resume_from, "resume_from")
        self._resume_from = None if archive is None else archive.absolute()
        self._clock: TimeSource = SystemClock()
        self._opened: OpenExperiment | None = None
        self._residence: Residence[OpenExperiment] | None = None

    @classmethod
    def open(
        cls,
        dir: str | os.PathLike[str],  # noqa: A002 - the word of the API
        *,
        score: Score | None = None,
        stop: StopHook | None = None,
        on_event: EventHook | None = None,
        on_generation_end: RowHook | None = None,
        env: Mapping[str, str] | None = None,
        accept: Collection[str] = (),
        retry_failed: bool = False,
        resume_from: str | os.PathLike[str] | None = None,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> Self:
        """Return an existing experiment, with its recorded plan.

        Args:
            dir: Its directory.
            score: As for the constructor, like all other arguments.
            stop: As for the constructor.
            on_event: As for the constructor.
            on_generation_end: As for the constructor.
            env: As for the constructor.
            accept: As for the constructor; the files that the plan names may have changed.
            retry_failed: As for the constructor.
            resume_from: As for the constructor.
            grace_seconds: As for the constructor.

        Raises:
            ConfigError: An argument is wrong.
        """
        return cls(
            None,
            dir=dir,
            score=score,
            stop=stop,
            on_event=on_event,
            on_generation_end=on_generation_end,
            env=env,
            accept=accept,
            retry_failed=retry_failed,
            resume_from=resume_from,
            grace_seconds=grace_seconds,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._dir)!r})"

    # -- the block ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Create the experiment in its directory, or open an existing one.

        Raises:
            RunLockedError: Another process runs it.
            PlanChangedError: Its plan, or a file that the plan names, has changed.
            ClawbloxError: The directory cannot be used.
        """
        self._residence = Residence(self._open())
        self._opened = await self._residence.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._residence is not None
        try:
            await self._residence.__aexit__(*exc_info)
        finally:
            self._opened = None

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[OpenExperiment]:
        journal = Journal(self._dir, self._clock)
        try:
            await run_interruptible(partial(self._enter, journal), journal.lease.interrupt)
            plans = await run_checked(partial(self._begin, journal))
            hooks = await run_blocking(self._callbacks.describe)
            backend = self._make_backend(plans)
            await backend.end_left()
            on_error = partial(_log.defect, "task of an experiment failed")
            async with Tasks(on_error=on_error) as tasks:
                opened = OpenExperiment(
                    self._dir,
                    journal,
                    plans,
                    backend,
                    self._callbacks,
                    hooks=hooks,
                    events=self._events,
                    clock=self._clock,
                    tasks=tasks,
                )
                await opened.start()
                try:
                    yield opened
                finally:
                    await opened.close()
        finally:
            self._events.close()
            with anyio.CancelScope(shield=True):
                await run_blocking(journal.__exit__)

    def _enter(self, journal: Journal) -> None:
        self._dir.mkdir(parents=True, exist_ok=True)
        journal.__enter__()

    def _begin(self, journal: Journal, check: Callable[[], None]) -> Plans:
        return begin_or_continue(
            journal,
            self._dir,
            self._given,
            accept=self._accept,
            retry_failed=self._retry_failed,
            resume_from=self._resume_from,
            check=check,
        )

    def _make_backend(self, plans: Plans) -> AttemptBackend:
        """Return the backend that makes the attempts; tests override this method."""
        on_event = self._events.pass_on
        place = (self._dir, plans, self._env)
        return make_backend(*place, grace_s=self._grace_s, on_event=on_event)

    def _require_open(self) -> OpenExperiment:
        if self._opened is None:
            hint = f"async with AsyncExperiment(plan) as exp; else read_experiment('{self._dir}')"
            raise UsageError("this experiment is not open", hint=hint)
        return self._opened

    # -- facts ----------------------------------------------------------------------------------

    @property
    def dir(self) -> Path:
        """Its directory, absolute."""
        return self._dir

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._require_open().plans.present

    @property
    def record(self) -> ExperimentRecord:
        """The experiment as its directory records it now."""
        return self._require_open().record

    def status(self) -> ExperimentStatus:
        """Return the status: chains, their states and reasons, spending, and a forecast."""
        return self._require_open().status()

    def events(self) -> Subscription[ExperimentEvent]:
        """Return a stream of the events from now on; it ends when the block is left."""
        return self._events.subscribe()

    def find_checkpoint(self, place: str, at: str | float | None = None) -> Checkpoint:
        """Return a checkpoint.

        Args:
            place: Chain and generation, such as ``r2/g003``; without a generation, the latest.
            at: ``last``, ``boundary``, ``end``, or active seconds of the generation, also as text
                such as ``"20m"``, for the nearest checkpoint before; None means ``last``.

        Raises:
            ConfigError: There is no such checkpoint; the error names existing ones.
        """
        return self.record.find_checkpoint(place, at)

    def results(self, *, forked_from: CheckpointRef | Checkpoint | None = None) -> Results:
        """Return the results so far.

        Args:
            forked_from: Only the branches from this checkpoint; None for all chains.
        """
        return self.record.results(forked_from=forked_from)

    # -- runs -------------------------------------------------------------------------------

    def run(self, chains: Collection[str] | None = None) -> ExperimentRun:
        """Run chains until each is done, has failed or is paused.

        Args:
            chains: Their names; None means all. Branches that are added during the run also run.

        Returns:
            The run: await it for its :class:`RunOutcome`, or iterate over it for the row of each
            generation as it is committed.

        Raises:
            ConfigError: There is no such chain.
            UsageError: The experiment is not open, or is running.
        """
        return self._require_open().run(chains)

    async def pause(self, chains: Collection[str] | None = None) -> None:
        """Ask chains to make checkpoints and to stop; return immediately.

        Args:
            chains: Their names; None means all.

        Raises:
            ConfigError: There is no such chain.

        Cancellation: has no effect.
        """
        if chains is not None or self._opened is not None:  # closing has paused all chains
            self._require_open().pause(chains)

    async def stop(self, chains: Collection[str] | None = None, *, now: bool = False) -> None:
        """Pause chains and wait until their attempts have ended.

        Args:
            chains: Their names; None means all.
            now: Whether to end everything without checkpoints; then all chains are stopped.

        Raises:
            ConfigError: There is no such chain.

        Cancellation: the chains are stopped nevertheless.
        """
        if chains is not None or self._opened is not None:  # closing has stopped all chains
            await self._require_open().stop(chains, now=now)

    def kill_now(self) -> None:
        """End all attempts without checkpoints, and do not wait for them; idempotent."""
        if self._opened is not None:
            self._opened.kill_now()

    # -- forks and scores -----------------------------------------------------------------------

    async def fork(
        self,
        source: Checkpoint,
        count: int = 1,
        *,
        prompts: Sequence[str | None] = (None,),
        labels: Sequence[str] = (),
        duration: float | str | None = None,
        generations: int = 1,
        reseed: int | None = None,
        parallel: int | None = None,
    ) -> list[str]:
        """Add branches of a checkpoint: each copies the world and all conversations of agents.

        The branches run in the current run, or in the next :meth:`run`. Each gets a world of its
        own, restored from the same snapshot, and copies of the agents' workspaces and
        conversations, which join the world as the same players. The original is never opened for
        writing.

        Args:
            source: The checkpoint; see :meth:`find_checkpoint`.
            count: Number of branches for each prompt.
            prompts: First messages to the agents; None makes a control branch, which continues
                without a message.
            labels: Names of the prompts in tables, in their order; by default their first words.
            duration: Active seconds of each branch, or text such as ``"15m"``; None means the rest
                of the generation.
            generations: Number of generations of each branch.
            reseed: Seed of the first branch's world, which increases by 1 from branch to branch;
                None keeps the random state.
            parallel: 1 runs the branches one after the other, as agents outside a sandbox must be.

        Returns:
            The names of the branches.

        Raises:
            ConfigError: An argument is wrong, or a requirement of the branches is missing.
            UsageError: The agents ran outside a sandbox, and the branches would run in parallel; or
                a driver cannot branch its conversations.

        Cancellation: branches that were recorded exist.
        """
        fork = ForkRequest(
            source=source,
            count=count,
            prompts=prompts,
            labels=labels,
            duration=duration,
            generations=generations,
            reseed=reseed,
            parallel=parallel,
        )
        return await self._require_open().fork(fork)

    async def rescore(
        self, score: Score | None = None, *, on_scored: OnRescored = ignore_rescored
    ) -> list[Row]:
        """Score the committed generations again, from their final checkpoints.

        Each world is restored without agents, scored and stopped. Scores that cannot be recomputed
        are kept.

        Args:
            score: As for the constructor; None means that of the constructor, or of the plan.
            on_scored: Called with the number of scored generations, and of all.

        Returns:
            The rows with the new scores.

        Raises:
            ConfigError: There is no score, or it cannot be imported.
            UsageError: The experiment is running.

        Cancellation: scores that were recorded remain.
        """
        return await self._require_open().rescore(score, on_scored)
