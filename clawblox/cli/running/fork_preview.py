"""Preview what a fork of an experiment would make. Nothing is started or written."""

from __future__ import annotations

from clawblox.cli.running.experiment_status import look_at_experiment
from clawblox.experiment.forking import Fork, plan_fork
from clawblox.experiment.live.survey import survey_plan
from clawblox.experiment.record import ExperimentRecord
from clawblox.experiment.tables.status import RUNNING
from clawblox.views.experiment_fork import ForkPreview


async def preview_fork(record: ExperimentRecord, fork: Fork) -> ForkPreview:
    """Return what a fork would make, if nothing is wrong with it.

    Args:
        record: The experiment.
        fork: The fork.

    Raises:
        ConfigError: An argument is wrong, or the branches lack something that they need.
        UsageError: The branches cannot run in parallel, or their conversations cannot be branched.

    Cancellation: has no effect.
    """
    status = (await look_at_experiment(record.directory)).status
    running = [chain.name for chain in status.chains if chain.state in RUNNING]
    is_running = status.pid is not None
    chain = record.chains[fork.source.ref.chain]
    branches = plan_fork(fork, chain, record.state, running if is_running else ())
    if not is_running:
        directory = record.directory
        await survey_plan(record.plan, directory, stage="worked", are_variables_needed=False)
    rows = record.results().rows()
    ref = fork.source.ref
    costs = [
        row.cost_usd for row in rows if (row.chain, row.generation) == (ref.chain, ref.generation)
    ]
    return ForkPreview(
        fork=fork,
        branches=tuple(branches),
        chain=chain,
        status=status,
        source_usd=costs[0] if costs else None,
    )
