"""Chooses the backend of an experiment: this machine, or a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawblox.experiment.history.orders import AttemptOrder
from clawblox.experiment.history.plans import Plans
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.live.survey import Survey, survey_plan
from clawblox.experiment.plan.cluster import Cluster
from clawblox.experiment.plan.plan import Layout, Plan
from clawblox.experiment.schedule.ports import AttemptBackend
from clawblox.results import Event

if TYPE_CHECKING:
    from clawblox.experiment.cluster.remote_backend import RemoteBackend


def make_backend(
    directory: Path,
    plans: Plans,
    env: Mapping[str, str],
    *,
    grace_s: float,
    on_event: Callable[[AttemptOrder, Event], object],
) -> AttemptBackend:
    """Return the backend of an experiment; the backend of a cluster connects on demand.

    Args:
        directory: Directory of the experiment.
        plans: Its plans.
        env: Values of the variables that the plan names, and of logins of programs.
        grace_s: Seconds between TERM and KILL when worlds and agents are stopped.
        on_event: Called with each event of a world or an agent, and its attempt.
    """
    place = (directory, plans.present.layout, env)
    cluster = plans.present.cluster
    if cluster is None:
        return LiveBackend(*place, grace_s=grace_s, on_event=on_event)
    return _make_remote(*place, cluster, grace_s=grace_s, on_event=on_event)


async def survey_experiment(plan: Plan, directory: Path, **how: Any) -> Survey:
    """Check everything that an experiment needs, in the place where it will run; start nothing.

    Args:
        plan: The plan.
        directory: The directory of the experiment, which need not exist.
        **how: As for :func:`~clawblox.experiment.live.survey.survey_plan`.

    Raises:
        ConfigError: There are faults; the error names each.

    Cancellation: ends the programs of the checks.
    """
    if plan.cluster is None:
        return await survey_plan(plan, directory, **how)
    remote = _make_remote(directory, plan.layout, os.environ, plan.cluster)
    async with aclosing(remote) as backend:
        return await backend.survey_on_node(plan, **how)


def _make_remote(
    directory: Path, layout: Layout, env: Mapping[str, str], cluster: Cluster, **more: Any
) -> RemoteBackend:
    from clawblox.experiment.cluster.connect import connect  # few experiments use a cluster
    from clawblox.experiment.cluster.remote_backend import RemoteBackend

    return RemoteBackend(directory, layout, env, cluster=cluster, connect=connect, **more)
