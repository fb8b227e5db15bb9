"""Finds traces of the host in a world's answers: its time, paths and secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias

import attrs

from clawblox.conformance.exchange import Exchange, is_json, read_json
from clawblox.differences import add_index, add_key
from clawblox.foreign_values import finite_number

_MAX_DEPTH: Final = 100
_NEAR: Final = timedelta(days=1)
_LARGEST_OFFSET: Final = timedelta(hours=14)
_LARGEST: Final = 1e19
"""Upper bound for current times in nanoseconds."""
_UNITS: Final = (("seconds", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
_DIGITS: Final = re.compile(r"(?<![\w.])\d{10,19}(?:\.\d+)?(?![\w.])")
_ISO: Final = re.compile(
    r"(?<!\d)\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_HTTP_DATE: Final = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT")
_C_TIME: Final = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_HOST_PATH: Final = re.compile(
    r"(?<![\w.:/~-])/(?:home|root|tmp|usr|var|opt|proc|etc|mnt|srv|Users)/[\w.@+-]+[\w./@+-]*"
)


Find: TypeAlias = "Callable[[str, Any], HostTrace | None]"
"""Returns the trace in a leaf of a document, given the path and value of the leaf."""


@attrs.frozen
class HostTrace:
    """A place in an answer that reveals a fact about the host.

    Attributes:
        path: The place: ``body.messages[0].created_at`` or ``headers.Date``.
        what: The revealed fact, a noun phrase.
        value: The value at the place; secrets are never shown.
    """

    path: str
    what: str
    value: Any


def find_leaves(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON
    """Yield the keys and the values of a JSON document that are neither objects nor lists."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield path, key
            yield from find_leaves(member, add_key(path, key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_leaves(item, add_index(path, index), depth + 1)
    else:
        yield path, value


def find_body_leaves(body: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a body with their paths; a body that is not JSON is one text."""
    document = read_json(body)
    if is_json(document):
        yield from find_leaves(document, "body")
    else:
        yield "body", body.decode(errors="replace")


def find_header_leaves(exchange: Exchange) -> Iterator[tuple[str, str]]:
    """Yield the values of the headers of an answer with their paths."""
    for name, value in () if exchange.answer is None else exchange.answer.raw_headers:
        yield f"headers.{name.decode('latin-1')}", value.decode("latin-1")


def find_trace(leaves: Iterable[tuple[str, Any]], find: Find) -> tuple[int, HostTrace | None]:
    """Return the number of searched leaves, and the first trace, if any."""
    count = 0
    for count, (path, value) in enumerate(leaves, 1):
        if (trace := find(path, value)) is not None:
            return count, trace
    return count, None


def find_host_time(path: str, value: Any, now: datetime) -> HostTrace | None:  # noqa: ANN401 - JSON
    """Return the trace of a host time in a value, or None.

    A host time is within a day of now, in any common format.

    Args:
        path: The place of the value.
        value: A leaf of a document. Numbers, also as text, are read as seconds, ms, us or ns since
            1970; texts as ISO 8601, HTTP dates (RFC 9110, 5.6.7) or the format of C's ``asctime``.
        now: The host's time.
    """
    number = finite_number(value, high=_LARGEST)
    if number is not None:
        return _from_number(path, number, value, now)
    if not isinstance(value, str):
        return None
    for match in _DIGITS.finditer(value):
        trace = _from_number(path, float(match[0]), value, now)
        if trace is not None:
            return trace
    for form, time in _find_times(value):
        aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time
        slack = _NEAR + (_LARGEST_OFFSET if time.tzinfo is None else timedelta())
        if abs(aware - now) < slack:
            return HostTrace(path, f"the host's time as {form}", value)
    return None


def _from_number(path: str, number: float, value: Any, now: datetime) -> HostTrace | None:  # noqa: ANN401
    for unit, factor in _UNITS:
        if abs(number / factor - now.timestamp()) < _NEAR.total_seconds():
            return HostTrace(path, f"the host's time in {unit}", value)
    return None


def _find_times(text: str) -> Iterator[tuple[str, datetime]]:
    """Yield the times in a text, with the names of their formats."""
    forms = (
        ("ISO 8601", _ISO.findall(text), datetime.fromisoformat),
        ("a date", [text] if _DAY.fullmatch(text) else [], datetime.fromisoformat),
        ("a date of HTTP", _HTTP_DATE.findall(text), parsedate_to_datetime),
        ("a date of C", _C_TIME.findall(text), _parse_c_time),
    )
    for form, matches, parse in forms:
        for match in matches:
            try:
                yield form, parse(match)
            except ValueError:
                continue


def _parse_c_time(text: str) -> datetime:
    return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").replace(tzinfo=None)


def find_secret(path: str, value: Any, secrets: Mapping[str, str]) -> HostTrace | None:  # noqa: ANN401 - JSON
    """Return the trace of the first secret that a leaf contains, or None.

    Args:
        path: The place of the leaf.
        value: The leaf.
        secrets: The values by their descriptions.
    """
    for what, secret in secrets.items():
        if isinstance(value, str) and secret in value:
            return HostTrace(path, what, "***")
    return None


def find_host_path(path: str, value: Any) -> HostTrace | None:  # noqa: ANN401 - JSON
    """Return the trace of an absolute host path in a leaf, or None."""
    match = _HOST_PATH.search(value) if isinstance(value, str) else None
    return None if match is None else HostTrace(path, f"the path {match[0]}", value[:200])
