"""The one place that reads the wall clock. Durations use ``time.monotonic`` instead."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["format_utc", "parse_utc", "utc_now"]


def utc_now() -> datetime:
    """Return the wall-clock time, in UTC."""
    return datetime.now(UTC)


def format_utc(value: datetime) -> str:
    """Write a time as the manifest does: ``2026-06-22T18:59:25Z``.

    Args:
        value: A time with a zone; a naive one is taken as UTC.
    """
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return aware.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def parse_utc(text: str | None) -> datetime | None:
    """Return a time as a manifest has it; None if it is missing or malformed.

    Args:
        text: ISO 8601; a time without a zone is UTC.
    """
    try:
        told = datetime.fromisoformat(text or "")
        return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
