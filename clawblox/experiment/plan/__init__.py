"""Plans of experiments: frozen values, checked on construction.

- ``plan``: the plan, and its chains.
- ``parts``: its parts, such as agents, the world and limits.
- ``cluster``: the cluster whose nodes run the attempts.
- ``changes``: the differences between two plans, and the changes that a resume may make.
- ``save_times``: checks that saving leaves time for work.
- ``smoke``: the plan of a short trial of each condition.
- ``plan_file``: plans as TOML.
- ``sweep``: the conditions of a plan.
- ``dotted``: reads and sets the fields of a plan by dotted paths.
- ``naming``: names that stay the same when a plan is extended.
- ``programs``: the programs of commands.
- ``values``: frozen values and their plain form.
"""

from __future__ import annotations

from clawblox.experiment.plan.cluster import Cluster
from clawblox.experiment.plan.parts import (
    AgentSpec,
    Checkpoints,
    Condition,
    Inherit,
    Limits,
    Price,
    Retry,
    Save,
    Stop,
    WorldSpec,
)
from clawblox.experiment.plan.plan import Chain, Plan

__all__ = [
    "AgentSpec",
    "Chain",
    "Checkpoints",
    "Cluster",
    "Condition",
    "Inherit",
    "Limits",
    "Plan",
    "Price",
    "Retry",
    "Save",
    "Stop",
    "WorldSpec",
]
