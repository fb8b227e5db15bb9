"""A lineage as text: lanes over simulation time, and a tree of forks as a table.

``lineage_layout`` places things on the axis; this module turns positions into columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
from rich.cells import cell_len

from clawblox.columns import shorten
from clawblox.printable import printable
from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.views.formatting import format_table, round_ticks
from clawblox.views.lineage_layout import (
    Lane,
    LaneBranch,
    Layout,
    LineTurn,
    describe_life_end,
    describe_lineage,
    describe_state,
    lay_out,
)

_MAX_INDENTS: Final = 6
_MAX_NAME: Final = 22
_MIN_STATE, _STATE_SHARE = 24, 0.35
"""Minimum columns for a state, and the maximum share of a line for it."""
_MIN_AXIS: Final = 24
_STUB: Final = 3
"""Columns after the last save of a line: two for the line and one for its end."""
_PAD: Final = 1
"""The column before the axis, for the origin of a lane."""
_TICK_COLUMNS: Final = 9

_AXIS_WORDS: Final = {True: "simulated time", False: "seconds since start"}

_SAVE, _REMOVED, _RESTART, _RESUME = "○", "·", "↻", "»"
_FRESH, _ELSEWHERE, _FORK = "├", "◇", "╰"
_CROSS: Final = "\N{MULTIPLICATION SIGN}"
_ENDINGS: Final = {"alive": "▸", "died": _CROSS, "ended": "┤", "unknown": "╌"}
_LEGEND: Final = {
    _SAVE: "save",
    _REMOVED: "removed save",
    _FORK: "fork",
    _ELSEWHERE: "from another run",
    _RESTART: "restarted",
    _RESUME: "resumed",
    _CROSS: "died",
    "┤": "stopped or finished",
    "▸": "running",
}
_ASCII: Final = str.maketrans(
    {
        **dict.fromkeys("─╌", "-"),
        **dict.fromkeys("│", "|"),
        **dict.fromkeys("├╰└┼┴", "+"),
        "┤": "]",
        "○": "o",
        "·": ".",
        "↻": "@",
        "»": "%",
        "◇": "<",
        _CROSS: "x",
        "▸": ">",
        "…": "~",
    }
)


def render_lineage(lineage: Lineage, *, columns: int, title: str) -> str:
    """Return a lineage as text: a lane for each instance, the axis, and a legend of the used signs.

    Args:
        lineage: The lineage.
        columns: Width of the terminal.
        title: The heading, for example the run directory.
    """
    layout = lay_out(lineage)
    page = _Page.of(layout, columns)
    lines = [line for lane in page.lanes() for line in lane]
    used = {char for _, chart, _ in lines for char in chart}
    head = f"{printable(title)}: {describe_lineage(lineage)}"
    body = [page.join(*line) for line in (*page.axis(), *lines)]
    signs = [f"{sign} {words}" for sign, words in _LEGEND.items() if sign in used]
    return "\n".join((head, "", *body, "", *_wrap(signs, columns)))


def to_ascii(text: str) -> str:
    """Replace the signs in a text with ASCII, for terminals without Unicode."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def _wrap(words: Iterable[str], columns: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 3 + len(word) <= columns:
            lines[-1] += f"   {word}"
        else:
            lines.append(word)
    return lines


@attrs.frozen
class _Page:
    """The columns of the text.

    Attributes:
        layout: Positions on the axis.
        names: Width of the names.
        axis_width: Width of the axis.
        states: Width of the states, and of the words next to the axis.
    """

    layout: Layout
    names: int
    axis_width: int
    states: int

    @classmethod
    def of(cls, layout: Layout, columns: int) -> _Page:
        names = max((cell_len(_label(lane.instance)) for lane in layout.lanes), default=0)
        states = [describe_state(lane.instance) for lane in layout.lanes]
        words = (_AXIS_WORDS[layout.is_simulated], *states)
        width = min(max(map(cell_len, words)), max(_MIN_STATE, int(columns * _STATE_SHARE)))
        axis_width = max(_MIN_AXIS, columns - names - width - 4 - _STUB - _PAD)
        return cls(layout, names, axis_width, width)

    def column(self, at: float) -> int:
        return _PAD + round(self.layout.fraction(at) * (self.axis_width - 1))

    def join(self, label: str, chart: str, state: str) -> str:
        gap = " " * (self.names - cell_len(label))
        return f"{label}{gap}  {chart.ljust(_PAD + self.axis_width + _STUB)}  {state}".rstrip()

    def axis(self) -> list[tuple[str, str, str]]:
        """Return the numbers of the axis, and its line."""
        if not self.layout.lanes:
            return []
        most = max(2, self.axis_width // _TICK_COLUMNS)
        numbers, line = self._empty_row(), [" "] + ["─"] * self.axis_width
        free = 0
        for at, label in round_ticks(self.layout.begin, self.layout.end, most):
            column = self.column(at)
            line[column] = "┴"
            start = max(0, column - (len(label) - 1) // 2)
            if free <= start <= len(numbers) - len(label):
                numbers[start : start + len(label)] = label
                free = start + len(label) + 1
        words = _AXIS_WORDS[self.layout.is_simulated]
        return [("", "".join(numbers).rstrip(), ""), ("", "".join(line), words)]

    def lanes(self) -> Iterator[list[tuple[str, str, str]]]:
        """Yield the lines of each lane."""
        charts = [self._draw_lane(lane) for lane in self.layout.lanes]
        self._draw_forks(charts)
        for lane, rows in zip(self.layout.lanes, charts, strict=True):
            texts = ["".join(row) for row in rows]
            state = shorten(describe_state(lane.instance), self.states)
            first = (_label(lane.instance), texts[0], state)
            branches = filter(_is_shown, lane.branches)
            words = [
                _shorten(describe_life_end(branch.lives[0]), self.states) for branch in branches
            ]
            yield [first, *(("", text, word) for text, word in zip(texts[1:], words, strict=True))]

    def _draw_lane(self, lane: Lane) -> list[list[str]]:
        row = self._draw_line(lane, "─" if lane.instance.parent else _FRESH)
        begin = self.column(lane.begin)
        if lane.instance.parent and lane.fork is None:
            row[begin - 1] = _ELSEWHERE
        self._draw_turns(row, lane.turns)
        if lane.fork is not None:
            row[begin] = _FORK
        branches = filter(_is_shown, lane.branches)
        signs = {True: _FRESH, False: _FORK}
        return [row, *(self._draw_line(branch, signs[branch.is_apart]) for branch in branches)]

    def _draw_line(self, line: Lane | LaneBranch, first: str) -> list[str]:
        """Return the row of a line that starts with a sign."""
        row = self._empty_row()
        begin, end = self.column(line.begin), self.column(line.end)
        row[begin : end + 1] = "─" * (end + 1 - begin)
        row[begin] = first
        after = max(begin, end) + 1
        row[after : after + _STUB] = ["╌", "╌", _ENDINGS[line.ending]]
        for ring in line.rings:
            column = self.column(ring.at)
            if ring.save.removed_at is None:
                row[column] = _SAVE
            elif row[column] == "─":
                row[column] = _REMOVED
        return row

    def _empty_row(self) -> list[str]:
        return [" "] * (_PAD + self.axis_width + _STUB)

    def _draw_turns(self, row: list[str], turns: Sequence[LineTurn]) -> None:
        for turn in turns:
            column = self.column(turn.at)
            column += row[column + 1] in "─╌"
            row[column] = _RESUME if turn.life.begun_by == "resume" else _RESTART

    def _draw_forks(self, charts: Sequence[Sequence[list[str]]]) -> None:
        for number, lane in enumerate(self.layout.lanes):
            if lane.fork is None:
                continue
            column = self.column(lane.fork.at)
            source = _find_row(self.layout.lanes[lane.fork.lane], lane.fork.branch)
            above = [row for rows in charts[lane.fork.lane : number] for row in rows]
            for row in above[source + 1 :]:
                row[column] = {" ": "│", "╰": "├", "─": "┼", "╌": "┼"}.get(row[column], row[column])


def _find_row(lane: Lane, branch: int | None) -> int:
    """Return the index of a branch among the rows of its lane."""
    before = lane.branches[: 0 if branch is None else branch + 1]
    return sum(map(_is_shown, before))


def _is_shown(branch: LaneBranch) -> bool:
    """Return whether a branch has a row; a life without saves is only shown as a restart."""
    return bool(branch.rings) or branch.is_apart


def _shorten(text: str, limit: int) -> str:
    """Return the start of a text, up to a parenthesis or a semicolon."""
    return shorten(re.split(r"[(;]", printable(text))[0].strip(), limit)


def _label(instance: InstanceLineage) -> str:
    indent = "  " * min(instance.depth, _MAX_INDENTS)
    return indent + shorten(printable(instance.name), _MAX_NAME, "middle")


# -- the tree of forks ----------------------------------------------------------------------

_HEADINGS: Final = ("INSTANCE", "STATE", "SIM TIME", "SAVES", "RESTARTS", "BEGAN FROM")


def format_forks(lineage: Lineage) -> str:
    """Return the instances as a tree of forks, with their states and saves, as a table."""
    rows = [
        (f"{branch}{printable(instance.name)}", *_cells(instance))
        for instance, branch in zip(lineage.instances, _branches(lineage), strict=True)
    ]
    return format_table(_HEADINGS, rows)


def _cells(instance: InstanceLineage) -> tuple[str, ...]:
    kept = [save for save in instance.saves if save.removed_at is None]
    last, parent = instance.lives[-1], instance.parent
    times = [save.time for save in last.saves] if last.saves else [last.origin and last.origin.time]
    origin = ""
    if parent is not None:
        at = "" if parent.time is None else f" at {parent.time:.1f}"
        origin = f"{parent.instance or parent.path}{at}"
    return (
        describe_state(attrs.evolve(instance, restarts=0, labels={})),
        "" if times[-1] is None else f"{times[-1]:.1f}",
        str(len(kept) or ""),
        str(instance.restarts or ""),
        printable(origin),
    )


def _branches(lineage: Lineage) -> Iterator[str]:
    """Yield for each instance the tree lines that connect it to its parent."""
    depths = [instance.depth for instance in lineage.instances]
    for number, depth in enumerate(depths):
        after = depths[number + 1 :]
        yield "".join(_connector(level, depth, after) for level in range(1, depth + 1))


def _connector(level: int, depth: int, after: Sequence[int]) -> str:
    goes_on = next((other == level for other in after if other <= level), False)
    if level == depth:
        return "├─ " if goes_on else "└─ "
    return "│  " if goes_on else "   "
