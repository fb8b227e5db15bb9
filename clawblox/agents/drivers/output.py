"""Parses lines of output from programs, with any content, into reports.

Pure, except that the ends of limits are compared with the current time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from clawblox.agents.values import DriverReport
from clawblox.errors.agent import ErrorKind
from clawblox.foreign_values import finite_number, parse_json, require_few_members, whole_number
from clawblox.system.clock import format_utc, utc_now_ns

Record: TypeAlias = dict[str, Any]
"""A JSON object."""

_MAX_DELAY_MS: Final = 24 * 3600 * 1000.0
"""Maximum plausible retry delay."""

_LONGEST_LIMIT_S: Final = 30 * 24 * 3600.0
_MOST_OVERDUE_S: Final = 24 * 3600.0
"""Maximum plausible distance of a limit's end from now; beyond it, the end counts as unknown."""

_decode = msgspec.json.Decoder(Record).decode


def parse_record(line: bytes | str) -> Record | None:
    """Return the JSON object in a line, or None."""
    if line[:1] not in (b"{", "{"):
        return None
    try:
        require_few_members(line)
        return _decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        # Slower, but accepts any number, and the lone surrogates that JavaScript programs write.
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def record_in(record: Record, key: str) -> Record:
    """Return the object at ``key``, or an empty value."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def list_in(record: Record, key: str) -> list[Record]:
    """Return the objects in the list at ``key``."""
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_in(record: Record, key: str) -> str:
    """Return the text at ``key``, or an empty value."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


def count_in(record: Record, key: str) -> int:
    """Return the count at ``key``, or 0."""
    return whole_number(record.get(key)) or 0


def number_in(record: Record, key: str) -> float | None:
    """Return the number at ``key``, 0 or more and finite, or None."""
    return finite_number(record.get(key))


def status_in(record: Record, key: str) -> int | None:
    """Return the HTTP status at ``key``, or None."""
    return whole_number(record.get(key), low=100, high=599)


def reset_in(record: Record, key: str) -> datetime | None:
    """Return the end of a limit at ``key``, in seconds since 1970; None if it is not plausible."""
    seconds = whole_number(record.get(key))
    if seconds is None:
        return None
    left_s = seconds - utc_now_ns() / 1e9
    is_plausible = -_MOST_OVERDUE_S <= left_s <= _LONGEST_LIMIT_S
    return datetime.fromtimestamp(seconds, UTC) if is_plausible else None


# -- reports -----------------------------------------------------------------------------------

KIND_BY_STATUS: Final[Mapping[int, ErrorKind]] = {401: "auth", 403: "auth", 429: "rate_limit"}
"""Error kinds of a model's API, by HTTP status; others are ``invalid`` or ``overloaded``."""

ErrorPatterns = tuple[tuple[re.Pattern[str], ErrorKind], ...]
"""Patterns of a program's messages, with their kinds of error; the first match wins."""


def find_error_kind(patterns: ErrorPatterns, text: str) -> ErrorKind | None:
    """Return the kind of error that a message means; None if unknown."""
    return next((kind for pattern, kind in patterns if pattern.search(text)), None)


def report_error(
    message: str,
    kind: ErrorKind,
    status: int | None = None,
    kinds: Mapping[int, ErrorKind] = KIND_BY_STATUS,
) -> DriverReport:
    """Return an ``error`` report.

    Args:
        message: The program's message.
        kind: Kind of the error if the status does not determine it; a used-up allowance may have
            any status.
        status: HTTP status from the model's API; None if unknown.
        kinds: Kinds by status.
    """
    if status is None:
        return DriverReport("error", {"kind": kind, "message": message})
    if kind != "limit":
        kind = kinds.get(status, "overloaded" if status >= 500 else "invalid")
    return DriverReport("error", {"kind": kind, "message": message, "status": status})


def report_retry(record: Record, keys: tuple[str, str, str, str, str]) -> DriverReport:
    """Return the report of a retry by the program itself.

    Args:
        record: The program's record.
        keys: Names of its attempt, maximum attempts, delay in milliseconds, HTTP status and error.
    """
    attempt, most, delay, status, error = keys
    data = {
        "attempt": count_in(record, attempt),
        "max_attempts": count_in(record, most),
        "delay_s": (finite_number(record.get(delay), high=_MAX_DELAY_MS) or 0.0) / 1000,
        "status": status_in(record, status),
        "error": text_in(record, error),
    }
    return DriverReport("retry", data)


def report_limit(kind: str, message: str, resets_at: datetime | None = None) -> DriverReport:
    """Return a ``limit`` report.

    Args:
        kind: The limit, in the program's words.
        message: The message.
        resets_at: When the limit ends; None if unknown.
    """
    if resets_at is None:
        return DriverReport("limit", {"kind": kind, "message": message})
    until = format_utc(resets_at)
    message = f"{message}, until {until}"
    return DriverReport("limit", {"kind": kind, "message": message, "resets_at": until})


def report_call(id: str, name: str, arguments: Mapping[str, Any]) -> DriverReport:  # noqa: A002
    """Return the report of a tool call."""
    return DriverReport("tool.called", {"id": id, "name": name, "arguments": arguments})


def report_result(id: str, content: str, *, is_error: bool) -> DriverReport:  # noqa: A002
    """Return the report of a tool's result."""
    return DriverReport("tool.returned", {"id": id, "content": content, "is_error": is_error})
