"""Parses the requests of agents strictly, into unambiguous values. Pure.

The request to the world is built from these values; no received byte is forwarded. Format: a small
part of RFC 9112 (HTTP/1.1).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import attrs

from clawblox.config.agent_routes import METHODS, PATH, QUERY
from clawblox.host_gate import find_refusal

MAX_HEAD_BYTES: Final = 16 << 10
"""Maximum bytes of a request line and its headers."""

MAX_BODY_BYTES: Final = 1 << 20
"""Maximum bytes of a request's body."""

_HEAD_END: Final = b"\r\n\r\n"
_REQUEST_LINE = re.compile(
    rf"({'|'.join(METHODS)}) ({PATH})(?:\?({QUERY}))? HTTP/1\.([01])".encode()
)
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t -~\x80-\xff]*)")
_STRAY_NEWLINE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\0")
_LENGTH = re.compile(r"[0-9]{1,18}")
_TYPES: Final = (
    "application/json",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
    "text/markdown",
    "text/plain",
)
_CONTENT_TYPE = re.compile(
    rf"({'|'.join(map(re.escape, _TYPES))})(; ?charset=\"?utf-8\"?)?", re.IGNORECASE
)
_ACCEPT = re.compile(rf"{'|'.join(map(re.escape, _TYPES))}", re.IGNORECASE)
_UNDERSTOOD = frozenset(
    {
        "accept",
        "content-length",
        "content-type",
        "expect",
        "host",
        "origin",
        "sec-fetch-site",
        "transfer-encoding",
    }
)
"""Headers that are interpreted; all others are dropped."""

_WITHOUT_BODY = frozenset({"GET", "DELETE"})


class RequestRefusal(Exception):  # noqa: N818 - an answer to the agent, not an error
    """An agent's request is refused.

    Args:
        status: Status of the answer.
        text: Explanation for the agent.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@attrs.frozen(kw_only=True)
class AgentRequest:
    """The parts of an agent's request that are forwarded.

    Attributes:
        method: The method.
        path: The path, in its canonical form.
        query: The query, without its question mark.
        headers: The headers that are forwarded.
        length: Bytes of the body; None without a body.
        awaits_continue: Whether the agent waits for "100 Continue" before it sends the body.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    length: int | None
    awaits_continue: bool


def find_head(received: bytes | bytearray, seen: int = 0) -> int | None:
    """Return the offset of the body in the received bytes; None while the head is incomplete.

    Args:
        received: All bytes received so far.
        seen: Number of bytes that an earlier call has examined.

    Raises:
        Refusal: The bytes cannot become the head of a request.
    """
    if received and not 65 <= received[0] <= 90:
        raise RequestRefusal(400, "This is not an HTTP request.")
    start = max(0, seen - len(_HEAD_END) + 1)
    end = received.find(_HEAD_END, start, MAX_HEAD_BYTES)
    if _STRAY_NEWLINE.search(received, start, len(received) if end < 0 else end):
        raise RequestRefusal(
            400, "Lines must end with CR and LF, and have no other control characters."
        )
    if end < 0 and len(received) >= MAX_HEAD_BYTES:
        raise RequestRefusal(431, f"A request has at most {MAX_HEAD_BYTES} bytes of headers.")
    return None if end < 0 else end + len(_HEAD_END)


def parse_head(head: bytes, hosts: Collection[str]) -> AgentRequest:
    """Parse the head of a request.

    Args:
        head: The head, up to the offset from :func:`find_head`.
        hosts: Allowed values of the ``Host`` header, in lower case.

    Raises:
        Refusal: The request cannot be forwarded.
    """
    request_line, *lines = head.removesuffix(_HEAD_END).split(b"\r\n")
    target = _REQUEST_LINE.fullmatch(request_line)
    if target is None:
        raise RequestRefusal(
            400,
            "The request line must be a method, a plain path and HTTP/1.1, such as"
            " 'GET /api.md HTTP/1.1'. A path has ASCII letters, digits, '.', '_', '-' and single"
            " slashes; it has no escapes, and no slash at its end.",
        )
    method, path, query, _ = (part.decode() if part else "" for part in target.groups())
    headers = _parse_headers(lines)
    _check_origin(method, headers, hosts)
    if headers.get("expect", "100-continue").lower() != "100-continue":
        raise RequestRefusal(417, "The only supported Expect header is 100-continue.")
    return AgentRequest(
        method=method,
        path=path,
        query=query,
        headers=_passed_on(headers),
        length=_body_length(method, headers),
        awaits_continue="expect" in headers,
    )


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        field = _HEADER.fullmatch(line)
        if field is None:
            raise RequestRefusal(400, "A header must be one line, 'Name: value'.")
        name = field[1].decode().lower()
        if name not in _UNDERSTOOD:
            continue
        if name in headers:
            raise RequestRefusal(400, f"There must be one {name.title()} header only.")
        headers[name] = field[2].strip(b" \t").decode("latin-1")
    return headers


def _check_origin(method: str, headers: dict[str, str], hosts: Collection[str]) -> None:
    if "host" not in headers:
        raise RequestRefusal(400, "A request must have a Host header.")

    def read(name: str) -> list[str]:
        return [headers[name]] if name in headers else []

    foreign = find_refusal(lambda host: host.lower() in hosts, method, read, has_pages=False)
    if foreign is not None:
        raise RequestRefusal(*foreign)


def _body_length(method: str, headers: dict[str, str]) -> int | None:
    if "transfer-encoding" in headers:
        raise RequestRefusal(411, "Send the body in one piece, with a Content-Length.")
    text = headers.get("content-length")
    if text is None:
        return None
    if _LENGTH.fullmatch(text) is None:
        raise RequestRefusal(400, "The Content-Length must be a number.")
    length = int(text)
    if length > MAX_BODY_BYTES:
        raise RequestRefusal(413, f"A body has at most {MAX_BODY_BYTES} bytes.")
    if length and method in _WITHOUT_BODY:
        raise RequestRefusal(400, f"A {method} request has no body.")
    return length or None


def _passed_on(headers: dict[str, str]) -> dict[str, str]:
    passed: dict[str, str] = {}
    if accept := headers.get("accept"):
        # Worlds have only one form of each answer, so other types are not requested.
        passed |= {"Accept": accept} if _ACCEPT.fullmatch(accept) else {}
    if content_type := headers.get("content-type"):
        if _CONTENT_TYPE.fullmatch(content_type) is None:
            raise RequestRefusal(415, f"The Content-Type must be one of {', '.join(_TYPES)}.")
        passed["Content-Type"] = content_type
    return passed
