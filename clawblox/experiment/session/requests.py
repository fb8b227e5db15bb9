"""Requests of other processes to a running experiment, through the control socket in its directory.

| ``op`` | members of the request | members of the answer |
|---|---|---|
| ``status`` | none | ``live``, the facts that only the orchestrator knows, by chain |
| ``pause`` | ``chains`` | none; they make checkpoints and stop |
| ``stop`` | ``chains``, ``now`` | none |
| ``fork`` | ``place``, ``at``, and the arguments of ``Experiment.fork`` | ``branches`` |

``rundir.control_client`` and ``rundir.control_server`` define how requests travel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from clawblox.concurrency.threads import run_blocking
from clawblox.rundir.control_client import find_sockets, request
from clawblox.rundir.control_server import ControlServer, Handler, Operation, SendEvent

_NAME: Final = "experiment"

_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "status": (),
    "pause": ("chains",),
    "stop": ("chains", "now"),
    "fork": (
        "place",
        "at",
        "count",
        "prompts",
        "labels",
        "duration",
        "generations",
        "reseed",
        "parallel",
    ),
}


def make_control_server(
    directory: Path, handlers: Mapping[str, Callable[..., Awaitable[Mapping[str, Any]]]]
) -> ControlServer:
    """Return the server of an experiment's control socket; the caller opens and runs it.

    Args:
        directory: The directory of the experiment.
        handlers: Functions by operation; they take the members of a request as arguments.
    """

    def handle(op: str) -> Handler:
        async def call(asked: Mapping[str, Any], _send: SendEvent) -> Mapping[str, Any]:
            return await handlers[op](**asked)

        return call

    operations = {op: Operation(handle(op), takes) for op, takes in _MEMBERS.items()}
    return ControlServer(directory, _NAME, operations)


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
