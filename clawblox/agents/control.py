"""Requests of other processes to a running agent, through the control socket of its directory.

| ``op`` | members of the request | members of the answer |
|---|---|---|
| ``send`` | ``prompt`` | ``status`` |
| ``stop`` | ``grace_seconds`` | ``status`` |
| ``status`` | | ``status``, an :class:`~clawblox.agents.status.AgentRecord` |

``rundir.control_client`` and ``rundir.control_server`` define how requests travel. The socket is
in ``.clawblox`` of the agent's directory, and no sandbox shows it to the agent's program.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import attrs
import msgspec

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
from clawblox.rundir.control_server import ControlServer, SendEvent
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_NAME: Final = "agent"
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "send": ("prompt",),
    "stop": ("grace_seconds",),
    "status": (),
}


class ControlledAgent(Protocol):
    """The operations that other processes may use on an agent."""

    async def send(self, *, prompt: str) -> object:
        """Send the agent a message."""

    async def stop(self, *, grace_seconds: float) -> object:
        """Stop the agent."""


def make_control_server(
    directory: AgentDir, agent: ControlledAgent, read_record: Callable[[], AgentRecord]
) -> ControlServer:
    """Return the server of an agent's control socket; the caller opens and runs it.

    Opening it fails while another orchestrator runs the agent.

    Args:
        directory: The agent's directory.
        agent: The agent.
        read_record: Returns the current record of the agent.
    """
    handlers = _Handlers(agent, read_record)
    return ControlServer(
        directory.path,
        _NAME,
        {"send": handlers.send, "stop": handlers.stop, "status": handlers.status},
    )


async def open_control(server: ControlServer, agent: str, directory: Path) -> bool:
    """Open an agent's control socket.

    Args:
        server: Result of :func:`make_control_server`.
        agent: Full name of the agent.
        directory: Its directory.

    Returns:
        Whether the socket is open; without it, other processes cannot send requests.

    Raises:
        AgentStartError: Another orchestrator runs the agent.

    Cancellation: no socket remains.
    """
    try:
        await server.open()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AgentStartError(
                "another orchestrator runs it",
                agent=agent,
                agent_dir=directory,
                hint="clawblox agent stop DIR ends it there",
            ) from error
        _log.warning("no control socket", agent=agent, error=str(error))
        return False
    return True


@attrs.frozen
class _Handlers:
    _agent: ControlledAgent
    _read_record: Callable[[], AgentRecord]

    async def send(self, asked: Mapping[str, Any], _send_event: SendEvent) -> Mapping[str, Any]:
        _check_members("send", asked)
        prompt = asked.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise UsageError("prompt: must be text, not empty")
        await self._agent.send(prompt=prompt)
        return self._answer()

    async def stop(self, asked: Mapping[str, Any], _send_event: SendEvent) -> Mapping[str, Any]:
        _check_members("stop", asked)
        grace_seconds = check_grace(asked.get("grace_seconds"))
        await self._agent.stop(grace_seconds=grace_seconds)
        return self._answer()

    async def status(self, asked: Mapping[str, Any], _send_event: SendEvent) -> Mapping[str, Any]:
        _check_members("status", asked)
        return self._answer()

    def _answer(self) -> Mapping[str, Any]:
        return {"status": self._read_record()}


def _check_members(op: str, asked: Mapping[str, Any]) -> None:
    known = _MEMBERS[op]
    for key in asked:
        if key not in known:
            raise UsageError(f"{op} takes no {key!r}; it takes: {', '.join(known) or 'nothing'}")


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
        record = msgspec.convert(answer.get("status"), AgentRecord)
    except msgspec.ValidationError as error:
        raise ControlError(
            f"the orchestrator's answer is not the status of an agent: {error}", path=sockets[0]
        ) from error
    return make_status(directory, record)
