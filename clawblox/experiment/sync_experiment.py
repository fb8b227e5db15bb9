"""Experiment: AsyncExperiment without ``await``."""

from __future__ import annotations

from pathlib import Path

from clawblox.concurrency.synchronous import (
    Mirrored,
    Twin,
    constructing,
    immediate,
    mirrored,
    opening,
    streaming,
    synchronous,
)
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment


class Experiment(Twin[AsyncExperiment]):
    """A plan, its directory, and the runs of its chains.

    The first call creates the experiment or opens it. Leaving the optional ``with`` block, or the
    end of the interpreter, pauses all running chains, with checkpoints, and stops them. Ctrl-C in
    :meth:`run` does the same, and running the script again continues. Another Ctrl-C while the
    block is left ends everything without checkpoints.

    The arguments are those of :class:`AsyncExperiment`; hooks may be plain functions.
    """

    @constructing(AsyncExperiment)
    def __init__(self) -> None: ...

    open = opening(AsyncExperiment.open)

    def _ready(self) -> AsyncExperiment:
        self._enter()
        return self._async

    def _kill_now(self) -> None:
        self._async.kill_now()

    def close(self) -> None:
        """Pause and stop all chains, and let others open the experiment; idempotent.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed: running attempts were ended without checkpoints.
        """
        self._leave()

    dir: Mirrored[Path] = mirrored(AsyncExperiment.dir)

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._ready().plan

    @property
    def record(self) -> ExperimentRecord:
        """The experiment as its directory records it now."""
        return read_experiment(self._ready().dir)

    run = synchronous(AsyncExperiment.run, returns="RunOutcome")
    pause = synchronous(AsyncExperiment.pause)
    stop = synchronous(AsyncExperiment.stop)
    kill_now = immediate(AsyncExperiment.kill_now)
    status = immediate(AsyncExperiment.status)
    events = streaming(AsyncExperiment.events, returns="Stream[ExperimentEvent]")
    find_checkpoint = immediate(AsyncExperiment.find_checkpoint)
    results = immediate(AsyncExperiment.results)
    fork = synchronous(AsyncExperiment.fork)
    rescore = synchronous(AsyncExperiment.rescore)
