"""Operations on worlds together with their agents.

- ``experiment``, ``experiment_run``: runs, pauses, resumes and forks the chains of a plan.
- ``session``, ``opening``: the time in which one process runs an experiment, and its beginning.
- ``forking``, ``rescoring``, ``selection``: branches and new scores, and the checkpoints for them.
- ``survey``: looks for every fault before anything starts.
- ``record``, ``derived``: an experiment as its directory records it, and files made from that.
- ``events``, ``reporting``, ``requests``: what an experiment reports, and what others ask of it.
- ``plan``: plans of experiments, and the chains of generations that they consist of.
- ``inputs``: the files that an experiment reads: digests, copies, and what has changed.
- ``live_run``: agents in one instance of a world, and their checkpoints.
- ``run_resume``: resumes an interrupted instance and its agents from one checkpoint.
- ``idle_moments``: moments in which no agent is in the middle of a turn, and archives made in them.
- ``async_checkpointer``: checkpoints of a running world and its agents, at an interval, each in a
  moment in which no agent is in the middle of a turn.
- ``sync_checkpointer``: the same without ``await``.
- ``pointer``: the file that names the latest archive.
- ``cleaning``: finds and removes unneeded files of ended runs.
- ``lines``, ``journal``: the journal of an experiment, and its file.
- ``state``, ``machine``: what the journal says about an experiment, and what comes next.
- ``recorder``: writes lines and keeps the state up to date.
- ``ports``, ``orders``: what an attempt needs of its world and agents, and what is asked of it.
- ``live_workshop``, ``preparing``, ``attempt_files``: make attempts, and their run directories.
- ``live_attempt``, ``attempt_agents``, ``attempt_errors``: an attempt on a real world and agents.
- ``branches``: the agents of a branch, forked from those in a checkpoint.
- ``credentials``, ``prompts``: variables, accounts and system prompts of agents.
- ``hooks``: what hooks see of a generation.
- ``generation``, ``pauses``: the steps of one attempt, and requests to close or pause it.
- ``scheduler``, ``slots``, ``accounts``, ``spending``: run the chains within the limits.
- ``callbacks``, ``mailbox``, ``meter``: hooks, messages and clock of an attempt.
- ``layout``: the names and paths of an experiment's files.
- ``chain_files``: the table of a chain's generations, and the pointer to its latest archive.
- ``new_runs``: makes run directories, each complete or absent.
- ``workspaces``: fills the workspaces of agents in a new attempt.
- ``ended_attempts``: checks, prunes and renames the directories of attempts that have ended.
- ``rows``, ``costs``, ``results``: generations as rows of tables, and the tables.
- ``status``: the status of an experiment at one moment.
- ``chain_set``: the chains of the plan together with their branches.
- ``imports``: takes over what the public generation scripts did in the directory of a chain.
- ``harness_import``: what the public generation scripts record of an experiment, checked.
- ``leftovers``: finds and removes what an experiment does not need.
"""

from __future__ import annotations

from clawblox.experiment.async_checkpointer import AsyncCheckpointer
from clawblox.experiment.events import ExperimentEvent
from clawblox.experiment.experiment import Experiment
from clawblox.experiment.experiment_run import ExperimentRun, RunOutcome
from clawblox.experiment.hooks import LiveGeneration
from clawblox.experiment.plan import (
    AgentSpec,
    Chain,
    Checkpoints,
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
from clawblox.experiment.results import Results
from clawblox.experiment.rows import AgentRow, Row
from clawblox.experiment.status import ChainStatus, ExperimentStatus
from clawblox.experiment.sync_checkpointer import Checkpointer

__all__ = [
    "AgentRow",
    "AgentSpec",
    "AsyncCheckpointer",
    "Chain",
    "ChainStatus",
    "Checkpointer",
    "Checkpoints",
    "Condition",
    "Experiment",
    "ExperimentEvent",
    "ExperimentRecord",
    "ExperimentRun",
    "ExperimentStatus",
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
