"""The strip of an agent as SVG: its turns over the time of the host, with pauses folded. Pure.

Above the turns stand messages and checkpoints, in them the calls, below them what went wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final, TypeVar

import attrs

from clawblox.agents.trajectory import AgentTurn
from clawblox.system.clock import format_utc_ms
from clawblox.views import svg
from clawblox.views.agent_words import seconds_of
from clawblox.views.formatting import count_words, format_count, format_rough_seconds
from clawblox.views.html import Address, Markup, join
from clawblox.views.svg import Picture

_T = TypeVar("_T")

WIDTH: Final = 1240.0
MAX_SINGLE: Final = 300
"""More turns than these are drawn in columns."""
_COLUMN: Final = 4.0
_MAX_LINKS: Final = 60
_LEFT: Final = 10.0
_TOP: Final = 26.0
_HEIGHT: Final = 38.0
_BASE: Final = _TOP + _HEIGHT
_FOLD_S: Final = 60.0
_FOLD_SHARE: Final = 0.05
"""A pause is folded if it is longer than this share of the rest, and than a minute."""
_FOLD: Final = 36.0
_MAX_FOLDS: Final = 12
_MARK: Final = 16.0
"""Width of a column of marks: those in one are drawn as one."""
_MOST_TICKS: Final = 8
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)


@attrs.frozen(kw_only=True)
class Strip:
    """What the strip of an agent shows.

    Attributes:
        turns: Its turns, the oldest first.
        latest: UTC time of its latest event, at which a turn that lasts is drawn to end.
        calls: UTC times of the calls that are known.
        checkpoints: UTC times and names of checkpoints.
        view: UTC times of the first and the last step that the page shows; None for none.
        simulated: Returns the simulated time of a UTC time, None where none is known.
        address: Returns the address of a turn.
    """

    turns: Sequence[AgentTurn]
    latest: str
    calls: Sequence[str] = ()
    checkpoints: Sequence[tuple[str, str]] = ()
    view: tuple[str, str] | None = None
    simulated: Callable[[str], float | None]
    address: Callable[[AgentTurn], Address]


@attrs.frozen
class _Block:
    """A turn with its place."""

    turn: AgentTurn
    begin: float
    end: float


class _Scale:
    """Turns seconds since 1970 into pixels."""

    def __init__(self, blocks: Sequence[_Block]) -> None:
        ends = [*accumulate((block.end for block in blocks), max)]
        gaps = [
            (after.begin - end, end, after.begin)
            for end, (_, after) in zip(ends, pairwise(blocks), strict=False)
        ]
        work = sum(max(0.0, block.end - block.begin) for block in blocks)
        long = [gap for gap in gaps if gap[0] > max(_FOLD_S, _FOLD_SHARE * work)]
        self.folds = sorted(gap[1:] for gap in sorted(long, reverse=True)[:_MAX_FOLDS])
        begin, end = (blocks[0].begin, ends[-1]) if blocks else (0.0, 1.0)
        borders = [begin, *(moment for fold in self.folds for moment in fold), end]
        self.parts = [*zip(borders[::2], borders[1::2], strict=True)]
        room = WIDTH - 2 * _LEFT - _FOLD * len(self.folds)
        total = sum(last - first for first, last in self.parts)
        self.rate = room / max(total, 1e-3)
        self.starts = []
        x = _LEFT
        for first, last in self.parts:
            self.starts.append(x)
            x += (last - first) * self.rate + _FOLD

    def x(self, moment: float) -> float:
        number = max(0, bisect_right(self.parts, moment, key=lambda part: part[0]) - 1)
        first, last = self.parts[number]
        return self.starts[number] + (min(max(moment, first), last) - first) * self.rate


def draw_strip(strip: Strip) -> Picture:
    """Return the strip; without turns it is empty."""
    blocks = [*_place(strip)]
    scale = _Scale(blocks)
    has_simulated = any(strip.simulated(block.turn.started_at or "") is not None
                        for block in (*blocks[:1], *blocks[-1:]))  # fmt: skip
    shapes = [
        *_draw_turns(blocks, scale),
        *_draw_view(strip, scale),
        *_draw_ticks(strip, scale, has_simulated=has_simulated),
        _draw_calls(strip, scale),
        *_draw_faults(blocks, scale),
        *_draw_folds(scale),
        *_draw_links(strip, blocks, scale),
        *_draw_above(strip, blocks, scale),
    ]
    name = f"{count_words(len(blocks), 'turn')} over time of the host"
    height = _BASE + (54 if has_simulated else 38)
    return Picture(height, name, shapes, width=WIDTH)


def _place(strip: Strip) -> Iterator[_Block]:
    latest = seconds_of(strip.latest)
    for number, turn in enumerate(strip.turns):
        begin, end = seconds_of(turn.started_at), seconds_of(turn.ended_at)
        if begin is None:
            continue
        if end is None and number + 1 < len(strip.turns):
            end = seconds_of(strip.turns[number + 1].started_at)
        yield _Block(turn, begin, max(begin, end or latest or begin))


def _draw_turns(blocks: Sequence[_Block], scale: _Scale) -> Iterator[Markup]:
    """Yield turns as frames with a fill, or as columns with the most output of their turns."""
    most = max((block.turn.usage.output_tokens for block in blocks), default=0) or 1
    if len(blocks) > MAX_SINGLE:
        columns: dict[float, int] = {}
        for block in blocks:
            at = scale.x(block.begin) // _COLUMN * _COLUMN
            columns[at] = max(columns.get(at, 0), block.turn.usage.output_tokens)
        bars = [(at, _COLUMN - 1, output) for at, output in columns.items()]
    else:
        places = [(scale.x(block.begin), scale.x(block.end), block) for block in blocks]
        bars = [(x, max(1.0, end - x), one.turn.usage.output_tokens) for x, end, one in places]
        for kind, wanted in (("grid-line hair none", False), ("lost-line hair none", True)):
            chosen = [(x, end) for x, end, one in places if one.turn.is_cut_off == wanted]
            frames = "".join(
                f"M{x:.1f},{_TOP:g}h{max(1.0, end - x):.1f}v{_HEIGHT:g}H{x:.1f}z"
                for x, end in chosen
            )
            if frames:
                yield svg.path(kind, frames)
    fills = (
        f"M{x:.1f},{_BASE:g}v-{_HEIGHT * output / most:.1f}h{width:.1f}V{_BASE:g}z"
        for x, width, output in bars
        if output
    )
    yield svg.path("fill", "".join(fills) or "M0,0")


def _draw_view(strip: Strip, scale: _Scale) -> Iterator[Markup]:
    first, last = map(seconds_of, strip.view or ("", ""))
    if first is not None and last is not None:
        x = scale.x(first)
        width = max(3.0, scale.x(last) - x)
        yield svg.group("view", ["the steps below"], svg.rect("lane0", x, _BASE + 1, width, 3))


def _draw_calls(strip: Strip, scale: _Scale) -> Markup:
    """Return the calls that the page has read, as ticks."""
    moments = (seconds_of(time) for time in strip.calls)
    places = {round(scale.x(moment)) for moment in moments if moment is not None}
    return svg.path(
        "lane0-line mark", "".join(f"M{x},{_BASE:g}v-9" for x in sorted(places)) or "M0,0"
    )


def _draw_faults(blocks: Sequence[_Block], scale: _Scale) -> Iterator[Markup]:
    faulty = [one for one in blocks if one.turn.retries or one.turn.limits or one.turn.errors]
    for x, group in _gather(faulty, lambda one: scale.x(one.end)):
        turns = [one.turn for one in group]
        retries, limits, errors = (
            sum(getattr(turn, name) for turn in turns) for name in ("retries", "limits", "errors")
        )
        words = [
            f"turn {turns[0].number}" + (f" to {turns[-1].number}" if len(turns) > 1 else ""),
            count_words(retries, "retry").replace("retrys", "retries") if retries else "",
            count_words(limits, "limit") if limits else "",
            count_words(errors, "error") if errors else "",
            turns[-1].last_error,
        ]
        kind = "bad-line" if limits or errors else "warning-line"
        yield svg.group("fault", words, svg.path(f"{kind} mark", f"M{x:.1f},{_BASE + 5:g}v10"))


def _gather(items: Iterable[_T], place: Callable[[_T], float]) -> Iterator[tuple[float, list[_T]]]:
    """Yield items by the column that they are in, with the place of the first."""
    for _, group in groupby(items, key=lambda one: int(place(one) // _MARK)):
        found = [*group]
        yield place(found[0]), found


def _draw_folds(scale: _Scale) -> Iterator[Markup]:
    for number, (begin, end) in enumerate(scale.folds):
        x = scale.starts[number + 1] - _FOLD / 2
        label = format_rough_seconds(end - begin)
        line = svg.path("muted-line hair stub", f"M{x:.1f},{_TOP:g}v{_HEIGHT:g}")
        words = svg.text(x, _TOP - 8, label, "muted small", anchor="middle")
        yield svg.group("fold", [f"{label} in which no turn ran"], join((line, words)))


def _draw_ticks(strip: Strip, scale: _Scale, *, has_simulated: bool) -> Iterator[Markup]:
    """Yield the time of the host where it begins or goes on, minutes since then, simulated time."""
    begin = scale.parts[0][0]
    step = next((one for one in _STEPS if one * scale.rate * _MOST_TICKS >= WIDTH), _STEPS[-1])
    free = -1.0
    for first, last in scale.parts if strip.turns else ():
        numbers = range(int((first - begin) // step) + 1, int((last - begin) // step) + 1)
        moments = [first, *(begin + step * number for number in numbers[: 2 * _MOST_TICKS])]
        for moment in moments:
            utc, x = format_utc_ms(round(moment * 1e9)), scale.x(moment)
            label = f"{utc[11:19]} UTC" if moment == first else f"+{_elapsed(moment - begin)}"
            width = svg.text_width(label if not has_simulated else label.ljust(12), svg.SMALL)
            if x < free or x + width > WIDTH:
                continue
            free = x + width + 16
            yield svg.text(x, _BASE + 30, label, "muted small")
            simulated = strip.simulated(utc) if has_simulated else None
            if simulated is not None:
                yield svg.text(x, _BASE + 46, f"sim {simulated:.1f} s", "muted small")


def _elapsed(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 120 else format_rough_seconds(seconds)


def _draw_links(strip: Strip, blocks: Sequence[_Block], scale: _Scale) -> Iterator[Markup]:
    """Yield an area for each turn, or for some neighbours, that leads to their steps."""
    size = -(-len(blocks) // _MAX_LINKS) or 1
    for place in range(0, len(blocks), size):
        group = blocks[place : place + size]
        first, last = group[0].turn, group[-1].turn
        output = sum(one.turn.usage.output_tokens for one in group)
        name = f"turn {first.number}" + (f" to {last.number}" if size > 1 else "")
        x = scale.x(group[0].begin)
        shape = svg.rect("none", x, _TOP, max(2.0, scale.x(group[-1].end) - x), _HEIGHT)
        words = [f"{name}: {format_count(output) or '0'} out"]
        yield svg.group("area", words, shape, to=strip.address(first))


def _draw_above(strip: Strip, blocks: Sequence[_Block], scale: _Scale) -> Iterator[Markup]:
    told = [one for one in blocks if one.turn.prompt and not one.turn.is_automatic]
    for x, group in _gather(told, lambda one: scale.x(one.begin)):
        words = [f"turn {one.turn.number}: {(one.turn.prompt or '')[:80]}" for one in group[:2]]
        mark = svg.path("warning", f"M{x - 6:.1f},{_TOP - 12:g}h12l-6,9z")
        yield svg.group("message", [*words, _more(group, 2)], mark)
    saved = [(seconds_of(time), name) for time, name in strip.checkpoints]
    known = [(moment, name) for moment, name in saved if moment is not None and blocks]
    for x, saves in _gather(known, lambda one: scale.x(one[0])):
        ring = svg.circle("page ink-line ring", x, _TOP - 7, 5)
        words = [f"checkpoint {name}" for _, name in saves[:2]]
        yield svg.group("save", [*words, _more(saves, 2)], ring)


def _more(items: Sequence[object], shown: int) -> str:
    return f"and {len(items) - shown} more" if len(items) > shown else ""
