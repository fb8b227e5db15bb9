"""Reads lines of JSON from programs, with any content. Pure."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from clawblox.foreign_values import finite_number, parse_json, require_few_members, whole_number

Record: TypeAlias = dict[str, Any]
"""A JSON object."""

_MAX_DELAY_MS: Final = 24 * 3600 * 1000.0
"""Maximum retry delay that is accepted as plausible."""

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
    """Return the object at ``key``, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def list_in(record: Record, key: str) -> list[Record]:
    """Return the objects in the list at ``key``."""
    value = record.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_in(record: Record, key: str) -> str:
    """Return the text at ``key``, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


def count_in(record: Record, key: str) -> int:
    """Return the count at ``key``, or 0."""
    return whole_number(record.get(key)) or 0


def number_in(record: Record, key: str) -> float | None:
    """Return the number at ``key``, 0 or more and finite, or None."""
    return finite_number(record.get(key))


def seconds_in(record: Record, key: str) -> float:
    """Return the milliseconds at ``key`` in seconds, or 0 if missing or longer than a day."""
    return (finite_number(record.get(key), high=_MAX_DELAY_MS) or 0.0) / 1000


def status_in(record: Record, key: str) -> int | None:
    """Return the HTTP status at ``key``, or None."""
    return whole_number(record.get(key), low=100, high=599)
