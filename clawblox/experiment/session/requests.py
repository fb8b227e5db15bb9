"""Requests of other processes to a running experiment, through the control socket in its directory.

| ``op`` | members of the request | members of the answer |
|---|---|---|
| ``status`` | none | ``live``, the facts that only the orchestrator knows, by chain |
| ``pause`` | ``chains`` | none; they make checkpoints and stop |
| ``stop`` | ``chains``, ``now`` | none |
| ``fork`` | ``place``, ``at``, and the arguments of ``AsyncExperiment.fork`` | ``branches`` |

``rundir.control_client`` and ``rundir.control_server`` define how requests travel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.control_client import find_sockets, request


async def ask_experiment(
    directory: Path, op: str, arguments: Mapping[str, Any] | None = None
) -> Mapping[str, Any] | None:
    """Send a request to the orchestrator of an experiment.

    Args:
        directory: The directory of the experiment.
        op: ``status``, ``pause``, ``stop`` or ``fork``.
        arguments: The members of the request.

    Returns:
        The members of the answer; None if no orchestrator runs the experiment.

    Raises:
        ControlError: The orchestrator refused, or ended.

    Cancellation: withdraws the request.
    """
    sockets = await run_blocking(find_sockets, directory)
    if not sockets:
        return None
    return await request(sockets[0], op, dict(arguments or {}))
