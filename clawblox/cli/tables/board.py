"""The table of a run, laid out for a terminal of a given size.

Pure: a :class:`View` goes in, lines come out; ``live_table`` draws them. The only module that
imports rich.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from clawblox.cli.tables.event_lines import EventLine
from clawblox.cli.tables.formatting import format_age, format_bytes, format_end, format_seconds
from clawblox.rundir.status import OVER, InstanceStatus

__all__ = ["Row", "View", "make_row", "render"]

_COLUMNS = {
    "INSTANCE": 8,
    "STATE": 10,
    "PID": 6,
    "PORT": 5,
    "UPTIME": 6,
    "RSS": 6,
    "CPU": 4,
    "SAVED": 5,
    "SIM TIME": 8,
    "RESTARTS": 8,
}
"""The headings and the least width of each column, which keeps the columns in place."""

_TEXTS = ("INSTANCE", "STATE")
_WIDEST_STATE = 24
"""Keeps a long reason of a halt from pushing other columns off; its event has the whole reason."""
_STYLES = {
    "failed": "bold red",
    "halted": "bold red",
    "interrupted": "red",
    "restarting": "yellow",
    "starting": "cyan",
    "waiting": "dim",
    "stopping": "yellow",
    "ready": "green",
    "exited": "dim",
}
"""Styles of the states, those that need attention first."""

_RANKS = {state: rank for rank, state in enumerate(_STYLES)}
_MAX_EVENTS = 6
_FIXED_LINES = 6
"""Two header lines, an empty one, the headings, an empty one, the notice."""


@attrs.frozen
class Row:
    """One line of the table.

    Attributes:
        name: Name of the instance.
        state: Its state.
        exit: How it ended, or why it halted; empty while it runs.
        is_bad: Whether it ended badly.
        cells: The columns after the state.
    """

    name: str
    state: str
    exit: str = ""
    is_bad: bool = False
    cells: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        """Style of its state."""
        return "red" if self.is_bad else _STYLES.get(self.state, "")

    @property
    def rank(self) -> tuple[int, str]:
        """Sort key when not all rows fit: those that need attention come first."""
        return 0 if self.is_bad else _RANKS.get(self.state, len(_RANKS)), self.name


def make_row(status: InstanceStatus, state: str, cpu_share: float | None) -> Row:
    """Return the row of an instance.

    Args:
        status: The instance.
        state: Its state, which the caller may know better than the disk.
        cpu_share: Processors in use, 1.0 for a whole one; None if not known.
    """
    return Row(
        status.name,
        state,
        format_end(status) if state in OVER else "",
        is_bad=state == status.state and status.has_died,
        cells=(
            "" if status.pid is None else str(status.pid),
            str(status.port),
            format_seconds(status.uptime_s),
            format_bytes(status.rss_bytes),
            "" if cpu_share is None else f"{cpu_share:.0%}",
            format_age(status.saved_at),
            "" if status.sim_time is None else f"{status.sim_time:.1f}",
            str(status.restarts or ""),
        ),
    )


@attrs.frozen
class View:
    """What the table shows of a run at one moment.

    Attributes:
        title: The run, for example its directory.
        elapsed_s: Seconds since it began; None if not known.
        counts: Instances by state, including those waiting to be started.
        rows: A row for each instance that has begun.
        pressure: Share of time in which some task waited for a processor; None if not known.
        ramp: Why starts are held back; empty when they are not.
        event_lines: The most recent events.
        notice: The last line: what happens now, or what the user can do.
    """

    title: str
    elapsed_s: float | None
    counts: Mapping[str, int]
    rows: Sequence[Row]
    pressure: float | None = None
    ramp: str = ""
    event_lines: Sequence[EventLine] = ()
    notice: str = ""


def render(view: View, columns: int, lines: int) -> list[str]:
    """Return the lines of a view, coloured unless ``NO_COLOR`` is set.

    Args:
        view: What to show.
        columns: The longest line.
        lines: The most lines.
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
        console.print(Group(*_parts(view, columns, lines)), end="", crop=True)
    return captured.get().rstrip("\n").split("\n")[:lines]


def _parts(view: View, columns: int, lines: int) -> Iterator[RenderableType]:
    event_lines = view.event_lines[-min(_MAX_EVENTS, lines // 4) :] if lines >= 4 else ()
    room = max(1, lines - _FIXED_LINES - len(event_lines) - bool(event_lines))
    shown, hidden = _select(view.rows, room)
    yield _first_line(view, columns)
    yield _line(_counts(view.counts), view.ramp)
    yield ""
    yield _table(shown)
    if hidden:
        more = ", ".join(f"{count} {state}" for state, count in _ordered(hidden))
        yield _line(Text(f"… and {sum(hidden.values())} more: {more}", style="dim"))
    yield ""
    for event_line in event_lines:
        yield _format_event(event_line)
    if event_lines:
        yield ""
    yield _line(Text(view.notice, style="dim"))


def _select(rows: Sequence[Row], room: int) -> tuple[list[Row], Mapping[str, int]]:
    """Return the rows that fit, and how many of each state are left out."""
    by_name = sorted(rows, key=lambda row: row.name)
    if len(rows) <= room:
        return by_name, {}
    ranked = sorted(rows, key=lambda row: row.rank)
    shown, left = ranked[: max(room - 1, 0)], ranked[max(room - 1, 0) :]
    return shown, Counter(row.state for row in left)


def _ordered(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: _RANKS.get(pair[0], len(_RANKS)))


def _first_line(view: View, columns: int) -> Text:
    elapsed = "" if view.elapsed_s is None else format_seconds(view.elapsed_s)
    pressure = "" if view.pressure is None else f"CPU pressure {view.pressure:.0%}"
    right = "   ".join(filter(None, (pressure, elapsed)))
    title = Text(view.title, style="bold", no_wrap=True, overflow="ellipsis")
    title.truncate(max(columns - len(right) - 2, 0), overflow="ellipsis", pad=True)
    return title.append(f"  {right}", style="not bold")


def _counts(counts: Mapping[str, int]) -> Text:
    return Text(" · ").join(
        Text(f"{count} {state}", style=_STYLES.get(state, "")) for state, count in _ordered(counts)
    )


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading, width in _COLUMNS.items():
        justify: JustifyMethod = "left" if heading in _TEXTS else "right"
        widest = _WIDEST_STATE if heading == "STATE" else None
        table.add_column(heading, justify=justify, min_width=width, max_width=widest, no_wrap=True)
    for row in rows:
        state = Text(" ".join(filter(None, (row.state, row.exit))), style=row.style)
        table.add_row(row.name, state, *row.cells)
    return table


def _format_event(event_line: EventLine) -> Text:
    return _line(
        Text(event_line.local_time, style="dim"),
        Text(event_line.instance, style="bold"),
        Text(event_line.text, style="red" if event_line.is_trouble else ""),
    )


def _line(*parts: Text | str) -> Text:
    """Join parts into a line that is cut at the edge of the terminal."""
    filled = [Text(part) if isinstance(part, str) else part for part in parts if part]
    line = Text("  ").join(filled)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
