"""The table of a run, laid out for a terminal of a given size. Pure."""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.text import Text

from clawblox.agents.status import AgentStatus
from clawblox.columns import GAP, Column, fit_columns, format_line
from clawblox.printable import printable
from clawblox.views.event_lines import EventLine, select_events
from clawblox.views.formatting import format_seconds
from clawblox.views.rows import (
    InstanceRow,
    agent_columns,
    instance_columns,
    order_agents,
    order_states,
)
from clawblox.views.steering import UNSTEERED, Steering

STYLES = {
    **dict.fromkeys(("failed", "halted"), "bold red"),
    "interrupted": "red",
    **dict.fromkeys(("restarting", "stopping", "paused"), "yellow"),
    **dict.fromkeys(("preparing", "starting", "idle", "saving", "scoring"), "cyan"),
    **dict.fromkeys(("ready", "working", "running"), "green"),
    **dict.fromkeys(("waiting", "exited", "stopped", "blocked", "done"), "dim"),
}
"""Styles of the states; they only repeat the meaning of the words."""

_MAX_EVENTS = 6
_LINES_TO_WRAP = 16
_ROWS_BEFORE_EVENTS = 3
_FIXED_LINES = 6
"""Two header lines, an empty line, the headings, another empty line, and the notice."""
_NOTE_INDENT = "      "
_MARK = "▸ "
"""Mark of the selected row."""

_Item = TypeVar("_Item")


@attrs.frozen
class BoardView:
    """A run at one moment, as the table shows it.

    Attributes:
        title: The run, for example its directory.
        elapsed_s: Seconds since the run started; None if unknown.
        counts: Number of instances by state, including instances that are waiting to start.
        rows: A row for each instance that has started.
        pressure: Share of time in which some task waited for a processor; None if unknown.
        ramp: Reason why starts are held back; empty if they are not.
        agents: The agents of the run.
    """

    title: str = attrs.field(converter=printable)
    elapsed_s: float | None
    counts: Mapping[str, int]
    rows: Sequence[InstanceRow]
    pressure: float | None = None
    ramp: str = ""
    agents: Sequence[AgentStatus] = ()


@attrs.frozen
class BoardFrame:
    """The parts of the screen around the rows of a table.

    Attributes:
        columns: Maximum length of a line.
        lines: Maximum number of lines.
        event_lines: The most recent events.
        notice: The last line: the current activity, or a hint.
        steering: State of the keys that a person has typed.
        pane: A heading and the lines below the table; empty for no pane.
    """

    columns: int
    lines: int
    event_lines: Sequence[EventLine] = ()
    notice: str = ""
    steering: Steering = UNSTEERED
    pane: Sequence[str] = ()


def render(view: BoardView, frame: BoardFrame) -> list[str]:
    """Return the lines of a view, coloured unless ``NO_COLOR`` is set.

    Args:
        view: The run.
        frame: The parts around the rows.
    """
    return draw_lines(_parts(view, frame), frame.columns, frame.lines)


def draw_lines(parts: Iterable[RenderableType], columns: int, lines: int) -> list[str]:
    """Return the lines of a table for a terminal, coloured unless ``NO_COLOR`` is set.

    Args:
        parts: The lines.
        columns: Maximum length of a line.
        lines: Maximum number of lines.
    """
    console = Console(
        file=io.StringIO(),
        force_terminal=True,
        width=columns,
        height=lines,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(Group(*parts), end="", crop=True)
    return captured.get().rstrip("\n").split("\n")[:lines]


def _parts(view: BoardView, frame: BoardFrame) -> Iterator[RenderableType]:
    columns, lines, steering = frame.columns, frame.lines, frame.steering
    notice, agents, pane = [frame.notice], list[Text](), draw_pane(frame.pane, lines)
    if lines >= _LINES_TO_WRAP:
        notice = textwrap.wrap(frame.notice, columns, max_lines=2, placeholder="…") or [""]
        agents = [] if pane else list(_agents(view.agents, columns, lines // 3))
    lines -= len(notice) - 1 + len(agents) + len(pane)
    rows = [row for row in view.rows if steering.shows(row.key)]
    event_lines, room = share_lines(frame.event_lines, len(rows), lines)
    shown, noted, hidden = _select(rows, room, steering.selected)
    yield _first_line(view, columns)
    yield join_parts(_counts(view.counts), view.ramp)
    yield ""
    yield from _table(shown, noted, columns, steering.selected)
    if hidden:
        more = ", ".join(f"{count} {state}" for state, count in order_states(hidden))
        yield join_parts(Text(f"… and {sum(hidden.values())} more: {more}", style="dim"))
    yield from agents
    yield ""
    yield from draw_events(event_lines)
    yield from pane
    for line in notice:
        yield join_parts(Text(line, style="dim"))


def share_lines(
    event_lines: Sequence[EventLine], rows: int, lines: int
) -> tuple[list[EventLine], int]:
    """Return the events to show, and the number of lines for rows.

    Args:
        event_lines: The events.
        rows: The number of rows.
        lines: Number of lines of the terminal.
    """
    for_events = lines - _FIXED_LINES - 1 - min(rows, _ROWS_BEFORE_EVENTS)
    shown = select_events(event_lines, max(0, min(_MAX_EVENTS, lines // 4, for_events)))
    return shown, max(1, lines - _FIXED_LINES - len(shown) - bool(shown))


def _select(
    rows: Sequence[InstanceRow], room: int, selected: str
) -> tuple[Sequence[InstanceRow], Collection[InstanceRow], Mapping[str, int]]:
    """Return the rows that fit, those whose notes fit, and the numbers of omitted rows by state."""
    in_order = sorted(rows, key=lambda row: (row.run, row.name))
    if len(rows) <= room:
        shown: Sequence[InstanceRow] = in_order
    elif selected in (keys := [row.key for row in in_order]):
        shown = window(in_order, keys.index(selected), room - 1)
    else:
        kept = max(room - 1 - min(room // 4, sum(bool(row.note) for row in rows)), 0)
        shown = sorted(rows, key=lambda row: row.rank)[:kept]
    left = Counter(row.state for row in rows) - Counter(row.state for row in shown)
    note_room = room - len(shown) - bool(left)
    noted = [row for row in sorted(shown, key=lambda row: row.rank) if row.note][:note_room]
    return shown, noted, left


def window(items: Sequence[_Item], place: int, size: int) -> Sequence[_Item]:
    """Return a part of a sequence with a given item as close to the middle as possible.

    Args:
        items: The sequence.
        place: Index of the item.
        size: Number of items to return; at least 1 is returned.
    """
    size = max(size, 1)
    first = max(0, min(place - size // 2, len(items) - size))
    return items[first : first + size]


def draw_pane(pane: Sequence[str], lines: int) -> list[Text]:
    """Return the lines of a pane for a terminal: its heading, the last lines that fit, and a gap.

    Args:
        pane: The heading and the lines.
        lines: Number of lines of the terminal; the pane takes at most half.
    """
    if not pane or lines < _LINES_TO_WRAP:
        return []
    room = lines // 2 - 2
    texts = [Text(printable(pane[0]), style="bold"), *map(Text, map(printable, pane[1:][-room:]))]
    return [*map(join_parts, texts), Text("")]


def draw_events(event_lines: Sequence[EventLine]) -> Iterator[Text]:
    """Yield events as lines, followed by an empty line; no lines without events."""
    for event in event_lines:
        text = Text(event.text, style="red" if event.needs_attention else "")
        yield join_parts(
            Text(event.local_time, style="dim"), Text(event.instance, style="bold"), text
        )
    if event_lines:
        yield Text("")


def _first_line(view: BoardView, columns: int) -> Text:
    elapsed = "" if view.elapsed_s is None else format_seconds(view.elapsed_s)
    pressure = "" if view.pressure is None else f"CPU pressure {view.pressure:.0%}"
    right = "   ".join(filter(None, (pressure, elapsed)))
    if cell_len(view.title) + 2 + len(right) > columns:
        right = elapsed  # the title identifies the run
    return draw_title(view.title, right, columns)


def draw_title(text: str, right: str, columns: int) -> Text:
    """Return the first line: a title, cut if too long, and facts at the right."""
    title = Text(text, style="bold", no_wrap=True, overflow="ellipsis")
    title.truncate(max(columns - len(right) - 2, 0), overflow="ellipsis", pad=True)
    return title.append(f"  {right}", style="not bold")


def _counts(counts: Mapping[str, int]) -> Text:
    return Text(" · ").join(
        Text(f"{count} {state}", style=STYLES.get(state, ""))
        for state, count in order_states(counts)
    )


def _table(
    rows: Sequence[InstanceRow], noted: Collection[InstanceRow], columns: int, selected: str
) -> Iterator[Text]:
    styles = ["red" if row.is_bad else STYLES.get(row.state, "") for row in rows]
    keys = [row.key for row in rows]
    headings, *lines = format_rows(
        instance_columns(rows, is_live=True), columns, styles, find_place(keys, selected)
    )
    yield headings
    for row, line in zip(rows, lines, strict=True):
        yield line
        if row in noted:
            yield join_parts(Text(_NOTE_INDENT + row.note, style="dim"))


def find_place(keys: Sequence[str], selected: str) -> int | None:
    """Return the index of the selected row; None if it is not shown."""
    return keys.index(selected) if selected in keys else None


def _agents(agents: Sequence[AgentStatus], columns: int, room: int) -> Iterator[Text]:
    """Yield the table of the agents after an empty line; no lines if there is no room."""
    most = room - 2  # the empty line and the headings
    if not agents or most < 1:
        return
    shown = order_agents(agents)
    if len(shown) > most:
        shown, hidden = shown[: most - 1], shown[most - 1 :]
    else:
        shown, hidden = sorted(shown, key=lambda agent: agent.name), []
    styles = [STYLES.get(agent.state, "") for agent in shown]
    yield Text("")
    yield from format_rows(agent_columns(shown, is_live=True), columns, styles)
    if hidden:
        more = ", ".join(f"{n} {state}" for state, n in Counter(a.state for a in hidden).items())
        yield join_parts(Text(f"… and {len(hidden)} more agents: {more}", style="dim"))


def format_rows(
    columns: Sequence[Column], width: int, styles: Iterable[str], selected: int | None = None
) -> Iterator[Text]:
    """Yield the headings of a table, then its rows with the styles of their states.

    Args:
        columns: The columns.
        width: Maximum length of a line.
        styles: The style of the state of each row.
        selected: Index of the row to mark; None leaves no room for a mark.
    """
    margin = "" if selected is None else " " * len(_MARK)
    fitted = fit_columns(columns, width - len(margin))
    yield join_parts(Text(margin + format_line(fitted, None), style="dim"))
    for place, style in enumerate(styles):
        cells = [
            Text(fit.format_cell(fit.column.cells[place]), style * (fit.column.heading == "STATE"))
            for fit in fitted
        ]
        is_selected = place == selected
        line = Text(_MARK if is_selected else margin, style="bold" if is_selected else "")
        line.append_text(Text(GAP).join(cells))
        line.rstrip()
        yield join_parts(line)


def join_parts(*parts: Text | str) -> Text:
    """Join parts into a line that is cut at the edge of the terminal."""
    filled = [Text(part) if isinstance(part, str) else part for part in parts if part]
    line = Text("  ").join(filled)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
