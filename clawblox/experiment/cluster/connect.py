"""Connects to the cluster that a plan names. Only this module chooses an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import wait
from functools import partial
from typing import TypeVar

from clawblox.errors import ConfigError
from clawblox.experiment.cluster.engine import Engine
from clawblox.experiment.plan.cluster import Cluster
from clawblox.extras import find_missing, install_command

_T = TypeVar("_T")


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
    from clawblox.experiment.cluster.host import AttemptHost
    from clawblox.experiment.cluster.ray_engine import RayEngine  # slow to import

    return RayEngine(cluster.address, partial(AttemptHost, cluster.lease))


def require_safe(engine: Engine, cluster: Cluster) -> None:
    """Refuse to send keys to a cluster where others could read them. Blocks.

    Args:
        engine: The connection.
        cluster: The table of the plan.

    Raises:
        ConfigError: Anyone can run programs on the cluster or read its traffic.
    """
    if not engine.has_token:
        raise ConfigError(
            "must require a token before keys of agents are sent to it: anyone who reaches it can"
            " run programs on its nodes",
            key="cluster",
            hint="RAY_AUTH_MODE=token before ray start on each node, and here; or keys = 'node' in"
            " [cluster], and export the keys before ray start",
        )
    if not (engine.is_private or cluster.trusted_network):
        raise ConfigError(
            "must be encrypted before keys of agents are sent to it",
            key="cluster",
            hint="RAY_USE_TLS=1 with Ray's certificates; or trusted_network = true in [cluster]; or"
            " keys = 'node', and export the keys before ray start",
        )


def gather(
    engine: Engine, function: Callable[[], _T], timeout: float
) -> tuple[Mapping[str, _T], Mapping[str, str]]:
    """Call a function on each node and wait for the answers. Blocks.

    Args:
        engine: The connection to the cluster.
        function: A function of a module that the nodes have.
        timeout: Seconds for all answers.

    Returns:
        The answers by node, and, for each node that has not answered, the reason.
    """
    answers, failures = {}, {}
    futures = engine.ask_nodes(function)
    done = wait(futures.values(), timeout).done
    for node, future in sorted(futures.items()):
        if future not in done:
            failures[node] = f"no answer within {timeout:g} s"
        elif error := future.exception():
            failures[node] = f"{type(error).__name__}: {error}"
        else:
            answers[node] = future.result()
    return answers, failures
