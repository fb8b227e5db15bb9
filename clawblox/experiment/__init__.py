"""Experiments: many generations of worlds with their agents, by a plan.

- ``experiment``, ``experiment_run``: runs, pauses, resumes and forks the chains of a plan.
- ``session``, ``opening``: the time in which one process runs an experiment, and its beginning.
- ``record``, ``derived``: an experiment as its directory records it, and files made from that.
- ``overview``, ``inspection``: the experiments below a directory, and a generation with its files.
- ``events``, ``reporting``, ``requests``: what an experiment reports, and what others ask of it.
- ``forking``, ``rescoring``, ``selection``: branches and new scores, and the checkpoints for them.
- ``inputs``, ``layout``: the files that a plan names, and the names and paths of its own files.
- ``imports``, ``harness_import``: takes over what the public generation scripts did, checked.
- ``replacing``: renames an experiment, so that another one can begin in its place.
- ``leftovers``, ``links``: finds and removes what an experiment does not need; refuses links.
- ``plan``: plans of experiments, and the chains of generations that they consist of.
- ``history``: the journal, the state that follows from it, and what comes next.
- ``schedule``: runs chains within the limits of a plan, over protocols for worlds and agents.
- ``live``: these protocols on real worlds and agents.
- ``cluster``, ``workshops``: the same on the nodes of a cluster; chooses where attempts run.
- ``notices``: notifies a command or an address of the plan of pauses, failures and the end.
- ``tables``: rows, results and status, and the files of each chain.
"""

from __future__ import annotations

from clawblox.experiment.events import ExperimentEvent
from clawblox.experiment.experiment import Experiment
from clawblox.experiment.experiment_run import ExperimentRun, RunOutcome
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
from clawblox.experiment.record import ExperimentRecord, read_experiment
from clawblox.experiment.tables.estimates import Estimate
from clawblox.experiment.tables.groups import Difference, GroupSummary
from clawblox.experiment.tables.results import Results
from clawblox.experiment.tables.rows import AgentRow, Row
from clawblox.experiment.tables.status import ChainStatus, ExperimentStatus

__all__ = [
    "AgentRow",
    "AgentSpec",
    "Chain",
    "ChainStatus",
    "Checkpoints",
    "Cluster",
    "Condition",
    "Difference",
    "Estimate",
    "Experiment",
    "ExperimentEvent",
    "ExperimentRecord",
    "ExperimentRun",
    "ExperimentStatus",
    "GenerationEnd",
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
