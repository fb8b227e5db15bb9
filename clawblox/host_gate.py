"""The gate of a local server: refuses requests that a browser sends for foreign web pages.

A web page can make a browser send requests to a loopback port, by DNS rebinding or across origins.
Such a request has a foreign ``Host`` or ``Origin``, or ``Sec-Fetch-Site: cross-site``. The worlds
of the kit, the proxies of agents and the metrics endpoint refuse it before any route is called.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Final

import attrs

_LOOPBACK: Final = frozenset({"127.0.0.1", "[::1]", "localhost"})
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound
_AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([1-9][0-9]{0,4}))?", re.IGNORECASE)
_HTTP_PORT: Final = "80"

ReadHeader = Callable[[str], Sequence[str]]
"""Returns the values of a header, by its name in lower case."""


@attrs.frozen
class ServerAddress:
    """The address of a local server.

    Attributes:
        host: Host name or address that the server was configured to bind.
        port: Port that the server has bound.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    def matches(self, authority: str) -> bool:
        """Return whether an authority (``host:port``) means this server.

        A server that listens on all interfaces accepts every literal IP address, because it does
        not know its own addresses, and DNS rebinding requires a host name.
        """
        match = _AUTHORITY.fullmatch(authority)
        if match is None or int(match[2] or _HTTP_PORT) != self.port:
            return False
        name = match[1].lower()
        if name in _LOOPBACK or name == _bracketed(self.host).lower():
            return True
        return self.host in _WILDCARDS and is_ip_address(name.strip("[]"))


def find_refusal(
    is_own: Callable[[str], bool], method: str, read: ReadHeader, *, has_pages: bool
) -> tuple[int, str] | None:
    """Return status and text of the answer to a foreign request; None for a request to serve.

    Args:
        is_own: Returns whether an authority (``host:port``) means this server.
        method: The method of the request; empty for a WebSocket.
        read: Reads the headers of the request.
        has_pages: Whether the server serves its own web pages, which send requests from their
            origin and may be linked from elsewhere.
    """
    hosts = read("host")
    if len(hosts) != 1 or not is_own(hosts[0]):
        return 421, "Misdirected request: unknown Host"
    if not all(has_pages and _is_own_origin(is_own, origin) for origin in read("origin")):
        return 403, "Foreign Origin"
    is_foreign = "cross-site" in read("sec-fetch-site")
    if is_foreign and not (has_pages and _is_followed_link(method, read)):
        return 403, "Foreign page"
    return None


def _is_own_origin(is_own: Callable[[str], bool], origin: str) -> bool:
    scheme, separator, authority = origin.partition("://")
    return separator != "" and scheme == "http" and is_own(authority)


def _is_followed_link(method: str, read: ReadHeader) -> bool:
    """Return whether a browser shows the answer as a top-level page, not in a frame."""
    return (
        method in ("GET", "HEAD")
        and list(read("sec-fetch-mode")) == ["navigate"]
        and list(read("sec-fetch-dest")) == ["document"]
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def is_ip_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, without brackets."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
