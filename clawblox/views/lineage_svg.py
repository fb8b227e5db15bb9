"""A lineage as an SVG picture: no script, no font, no file from outside; light and dark.

Colours repeat what shapes show. ``lineage_layout`` places things on the axis; this module turns
positions into pixels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
from rich.cells import cell_len

from clawblox.columns import shorten
from clawblox.printable import printable
from clawblox.rundir.lineage import Lineage
from clawblox.views.lineage_layout import (
    Branch,
    Ending,
    Lane,
    Layout,
    Ring,
    Turn,
    describe_end,
    describe_lineage,
    describe_saves,
    describe_state,
    describe_turn,
    lay_out,
)

_WIDTH: Final = 900.0
_MARGIN: Final = 20.0
_TOP: Final = 94.0
_LANE: Final = 30.0
_BRANCH: Final = 18.0
_INDENT: Final = 12.0
_MAX_INDENTS: Final = 6
_MAX_NAME: Final = 24
_MAX_STATE: Final = 40
_STUB: Final = 20.0
"""The part after the last save of a line; its length means nothing, so it is dashed."""
_BRANCH_STUB: Final = 12.0
_TURN: Final = 16.0
"""Room for a restart that is the last thing known of a line."""
_SAME: Final = 2.0
"""Saves that are closer than this share a ring."""
_MAX_CROSSES: Final = 4
_TICK_WIDTH: Final = 70.0
_LONG: Final = 900.0
"""Pictures that are higher have the numbers of the axis below as well."""
_SIZE: Final = 13.0
_SMALL: Final = 12.0
_EM: Final = 0.61
"""Width of a character of a monospaced font, in font sizes."""

_LANE_COLOURS: Final = (
    ("#0969da", "#58a6ff"),
    ("#9a6700", "#d9a441"),
    ("#8250df", "#b392f0"),
    ("#1a7f37", "#4cc265"),
    ("#bf3989", "#f28cc2"),
    ("#0a7b83", "#39c5cf"),
)
_COLOURS: Final = {
    "page": ("#ffffff", "#0d1117"),
    "stripe": ("#f6f8fa", "#141a22"),
    "ink": ("#1f2328", "#f0f6fc"),
    "muted": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#2b323b"),
    "bad": ("#cf222e", "#ff7b72"),
    **{f"lane{number}": pair for number, pair in enumerate(_LANE_COLOURS)},
}
_STYLE: Final = """\
text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
font-size:13px}
.small{font-size:12px} .title{font-size:16px;font-weight:600}
.line{fill:none;stroke-width:2;stroke-linecap:round} .thin{stroke-width:1.5}
.stub{stroke-dasharray:2 4} .leader{stroke-dasharray:1 5} .hair{stroke-width:1;fill:none}
.ring{stroke-width:2} .removed{stroke-width:1.2} .mark{stroke-width:2.2;stroke-linejoin:round}
.pulse{stroke:none;opacity:.3;transform-box:fill-box;transform-origin:center;\
animation:pulse 2s ease-out infinite}
@keyframes pulse{from{transform:scale(.6);opacity:.5} to{transform:scale(1.7);opacity:0}}
@media (prefers-reduced-motion:reduce){.pulse{animation:none}}"""
_NOT_XML: Final = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def draw_lineage(lineage: Lineage, *, title: str) -> str:
    """Return a lineage as an SVG document.

    Args:
        lineage: The lineage.
        title: The heading, for example the run directory.
    """
    layout = lay_out(lineage)
    frame = _Frame.of(layout)
    rows = _make_rows(layout, frame)
    bottom = rows[-1].bottom if rows else _TOP
    shapes = [*_draw_stripes(rows, frame), *_draw_axis(layout, frame, bottom)]
    shapes += [shape for row in rows for shape in _draw_fork(rows, row, frame)]
    shapes += [shape for row in rows for shape in _draw_row(row, frame)]
    legend, height = _draw_legend(layout, bottom + 44)
    summary = describe_lineage(lineage)
    head = [
        _text(_MARGIN, 32, shorten(printable(title), 80, "middle"), "ink title"),
        _text(_MARGIN, 52, summary, "muted"),
    ]
    name = f"Lineage of {title}: {summary}"
    return "\n".join((_open(height, name), *head, *shapes, *legend, "</svg>", ""))


def _open(height: float, name: str) -> str:
    light, dark = (_rules(theme) for theme in (0, 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:g}"'
        f' viewBox="0 0 {_WIDTH:g} {height:g}" role="img">\n'
        f"<title>{_escape(name)}</title>\n<style>\n{_STYLE}\n{light}\n"
        f"@media (prefers-color-scheme:dark){{\n{dark}\n}}\n</style>\n"
        f'<rect class="page" width="{_WIDTH:g}" height="{height:g}" rx="8"/>'
    )


def _rules(theme: int) -> str:
    return "\n".join(
        f".{name}{{fill:{pair[theme]}}} .{name}-line{{stroke:{pair[theme]}}}"
        for name, pair in _COLOURS.items()
    )


# -- where things are -----------------------------------------------------------------------


@attrs.frozen
class _Frame:
    """The columns of the picture, in pixels.

    Attributes:
        layout: Where things are on the axis.
        left: Where the axis begins.
        right: Where it ends.
        states: Where the states begin.
    """

    layout: Layout
    left: float
    right: float
    states: float

    @classmethod
    def of(cls, layout: Layout) -> _Frame:
        names = [_indent(lane) + _width(_name(lane), _SIZE) for lane in layout.lanes]
        states = [_width(_state(lane), _SMALL) for lane in layout.lanes]
        column = _WIDTH - _MARGIN - max(states, default=0.0)
        left = _MARGIN + max(names, default=0.0) + 22
        return cls(layout, left, column - _STUB - _TURN - 30, column)

    def x(self, at: float) -> float:
        return self.left + self.layout.fraction(at) * (self.right - self.left)


@attrs.frozen
class _Row:
    """A lane with its place.

    Attributes:
        lane: The lane.
        number: Its number, from 0.
        top: Its upper edge.
        y: Its line.
        branch_ys: The lines of its branches.
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
        return f"lane{self.number % len(_LANE_COLOURS)}"


def _make_rows(layout: Layout, frame: _Frame) -> list[_Row]:
    rows: list[_Row] = []
    top = _TOP
    for number, lane in enumerate(layout.lanes):
        heights = _stack(lane.branches, frame)
        y = top + _BRANCH * max(heights, default=0) + _LANE / 2
        rows.append(_Row(lane, number, top, y, tuple(y - _BRANCH * height for height in heights)))
        top = y + _LANE / 2
    return rows


def _stack(branches: Sequence[Branch], frame: _Frame) -> list[int]:
    """Return how far above its lane each branch is, so that no two of a height overlap."""
    ends: list[float] = []
    heights: list[int] = []
    for branch in branches:
        right = frame.x(branch.end) + 24 + 11 * min(len(branch.lives), _MAX_CROSSES) + 24
        # A branch of a branch goes up from it, not down.
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


def _width(text: str, size: float) -> float:
    return cell_len(text) * size * _EM


# -- shapes ---------------------------------------------------------------------------------


def _draw_stripes(rows: Iterable[_Row], frame: _Frame) -> Iterator[str]:
    """Yield stripes that guide the eye from a name to its lane."""
    for row in rows:
        if row.number % 2 == 0:
            place = f'x="{_MARGIN - 8:g}" y="{row.top:.1f}" height="{row.bottom - row.top:.1f}"'
            yield f'<rect class="stripe" {place} width="{_WIDTH - 2 * _MARGIN + 16:g}" rx="4"/>'
        start = _MARGIN + _indent(row.lane) + _width(_name(row.lane), _SIZE) + 6
        end = frame.x(row.lane.begin) - 20
        if end > start:
            yield _path("grid-line hair leader", f"M{start:.1f},{row.y:.1f}H{end:.1f}")


def _draw_axis(layout: Layout, frame: _Frame, bottom: float) -> Iterator[str]:
    if not layout.lanes:
        return
    is_long = bottom > _LONG
    most = max(2, int((frame.right - frame.left) / _TICK_WIDTH))
    for at, label in layout.make_ticks(most):
        x = frame.x(at)
        yield _path("grid-line hair", f"M{x:.1f},{_TOP - 4:g}V{bottom + 4:.1f}")
        yield _text(x, _TOP - 10, label, "muted small", anchor="middle")
        if is_long:
            yield _text(x, bottom + 16, label, "muted small", anchor="middle")
    what = "simulated time" if layout.is_simulated else "seconds since the first start"
    x = (frame.left + frame.right) / 2
    yield _text(x, bottom + (34 if is_long else 20), what, "muted small", anchor="middle")


def _draw_fork(rows: Sequence[_Row], row: _Row, frame: _Frame) -> Iterator[str]:
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
    yield _group("fork", [words], _path(f"{row.colour}-line line", line))


def _draw_row(row: _Row, frame: _Frame) -> Iterator[str]:
    lane, y = row.lane, row.y
    x = _MARGIN + _indent(lane)
    yield _text(x, y + 4, _name(lane), "ink")
    yield _text(frame.states, y + 4, _state(lane), "muted small")
    begin, end = frame.x(lane.begin), frame.x(lane.end)
    for branch, branch_y in zip(lane.branches, row.branch_ys, strict=True):
        yield from _draw_branch(row, branch, branch_y, frame)
    start = begin if lane.fork is None else begin + 13
    if end > start:
        yield _path(f"{row.colour}-line line", f"M{start:.1f},{y:.1f}H{end:.1f}")
    room = _TURN if any(turn.at == lane.end for turn in lane.turns) else 0.0
    words = [f"{lane.instance.name}: {describe_state(lane.instance)}"]
    yield from _draw_ending(max(start, end), y, row.colour, lane.ending, words, _STUB + room)
    if lane.fork is None:
        yield from _draw_beginning(row, begin)
    for branch, branch_y in zip(lane.branches, row.branch_ys, strict=True):
        rings = _group_near(branch.rings, frame)
        yield from (_draw_ring(x, branch_y, row.colour, group) for x, group in rings)
    groups = _group_near(lane.rings, frame)
    yield from (_draw_ring(x, y, row.colour, rings) for x, rings in groups)
    yield from _draw_turns(row, [x for x, _ in groups], frame)


def _draw_beginning(row: _Row, x: float) -> Iterator[str]:
    parent, y = row.lane.instance.parent, row.y
    if parent is None:
        yield f'<circle class="{row.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
        return
    yield _path(f"{row.colour}-line line", f"M{x - 10:.1f},{y:.1f}H{x:.1f}")
    place = f'x="{x - 18:.1f}" y="{y - 4:.1f}" width="8" height="8"'
    words = [f"began from {parent.path}", f"sha256 {parent.sha256}" if parent.sha256 else ""]
    yield _group("elsewhere", words, f'<rect class="page {row.colour}-line ring" {place}/>')


def _draw_branch(row: _Row, branch: Branch, y: float, frame: _Frame) -> Iterator[str]:
    begin, end = frame.x(branch.begin), frame.x(branch.end)
    line = f"M{begin:.1f},{y:.1f}"
    start = begin
    if branch.is_apart:
        yield f'<circle class="{row.colour}" cx="{begin:.1f}" cy="{y:.1f}" r="2.5"/>'
    else:
        base = row.y if branch.base is None else row.branch_ys[branch.base]
        start = begin + 12
        line = (
            f"M{begin:.1f},{base:.1f}"
            f"C{begin + 5:.1f},{base:.1f} {begin + 3:.1f},{y:.1f} {start:.1f},{y:.1f}"
        )
    if end > start:
        line += f"H{end:.1f}"
    yield _path(f"{row.colour}-line line thin", line)
    words = list(map(describe_end, branch.lives))
    yield from _draw_ending(max(start, end), y, row.colour, branch.ending, words, _BRANCH_STUB)


def _draw_ending(
    x: float, y: float, colour: str, ending: Ending, words: Sequence[str], length: float
) -> Iterator[str]:
    """Yield the end of a line, after its last known position; a cross for each of the words."""
    yield _path(f"{colour}-line line stub", f"M{x:.1f},{y:.1f}h{length:g}")
    x += length + 4
    if ending == "alive":
        pulse = f'<circle class="{colour} pulse" cx="{x + 2:.1f}" cy="{y:.1f}" r="8"/>'
        arrow = f'<path class="{colour}" d="M{x - 3:.1f},{y - 5:.1f}L{x + 7:.1f},{y:.1f}'
        yield _group("alive", words, f'{pulse}{arrow}L{x - 3:.1f},{y + 5:.1f}z"/>')
    elif ending == "ended":
        yield _group("end", words, _path(f"{colour}-line mark", f"M{x - 3:.1f},{y - 6:.1f}v12"))
    elif ending == "died":
        for number, word in enumerate(words[:_MAX_CROSSES]):
            yield _group("death", [word], _cross(x + 11 * number, y))
        if len(words) > _MAX_CROSSES:
            more = f"+{len(words) - _MAX_CROSSES}"
            yield _text(x + 11 * _MAX_CROSSES - 4, y + 4, more, "bad small")


def _cross(x: float, y: float) -> str:
    return _path("bad-line mark", f"M{x - 4:.1f},{y - 4:.1f}l8,8m0,-8l-8,8")


def _group_near(rings: Iterable[Ring], frame: _Frame) -> list[tuple[float, list[Ring]]]:
    """Return the saves of a line by where their rings are."""
    groups: list[tuple[float, list[Ring]]] = []
    for ring in sorted(rings, key=lambda ring: ring.at):
        x = frame.x(ring.at)
        if groups and x - groups[-1][0] < _SAME:
            groups[-1][1].append(ring)
        else:
            groups.append((x, [ring]))
    return groups


def _draw_ring(x: float, y: float, colour: str, rings: Sequence[Ring]) -> str:
    is_kept = any(ring.save.removed_at is None for ring in rings)
    size, kind = (4.6, "ring") if is_kept else (2.6, "removed")
    circle = f'<circle class="page {colour}-line {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"/>'
    return _group("save", describe_saves([ring.save for ring in rings]), circle)


def _draw_turns(row: _Row, rings: Sequence[float], frame: _Frame) -> Iterator[str]:
    turns: dict[float, list[Turn]] = {}
    for turn in row.lane.turns:
        turns.setdefault(frame.x(turn.at), []).append(turn)
    for x, group in turns.items():
        next_x = min((ring for ring in rings if ring > x), default=x + 40)
        is_resume = group[-1].life.begun_by == "resume"
        middle = x + min(14.0, (next_x - x) / 2 + 1)
        chevron = f"M{middle - 3:.1f},{row.y - 5:.1f}l5,5l-5,5"
        second = f"M{middle + 2:.1f},{row.y - 5:.1f}l5,5l-5,5" if is_resume else ""
        shape = _path("ink-line mark line", chevron + second)
        yield _group("turn", [describe_turn(turn) for turn in group], shape)


# -- the legend -----------------------------------------------------------------------------


def _draw_legend(layout: Layout, top: float) -> tuple[list[str], float]:
    """Return the legend of the signs in a picture, and the height of the picture."""
    shapes: list[str] = []
    x, y = _MARGIN, top + 20
    for sign, words in _find_signs(layout):
        width = 32 + _width(words, _SMALL) + 14
        if x + width > _WIDTH - _MARGIN:
            x, y = _MARGIN, y + 22
        shapes.append(f'<g transform="translate({x:.1f},{y - 4:.1f})">{sign}</g>')
        shapes.append(_text(x + 32, y, words, "muted small"))
        x += width
    return shapes, y + 20


def _find_signs(layout: Layout) -> Iterator[tuple[str, str]]:
    lanes = layout.lanes
    branches = [branch for lane in lanes for branch in lane.branches]
    lines: list[Lane | Branch] = [*lanes, *branches]
    rings = [ring for line in lines for ring in line.rings]
    endings = {line.ending for line in lines}
    begun_by = {turn.life.begun_by for lane in lanes for turn in lane.turns}
    removed = {ring.save.removed_at is not None for ring in rings}
    line, stub = _path("muted-line line", "M0,0h26"), _path("muted-line line stub", "M0,0h14")
    kept_ring = '<circle class="page muted-line ring" cx="13" cy="0" r="4.6"/>'
    removed_ring = '<circle class="page muted-line removed" cx="13" cy="0" r="2.6"/>'
    restarted = _path("ink-line mark line", "M10,-5l5,5l-5,5")
    resumed = _path("ink-line mark line", "M8,-5l5,5l-5,5m5,-10l5,5l-5,5")
    bar = _path("muted-line mark", "M18,-6v12")
    running = '<path class="muted" d="M15,-5L25,0L15,5z"/>'
    square = '<rect class="page muted-line ring" x="0" y="-4" width="8" height="8"/>'
    is_elsewhere = any(lane.fork is None and lane.instance.parent for lane in lanes)
    signs = (
        (False in removed, f"{line}{kept_ring}", "save"),
        (True in removed, f"{line}{removed_ring}", "removed save"),
        (any(lane.fork for lane in lanes), _path("muted-line line", "M4,-8C4,3 8,4 26,4"), "fork"),
        (bool(begun_by & {"policy", "request"}), f"{line}{restarted}", "restarted"),
        ("resume" in begun_by, f"{line}{resumed}", "resumed"),
        ("died" in endings, f"{stub}{_cross(20, 0)}", "died"),
        ("ended" in endings, f"{stub}{bar}", "stopped or finished"),
        ("alive" in endings, f"{stub}{running}", "running"),
        (is_elsewhere, f"{_path('muted-line line', 'M8,0h18')}{square}", "from another run"),
        (True, stub, "after the last save"),
    )
    return ((sign, words) for is_used, sign, words in signs if is_used)


# -- text and elements ----------------------------------------------------------------------


def _text(x: float, y: float, text: str, names: str, *, anchor: str = "start") -> str:
    more = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{names}" x="{x:.1f}" y="{y:.1f}"{more}>{_escape(text)}</text>'


def _path(names: str, line: str) -> str:
    return f'<path class="{names}" d="{line}"/>'


def _group(name: str, words: Iterable[str], shape: str) -> str:
    title = "&#10;".join(_escape(word) for word in words if word)
    return f'<g class="{name}"><title>{title}</title>{shape}</g>'


def _escape(text: str) -> str:
    visible = _NOT_XML.sub("", printable(text))
    return visible.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
