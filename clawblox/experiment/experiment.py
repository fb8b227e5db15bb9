"""Experiment: runs, pauses, resumes and forks the chains of a plan, in a directory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio

from clawblox.concurrency.tasks import Residence, Tasks
from clawblox.concurrency.threads import run_blocking, run_checked, run_interruptible
from clawblox.config.arguments import check_duration, check_env, check_grace, check_path
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import UsageError
from clawblox.experiment.history.checkpoints import Checkpoint, CheckpointRef
from clawblox.experiment.history.journal import Journal
from clawblox.experiment.history.lines import Line
from clawblox.experiment.history.recorder import Recorder
from clawblox.experiment.notices.notifier import Notifier
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.reading.record import ExperimentRecord
from clawblox.experiment.reading.selection import check_chains
from clawblox.experiment.schedule.callbacks import Callbacks, Score, StopHook
from clawblox.experiment.schedule.ports import Workshop
from clawblox.experiment.session.events import ExperimentEvent
from clawblox.experiment.session.experiment_run import ExperimentRun
from clawblox.experiment.session.forking import Fork, plan_fork, record_branches
from clawblox.experiment.session.opening import OpenExperiment, open_experiment
from clawblox.experiment.session.reporting import EventHook, Reporter, RowHook
from clawblox.experiment.session.requests import make_control_server
from clawblox.experiment.session.rescoring import OnRescored, Rescoring, ignore_rescored
from clawblox.experiment.session.session import Session, set_aside_failed
from clawblox.experiment.session.workshops import make_workshop
from clawblox.experiment.tables.derived import DerivedFiles
from clawblox.experiment.tables.results import Results
from clawblox.experiment.tables.rows import Row
from clawblox.experiment.tables.status import ExperimentStatus, LiveChain, encode_live, make_status
from clawblox.rundir.control_server import ControlServer
from clawblox.system.clock import Clock, SystemClock
from clawblox.telemetry.events import Subscription
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)


class Experiment:
    """A plan, its directory, and the sessions in which its chains are run.

    Leaving the ``async with`` block pauses what runs, with a checkpoint, and stops it. The same
    call continues an experiment that was interrupted: by Ctrl-C, SIGKILL or a reboot.

    Args:
        plan: The plan. If the directory has an experiment already, it is compared with its plan.
        dir: Directory of the experiment; None means ``experiments/<name>``.
        score: Returns a number, or numbers by name, for a generation, in place of the plan's score.
            Its agents have stopped, its world runs. An async one takes a :class:`LiveGeneration`,
            another one, in a thread, a :class:`GenerationEnd`. After a crash it may be repeated.
        stop: Returns why a generation should close now, or None: an async function that takes a
            live generation, called at the end of turns and every 30 seconds.
        on_event: An async function, called with each event.
        on_generation_end: An async function, called with the row of each committed generation.
        env: Values of the environment variables that the plan names, and of the logins of programs
            that this process does not have; None means those of this process. They are never
            written to disk.
        accept: Changes that are accepted: ``duration``, ``save``, ``stop``, ``world``, ``prompts``,
            ``templates``; of agents, also ``budget``, ``version`` and limits, by their keys.
        retry_failed: Whether chains that have failed are tried again.
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
        _clock: Clock | None = None,
        _workshop: Workshop | None = None,
    ) -> None:
        if dir is None and plan is None:
            raise UsageError("an experiment needs a plan or a directory")
        place = Path("experiments", plan.name) if dir is None and plan is not None else dir
        self.directory = check_path(place, "dir").absolute()
        self._given = plan
        self._callbacks = Callbacks(score=score, stop=stop)
        self._grace_s = check_grace(grace_seconds)
        self._reporter = Reporter(on_event, on_generation_end)
        self._env = dict(os.environ if env is None else check_env(env))
        self._accept = tuple(accept)
        self._retry_failed = retry_failed
        archive = None if resume_from is None else check_path(resume_from, "resume_from")
        self._resume_from = None if archive is None else archive.absolute()
        self._clock = _clock or SystemClock()
        self._given_workshop = _workshop
        self._opened: OpenExperiment | None = None
        self._session: Session | None = None
        self._forking = anyio.Lock()  # two forks at once would find the same free names
        self._residence: Residence[Tasks]
        self._tasks: Tasks
        self._hooks: Mapping[str, Mapping[str, str | None]]
        self._recorder: Recorder
        self._workshop: Workshop
        self._files: DerivedFiles
        self._notifier: Notifier
        self._control: ControlServer

    @classmethod
    def open(cls, dir: str | os.PathLike[str], **options: Any) -> Self:  # noqa: A002
        """Return an existing experiment, with its recorded plan.

        Args:
            dir: Its directory.
            **options: As for the constructor.
        """
        return cls(None, dir=dir, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.directory)!r})"

    # -- the block ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Begin the experiment in its directory, or open it.

        Raises:
            RunLockedError: Another process runs it.
            PlanChangedError: Its plan, or a file that the plan names, has changed.
            ClawbloxError: The directory cannot be used.
        """
        self._residence = Residence(self._open())
        self._tasks = await self._residence.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._residence.__aexit__(*exc_info)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Tasks]:
        journal = Journal(self.directory, self._clock)
        try:
            await run_interruptible(partial(self._enter, journal), journal.lease.interrupt)
            self._opened = opened = await run_checked(partial(self._read, journal))
            self._hooks = await run_blocking(self._callbacks.describe)
            self._workshop = self._given_workshop or make_workshop(
                self.directory,
                opened.plans,
                self._env,
                grace_s=self._grace_s,
                on_event=self._reporter.pass_on,
            )
            await self._workshop.end_left()
            self._files = DerivedFiles(self.directory, opened.plans, journal.lines)
            derive = partial(self._files.flush, with_results=False)
            self._recorder = Recorder(journal, opened.state, self._note, derive=derive)
            await set_aside_failed(self._workshop, opened.state)
            self._notifier = Notifier(
                self.directory, opened.plans, journal.lines, self._recorder, self.status
            )
            async with Tasks(
                on_error=partial(_log.defect, "task of an experiment failed")
            ) as tasks:
                await self._start_tasks(tasks)
                try:
                    yield tasks
                finally:
                    await self._close_session()
                    await self._control.aclose()
        finally:
            self._opened = None
            self._reporter.close()
            with anyio.CancelScope(shield=True):
                await run_blocking(journal.__exit__)

    def _enter(self, journal: Journal) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        journal.__enter__()

    def _read(self, journal: Journal, check: Callable[[], None]) -> OpenExperiment:
        return open_experiment(
            journal,
            self.directory,
            self._given,
            accept=self._accept,
            retry_failed=self._retry_failed,
            resume_from=self._resume_from,
            check=check,
        )

    async def _start_tasks(self, tasks: Tasks) -> None:
        handlers: dict[str, Callable[..., Awaitable[Mapping[str, Any]]]] = {
            "status": self._answer_status,
            "pause": self._answer_pause,
            "stop": self._answer_stop,
            "fork": self._answer_fork,
        }
        self._control = make_control_server(self.directory, handlers)
        try:
            await self._control.open()
        except OSError as error:
            _log.warning("no control socket", path=str(self.directory), error=str(error))
        else:
            tasks.start_soon(self._control.run)
        tasks.start_soon(self._workshop.serve)
        tasks.start_soon(self._reporter.run)
        tasks.start_soon(self._notifier.run)
        await self._files.flush()
        tasks.start_soon(self._files.run)

    async def _close_session(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._session is not None:
                self._session.halt()
                await self._session.is_over.wait()
            if not self._require_open().journal.is_lost:  # else another program has the directory
                await self._notifier.flush()
                await self._files.flush()

    def _require_open(self) -> OpenExperiment:
        if self._opened is None:
            hint = f"async with Experiment(plan) as exp; else read_experiment('{self.directory}')"
            raise UsageError("this experiment is not open", hint=hint)
        return self._opened

    # -- facts ----------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._require_open().plans.present

    @property
    def record(self) -> ExperimentRecord:
        """The experiment as its directory records it now."""
        opened = self._require_open()
        return ExperimentRecord(
            directory=self.directory,
            plans=opened.plans,
            lines=opened.journal.lines[: opened.state.seq],  # a thread may have written more
        )

    def status(self) -> ExperimentStatus:
        """Return the status: chains, what they do and why, spending, and a forecast."""
        opened = self._require_open()
        return make_status(
            self.directory,
            opened.plans,
            now=self._clock.utc(),
            pid=None if self._session is None else self._session.pid,
            live=self._live(),
        )

    def events(self) -> Subscription[ExperimentEvent]:
        """Return a stream of the events from now on; it ends when the block is left."""
        return self._reporter.subscribe()

    def checkpoint(self, place: str, at: str | float | None = None) -> Checkpoint:
        """Return a checkpoint.

        Args:
            place: Chain and generation, such as ``r2/g003``; without a generation, the latest.
            at: ``last``, ``boundary``, ``end``, or active seconds of the generation, also as text
                such as ``"20m"``, for the nearest checkpoint before; None means ``last``.

        Raises:
            ConfigError: There is none; the error names those that exist.
        """
        return self.record.checkpoint(place, at)

    def results(self, *, forked_from: CheckpointRef | Checkpoint | None = None) -> Results:
        """Return the results so far.

        Args:
            forked_from: Only the branches that began at this checkpoint; None for all chains.
        """
        return self.record.results(forked_from=forked_from)

    # -- sessions -------------------------------------------------------------------------------

    def run(self, chains: Collection[str] | None = None) -> ExperimentRun:
        """Run chains until each is done, has failed or is paused.

        Args:
            chains: Their names; None means all. Branches that are added meanwhile run too.

        Returns:
            The session: await it for its :class:`RunOutcome`, or iterate over it for the row of
            each generation as it is committed.

        Raises:
            ConfigError: There is no such chain.
            UsageError: The experiment is not open, or a session of it runs.
        """
        opened = self._require_open()
        if self._session is not None and not self._session.is_over.is_set():
            raise UsageError("a session of this experiment runs already")
        session = self._session = Session(
            opened,
            self._workshop,
            self._recorder,
            self._clock,
            self._callbacks,
            hooks=self._hooks,
            chosen=None if chains is None else self._check_chains(chains),
            warn=self._reporter.warn,
        )

        def begin(put: Callable[[Row | None], object]) -> None:
            self._require_open()
            session.on_row = partial(self._hand_out, put)
            self._tasks.start_soon(session.run)
            self._tasks.start_soon(session.watch_lease)

        return ExperimentRun(begin, session.wait, session.halt, session.is_over)

    def _hand_out(self, put: Callable[[Row | None], object], row: Row | None) -> None:
        put(row)
        if row is not None:
            self._tasks.start_soon(self._reporter.report_row, row)

    async def pause(self, chains: Collection[str] | None = None) -> None:
        """Ask chains to make checkpoints and to stop; return immediately.

        Args:
            chains: Their names; None means all.

        Raises:
            ConfigError: There is no such chain.

        Cancellation: has no effect.
        """
        names = None if chains is None else self._check_chains(chains)
        if self._session is not None:
            self._session.pause(names)

    async def stop(self, chains: Collection[str] | None = None, *, now: bool = False) -> None:
        """Pause chains and wait until nothing of them runs.

        Args:
            chains: Their names; None means all.
            now: Whether to end everything without checkpoints; then all chains are stopped.

        Raises:
            ConfigError: There is no such chain.

        Cancellation: they are stopped nevertheless.
        """
        names = None if chains is None else self._check_chains(chains)
        if self._session is None:
            return
        if now:
            self._session.cancel()
        else:
            self._session.pause(names)
        await self._session.wait_idle(names)

    def _check_chains(self, chains: Collection[str]) -> tuple[str, ...]:
        return check_chains(chains, self.record.chains)

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
        """Add branches of a checkpoint: each has a copy of the world and of every agent's mind.

        The branches run in the current session, or in the next :meth:`run`. Each gets a world of
        its own, restored from the same snapshot, and copies of the agents' workspaces and
        conversations, which join the world as the same players. Nothing of the original is opened
        for writing.

        Args:
            source: The checkpoint; see :meth:`checkpoint`.
            count: Number of branches for each prompt.
            prompts: First messages to the agents; None is a control, which continues as if nothing
                had happened.
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
            ConfigError: An argument is wrong, or the branches lack something that they need.
            UsageError: The agents ran outside a sandbox, and the branches would run in parallel;
                or a driver cannot branch its conversations.

        Cancellation: branches that were recorded exist.
        """
        fork = Fork(
            source=source,
            count=count,
            prompts=tuple(prompts),
            labels=tuple(labels),
            duration_s=None if duration is None else check_duration(duration, "duration"),
            generations=generations,
            reseed=reseed,
            parallel=parallel,
        )
        opened = self._require_open()
        chain = self.record.chains[source.ref.chain]
        async with self._forking:
            running = () if self._session is None else self._session.running
            branches = plan_fork(fork, chain, opened.state, running)
            if not running:  # nothing of it is recorded if it could not be run
                plan = self._callbacks.without_replaced(self.plan)
                await self._workshop.survey(plan, has_worked=True)
            await record_branches(self._recorder, source, branches)
        if self._session is not None:
            self._session.add([name for name, _ in branches])
        return [name for name, _ in branches]

    async def rescore(
        self, score: Score | None = None, *, on_scored: OnRescored = ignore_rescored
    ) -> list[Row]:
        """Score the committed generations again, from their checkpoints at the end.

        Each world is restored alone, without agents, and stopped after its score. Scores that
        cannot be computed again are kept.

        Args:
            score: As for the constructor; None means that of the constructor, or of the plan.
            on_scored: Called with the number of generations that were scored, and of all.

        Returns:
            The rows with the new scores.

        Raises:
            ConfigError: There is none, or it cannot be imported.
            UsageError: A session runs.

        Cancellation: scores that were recorded remain.
        """
        if self._session is not None and not self._session.is_over.is_set():
            raise UsageError("a session of this experiment runs", hint="stop it first")
        used = self._callbacks if score is None else Callbacks(score)
        await Rescoring(
            self._require_open().plans, self._workshop, self._recorder, used, self._clock
        ).run(on_scored)
        return self.results().rows()

    # -- events and requests --------------------------------------------------------------------

    def _note(self, line: Line) -> None:
        self._files.note(line)
        self._notifier.note(line)
        if self._session is not None:
            self._session.note(line)
        self._reporter.note(line)

    def _live(self) -> Mapping[str, LiveChain]:
        return {} if self._session is None else self._session.live(self._reporter.last_actions)

    async def _answer_status(self) -> Mapping[str, Any]:
        return {"live": encode_live(self._live()), "pid": self._session and self._session.pid}

    async def _answer_pause(self, chains: Sequence[str] | None = None) -> Mapping[str, Any]:
        await self.pause(chains)
        return {}

    async def _answer_stop(
        self, chains: Sequence[str] | None = None, now: bool = False
    ) -> Mapping[str, Any]:
        await self.stop(chains, now=now)
        return {}

    async def _answer_fork(
        self, place: str, at: str | None = None, **arguments: Any
    ) -> Mapping[str, Any]:
        return {"branches": await self.fork(self.checkpoint(place, at), **arguments)}
