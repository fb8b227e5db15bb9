"""A window of an agent's trajectory: the steps in a part of its log, which may be of any length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, takewhile
from typing import Any, Final

import attrs

from clawblox.agents.trajectory.history import History, HistoryEntry
from clawblox.agents.trajectory.records import Context
from clawblox.agents.trajectory.steps import Steps
from clawblox.agents.trajectory.turns import TurnIndex
from clawblox.agents.values import EventType
from clawblox.telemetry.log_segments import LogSegment
from clawblox.telemetry.tail import FileLine, find_line_end, find_line_start, read_lines

WINDOW_BYTES: Final = 256 * 1024
"""Default length of a window, in bytes."""

_AROUND_BYTES: Final = 64 * 1024
"""Bytes after a window that are searched for results of its calls, and bytes before it that are
searched for the starts of its messages."""


@attrs.frozen(kw_only=True)
class StepWindow:
    """The steps in a part of a log.

    Attributes:
        steps: The steps as in ATIF, without metrics. ``extra.raw_offset`` is the offset of a step;
            a message to the agent has the offset of the first line after it. A result without
            ``source_call_id`` answers a call before the window.
        first: Offset of the first line.
        last: Offset after the last line, at which the next window starts.
        has_earlier: Whether the log has earlier lines.
        has_later: Whether the log has later lines.
        unanswered: Ids of the calls whose results follow later, or do not exist yet.
    """

    steps: list[dict[str, Any]]
    first: int
    last: int
    has_earlier: bool
    has_later: bool
    unanswered: frozenset[str]


def read_window(
    turns: TurnIndex,
    at: int | None = None,
    *,
    before: int | None = None,
    max_bytes: int = WINDOW_BYTES,
) -> StepWindow:
    """Return the steps of an agent in a part of its log. Blocks.

    Args:
        turns: The agent's turns, already read.
        at: Offset of the first line, for example of a step; an offset within a line means the next
            line. None reads the window that ends at ``before``.
        before: Offset of the line after the window; None means the end of the log.
        max_bytes: Maximum length of the window; a longer line is a window of its own.

    Raises:
        OSError: A file of the agent cannot be read.
        ClawbloxError: A later version of clawblox wrote ``events.jsonl``.
    """
    begin, end = _find_span(turns.arrivals.segments)
    first, stop = _find_borders(turns.arrivals.segments, at, before, max_bytes)
    with closing(read_lines(turns.directory.log_file, first)) as left:
        lines, ahead = _take(left, stop)
        is_within_turn = turns.last is not None and turns.last.ended_at is None
        if lines and is_within_turn and lines[-1].offset + lines[-1].size >= end:
            lines.pop()  # the program is writing the line
        last = min(end, lines[-1].offset + lines[-1].size + 1) if lines else first
        context, records = turns.list_events(first, last, is_end=not ahead)
        start = turns.first_start or 0
        history = History(turns.directory, turns.driver, records, turns.arrivals, start)
        if first > begin:
            history.join(context, _read_before(turns, context, first))
        moments = [*history.follow(lines)]
        open_calls = _ids(moments, "tool.called") - _ids(moments, "tool.returned")
        for line in chain(ahead, left):
            if not open_calls or line.offset - last > _AROUND_BYTES:
                break
            for moment in history.read(line):
                if (answered := _ids([moment], "tool.returned")) <= open_calls and answered:
                    moments.append(moment)
                    open_calls -= answered
    steps = Steps(turns.driver.cost_scope)
    steps.take(moments)
    described = steps.describe()
    for step in described:
        step.pop("metrics", None)
    return StepWindow(
        steps=described,
        first=first,
        last=last,
        has_earlier=first > begin,
        has_later=last < end,
        unanswered=frozenset(open_calls),
    )


def _read_before(turns: TurnIndex, context: Context, first: int) -> list[FileLine]:
    """Return the preceding lines of the same process that may affect a line."""
    start = context.process_start
    if first - start > _AROUND_BYTES:
        start = find_line_end(turns.arrivals.segments, first - _AROUND_BYTES)
    with closing(read_lines(turns.directory.log_file, start)) as lines:
        return list(takewhile(lambda line: line.offset < first, lines))


def _find_span(segments: Sequence[LogSegment]) -> tuple[int, int]:
    """Return the offsets of the start and of the end of a log."""
    return (segments[0].start, segments[-1].end) if segments else (0, 0)


def _find_borders(
    segments: Sequence[LogSegment], at: int | None, before: int | None, max_bytes: int
) -> tuple[int, int]:
    """Return the offset of a window's first line, and the maximum offset of its end.

    Args:
        segments: The segments of the log.
        at: As for :func:`read_window`.
        before: As for :func:`read_window`.
        max_bytes: As for :func:`read_window`.
    """
    begin, end = _find_span(segments)
    stop = end if before is None else min(before, end)
    first = max(begin, min(end, stop - max_bytes if at is None else at))
    if first > begin:
        first = find_line_end(segments, first - 1)
    if at is not None:
        return first, first + max_bytes
    if first >= stop > begin:  # within a line that is longer than the window
        first = find_line_start(segments, stop - 1)
    return first, stop


def _take(left: Iterator[FileLine], stop: int) -> tuple[list[FileLine], tuple[FileLine, ...]]:
    """Return the lines up to an offset, at least one, and the following line if it was read."""
    lines: list[FileLine] = []
    for line in left:
        if lines and line.offset + line.size > stop:
            return lines, (line,)
        lines.append(line)
    return lines, ()


def _ids(moments: Iterable[HistoryEntry], kind: EventType) -> set[str]:
    """Return the ids of the calls in reports of a type."""
    reports = (moment.report for moment in moments)
    return {str(report.data.get("id")) for report in reports if report.type == kind}
