"""Keeps foreign web pages out: from sending requests, from framing, and from reading answers.

A web page can make a browser send requests to a loopback port, by DNS rebinding or across
origins. Such a request has a foreign ``Host`` or ``Origin``, or is ``cross-site`` by its
``Sec-Fetch-Site``. It is refused before any route sees it. A link that somebody follows, from a
notebook perhaps, is no such request.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

import attrs
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOOPBACK: Final = frozenset({"127.0.0.1", "[::1]", "localhost"})
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([1-9][0-9]{0,4}))?", re.IGNORECASE)
_HTTP_PORT: Final = "80"
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"frame-ancestors 'self'"),
)
"""Headers of every answer; those that a route sets itself stay as they are."""
_STARTS: Final = ("http.response.start", "websocket.http.response.start")


@attrs.frozen
class WorldAddress:
    """Where a world listens.

    Attributes:
        host: Host name or address that it was told to bind.
        port: Port that it has bound.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    def matches(self, authority: str) -> bool:
        """Return whether an authority (``host:port``) means this world.

        A world that listens on all interfaces accepts every literal IP address: it does not know
        its own ones, and DNS rebinding needs a name.
        """
        match = _AUTHORITY.fullmatch(authority)
        if match is None or int(match[2] or _HTTP_PORT) != self.port:
            return False
        name = match[1].lower()
        if name in _LOOPBACK or name == _bracketed(self.host).lower():
            return True
        return self.host in _WILDCARDS and _is_ip(name.strip("[]"))


class Gate:
    """ASGI middleware that passes on only requests that are addressed to this world.

    Args:
        app: The application with the world's routes.
        address: Where the world listens.
    """

    def __init__(self, app: ASGIApp, address: WorldAddress) -> None:
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on to the application."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] in _STARTS:
                message = {**message, "headers": _with_defaults(message.get("headers", ()))}
            await send(message)

        answer = self._refusal(scope, Headers(scope=scope))
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        if not self._address.matches(headers.get("host", "")):
            return PlainTextResponse("Misdirected request: unknown Host", 421)
        origins = headers.getlist("origin")
        if not all(self._is_our_origin(origin) for origin in origins):
            return PlainTextResponse("Foreign Origin", 403)
        if "cross-site" in headers.getlist("sec-fetch-site") and not _is_followed_link(
            scope, headers
        ):
            return PlainTextResponse("Foreign page", 403)
        return None

    def _is_our_origin(self, origin: str) -> bool:
        scheme, separator, authority = origin.partition("://")
        return separator != "" and scheme == "http" and self._address.matches(authority)


def _is_followed_link(scope: Scope, headers: Headers) -> bool:
    """Return whether a browser shows the answer as a page of its own, in no frame."""
    return (
        scope.get("method") in ("GET", "HEAD")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _with_defaults(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    own = list(headers)
    names = {name.lower() for name, _ in own}
    return own + [header for header in _HEADERS if header[0] not in names]


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
