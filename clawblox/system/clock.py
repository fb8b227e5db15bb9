"""The only place that reads the wall clock. Durations use ``time.monotonic`` instead.

Code whose tests must not wait takes a :class:`TimeSource`; processes are always supervised in real
time.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol

_DURATION: Final = re.compile(r"([0-9]{1,9}[smhd])+")
_DURATION_PART: Final = re.compile(r"([0-9]+)([smhd])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class TimeSource(Protocol):
    """A replaceable clock, with which a test can let hours pass in an instant."""

    def utc(self) -> datetime:
        """Return the wall-clock time, in UTC."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary origin; setting the wall clock does not change them."""

    async def sleep_until(self, deadline: float) -> None:
        """Wait until :meth:`monotonic` reaches a deadline; return immediately after it.

        Cancellation: the wait ends.
        """


class SystemClock:
    """The clock of this machine; see :class:`TimeSource`."""

    def utc(self) -> datetime:
        """Return the wall-clock time, in UTC."""
        return utc_now()

    def monotonic(self) -> float:
        """Return seconds from an arbitrary origin; setting the wall clock does not change them."""
        return time.monotonic()

    async def sleep_until(self, deadline: float) -> None:
        """Wait until :meth:`monotonic` reaches a deadline; return immediately after it.

        Cancellation: the wait ends.
        """
        import anyio  # not in the guard's process, which has only the standard library

        await anyio.sleep(max(0.0, deadline - time.monotonic()))


def utc_now() -> datetime:
    """Return the wall-clock time, in UTC."""
    return datetime.now(UTC)


def format_utc(value: datetime) -> str:
    """Format a time as in the manifest: ``2026-06-22T18:59:25Z``.

    Args:
        value: The time; a time without a zone is UTC.
    """
    aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return aware.replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def parse_utc(text: str | None) -> datetime | None:
    """Parse a time of a manifest; None if it is missing or malformed.

    Args:
        text: ISO 8601; a time without a zone is UTC.
    """
    try:
        value = datetime.fromisoformat(text or "")
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def utc_now_ns() -> int:
    """Return the wall-clock time in nanoseconds since 1970, the unit of ``os.stat``."""
    return time.time_ns()


def format_utc_ms(ns: int) -> str:
    """Format a time with milliseconds: ``2026-06-22T18:59:25.104Z``. Such texts sort by time.

    Args:
        ns: Nanoseconds since 1970, as :func:`utc_now_ns` returns.
    """
    return _format_ms(ns // 1_000_000)


@lru_cache(maxsize=16)  # many events happen in the same millisecond
def _format_ms(ms: int) -> str:
    value = datetime.fromtimestamp(ms / 1000, UTC)
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def parse_since(text: str) -> str:
    """Return the UTC time, with milliseconds, for a time or a duration before now.

    Raises:
        ValueError: The text is neither; the message describes valid texts.
    """
    try:
        if _DURATION.fullmatch(text):
            parts = _DURATION_PART.findall(text)
            ago_s = sum(int(number) * _UNITS_S[unit] for number, unit in parts)
            return format_utc_ms(utc_now_ns() - ago_s * 10**9)
        if (at := parse_utc(text)) is not None:
            return format_utc_ms(round(at.timestamp() * 1000) * 10**6)
    except (ValueError, OverflowError, OSError):  # before all years
        pass
    wanted = "a duration like 90s, 10m, 2h or 1d, or a UTC time like 2026-06-22T18:59:25Z"
    raise ValueError(f"must be {wanted}, not {text!r}")
