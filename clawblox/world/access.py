"""Joins agents to a world, rejoins recorded sessions, and takes agents out again.

The session id of an agent with a directory is kept in ``<dir>/world_session.txt``, so that the
agent can rejoin after a resume.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable
from urllib.parse import urlencode

import attrs

from clawblox import protocol
from clawblox.agents.access.grant import Grant
from clawblox.config.arguments import check_path
from clawblox.errors import ConfigError, WorldCallError, WorldSessionError
from clawblox.results import Access
from clawblox.system.connection import Connections
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import read_regular
from clawblox.system.request import Answer

__all__ = [
    "AgentLike",
    "AgentProgram",
    "Member",
    "is_program",
    "join",
    "leave",
    "make_member",
    "read_session",
    "record_session",
]

SESSION_FILE = "world_session.txt"

_OWN_ITEMS = frozenset(attrs.fields_dict(Access)) - {"more"}

_MAX_SESSION_BYTES = 64 << 10
_RUN_SUFFIX = re.compile(r"-r(\d.*|.+-w\d+-a\d+)$")
"""The run suffix of an agent's full name: ``-r003``, or ``-rexp-g001-w0-a0``: run, world, agent."""


@runtime_checkable
class AgentLike(Protocol):
    """What ``connect`` needs of an agent: a name and a directory."""

    @property
    def name(self) -> str:
        """Its full name, run suffix included."""

    @property
    def dir(self) -> str | os.PathLike[str]:
        """Its directory."""


class AgentProgram(AgentLike, Protocol):
    """An agent whose program clawblox runs."""

    @property
    def driver(self) -> str:
        """How its program is driven: ``claude``, ``codex`` and so on."""

    @property
    def sandbox(self) -> str:
        """What stands between its program and this machine: ``none``, ``bwrap`` and so on."""

    def grant_access(self, grant: Grant) -> str:
        """Give it access to a world, and return its address of that world. Blocks.

        Raises:
            AgentResumeError: It knows its world by an address that it cannot have again.
            AgentSetupError: There is no address for it, or it cannot be recorded.
        """


def is_program(agent: object) -> TypeGuard[AgentProgram]:
    """Return whether an agent is one whose program clawblox runs."""
    return hasattr(agent, "grant_access")


@attrs.frozen
class Member:
    """An agent as a world sees it.

    Attributes:
        name: The name that the world sees: the full name without its run suffix.
        run_name: The full name.
        dir: Its directory, absolute; None for a plain name.
        driver: How its program is driven; None if it is no program that clawblox runs.
        sandbox: What stands between its program and this machine; None as for ``driver``.
    """

    name: str
    run_name: str
    dir: Path | None
    driver: str | None = None
    sandbox: str | None = None

    @property
    def session_file(self) -> Path | None:
        """File that keeps its session id; None without a directory."""
        return None if self.dir is None else self.dir / SESSION_FILE


def make_member(agent: str | AgentLike) -> Member:
    """Return the member for an agent or a name.

    Raises:
        ConfigError: It is neither a name nor an object with ``.name`` and ``.dir``.
    """
    is_plain = isinstance(agent, str)
    run_name = agent if is_plain else getattr(agent, "name", None)
    directory: Any = None if is_plain else getattr(agent, "dir", None)
    has_dir = isinstance(directory, str | os.PathLike)
    if not isinstance(run_name, str) or not run_name or not (is_plain or has_dir):
        raise ConfigError(
            "must be a name, or an object with .name and .dir", key="agent", value=agent
        )
    name = _RUN_SUFFIX.sub("", run_name) or run_name
    return Member(
        name,
        run_name,
        check_path(directory, "agent.dir").absolute() if has_dir else None,
        driver=agent.driver if is_program(agent) else None,
        sandbox=agent.sandbox if is_program(agent) else None,
    )


async def join(
    connections: Connections, member: Member, *, session: str | None, url: str, timeout: float
) -> Access:
    """Join a world, or rejoin it with a known session. Nothing is recorded.

    Args:
        connections: Those to the instance.
        member: The agent.
        session: The session that it already has; None joins anew.
        url: Address of the instance.
        timeout: Seconds for the call.

    Raises:
        WorldSessionError: The world answered with another session than the known one, or does
            not know it.
        WorldCallError: The world did not answer, or its answer has no session.

    Cancellation: the agent may have joined the world.
    """
    headers = {protocol.SESSION_HEADER: session} if session else {}
    query = urlencode({"name": member.name})
    request = connections.prepare("POST", protocol.JOIN_ROUTE, query=query, headers=headers)
    answer = await connections.send(request, timeout=timeout)
    joined = _read_join(answer, session)
    if session is not None and joined.session != session:
        raise WorldSessionError(f"expected session {session}, got {joined.session}")
    return Access(
        session=joined.session,
        agent_id=joined.fields.get("agent_id"),
        name=member.name,
        headers={protocol.SESSION_HEADER: joined.session},
        base_url=url,
        internal_base_url=url,
        more={key: value for key, value in joined.fields.items() if key not in _OWN_ITEMS},
    )


async def leave(connections: Connections, access: Mapping[str, Any], *, timeout: float) -> None:
    """Leave a world.

    Args:
        connections: Those to the instance.
        access: What ``connect`` returned, or an access.
        timeout: Seconds for the call.

    Raises:
        ConfigError: ``access`` is not what ``connect`` returned.
        WorldCallError: The world did not answer, or refused.

    Cancellation: the agent may have left the world.
    """
    headers = access.get("headers")
    is_usable = isinstance(headers, Mapping) and all(
        isinstance(part, str) for header in headers.items() for part in header
    )
    if not is_usable:
        raise ConfigError("must be what connect returned", key="access", value=dict(access))
    request = connections.prepare("POST", protocol.LEAVE_ROUTE, headers=headers)
    answer = await connections.send(request, timeout=timeout)
    _require_success(answer, protocol.LEAVE_ROUTE)


def read_session(member: Member) -> str | None:
    """Return the session that the directory of an agent records; None without one. Blocks.

    Raises:
        ConfigError: It cannot be read, or is not valid.
    """
    path = member.session_file
    if path is None:
        return None
    try:
        text = read_regular(path, max_bytes=_MAX_SESSION_BYTES).decode().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recorded session cannot be read: {error}", path=path) from error
    if not protocol.is_session_id(text):
        raise ConfigError(
            "the file does not contain a session id",
            path=path,
            value=text[:80],
            hint="remove the file to join with a new session",
        )
    return text


def record_session(member: Member, session: str) -> None:
    """Record the session of an agent in its directory, if it has one. Blocks.

    Raises:
        ConfigError: It cannot be written; what was recorded before still is.
    """
    path = member.session_file
    if path is None:
        return
    try:
        make_private_dir(path.parent)
        publish_bytes(path, f"{session}\n".encode())
    except OSError as error:
        raise ConfigError(f"the session cannot be recorded: {error}", path=path) from error


def _read_join(answer: Answer, known: str | None) -> protocol.JoinAnswer:
    if known is not None and 400 <= answer.status < 500:
        raise WorldSessionError(
            f"expected session {known}, but the world does not know it",
            status=answer.status,
            body_start=answer.body_start,
            hint="a world must save its sessions in its snapshots and restore them",
        )
    _require_success(answer, protocol.JOIN_ROUTE)
    try:
        return protocol.parse_join_answer(answer.body)
    except ValueError as error:
        raise WorldCallError(
            str(error), status=answer.status, body_start=answer.body_start
        ) from error


def _require_success(answer: Answer, route: str) -> None:
    if not 200 <= answer.status < 300:
        raise WorldCallError(
            f"POST {route} answered {answer.status}",
            status=answer.status,
            body_start=answer.body_start,
        )
