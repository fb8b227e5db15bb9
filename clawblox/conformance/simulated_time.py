"""The simulated time that documents of a world state."""

from __future__ import annotations

from typing import Any

import msgspec

from clawblox.foreign_values import MAX_NUMBER, finite_number


class _Times(msgspec.Struct):
    """The members of a document that state its simulated time."""

    time: Any = None
    tick: Any = None


_decoder = msgspec.json.Decoder(_Times)


def read_times(body: bytes) -> list[float]:
    """Return the simulated time of a JSON object, and its tick, as far as they are numbers.

    Only these members are read, because a snapshot can be large.
    """
    try:
        times = _decoder.decode(body)
    except (ValueError, RecursionError):
        return []
    values = (finite_number(value, low=-MAX_NUMBER) for value in (times.time, times.tick))
    return [value for value in values if value is not None]


def read_time(document: object) -> float | None:
    """Return the simulated time of a document, or None: its ``time``, else its ``tick``."""
    if not isinstance(document, dict):
        return None
    values = (finite_number(document.get(key), low=-MAX_NUMBER) for key in ("time", "tick"))
    return next((value for value in values if value is not None), None)
