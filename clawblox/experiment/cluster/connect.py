"""The connection to the cluster that a plan names: the one place that chooses an engine."""

from __future__ import annotations

from functools import partial

from clawblox.errors import ConfigError
from clawblox.experiment.cluster.engine import Engine
from clawblox.experiment.plan.cluster import Cluster
from clawblox.extras import find_missing, install_command


def connect(cluster: Cluster) -> Engine:
    """Connect to a cluster. Blocks, for seconds.

    Args:
        cluster: The table of the plan.

    Raises:
        ConfigError: The extra ``ray`` is not installed.
        ClawbloxError: There is no such cluster, or it does not accept this process.
    """
    if find_missing("ray"):
        raise ConfigError(
            "needs the extra clawblox[ray], which is not installed",
            key="cluster",
            hint=f"install it: {install_command('ray')}",
        )
    from clawblox.experiment.cluster.host import Host
    from clawblox.experiment.cluster.ray_engine import RayEngine  # slow to import

    return RayEngine(cluster.address, partial(Host, cluster.lease))
