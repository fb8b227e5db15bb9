"""The capability proxy of one agent: only requests that its policy allows reach its world.

Each connection serves one request. Its bytes are never forwarded: the proxy builds a new request,
with the agent's own session. Only status, content type and body of the world's answer are returned,
so the agent sees no date, no redirect and no address of this machine.

Listening sockets are created elsewhere and may belong to another network namespace; they stay open
when the proxy stops. On a socket that every user of the machine can reach, only this process's user
and root are served, because any client that connects acts as the agent.
"""

from __future__ import annotations

import math
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.client import responses
from typing import Any, Final

import anyio
import attrs

from clawblox.agents.access.grant import Grant, Policy
from clawblox.agents.access.request import (
    AgentRequest,
    RequestRefusal,
    find_head,
    parse_head,
)
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import WorldCallError
from clawblox.system.connection import Connections, Delivery, NotSentError
from clawblox.system.request import MAX_ANSWER_BYTES, Answer
from clawblox.system.sock_diag import peer_uid, read_peer_uid
from clawblox.system.sockets import Place, receive, send_all, serve_connections
from clawblox.telemetry.own_log import OwnLog
from clawblox.telemetry.throttle import Rate, Throttle

_log = OwnLog(__name__)

_MOST_DRAINED_BYTES = 4 << 20
_ROOT: Final = 0
_BURST_S: Final = 2.0
"""Size of the allowed burst, in seconds at the full rate."""

_CONTENT_TYPE = re.compile(r"[ -~]{1,200}")
_WITHOUT_BODY = frozenset({204, 205})


@attrs.frozen(kw_only=True)
class ProxyLimits:
    """Limits of one agent in the proxy.

    Attributes:
        connections: Maximum concurrent connections; others wait in the sockets' backlogs.
        request_s: Seconds within which a whole request must arrive.
        world_s: Seconds within which the world must answer.
        answer_s: Seconds within which the agent must read the answer.
        linger_s: Seconds during which the rest of a refused request is drained.
        answer_bytes: Maximum size of an answer's body.
        requests_per_s: Requests per second that are forwarded, after a burst of two seconds' worth;
            others are answered with 429. None sets no limit.
    """

    connections: int = 64
    request_s: float = 15.0
    world_s: float = 60.0
    answer_s: float = 30.0
    linger_s: float = 2.0
    answer_bytes: int = MAX_ANSWER_BYTES
    requests_per_s: float | None = None


@attrs.define(eq=False, slots=False)
class Proxy:
    """Serves the requests of one agent.

    Args:
        agent: Name of the agent, for the log.
        grant: Returns the agent's grant; None before the first.
        hosts: Returns the allowed values of the ``Host`` header, in lower case.
        limits: Limits of the agent.
        is_private: Whether only the agent can reach the listening sockets; otherwise only
            connections of this user and of root are served.
    """

    _agent: str
    _grant: Callable[[], Grant | None]
    _hosts: Callable[[], frozenset[str]]
    _limits: ProxyLimits = attrs.field(factory=ProxyLimits)
    _is_private: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        per_s = self._limits.requests_per_s
        self._rate = None if per_s is None else Rate(per_s, max(1.0, per_s * _BURST_S))
        self._places = anyio.Semaphore(self._limits.connections)
        self._url = ""
        self._connections: Connections | None = None
        self._refused, self._failures, self._strangers = Throttle(), Throttle(), Throttle()

    async def serve(
        self,
        listener: socket.socket,
        accept: Callable[[socket.socket], tuple[socket.socket, Any]],
    ) -> None:
        """Serve a listening socket until cancelled; several may be served concurrently.

        Args:
            listener: The socket; it must not block.
            accept: Accepts a connection, like ``socket.accept``.

        Cancellation: pending requests are dropped; the socket stays open.
        """
        async with anyio.create_task_group() as connections:
            await serve_connections(
                listener,
                self._serve_connection,
                tasks=connections,
                places=self._places,
                accept=accept,
                on_failure=self._note_failure,
            )

    def close(self) -> None:
        """Close the connections to the world."""
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()

    def _connect(self, url: str) -> Connections:
        """Return the connections to the world at its current address."""
        if self._connections is None or self._url != url:
            self.close()
            self._connections, self._url = Connections(url), url
        return self._connections

    def _note_failure(self, error: OSError) -> None:
        if times := self._failures.count():
            _log.warning("agent connection not accepted", error=str(error), times=times)

    async def _serve_connection(self, connection: socket.socket, _: Place) -> None:
        if self._is_private or await self._is_trusted(connection):
            await self._converse(_Client(connection))

    async def _is_trusted(self, connection: socket.socket) -> bool:
        """Return whether a process of this user or of root made the connection."""
        try:
            uid = peer_uid(connection)
        except OSError:  # the kernel cannot look up single sockets
            uid = await run_blocking(read_peer_uid, connection)
        if uid in (os.geteuid(), _ROOT):
            return True
        if times := self._strangers.count():
            _log.warning("agent connection refused", agent=self._agent, uid=uid, times=times)
        return False

    async def _converse(self, client: _Client) -> None:
        try:
            answer = await self._answer(client)
        except RequestRefusal as refusal:
            if times := self._refused.count():
                status = refusal.status
                _log.info("agent request refused", agent=self._agent, status=status, times=times)
            waits = ["Retry-After: 1"] if refusal.status == HTTPStatus.TOO_MANY_REQUESTS else []
            answer = _make_answer(refusal.status, f"{refusal.text}\n".encode(), headers=waits)
        except _Gone:
            return
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - one request must not end the proxy
            _log.defect("agent request failed", error, agent=self._agent)
            answer = _make_answer(500, b"The request could not be passed on.\n")
        with anyio.move_on_after(self._limits.answer_s):
            await client.send(answer)
            client.end()
        if client.may_send_more:
            with anyio.move_on_after(self._limits.linger_s):
                await client.drain()

    async def _answer(self, client: _Client) -> bytes:
        with anyio.move_on_after(self._limits.request_s) as deadline:
            head = await client.receive_head()
            if self._rate is not None and not self._rate.admits(time.monotonic()):
                raise RequestRefusal(429, "Too many requests at a time. Wait a second.")
            request = parse_head(head, self._hosts())
            grant = self._check(request)
            body = await client.receive_body(request)
        if deadline.cancelled_caught:
            raise RequestRefusal(408, f"A request must arrive within {self._limits.request_s:g} s.")
        return await self._forward(grant, request, body)

    def _check(self, request: AgentRequest) -> Grant:
        grant = self._grant()
        if grant is None:
            raise RequestRefusal(503, "No world has been connected yet.")
        if not grant.policy.allows(request.method, request.path):
            raise RequestRefusal(403, _explain(grant.policy))
        return grant

    async def _forward(self, grant: Grant, request: AgentRequest, body: bytes | None) -> bytes:
        limits = self._limits
        url = grant.upstream()
        if url is None:
            raise RequestRefusal(503, "The world is not running at the moment. Try again later.")
        connections = self._connect(url)
        prepared = connections.prepare(
            request.method,
            request.path,
            query=request.query,
            headers={**request.headers, **grant.headers},
        )
        answer, delivery = None, Delivery()
        try:
            with anyio.move_on_after(limits.world_s):
                answer = await connections.send(
                    prepared,
                    body,
                    timeout=math.inf,
                    max_body_bytes=limits.answer_bytes,
                    delivery=delivery,
                )
        except NotSentError:
            raise RequestRefusal(
                503, "The world cannot be reached at the moment. Try again."
            ) from None
        except WorldCallError:
            raise RequestRefusal(502, "The world gave no usable answer.") from None
        finally:
            if delivery.has_begun:
                grant.note(request.method, request.path, body, answer)
        if answer is None:
            raise RequestRefusal(504, f"The world did not answer within {limits.world_s:g} s.")
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            grant.suspect()
        return _pass_on(answer)


class _Gone(Exception):  # noqa: N818 - named after the condition
    """The client closed its connection before its request was complete."""


class _Client:
    """The connection of an agent's program, for one request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = bytearray()
        self.may_send_more = True
        """Whether more bytes of the request may follow."""

    async def receive_head(self) -> bytes:
        """Receive the head of the request.

        Raises:
            Refusal: The bytes are not the head of a request.
            _Gone: The head is incomplete.
        """
        seen = 0
        while (end := find_head(self._received, seen)) is None:
            seen = len(self._received)
            await self._receive()
        head = bytes(self._received[:end])
        del self._received[:end]
        return head

    async def receive_body(self, request: AgentRequest) -> bytes | None:
        """Receive only the body of the request.

        Raises:
            _Gone: The body is incomplete.
        """
        length = request.length or 0
        if request.awaits_continue and len(self._received) < length:
            await self.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(self._received) < length:
            await self._receive()
        self.may_send_more = len(self._received) > length
        return bytes(self._received[:length]) if length else None

    async def send(self, data: bytes) -> None:
        """Send all of ``data``."""
        await send_all(self._connection, data)

    def end(self) -> None:
        """Signal the end of the answer."""
        self._connection.shutdown(socket.SHUT_WR)

    async def drain(self) -> None:
        """Drain the request so that the response is not reset."""
        drained = 0
        with suppress(_Gone):
            while drained < _MOST_DRAINED_BYTES:
                self._received.clear()
                await self._receive()
                drained += len(self._received)

    async def _receive(self) -> None:
        data = await receive(self._connection)
        if not data:
            raise _Gone
        self._received += data


def _explain(policy: Policy) -> str:
    routes = "\n".join(f"  {route}" for route in policy.routes)
    return (
        "This request is not part of the world's API for agents, which is:\n"
        f"{routes}\n"
        "You have joined the world already, and every request carries your session automatically."
    )


def _pass_on(answer: Answer) -> bytes:
    if 300 <= answer.status < 400:
        raise RequestRefusal(502, "The world answered with a redirect, which is not followed.")
    if not 200 <= answer.status < 600:
        raise RequestRefusal(502, "The world answered with a status that does not exist.")
    return _make_answer(answer.status, answer.body, answer.content_type)


def _make_answer(
    status: int,
    body: bytes,
    content_type: str = "text/plain; charset=utf-8",
    *,
    headers: Sequence[str] = (),
) -> bytes:
    phrase = responses.get(status, "Answer")
    lines = [f"HTTP/1.1 {status} {phrase}", "Connection: close", "Cache-Control: no-store"]
    lines += headers
    if status not in _WITHOUT_BODY:
        if _CONTENT_TYPE.fullmatch(content_type):
            lines += [f"Content-Type: {content_type}", "X-Content-Type-Options: nosniff"]
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join([*lines, "\r\n"]).encode()
    return head if status in _WITHOUT_BODY else head + body
