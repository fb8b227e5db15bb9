"""A lineage as an SVG picture.

Colours only repeat the meaning of the shapes. ``lineage_layout`` places things on the axis; this
module turns positions into pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from clawblox.columns import shorten
from clawblox.printable import printable
from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.listed_saves import LineageSave
from clawblox.views import html, svg
from clawblox.views.formatting import round_ticks
from clawblox.views.html import Markup, PageAddress, element
from clawblox.views.lineage_layout import (
    Ending,
    Lane,
    LaneBranch,
    Layout,
    LineTurn,
    Ring,
    describe_life_end,
    describe_lineage,
    describe_saves,
    describe_state,
    describe_turn,
    lay_out,
)
from clawblox.views.svg import Picture

_TOP: Final = 94.0
_LANE: Final = 30.0
_BRANCH: Final = 18.0
_INDENT: Final = 12.0
_MAX_INDENTS: Final = 6
_MAX_NAME: Final = 24
_MAX_STATE: Final = 40
_STUB: Final = 20.0
"""Length in pixels of the dashed part after the last save of a line, whose end time is unknown."""
_BRANCH_STUB: Final = 12.0
_TURN: Final = 16.0
"""Room in pixels for a restart at the end of a line."""
_SAME: Final = 2.0
"""Saves closer than this many pixels share a ring."""
_MAX_CROSSES: Final = 4
_TICK_WIDTH: Final = 70.0
_LONG: Final = 900.0
"""Pictures higher than this many pixels repeat the numbers of the axis at the bottom."""


@attrs.frozen
class LineageLinks:
    """The pages to which a picture links.

    Attributes:
        instance: Returns the page of an instance; None for no link.
        save: Returns the page of a save; None for no link.
    """

    instance: Callable[[InstanceLineage], PageAddress | None] = lambda _instance: None
    save: Callable[[LineageSave], PageAddress | None] = lambda _save: None


_NO_LINKS: Final = LineageLinks()


def draw_lineage(lineage: Lineage, *, title: str, links: LineageLinks = _NO_LINKS) -> Picture:
    """Return a lineage as a picture.

    Args:
        lineage: The lineage.
        title: The heading, for example the run directory.
        links: The pages to which names and saves link.
    """
    layout = lay_out(lineage)
    frame = _Frame.of(layout)
    rows = _make_rows(layout, frame)
    bottom = rows[-1].bottom if rows else _TOP
    shapes = [*_draw_stripes(rows, frame), *_draw_axis(layout, frame, bottom)]
    shapes += [shape for row in rows for shape in _draw_fork(rows, row, frame)]
    shapes += [shape for row in rows for shape in _draw_row(row, frame, links)]
    legend, height = _draw_legend(layout, bottom + 44)
    summary = describe_lineage(lineage)
    name = f"Lineage of {title}: {summary}"
    return Picture(height, name, [*svg.heading(title, summary), *shapes, *legend])


# -- positions -----------------------------------------------------------------------


@attrs.frozen
class _Frame:
    """The columns of the picture, in pixels.

    Attributes:
        layout: Positions on the axis.
        left: Left edge of the axis.
        right: Right edge of the axis.
        states: Left edge of the states.
    """

    layout: Layout
    left: float
    right: float
    states: float

    @classmethod
    def of(cls, layout: Layout) -> _Frame:
        names = [_indent(lane) + svg.text_width(_name(lane), svg.SIZE) for lane in layout.lanes]
        states = [svg.text_width(_state(lane), svg.SMALL) for lane in layout.lanes]
        column = svg.WIDTH - svg.MARGIN - max(states, default=0.0)
        left = svg.MARGIN + max(names, default=0.0) + 22
        return cls(layout, left, column - _STUB - _TURN - 30, column)

    def x(self, at: float) -> float:
        return self.left + self.layout.fraction(at) * (self.right - self.left)


@attrs.frozen
class _Row:
    """A lane with its vertical position, in pixels.

    Attributes:
        lane: The lane.
        number: Its number, from 0.
        top: Its upper edge.
        y: Position of its line.
        branch_ys: Positions of the lines of its branches.
    """

    lane: Lane
    number: int
    top: float
    y: float
    branch_ys: tuple[float, ...]

    @property
    def bottom(self) -> float:
        return self.y + _LANE / 2

    @property
    def colour(self) -> str:
        return svg.line_colour(self.number)


def _make_rows(layout: Layout, frame: _Frame) -> list[_Row]:
    rows: list[_Row] = []
    top = _TOP
    for number, lane in enumerate(layout.lanes):
        heights = _stack(lane.branches, frame)
        y = top + _BRANCH * max(heights, default=0) + _LANE / 2
        rows.append(_Row(lane, number, top, y, tuple(y - _BRANCH * height for height in heights)))
        top = y + _LANE / 2
    return rows


def _stack(branches: Sequence[LaneBranch], frame: _Frame) -> list[int]:
    """Return the level of each branch above its lane; branches of a level do not overlap."""
    ends: list[float] = []
    heights: list[int] = []
    for branch in branches:
        right = frame.x(branch.end) + 24 + 11 * min(len(branch.lives), _MAX_CROSSES) + 24
        # A branch of a branch goes up, not down.
        lowest = 0 if branch.base is None else heights[branch.base]
        free = (
            height
            for height, end in enumerate(ends)
            if height >= lowest and end < frame.x(branch.begin) - 8
        )
        height = next(free, len(ends))
        ends[height : height + 1] = [right]
        heights.append(height + 1)
    return heights


def _indent(lane: Lane) -> float:
    return _INDENT * min(lane.instance.depth, _MAX_INDENTS)


def _name(lane: Lane) -> str:
    return shorten(printable(lane.instance.name), _MAX_NAME, "middle")


def _state(lane: Lane) -> str:
    return shorten(describe_state(lane.instance), _MAX_STATE)


# -- shapes ---------------------------------------------------------------------------------


def _draw_stripes(rows: Iterable[_Row], frame: _Frame) -> Iterator[Markup]:
    """Yield stripes that guide the eye from a name to its lane."""
    for row in rows:
        if row.number % 2 == 0:
            width, height = svg.WIDTH - 2 * svg.MARGIN + 16, row.bottom - row.top
            yield svg.rect("stripe", svg.MARGIN - 8, row.top, width, height)
        start = svg.MARGIN + _indent(row.lane) + svg.text_width(_name(row.lane), svg.SIZE) + 6
        end = frame.x(row.lane.begin) - 20
        if end > start:
            yield svg.path("grid-line hair leader", f"M{start:.1f},{row.y:.1f}H{end:.1f}")


def _draw_axis(layout: Layout, frame: _Frame, bottom: float) -> Iterator[Markup]:
    if not layout.lanes:
        return
    is_long = bottom > _LONG
    most = max(2, int((frame.right - frame.left) / _TICK_WIDTH))
    for at, label in round_ticks(layout.begin, layout.end, most):
        x = frame.x(at)
        yield svg.path("grid-line hair", f"M{x:.1f},{_TOP - 4:g}V{bottom + 4:.1f}")
        yield svg.text(x, _TOP - 10, label, "muted small", anchor="middle")
        if is_long:
            yield svg.text(x, bottom + 16, label, "muted small", anchor="middle")
    what = "simulated time" if layout.is_simulated else "seconds since the first start"
    x = (frame.left + frame.right) / 2
    yield svg.text(x, bottom + (34 if is_long else 20), what, "muted small", anchor="middle")


def _draw_fork(rows: Sequence[_Row], row: _Row, frame: _Frame) -> Iterator[Markup]:
    fork = row.lane.fork
    if fork is None:
        return
    parent = rows[fork.lane]
    start = parent.y if fork.branch is None else parent.branch_ys[fork.branch]
    x, radius = frame.x(fork.at), 13
    line = (
        f"M{x:.1f},{start:.1f}V{row.y - radius:.1f}"
        f"C{x:.1f},{row.y - 4:.1f} {x + 4:.1f},{row.y:.1f} {x + radius:.1f},{row.y:.1f}"
    )
    origin = row.lane.instance.parent
    save = origin.path.name if origin else ""
    words = f"{row.lane.instance.name} forked from {parent.lane.instance.name}, {save}"
    yield svg.group("fork", [words], svg.path(f"{row.colour}-line line", line))


def _draw_row(row: _Row, frame: _Frame, links: LineageLinks) -> Iterator[Markup]:
    lane, y = row.lane, row.y
    x = svg.MARGIN + _indent(lane)
    yield svg.text(x, y + 4, _name(lane), "ink", to=links.instance(lane.instance))
    yield svg.text(frame.states, y + 4, _state(lane), "muted small")
    begin, end = frame.x(lane.begin), frame.x(lane.end)
    for branch, branch_y in zip(lane.branches, row.branch_ys, strict=True):
        yield from _draw_branch(row, branch, branch_y, frame)
    start = begin if lane.fork is None else begin + 13
    if end > start:
        yield svg.path(f"{row.colour}-line line", f"M{start:.1f},{y:.1f}H{end:.1f}")
    room = _TURN if any(turn.at == lane.end for turn in lane.turns) else 0.0
    words = [f"{lane.instance.name}: {describe_state(lane.instance)}"]
    yield from _draw_ending(max(start, end), y, row.colour, lane.ending, words, _STUB + room)
    if lane.fork is None:
        yield from _draw_beginning(row, begin)
    for branch, branch_y in zip(lane.branches, row.branch_ys, strict=True):
        rings = _group_near(branch.rings, frame)
        yield from (_draw_ring(x, branch_y, row.colour, group, links) for x, group in rings)
    groups = _group_near(lane.rings, frame)
    yield from (_draw_ring(x, y, row.colour, rings, links) for x, rings in groups)
    yield from _draw_turns(row, [x for x, _ in groups], frame)


def _draw_beginning(row: _Row, x: float) -> Iterator[Markup]:
    parent, y = row.lane.instance.parent, row.y
    if parent is None:
        yield svg.circle(row.colour, x, y, 3.5)
        return
    yield svg.path(f"{row.colour}-line line", f"M{x - 10:.1f},{y:.1f}H{x:.1f}")
    words = [f"started from {parent.path}", f"sha256 {parent.sha256}" if parent.sha256 else ""]
    square = svg.rect(f"page {row.colour}-line ring", x - 18, y - 4, 8, 8)
    yield svg.group("elsewhere", words, square)


def _draw_branch(row: _Row, branch: LaneBranch, y: float, frame: _Frame) -> Iterator[Markup]:
    begin, end = frame.x(branch.begin), frame.x(branch.end)
    line = f"M{begin:.1f},{y:.1f}"
    start = begin
    if branch.is_apart:
        yield svg.circle(row.colour, begin, y, 2.5)
    else:
        base = row.y if branch.base is None else row.branch_ys[branch.base]
        start = begin + 12
        line = (
            f"M{begin:.1f},{base:.1f}"
            f"C{begin + 5:.1f},{base:.1f} {begin + 3:.1f},{y:.1f} {start:.1f},{y:.1f}"
        )
    if end > start:
        line += f"H{end:.1f}"
    yield svg.path(f"{row.colour}-line line thin", line)
    words = list(map(describe_life_end, branch.lives))
    yield from _draw_ending(max(start, end), y, row.colour, branch.ending, words, _BRANCH_STUB)


def _draw_ending(
    x: float, y: float, colour: str, ending: Ending, words: Sequence[str], length: float
) -> Iterator[Markup]:
    """Yield the end of a line, after its last known position, with a cross for each word."""
    yield svg.path(f"{colour}-line line stub", f"M{x:.1f},{y:.1f}h{length:g}")
    x += length + 4
    if ending == "alive":
        pulse = svg.circle(f"{colour} pulse", x + 2, y, 8)
        arrow = svg.path(colour, f"M{x - 3:.1f},{y - 5:.1f}l10,5l-10,5z")
        yield svg.group("alive", words, html.join((pulse, arrow)))
    elif ending == "ended":
        bar = svg.path(f"{colour}-line mark", f"M{x - 3:.1f},{y - 6:.1f}v12")
        yield svg.group("end", words, bar)
    elif ending == "died":
        for number, word in enumerate(words[:_MAX_CROSSES]):
            yield svg.group("death", [word], svg.draw_sign("crash", x + 11 * number, y))
        if len(words) > _MAX_CROSSES:
            more = f"+{len(words) - _MAX_CROSSES}"
            yield svg.text(x + 11 * _MAX_CROSSES - 4, y + 4, more, "bad small")


def _group_near(rings: Iterable[Ring], frame: _Frame) -> list[tuple[float, list[Ring]]]:
    """Return the saves of a line, grouped by the position of their ring."""
    groups: list[tuple[float, list[Ring]]] = []
    for ring in sorted(rings, key=lambda ring: ring.at):
        x = frame.x(ring.at)
        if groups and x - groups[-1][0] < _SAME:
            groups[-1][1].append(ring)
        else:
            groups.append((x, [ring]))
    return groups


def _draw_ring(
    x: float, y: float, colour: str, rings: Sequence[Ring], links: LineageLinks
) -> Markup:
    is_kept = any(ring.save.removed_at is None for ring in rings)
    size, kind = (4.6, "ring") if is_kept else (2.6, "removed")
    circle = svg.circle(f"page {colour}-line {kind}", x, y, size)
    words = describe_saves([ring.save for ring in rings])
    return svg.group("save", words, circle, to=links.save(rings[-1].save))


def _draw_turns(row: _Row, rings: Sequence[float], frame: _Frame) -> Iterator[Markup]:
    turns: dict[float, list[LineTurn]] = {}
    for turn in row.lane.turns:
        turns.setdefault(frame.x(turn.at), []).append(turn)
    for x, group in turns.items():
        next_x = min((ring for ring in rings if ring > x), default=x + 40)
        is_resume = group[-1].life.begun_by == "resume"
        middle = x + min(14.0, (next_x - x) / 2 + 1)
        shape = svg.draw_sign("resume" if is_resume else "restart", middle - 9, row.y)
        yield svg.group("turn", [describe_turn(turn) for turn in group], shape)


# -- the legend -----------------------------------------------------------------------------


def _draw_legend(layout: Layout, top: float) -> tuple[list[Markup], float]:
    """Return the legend of the signs in a picture, and the height of the picture."""
    shapes, signs = list[Markup](), [*_find_signs(layout)]
    places = svg.place_legend((words for _, words in signs), svg.MARGIN, top + 20, 32)
    for (sign, words), (x, y) in zip(signs, places, strict=True):
        shapes.append(element("g", sign, transform=f"translate({x:.1f},{y - 4:.1f})"))
        shapes.append(svg.text(x + 32, y, words, "muted small"))
    return shapes, places[-1][1] + 20


def _find_signs(layout: Layout) -> Iterator[tuple[Markup, str]]:
    lanes = layout.lanes
    lines = [line for lane in lanes for line in (lane, *lane.branches)]
    rings = [ring for line in lines for ring in line.rings]
    endings = {line.ending for line in lines}
    begun_by = {turn.life.begun_by for lane in lanes for turn in lane.turns}
    removed = {ring.save.removed_at is not None for ring in rings}
    line, stub = svg.path("muted-line line", "M0,0h26"), svg.path("muted-line line stub", "M0,0h14")
    kept_ring = svg.circle("page muted-line ring", 13, 0, 4.6)
    removed_ring = svg.circle("page muted-line removed", 13, 0, 2.6)
    fork = svg.path("muted-line line", "M4,-8C4,3 8,4 26,4")
    bar = svg.path("muted-line mark", "M18,-6v12")
    running = svg.path("muted", "M15,-5L25,0L15,5z")
    square = svg.rect("page muted-line ring", 0, -4, 8, 8)
    is_elsewhere = any(lane.fork is None and lane.instance.parent for lane in lanes)
    signs = (
        (False in removed, (line, kept_ring), "save"),
        (True in removed, (line, removed_ring), "removed save"),
        (any(lane.fork for lane in lanes), (fork,), "fork"),
        (bool(begun_by - {"resume"}), (line, svg.draw_sign("restart", 4, 0)), "restarted"),
        ("resume" in begun_by, (line, svg.draw_sign("resume", 2, 0)), "resumed"),
        ("died" in endings, (stub, svg.draw_sign("crash", 20, 0)), "died"),
        ("ended" in endings, (stub, bar), "stopped or finished"),
        ("alive" in endings, (stub, running), "running"),
        (is_elsewhere, (svg.path("muted-line line", "M8,0h18"), square), "from another run"),
        (True, (stub,), "after the last save"),
    )
    return ((html.join(sign), words) for is_used, sign, words in signs if is_used)
