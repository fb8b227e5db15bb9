"""Joins agents to a world, rejoins recorded sessions, and removes agents.

The session id of an agent with a directory is kept in ``<dir>/world_session.txt``, so that the
agent can rejoin after a resume. ``<dir>/world_join.json`` holds the world's full answer to the
join, because the check of a session does not return it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeGuard
from urllib.parse import urlencode

import anyio
import attrs
import msgspec

from clawblox import protocol
from clawblox.config.agent_arguments import AgentLike
from clawblox.config.arguments import check_path
from clawblox.errors import ConfigError, WorldCallError, WorldSessionError
from clawblox.protocol import JoinAnswer
from clawblox.results import Access
from clawblox.rundir.paths import ANSWER_FILE, SESSION_FILE
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import read_regular

if TYPE_CHECKING:
    from clawblox.agents.access.grant import Grant
    from clawblox.system.connection import Connections
    from clawblox.system.request import Answer

_OWN_ITEMS = frozenset(attrs.fields_dict(Access)) - {"more", "rejoined"}

_MAX_RECORD_BYTES: Final = 64 << 10
_UNDO_TIMEOUT_S: Final = 2.0
"""Longest wait for a world to remove a player that it should not have created, in seconds."""
_NO_SUCH_ROUTE: Final = 501
_TRY_LATER: Final = (408, 425, 429)
"""Statuses that do not report whether the world knows a session."""


class AgentProgram(AgentLike, Protocol):
    """An agent with a program that clawblox runs."""

    @property
    def driver(self) -> str:
        """Driver of the program, such as ``claude`` or ``codex``."""

    @property
    def sandbox(self) -> str:
        """Sandbox of the program, such as ``none`` or ``bwrap``."""

    def grant_access(self, grant: Grant) -> str:
        """Give the agent access to a world, and return the world's address for it. Blocks.

        Raises:
            UsageError: The agent is not open, so the address would not be served.
            AgentResumeError: The address under which the agent knows its world is no longer
                available.
            AgentSetupError: No address is available for the agent, or it cannot be recorded.
        """


def is_program(agent: object) -> TypeGuard[AgentProgram]:
    """Return whether clawblox runs the program of an agent."""
    return hasattr(agent, "grant_access")


@attrs.frozen
class Actor:
    """An agent in a world.

    Attributes:
        session: Session of the agent.
        agent_id: The world's id of the agent; not a string if the world gave none.
        name: The name that the world shows.
    """

    session: str = attrs.field(repr=False)
    agent_id: object
    name: str

    @classmethod
    def from_access(cls, access: Access) -> Self:
        """Return the agent that an access belongs to."""
        return cls(access.session, access.agent_id, access.name)


class WorldMember(msgspec.Struct, frozen=True):
    """An agent as a world sees it.

    Attributes:
        name: The name that the world sees: the full name without its run suffix.
        run_name: The full name.
        dir: Directory of the agent, absolute; None for a plain name.
        driver: Driver of the program; None unless clawblox runs the program.
        sandbox: Sandbox of the program; None unless clawblox runs the program.
    """

    name: str
    run_name: str
    dir: Path | None
    driver: str | None = None
    sandbox: str | None = None

    @property
    def session_file(self) -> Path | None:
        """File with the session id; None for an agent without a directory."""
        return None if self.dir is None else self.dir / SESSION_FILE


def make_member(agent: str | AgentLike) -> WorldMember:
    """Return the member for an agent or a name.

    Raises:
        ConfigError: ``agent`` is neither a name nor an object with ``.name`` and ``.dir``.
    """
    is_plain = isinstance(agent, str)
    run_name = agent if is_plain else getattr(agent, "name", None)
    directory: Any = None if is_plain else getattr(agent, "dir", None)
    has_dir = isinstance(directory, str | os.PathLike)
    if not isinstance(run_name, str) or not run_name or not (is_plain or has_dir):
        raise ConfigError(
            "must be a name, or an object with .name and .dir", key="agent", value=agent
        )
    return WorldMember(
        protocol.display_name(run_name),
        run_name,
        check_path(directory, "agent.dir").absolute() if has_dir else None,
        driver=agent.driver if is_program(agent) else None,
        sandbox=agent.sandbox if is_program(agent) else None,
    )


async def join(
    connections: Connections,
    member: WorldMember,
    *,
    known: JoinAnswer | None,
    candidates: Sequence[JoinAnswer] = (),
    observe: str,
    url: str,
    timeout: float,
    others: Container[str] = (),
) -> Access:
    """Join a world, or verify that it knows a session. The session is not recorded.

    A known session is verified with an observation, because observations do not change the world.
    If the world refuses the observation or has no such route, the agent joins with the session.

    Args:
        connections: The connections to the instance.
        member: The agent.
        known: The world's answer to an earlier join, whose session the agent must have.
        candidates: Answers to earlier joins, one of which the world may know; if it knows none, the
            agent joins with a new session. Not used with ``known``.
        observe: Route of observations.
        url: Address of the instance.
        timeout: Seconds for the call.
        others: Sessions of other agents, which must stay in the world.

    Raises:
        WorldSessionError: The world does not know the session of ``known``: it refused, or created
            another one, which was removed again.
        WorldCallError: The world did not answer, or its answer has no session.

    Cancellation: the agent may have joined the world; a session other than the known one is
    removed.
    """
    ends_at = anyio.current_time() + timeout
    earlier = candidates if known is None else (known,)
    for answer in earlier:
        seen = await ask_session(connections, answer.session, observe=observe, timeout=timeout)
        if 200 <= seen.status < 300:
            return _make_access(member, answer, url, rejoined=True)
        if not is_refusal(seen) and seen.status not in (*range(300, 400), _NO_SUCH_ROUTE):
            raise _unsuccessful(seen, f"GET {observe}")
        timeout = max(ends_at - anyio.current_time(), 0.0)
    asked = next(iter(earlier), None)
    query = urlencode({"name": member.name})
    while True:
        headers = {protocol.SESSION_HEADER: asked.session} if asked else {}
        request = connections.prepare("POST", protocol.JOIN_ROUTE, query=query, headers=headers)
        reply = await connections.send(request, timeout=timeout)
        if known is not None or asked is None or not 400 <= reply.status < 500:
            break
        asked = None  # the world knows no candidate, so the agent is a new one
        timeout = max(ends_at - anyio.current_time(), 0.0)
    joined = _read_join(reply, known)
    if known is not None and joined.session != known.session:
        is_undone = joined.session not in others and await _undo(connections, joined.session)
        raise WorldSessionError(
            f"expected session {known.session}, got {joined.session}",
            hint=None if is_undone else "the world may have a second player of this name now",
        )
    is_same = asked is not None and joined.session == asked.session
    return _make_access(member, joined, url, rejoined=is_same)


async def ask_session(
    connections: Connections, session: str, *, observe: str, timeout: float
) -> Answer:
    """Return the world's answer to an observation with a session, whatever its status.

    Raises:
        WorldCallError: The world did not answer.

    Cancellation: has no effect on the world.
    """
    headers = {protocol.SESSION_HEADER: session}
    request = connections.prepare("GET", observe, headers=headers)
    return await connections.send(request, timeout=timeout)


def is_refusal(answer: Answer) -> bool:
    """Return whether an answer is a definite refusal of a session, not a request to try later."""
    return 400 <= answer.status < 500 and answer.status not in _TRY_LATER


async def _undo(connections: Connections, session: str) -> bool:
    """Remove a player that should not be in the world; return whether that succeeded."""
    access = {"headers": {protocol.SESSION_HEADER: session}}
    with anyio.CancelScope(shield=True):
        try:
            await leave(connections, access, timeout=_UNDO_TIMEOUT_S)
        except WorldCallError:
            return False
    return True


def _make_access(member: WorldMember, joined: JoinAnswer, url: str, *, rejoined: bool) -> Access:
    return Access(
        session=joined.session,
        agent_id=joined.fields.get("agent_id"),
        name=member.name,
        headers={protocol.SESSION_HEADER: joined.session},
        base_url=url,
        internal_base_url=url,
        more={key: value for key, value in joined.fields.items() if key not in _OWN_ITEMS},
        rejoined=rejoined,
    )


def join_answer(access: Access) -> JoinAnswer:
    """Return the world's answer to the join that produced an access."""
    fields = {**access.more, "session": access.session, "agent_id": access.agent_id}
    return protocol.read_join_answer(fields)


async def leave(connections: Connections, access: Mapping[str, Any], *, timeout: float) -> None:
    """Leave a world.

    Args:
        connections: The connections to the instance.
        access: The result of ``connect``, or an access.
        timeout: Seconds for the call.

    Raises:
        ConfigError: ``access`` is not a result of ``connect``.
        WorldCallError: The world did not answer, or refused.

    Cancellation: the agent may have left the world.
    """
    headers = access.get("headers")
    is_usable = isinstance(headers, Mapping) and all(
        isinstance(part, str) for header in headers.items() for part in header
    )
    if not is_usable:
        raise ConfigError("must be a result of connect", key="access", value=dict(access))
    request = connections.prepare("POST", protocol.LEAVE_ROUTE, headers=headers)
    answer = await connections.send(request, timeout=timeout)
    _require_success(answer, f"POST {protocol.LEAVE_ROUTE}")


def read_session(member: WorldMember) -> JoinAnswer | None:
    """Return the join that an agent's directory records; None without a record. Blocks.

    If only the session is recorded, the answer has only the session.

    Raises:
        ConfigError: The session cannot be read, or is not valid.
    """
    path = member.session_file
    if path is None:
        return None
    try:
        text = read_regular(path, max_bytes=_MAX_RECORD_BYTES).decode().strip()
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
    try:
        answer = protocol.parse_join_answer(
            read_regular(path.with_name(ANSWER_FILE), max_bytes=_MAX_RECORD_BYTES)
        )
    except (OSError, ValueError):
        answer = JoinAnswer.of_session(text)
    return answer if answer.session == text else JoinAnswer.of_session(text)


def record_session(member: WorldMember, access: Access) -> None:
    """Record the session of an agent in its directory, if it has one. Blocks.

    Raises:
        ConfigError: The record cannot be written; the earlier record stays.
    """
    path = member.session_file
    if path is None:
        return
    answer = json.dumps(dict(join_answer(access).fields), separators=(",", ":")).encode()
    try:
        make_private_dir(path.parent)
        if len(answer) < _MAX_RECORD_BYTES:
            publish_bytes(path.with_name(ANSWER_FILE), answer + b"\n")
        publish_bytes(path, f"{access.session}\n".encode())
    except OSError as error:
        raise ConfigError(f"the session cannot be recorded: {error}", path=path) from error


def _read_join(answer: Answer, known: JoinAnswer | None) -> JoinAnswer:
    if known is not None and 400 <= answer.status < 500:
        raise WorldSessionError(
            f"expected session {known.session}, but the world does not know it",
            status=answer.status,
            body_start=answer.body_start,
            hint="a world must save its sessions in its snapshots and restore them",
        )
    _require_success(answer, f"POST {protocol.JOIN_ROUTE}")
    try:
        return protocol.parse_join_answer(answer.body)
    except ValueError as error:
        raise WorldCallError(
            str(error), status=answer.status, body_start=answer.body_start
        ) from error


def _require_success(answer: Answer, request: str) -> None:
    if not 200 <= answer.status < 300:
        raise _unsuccessful(answer, request)


def _unsuccessful(answer: Answer, request: str) -> WorldCallError:
    return WorldCallError(
        f"{request} answered {answer.status}",
        status=answer.status,
        body_start=answer.body_start,
    )
