"""The table of a run: what it shows, and how it looks in so many columns and lines.

Pure: a :class:`View` goes in, lines come out. Nobody but this module knows rich; who draws the
lines is ``live``.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from clawblox.cli.tables.event_lines import Happening
from clawblox.cli.terminal.output import format_age, format_bytes, format_end, format_seconds
from clawblox.rundir.status import OVER, InstanceStatus

__all__ = ["Row", "View", "render", "row_of"]

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
"""The headings, and how wide the columns are at least, so that they stay where they are."""

_TEXTS = ("INSTANCE", "STATE")
_WIDEST_STATE = 24
"""The reason of a halt does not push the other columns off the screen; an event tells all of it."""
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
"""How states look, the most interesting first."""

_RANKS = {state: rank for rank, state in enumerate(_STYLES)}
_MAX_HAPPENINGS = 6
_FIXED_LINES = 6
"""Two of the header, an empty one, the headings, an empty one, the notice."""


@attrs.frozen
class Row:
    """One line of the table.

    Attributes:
        name: Name of the instance.
        state: Its state.
        exit: How it ended, in a word, or why it halted; empty when it did not.
        is_bad: Whether that end is no good one.
        cells: What stands in the columns after the state.
    """

    name: str
    state: str
    exit: str = ""
    is_bad: bool = False
    cells: tuple[str, ...] = ()

    @property
    def style(self) -> str:
        """How its state looks."""
        return "red" if self.is_bad else _STYLES.get(self.state, "")

    @property
    def rank(self) -> tuple[int, str]:
        """Its place when there is no room for all."""
        return 0 if self.is_bad else _RANKS.get(self.state, len(_RANKS)), self.name


def row_of(status: InstanceStatus, state: str, cpu_share: float | None) -> Row:
    """Return the line of an instance.

    Args:
        status: The instance.
        state: Its state, which may be known better than from the disk.
        cpu_share: Processors that it uses now, 1.0 is a whole one; None when that is not known.
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
    """What is to be seen of a run at one moment.

    Attributes:
        title: What it is, for example its directory.
        elapsed_s: How long it has been going on; None when that is not known.
        counts: Instances by state, those that wait for their turn included.
        rows: A line for each instance that there is something to tell of.
        pressure: Share of time in which some task waits for a processor; None when not known.
        ramp: Whether starts are held back, in words; empty when they are not.
        happenings: What happened last.
        notice: What a person can do, or what is being done.
    """

    title: str
    elapsed_s: float | None
    counts: Mapping[str, int]
    rows: Sequence[Row]
    pressure: float | None = None
    ramp: str = ""
    happenings: Sequence[Happening] = ()
    notice: str = ""


def render(view: View, columns: int, lines: int) -> list[str]:
    """Return the lines of a view, coloured if the environment wants it.

    Args:
        view: What is to be seen.
        columns: How long a line may be.
        lines: How many there may be.
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
    happenings = view.happenings[-min(_MAX_HAPPENINGS, lines // 4) :] if lines >= 4 else ()
    room = max(1, lines - _FIXED_LINES - len(happenings) - bool(happenings))
    shown, hidden = _select(view.rows, room)
    yield _first_line(view, columns)
    yield _line(_counts(view.counts), view.ramp)
    yield ""
    yield _table(shown)
    if hidden:
        more = ", ".join(f"{count} {state}" for state, count in _ordered(hidden))
        yield _line(Text(f"… and {sum(hidden.values())} more: {more}", style="dim"))
    yield ""
    for happening in happenings:
        yield _happening(happening)
    if happenings:
        yield ""
    yield _line(Text(view.notice, style="dim"))


def _select(rows: Sequence[Row], room: int) -> tuple[list[Row], Mapping[str, int]]:
    """Return the lines that there is room for, and how many are left out of each state."""
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


def _happening(happening: Happening) -> Text:
    style = "red" if happening.is_trouble else ""
    return _line(
        Text(happening.local_time, style="dim"),
        Text(happening.instance, style="bold"),
        Text(happening.text, style=style),
    )


def _line(*parts: Text | str) -> Text:
    """Return parts as a line that is cut where there is no room for it."""
    filled = [Text(part) if isinstance(part, str) else part for part in parts if part]
    line = Text("  ").join(filled)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
