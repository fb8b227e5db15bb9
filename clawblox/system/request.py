"""Requests as bytes, checked so that arguments cannot alter their structure, and answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs
import msgspec

from clawblox.errors import ConfigError
from clawblox.system.ports import join_address

MAX_ANSWER_BYTES: Final = 4 << 20
"""Maximum size of the body of a world's answer, in bytes."""

REPEATABLE: Final = frozenset({"GET", "HEAD"})
"""Methods of requests that may be repeated, because they have no effects."""

INTERIM_STATUSES: Final = frozenset({100, 102, 103})
"""Statuses after which the answer follows (RFC 9110, 2518, 8297)."""

_BODY_START_CHARS = 200
_OWN_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "transfer-encoding"}
)
_METHOD = re.compile(r"[A-Z]{1,32}")
_TARGET = re.compile(r"/[!-~]*")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_BAD_VALUE = "must be one line of Latin-1 text without control characters"


class Address(msgspec.Struct, frozen=True):
    """Address of a server.

    Attributes:
        host: Host name or address, without brackets.
        port: Port of the server.
        base_path: Prefix of every route, without a trailing slash.
    """

    host: str
    port: int
    base_path: str


@attrs.frozen
class Request:
    """A request whose bytes are ready, to be sent any number of times.

    Attributes:
        method: The method.
        route: The route, for messages.
        head: Request line and headers, without the length of the body.
        bare: The whole request without a body.
    """

    method: str
    route: str
    head: bytes = attrs.field(repr=False)  # contains the session
    bare: bytes = attrs.field(repr=False)

    def encode(self, body: bytes | None) -> bytes:
        """Return the bytes of the request with ``body``."""
        if body is None:
            return self.bare
        return b"%sContent-Length: %d\r\n\r\n%s" % (self.head, len(body), body)

    def __str__(self) -> str:
        return f"{self.method} {self.route}"


@attrs.frozen
class Answer:
    """Answer of a world.

    Attributes:
        status: The status.
        body: The body.
        is_delimited: Whether the answer marks the end of its body. Otherwise the body ends with the
            connection, and a truncated body looks complete.
        raw_headers: Names and values of the headers as received, in order, without interim answers
            and trailers.
    """

    status: int
    body: bytes
    is_delimited: bool = True
    raw_headers: tuple[tuple[bytes, bytes], ...] = attrs.field(default=(), eq=False, repr=False)

    def header(self, name: str) -> str | None:
        """Return the value of a header, or None; repeated headers are joined by commas."""
        wanted = name.lower().encode("latin-1")
        values = [value for key, value in self.raw_headers if key.lower() == wanted]
        return b", ".join(values).decode("latin-1") if values else None

    @property
    def content_type(self) -> str:
        """The declared media type of the body; empty without a declaration."""
        return self.header("content-type") or ""

    @property
    def body_start(self) -> str:
        """The first characters of the body, to quote in messages."""
        return self.body[: 4 * _BODY_START_CHARS].decode(errors="replace")[:_BODY_START_CHARS]


def parse_address(url: str) -> Address:
    """Parse an address.

    Raises:
        ConfigError: ``url`` is not a plain HTTP address.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError as error:
        raise ConfigError(f"must be an address: {error}", key="url", value=url) from error
    has_more = bool(parts.query or parts.fragment) or "@" in url
    if parts.scheme != "http" or not host or has_more or not _TARGET.fullmatch(f"/{host}"):
        message = "must be a plain HTTP address, such as http://127.0.0.1:8080"
        raise ConfigError(message, key="url", value=url)
    return Address(host, port, parts.path.rstrip("/"))


def make_request(
    address: Address,
    method: str,
    route: str,
    query: str,
    headers: Mapping[str, str],
    host: str | None = None,
) -> Request:
    """Return a request to an address.

    Args:
        address: The address.
        method: The method, in capitals.
        route: Route below the address.
        query: Encoded query without its question mark, or empty.
        headers: Headers in addition to those of every request.
        host: Value of the ``Host`` header; None sends the address itself. A foreign host tests
            whether a world refuses it.

    Raises:
        ConfigError: An argument cannot be sent in a request.
    """
    if _METHOD.fullmatch(method) is None:
        raise ConfigError("must be capital letters", key="method", value=method)
    target = f"{address.base_path}{route}{'?' if query else ''}{query}"
    if _TARGET.fullmatch(target) is None:
        message = "must begin with / and be printable ASCII without spaces"
        raise ConfigError(message, key="route", value=target)
    if host is None:
        host = join_address(address.host, address.port)
    elif _HEADER_VALUE.fullmatch(host) is None:
        raise ConfigError(_BAD_VALUE, key="host", value=host)
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {host}",
        "Accept-Encoding: identity",
        *(_header_line(name, value) for name, value in headers.items()),
    ]
    head = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
    length = b"" if method in REPEATABLE else b"Content-Length: 0\r\n"
    return Request(method, route, head, b"%s%s\r\n" % (head, length))


def _header_line(name: str, value: str) -> str:
    if _HEADER_NAME.fullmatch(name) is None:
        raise ConfigError("must be the name of a header", key="headers", value=name)
    if name.lower() in _OWN_HEADERS:
        raise ConfigError(f"must not have {name}, which every request has anyway", key="headers")
    if _HEADER_VALUE.fullmatch(value) is None:
        raise ConfigError(_BAD_VALUE, key=f"headers.{name}")  # the value may be a secret
    return f"{name}: {value}"
