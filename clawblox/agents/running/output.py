"""Reads the log that a program appends to, and chooses when to look at it. Blocks.

The program writes to the log itself, so nothing is lost when this process is slow or dies.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.drivers.driver import Conversation
from clawblox.agents.values import Report
from clawblox.results import ProcessExit
from clawblox.telemetry.log_index import LogIndex
from clawblox.telemetry.own_log import OwnLog
from clawblox.telemetry.tail import Line, Tail

_log = OwnLog(__name__)


def read_reports(
    conversation: Conversation, lines: Iterable[Line], agent: str
) -> list[tuple[int, Report]]:
    """Return the reports in lines, each with the offset of its line.

    Args:
        conversation: Reads the lines.
        lines: The lines.
        agent: Full name of the agent.
    """
    reports: list[tuple[int, Report]] = []
    for line in lines:
        if line.data is None:
            reports.append((line.offset, Report("oversized", {"size_bytes": line.size})))
            continue
        try:
            for report in conversation.read(line.data):
                reports.append((line.offset, report))  # noqa: PERF401 - a generator costs more
        except Exception as error:  # noqa: BLE001 - an unreadable line has no reports
            _log.defect("line not understood", error, agent=agent, offset=line.offset)
    return reports


class OutputReader(Tail):
    """Reads the log of a process that is about to start, and keeps its index.

    Args:
        path: The log; it exists.
        offset: Where the first line of the process begins.
        begins_at: Offset of the first byte of the file; not 0 for a log with older segments.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path, offset: int, *, begins_at: int = 0) -> None:
        super().__init__(path, offset, begins_at=begins_at)
        self.open()
        self._index = LogIndex(path)
        self._index.begin_run()

    def read(self) -> list[Line]:
        """Return the next lines, whose times are then in the index."""
        self._index.look()
        return super().read()

    def touch(self) -> None:
        """Set the modification time of the log to now, because the agent was active.

        Raises:
            OSError: The time cannot be set.
        """
        os.utime(self._fd)

    def finish(self, end: ProcessExit | None) -> list[Line]:
        """Note the end of the process in the index; return a last line without its newline.

        Args:
            end: How the process has ended; None if it still runs.
        """
        how = "was left running" if end is None else f"ended: {end}"
        self._index.note_end("exited", f"the program {how}")
        return self.take_rest()


_FIRST_S: Final = 0.005
_WORKING_S: Final = 0.05
_QUIET_S: Final = 1.0
"""Maximum pauses."""

_LATE_S: Final = 2.0
"""A longer interval between two polls means that this process was stopped in between."""

_LONGER: Final = 1.3
"""Factor by which each pause is longer than the pause before."""


@attrs.define(eq=False)
class LogPoller:
    """Chooses the pauses between polls of one log."""

    _pause_s: float = attrs.field(default=_FIRST_S, init=False)
    _polled_at: float = attrs.field(default=math.inf, init=False)

    def begin_poll(self, now: float) -> float:
        """Return how long this process was stopped since the last poll, in seconds; usually 0.

        Args:
            now: Monotonic time in seconds.
        """
        since_s, self._polled_at = now - self._polled_at, now
        return since_s if since_s > _LATE_S else 0.0

    def reset(self) -> None:
        """Make the next poll come soon."""
        self._pause_s = _FIRST_S

    def next_pause(self, now: float, *, is_quiet: bool) -> float:
        """Return the seconds until the next poll.

        Args:
            now: Monotonic time in seconds.
            is_quiet: Whether no output is expected.
        """
        longest_s = _QUIET_S if is_quiet else _WORKING_S
        pause_s = min(self._pause_s, longest_s)
        self._pause_s = pause_s * _LONGER
        # All agents are polled at the same moments: the loop wakes up once, and one hop into a
        # thread reads for all.
        return longest_s - now % longest_s if pause_s == longest_s else pause_s
