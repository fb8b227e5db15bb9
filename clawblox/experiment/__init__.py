"""Experiments: many generations of worlds and agents, run according to a plan.

- ``async_experiment``: runs, pauses, resumes and forks the chains of a plan, in a directory.
- ``sync_experiment``: the same without ``await``.
- ``running``: an open experiment, and runs of its chains.
- ``reading``: an experiment as its directory records it, from any process.
- ``harness``: continues experiments that the public generation scripts started.
- ``inputs``, ``layout``: the files that a plan names, and the names and paths of the experiment's
files.
- ``leftovers``, ``links``: finds and removes unneeded files; refuses links.
- ``plan``: plans of experiments, and the chains of generations that they consist of.
- ``history``: the journal, the state derived from it, and the next step.
- ``schedule``: runs chains within the limits of a plan, over protocols for worlds and agents.
- ``live``: implements these protocols with real worlds and agents.
- ``cluster``: implements them on the nodes of a cluster.
- ``notices``: notifies a command or an address of the plan of pauses, failures and the end.
- ``tables``: rows, results and status, and the files of each chain.
"""

from __future__ import annotations

from clawblox.experiment.async_experiment import AsyncExperiment
from clawblox.experiment.live.hooks import GenerationEnd, LiveGeneration
from clawblox.experiment.plan import (
    AgentSpec,
    Chain,
    Checkpoints,
    Cluster,
    Condition,
    Inherit,
    Limits,
    Plan,
    Price,
    Retry,
    Save,
    Stop,
    WorldSpec,
)
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment
from clawblox.experiment.running.events import ExperimentEvent
from clawblox.experiment.running.experiment_run import ExperimentRun, RunOutcome
from clawblox.experiment.sync_experiment import Experiment
from clawblox.experiment.tables.estimates import Estimate
from clawblox.experiment.tables.groups import GroupDifference, GroupSummary
from clawblox.experiment.tables.results import Results
from clawblox.experiment.tables.rows import AgentRow, Row
from clawblox.experiment.tables.status import ChainStatus, ExperimentStatus

__all__ = [
    "AgentRow",
    "AgentSpec",
    "AsyncExperiment",
    "Chain",
    "ChainStatus",
    "Checkpoints",
    "Cluster",
    "Condition",
    "Estimate",
    "Experiment",
    "ExperimentEvent",
    "ExperimentRecord",
    "ExperimentRun",
    "ExperimentStatus",
    "GenerationEnd",
    "GroupDifference",
    "GroupSummary",
    "Inherit",
    "Limits",
    "LiveGeneration",
    "Plan",
    "Price",
    "Results",
    "Retry",
    "Row",
    "RunOutcome",
    "Save",
    "Stop",
    "WorldSpec",
    "read_experiment",
]
