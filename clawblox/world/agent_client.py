"""AsyncAgentClient: one agent in one instance, as an object with the world's verbs.

The requests of an agent are encoded once. They use the connections that the clients of an instance
share. Each call in progress has its own connection, so any number of tasks can use one client, and
calls do not wait for each other.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, Self
from urllib.parse import urlencode

import anyio
import attrs
import msgspec

from clawblox import protocol
from clawblox.config.agent_arguments import AgentLike
from clawblox.config.arguments import check_count, check_kind, check_seconds
from clawblox.errors import (
    ActionRefusedError,
    ClawbloxError,
    ConfigError,
    UsageError,
    WorldCallError,
    WorldExitedError,
)
from clawblox.errors.general import VALUE_CHARS, shorten
from clawblox.protocol import JoinAnswer
from clawblox.results import Access
from clawblox.system.request import Answer, Request
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.access import WorldMember, join_answer, make_member
from clawblox.world.http_clients import AsyncHttpClient, ClientRequests
from clawblox.world.places import Waits, WorldPlace, unusable
from clawblox.world.players import SavedPlayers
from clawblox.world.rosters import LOST_HINT

_log = OwnLog(__name__)

_LEAVE_TIMEOUT_S = 2.0
"""Longest wait for the world when a block is left with an exception, in seconds."""

_MAX_REFUSAL_CHARS = 4000


_JSON_BODY: Final = {"Content-Type": "application/json"}
_encode: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


async def join_place(
    place: WorldPlace,
    agent: str | AgentLike,
    *,
    known: JoinAnswer | None = None,
    new: bool = False,
    timeout: float,
    wait_restart: float | None = None,
) -> AsyncAgentClient:
    """Let an agent join an instance; fails, and is cancelled, like ``AsyncWorld.join``.

    Args:
        place: The instance.
        agent: The agent.
        known: The world's answer when the agent joined before; None uses the answer recorded in the
            agent's directory, if any.
        new: Join with a new session even if the save that the instance was restored from has a
            player of that name.
        timeout: Seconds for the answer to each call.
        wait_restart: Seconds that a call waits for a restart; None does not wait.
    """
    member = make_member(agent)
    restart = check_seconds(wait_restart or 0.0, "wait_restart", may_be_zero=True)
    waits = Waits(check_seconds(timeout, "timeout"), restart)
    players = SavedPlayers()
    if member.dir is None and known is None and not new:
        players = await place.recall(member)
    access = await place.admit(member, known, players, timeout=timeout)
    if players.is_known and not access.rejoined:
        _log.warning(
            "joined as a new player, although the save had one of this name",
            agent=member.name,
            instance=place.name,
            hint="the session of that player is not known here; new=True joins without a warning",
        )
    return AsyncAgentClient(place, member, access, waits, is_proven=True)


class AsyncAgentClient:
    """An agent that has joined an instance, as :meth:`AsyncWorld.join` returns it.

    Several tasks may use one client at the same time; each call has its own connection. Used as an
    async context manager, the client leaves the world at the end of the block if the instance still
    runs.

    When the instance dies, every call raises ``WorldExitedError``, including those in progress.
    After a restart, the client continues with the same session, provided that the restored snapshot
    contains it.
    """

    def __init__(
        self,
        place: WorldPlace,
        member: WorldMember,
        access: Access,
        waits: Waits,
        *,
        is_proven: bool,
    ) -> None:
        self._place = place
        self._member = member
        self._access = access
        self._waits = waits
        self._is_proven = is_proven
        self._proving = anyio.Lock()
        self._has_left = False
        self._restarts_before = place.restarts
        routes = place.routes
        # Prepared once, because an agent sends each request many times.
        self._observing = self._prepare("GET", routes["observe"])
        self._acting = self._prepare("POST", routes["input"], **_JSON_BODY)
        self._saying = self._prepare("POST", protocol.CHAT_ROUTE, **_JSON_BODY)
        self._leaving = self._prepare("POST", protocol.LEAVE_ROUTE)
        self._documenting = self._prepare("GET", routes["doc_url_path"])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} in {self.instance}>"

    @property
    def name(self) -> str:
        """The name that the world shows."""
        return self._access.name

    @property
    def instance(self) -> str:
        """Name of the instance."""
        return self._place.name

    @property
    def rejoined(self) -> bool:
        """True if the agent rejoined as a player that was already in the world."""
        return self._access.rejoined

    @property
    def access(self) -> Access:
        """The access that other programs need to act as this agent."""
        return self._access

    def on(self, instance: str) -> AsyncAgentClient:
        """Return a client with the same session in another instance, such as a fork of this one.

        This method sends no request. The first call of the client rejoins with the session, and
        fails if the world does not know the session.

        Args:
            instance: Name of the instance.

        Returns:
            The client. Its first call raises WorldSessionError if the instance does not know the
            session.

        Raises:
            UsageError: There is no such instance.
        """
        place = self._place.find(instance)
        url = place.url
        access = attrs.evolve(self._access, base_url=url, internal_base_url=url)
        return AsyncAgentClient(place, self._member, access, self._waits, is_proven=False)

    def http(self) -> AsyncHttpClient:
        """Return an httpx client that acts as this agent, for code that is written for httpx.

        The client has the address of the instance, the session and the ``timeout`` of :meth:`join`.
        It ignores proxies in the environment, does not follow redirects, and refuses other hosts.
        The methods of this class do more: they explain failures, handle restarts, and are recorded
        where clawblox records for the world.

        Returns:
            The client; the same object until it is closed, when the agent leaves or the world is
            closed.

        Raises:
            UsageError: The agent has left, the world is not open, or is open in another event loop.
        """
        return self._place.http_clients.give(self._caller())

    def _caller(self) -> ClientRequests:
        """Return the request settings of an httpx client."""
        self._require_joined()
        headers = tuple(self._access.headers.items())
        return ClientRequests(self._place.url, self._access.session, headers, self._waits.timeout)

    def _require_joined(self) -> None:
        if self._has_left:
            raise UsageError(f"{self.name} has left the world", hint="join again")

    # -- the verbs --------------------------------------------------------------------------

    async def observe(self) -> Any:  # noqa: ANN401 - the world decides
        """Return the agent's observation, the JSON value of the world's answer.

        Raises:
            ActionRefusedError: The world refused, for example because it does not know the session.
            WorldCallError: There was no usable answer in time.
            WorldExitedError: The instance has ended.
            UsageError: The agent has left, or the world object was closed.

        Cancellation: has no effect on the world.
        """
        return await self._call(self._observing)

    async def act(self, type: str, data: Any = None) -> Any:  # noqa: A002, ANN401 - as documented
        """Send an input and return the observation after it.

        An input is sent once. After any error except ActionRefusedError, the input may have taken
        effect.

        Args:
            type: Type of the input, a word of the world.
            data: JSON value of the input; None sends no data.

        Raises:
            ConfigError: ``type`` is not a string, or ``data`` is not a JSON value.
            ActionRefusedError: The world refused the input; ``text`` is the reason.
            WorldCallError: There was no usable answer in time.
            WorldExitedError: The instance has ended.
            UsageError: The agent has left, or the world object was closed.

        Cancellation: the input may have taken effect.
        """
        check_kind(type, "type", kind=str, expected="a text")
        message = {"type": type}
        if data is not None:
            message["data"] = data
        try:
            body = _encode(message).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"must be a JSON value: {error}", key="data", value=data) from error
        return await self._call(self._acting, body)

    async def say(self, text: str) -> None:
        """Send a chat message.

        Args:
            text: The message.

        Raises:
            ConfigError: ``text`` is not a string.
            ClawbloxError: As :meth:`act`.

        Cancellation: the message may have been sent.
        """
        check_kind(text, "text", kind=str, expected="a text")
        await self._send(self._saying, _encode({"content": text}).encode())

    async def messages(self, *, after: str | float | None = None, limit: int | None = None) -> Any:  # noqa: ANN401 - the world decides
        """Return chat messages, the JSON value of the world's answer.

        Args:
            after: Only messages after this one: an id or a time, as the world documents.
            limit: Maximum number of messages; None lets the world decide.

        Raises:
            ConfigError: ``limit`` is not a whole number above 0.
            ClawbloxError: As :meth:`observe`.

        Cancellation: has no effect on the world.
        """
        query = {} if after is None else {"after": str(after)}
        if limit is not None:
            query["limit"] = str(check_count(limit, "limit"))
        route = protocol.CHAT_MESSAGES_ROUTE
        return await self._call(self._prepare("GET", route, query=urlencode(query)))

    async def api(self) -> str:
        """Return the world's documentation for agents, in Markdown.

        Raises:
            ClawbloxError: As :meth:`observe`.

        Cancellation: has no effect on the world.
        """
        answer = await self._send(self._documenting)
        if not answer.is_delimited:
            raise self._unusable(self._documenting, answer, "has no end")
        return answer.body.decode(errors="replace")

    async def leave(self) -> None:
        """Leave the world; a second call has no effect.

        Raises:
            ClawbloxError: As :meth:`observe`; the agent has not left.

        Cancellation: the agent may have left the world.
        """
        if not self._has_left:
            await self._send(self._leaving)
            self._has_left = True
            self._place.note_left(self._access)
            await self._place.http_clients.close_session(self._access.session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        """Leave the world if the instance still runs.

        Cancellation: the world is still asked, and has 2 s to answer.
        """
        if exc_info[1] is None:
            with suppress(WorldExitedError):
                await self.leave()
            return
        with suppress(ClawbloxError), anyio.move_on_after(_LEAVE_TIMEOUT_S, shield=True):
            await self.leave()

    # -- calls ------------------------------------------------------------------------------

    def _prepare(self, method: str, route: str, *, query: str = "", **headers: str) -> Request:
        headers = {**self._access.headers, **headers}
        return self._place.connections.prepare(method, route, query=query, headers=headers)

    async def _call(self, request: Request, body: bytes | None = None) -> Any:  # noqa: ANN401
        """Send a request and return the JSON value of its answer."""
        answer = await self._send(request, body)
        try:
            value = msgspec.json.decode(answer.body)
        except (ValueError, RecursionError) as error:
            raise self._unusable(request, answer, "is not JSON") from error
        if not answer.is_delimited and not isinstance(value, dict | list):
            raise self._unusable(request, answer, "has no end")
        return value

    async def _send(self, request: Request, body: bytes | None = None) -> Answer:
        """Send a request and return its answer; raise an error unless the status means success."""
        self._require_joined()
        if not self._is_proven:
            await self._prove()
        answer = await self._place.exchange(request, body, self._waits, access=self._access)
        if 400 <= answer.status < 500:
            raise self._refusal(request, answer)
        return answer

    async def _prove(self) -> None:
        """Rejoin with the session unless that was done before."""
        async with self._proving:
            if not self._is_proven:
                known, timeout = join_answer(self._access), self._waits.timeout
                self._access = await self._place.admit(
                    self._member, known, SavedPlayers(), timeout=timeout
                )
                self._is_proven = True

    def _refusal(self, request: Request, answer: Answer) -> ActionRefusedError:
        text = answer.body[: 4 * _MAX_REFUSAL_CHARS].decode(errors="replace")[:_MAX_REFUSAL_CHARS]
        reason = shorten(" ".join(text.split()), VALUE_CHARS)
        message = f"{request} was refused{': ' if reason else ''}{reason}"
        is_lost = answer.status == 401 and self._place.restarts > self._restarts_before
        error = ActionRefusedError(
            message, status=answer.status, text=text, hint=LOST_HINT if is_lost else None
        )
        error.locate(instance=self.instance, url=self._place.url)
        return error

    def _unusable(self, request: Request, answer: Answer, fault: str) -> WorldCallError:
        error = unusable(request, answer, fault)
        error.locate(instance=self.instance, url=self._place.url)
        return error
