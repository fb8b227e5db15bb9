"""Where the attempts of an experiment are made: on this machine, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from clawblox.experiment.live.live_workshop import LiveWorkshop
from clawblox.experiment.plan.plan import Plan
from clawblox.experiment.schedule.ports import Order, Workshop
from clawblox.results import Event


def make_workshop(
    directory: Path,
    plans: Sequence[Plan],
    env: Mapping[str, str],
    *,
    grace_s: float,
    on_event: Callable[[Order, Event], object],
) -> Workshop:
    """Return the workshop of an experiment; that of a cluster connects when it needs a node.

    Args:
        directory: Directory of the experiment.
        plans: Its plan in each revision.
        env: Values of the variables that the plan names, and of logins of programs.
        grace_s: Seconds between TERM and KILL when worlds and agents are stopped.
        on_event: Called with each event of a world or an agent, and its attempt.
    """
    layout, cluster = plans[0].layout, plans[-1].cluster
    if cluster is None:
        return LiveWorkshop(directory, layout, env, grace_s=grace_s, on_event=on_event)
    from clawblox.experiment.cluster.connect import connect  # here, since few use a cluster
    from clawblox.experiment.cluster.workshop import RemoteWorkshop

    return RemoteWorkshop(
        directory,
        layout,
        env,
        cluster=cluster,
        connect=connect,
        grace_s=grace_s,
        on_event=on_event,
    )
