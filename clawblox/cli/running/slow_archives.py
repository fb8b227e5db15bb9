"""Describes slow saves and loads of archives, for the displays of this process."""

from __future__ import annotations

import time
from typing import Final

import anyio

from clawblox.checkpoint.progress import ArchiveWork, archive_work
from clawblox.cli.terminal.output import note
from clawblox.printable import printable
from clawblox.system.amounts import format_bytes
from clawblox.views.formatting import format_seconds

SLOW_S: Final = 2.0
"""Seconds from which on a save or a load counts as slow."""

_POLL_S: Final = 0.5
_REPEAT_S: Final = 10.0


def describe_archives(min_age_s: float = 0.0) -> str:
    """Return how far the longest save or load is, and how many others are under way.

    Args:
        min_age_s: Seconds since its beginning below which a save or a load does not count.

    Returns:
        A line; empty if there is none.
    """
    slow = [work for work in archive_work() if _age(work) >= min_age_s]
    if not slow:
        return ""
    others = f" (and {len(slow) - 1} more)" if len(slow) > 1 else ""
    return f"{_describe(slow[0])}{others}"


async def note_slow_archives() -> None:
    """Print a note about slow saves and loads every ten seconds, until it is cancelled.

    Cancellation: prints nothing more.
    """
    while True:
        if line := describe_archives(SLOW_S):
            note(line)
            await anyio.sleep(_REPEAT_S)
        else:
            await anyio.sleep(_POLL_S)


def _describe(work: ArchiveWork) -> str:
    amount = f": {format_bytes(work.done)} of {format_bytes(work.total)}" if work.total else ""
    return f"{work.verb} {printable(work.name)}{amount}, {format_seconds(_age(work))}"


def _age(work: ArchiveWork) -> float:
    return time.monotonic() - work.begun_at
