"""Refuses requests that a web page made a browser send.

A web page can make a browser send requests to a loopback port, by DNS rebinding or across
origins. Such a request has a foreign ``Host`` or a foreign ``Origin``. It is refused before any
route sees it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import attrs
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Gate", "WorldAddress"]

_LOOPBACK: Final = frozenset({"127.0.0.1", "[::1]", "localhost"})
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([1-9][0-9]{0,4}))?", re.IGNORECASE)
_HTTP_PORT: Final = "80"


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
        comes_from_outside = scope["type"] in ("http", "websocket")
        answer = self._refusal(Headers(scope=scope)) if comes_from_outside else None
        await (answer or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> PlainTextResponse | None:
        if not self._address.matches(headers.get("host", "")):
            return PlainTextResponse("Misdirected request: unknown Host", 421)
        origins = headers.getlist("origin")
        if not all(self._is_our_origin(origin) for origin in origins):
            return PlainTextResponse("Foreign Origin", 403)
        return None

    def _is_our_origin(self, origin: str) -> bool:
        scheme, separator, authority = origin.partition("://")
        return separator != "" and scheme == "http" and self._address.matches(authority)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
