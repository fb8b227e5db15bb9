"""The routes of a world that agents may use: the form of a route, and the reserved routes.

The grammar is intentionally narrower than HTTP's. Each path has only one spelling, so the path that
is checked is the path that is sent.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, Self

import attrs

from clawblox import protocol

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")

_SEGMENT = r"(?!\.+(?:[/? ]|\Z))[A-Za-z0-9._-]+"
PATH: Final = rf"(?:/{_SEGMENT})+|/"
"""A path without escapes, parameters, empty segments, or dots that need resolving."""

_ESCAPE = r"%(?:[2-6][0-9A-Fa-f]|7[0-9A-Ea-e]|[89A-Fa-f][0-9A-Fa-f])"
QUERY: Final = rf"(?:[A-Za-z0-9._~:+,@=&-]|{_ESCAPE})*"
"""An encoded query without control characters."""

_ANY_SEGMENT = "*"
_PATTERN = re.compile(rf"(?:/(?:{_SEGMENT}|\*))+|/")
_RESERVED = (protocol.SNAPSHOT_ROUTE, protocol.JOIN_ROUTE, protocol.LEAVE_ROUTE)


@attrs.frozen(order=True, slots=False)
class AgentRoute:
    """A route that agents may use.

    Attributes:
        method: One of :data:`METHODS`.
        path: Path below the world's address; a segment ``*`` matches any one segment.

    Raises:
        ValueError: The route cannot be given to agents; the error explains why.
    """

    method: str
    path: str

    def __attrs_post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"the method must be one of {', '.join(METHODS)}")
        if _PATTERN.fullmatch(self.path) is None:
            raise ValueError(
                "the path must be segments of ASCII letters, digits, '.', '_' and '-', or '*' for"
                " any one segment, without '..' and a final '/'"
            )
        if self.path.startswith(f"/{_ANY_SEGMENT}"):
            raise ValueError("the first segment cannot be '*', which would cover every route")
        if is_reserved(self.path):
            raise ValueError("the route is the orchestrator's, and is never given to agents")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a route in the form of ``[api] allow``: ``GET /map``.

        Raises:
            ValueError: The text is invalid, or the route cannot be given to agents.
        """
        method, space, path = text.partition(" ")
        if not space:
            raise ValueError("a route is a method and a path, such as 'GET /map'")
        return cls(method, path)

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(re.escape(self.path).replace(r"\*", _SEGMENT))

    def matches(self, method: str, path: str) -> bool:
        """Return whether this route covers a request to ``path``, which must be a :data:`PATH`."""
        return method == self.method and self._regex.fullmatch(path) is not None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def is_reserved(path: str, *more: str) -> bool:
    """Return whether a path is reserved, ignoring case and suffix.

    Args:
        path: A path, or a pattern of paths.
        *more: Further reserved routes.
    """
    return any(_is_at_or_below(path, route) for route in (*_RESERVED, *more))


def _is_at_or_below(path: str, route: str) -> bool:
    parts, wanted = _segments(path), _segments(route)
    pairs = zip(parts, wanted, strict=False)
    return len(parts) >= len(wanted) and all(part in (want, _ANY_SEGMENT) for part, want in pairs)


def _segments(path: str) -> list[str]:
    # Some servers ignore case, and interpret an extension as the format of the answer.
    names = (segment.casefold() for segment in path.split("/") if segment)
    return [name.partition(".")[0] or name for name in names]
