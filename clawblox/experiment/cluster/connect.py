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


def require_safe(engine: Engine, cluster: Cluster) -> None:
    """Refuse to send keys to a cluster where others could take them. Blocks.

    Args:
        engine: The connection.
        cluster: The table of the plan.

    Raises:
        ConfigError: Anybody can run programs there, or read what travels.
    """
    if not engine.has_token:
        raise ConfigError(
            "must require a token before keys of agents travel to it: whoever reaches it can run"
            " programs on its nodes",
            key="cluster",
            hint="RAY_AUTH_MODE=token before ray start on each node, and here; or keys = 'node' in"
            " [cluster], and export the keys before ray start",
        )
    if not (engine.is_private or cluster.trusted_network):
        raise ConfigError(
            "must be encrypted before keys of agents travel to it",
            key="cluster",
            hint="RAY_USE_TLS=1 with Ray's certificates; or trusted_network = true in [cluster]; or"
            " keys = 'node', and export the keys before ray start",
        )
