"""Experiment: AsyncExperiment without ``await``."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, cast

from clawblox.concurrency.synchronous import (
    Mirrored,
    Twin,
    call_as,
    constructing,
    immediate,
    make_twin,
    mirrored,
    streaming,
    synchronous,
)
from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment

_P = ParamSpec("_P")


def _opening(
    method: Callable[_P, AsyncExperiment],
) -> Callable[Concatenate[type[Experiment], _P], Experiment]:
    """Return a class method that calls one of the async class, with the same signature."""

    def call(cls: type[Experiment], /, *args: _P.args, **kwargs: _P.kwargs) -> Experiment:
        return make_twin(cls, call_as(f"{cls.__qualname__}.open", method, *args, **kwargs))

    return update_wrapper(call, cast(Any, method).__func__)


class Experiment(Twin[AsyncExperiment]):
    """A plan, its directory, and the sessions in which its chains are run.

    The first call begins the experiment or opens it. Leaving the optional ``with`` block, or the
    end of the interpreter, pauses what runs, with a checkpoint, and stops it. Ctrl-C in :meth:`run`
    does the same, and the same script continues. Another Ctrl-C while the block is left ends
    everything without checkpoints.

    The arguments are those of :class:`AsyncExperiment`; hooks may be plain functions.
    """

    __init__ = constructing(AsyncExperiment)
    open = classmethod(_opening(AsyncExperiment.open))

    def _ready(self) -> AsyncExperiment:
        self._enter()
        return self._async

    def _kill_now(self) -> None:
        self._async.kill_now()

    def close(self) -> None:
        """Pause and stop what runs, and let others open the experiment; idempotent.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed: what still ran was ended without checkpoints.
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
