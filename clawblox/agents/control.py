"""Requests from other processes to a running agent, through the control socket in its directory.

| ``op`` | members of the request | members of the answer |
|---|---|---|
| ``send`` | ``prompt`` | ``status`` |
| ``stop`` | ``grace_seconds`` | ``status`` |
| ``status`` | | ``status``, an :class:`~clawblox.agents.status.AgentRecord` |

``rundir.control_client`` and ``rundir.control_server`` define the transport. The socket is in
``.clawblox`` in the agent's directory; sandboxes hide it from the agent's program.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import ValidationError

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord, AgentStatus, make_status
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_grace
from clawblox.errors import AgentStartError, ControlError, UsageError
from clawblox.rundir.control_client import (
    MAX_REQUEST_BYTES,
    encode_message,
    find_sockets,
    request,
)
from clawblox.rundir.control_server import ControlServer, Operation, SendEvent
from clawblox.telemetry.own_log import OwnLog
from clawblox.typed_values import converter

_log = OwnLog(__name__)


_to_record: Final = converter(AgentRecord)


async def open_control(
    agent: str,
    directory: AgentDir,
    read_record: Callable[[], AgentRecord],
    send: Callable[[str], Awaitable[object]],
    stop: Callable[[float], Awaitable[object]],
) -> ControlServer | None:
    """Open the control socket of an agent; the caller runs the server.

    Args:
        agent: Full name of the agent.
        directory: The agent's directory.
        read_record: Returns the current record of the agent.
        send: Sends the agent a message.
        stop: Stops the agent, with seconds between TERM and KILL.

    Returns:
        The server; None if no socket could be made, so that other processes cannot send requests.

    Raises:
        AgentStartError: Another orchestrator runs the agent.

    Cancellation: the socket is removed.
    """

    async def handle_send(asked: Mapping[str, Any], _send: SendEvent) -> Mapping[str, Any]:
        prompt = asked.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise UsageError("prompt: must be text, not empty")
        await send(prompt)
        return {"status": read_record()}

    async def handle_stop(asked: Mapping[str, Any], _send: SendEvent) -> Mapping[str, Any]:
        await stop(check_grace(asked.get("grace_seconds")))
        return {"status": read_record()}

    async def handle_status(_asked: Mapping[str, Any], _send: SendEvent) -> Mapping[str, Any]:
        return {"status": read_record()}

    operations = {
        "send": Operation(handle_send, takes=["prompt"]),
        "stop": Operation(handle_stop, takes=["grace_seconds"]),
        "status": Operation(handle_status),
    }
    server = ControlServer(directory.path, "agent", operations)
    try:
        await server.open()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AgentStartError(
                "another orchestrator runs it",
                agent=agent,
                agent_dir=directory.path,
                hint="clawblox agent stop DIR ends it there",
            ) from error
        _log.warning("no control socket", agent=agent, error=str(error))
        return None
    return server


async def ask_agent(
    directory: Path, op: str, arguments: Mapping[str, Any] | None = None
) -> AgentStatus | None:
    """Send a request to the orchestrator of an agent.

    Args:
        directory: The agent's directory.
        op: ``send``, ``stop`` or ``status``.
        arguments: The members of the request.

    Returns:
        Status of the agent after the request; None if no orchestrator runs it.

    Raises:
        UsageError: The message is too long for a request.
        ControlError: The orchestrator refused, or ended.

    Cancellation: withdraws the request.
    """
    given = dict(arguments or {})
    if len(encode_message({**given, "op": op})) > MAX_REQUEST_BYTES:
        limit = f"{MAX_REQUEST_BYTES >> 10} kB"
        raise UsageError(
            f"the message is longer than {limit}",
            hint="write it into a file of the agent's workspace, and send the name of that file",
        )
    sockets = await run_blocking(find_sockets, directory)
    if not sockets:
        return None
    answer = await request(sockets[0], op, given)
    try:
        record = _to_record(answer.get("status"))
    except ValidationError as error:
        raise ControlError(
            f"the orchestrator's answer is not the status of an agent: {error}", path=sockets[0]
        ) from error
    return make_status(directory, record)
