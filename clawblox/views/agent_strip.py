"""The strip of an agent as SVG: its turns over the time of the host, with pauses folded. Pure.

Above the turns stand messages and checkpoints, in them the calls, below them what went wrong.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Final

import attrs

from clawblox.agents.trajectory import AgentTurn
from clawblox.system.clock import format_utc_ms
from clawblox.views import svg
from clawblox.views.agent_words import describe_turn, seconds_of
from clawblox.views.formatting import count_words, format_count, format_rough_seconds
from clawblox.views.html import Address, Markup, join
from clawblox.views.svg import Picture

WIDTH: Final = 1240.0
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
        borders = [blocks[0].begin, *(moment for fold in self.folds for moment in fold), ends[-1]]
        self.parts = [*zip(borders[::2], borders[1::2], strict=True)]
        lengths = [last - first for first, last in self.parts]
        room = WIDTH - 2 * _LEFT - _FOLD * len(self.folds)
        self.rate = room / max(sum(lengths), 1e-3)
        widths = (length * self.rate + _FOLD for length in lengths)
        self.starts = [*accumulate(widths, initial=_LEFT)]

    def x(self, moment: float) -> float:
        number = max(0, bisect_right(self.parts, moment, key=lambda part: part[0]) - 1)
        first, last = self.parts[number]
        return self.starts[number] + (min(max(moment, first), last) - first) * self.rate


def draw_strip(strip: Strip) -> Picture:
    """Return the strip; without turns it is empty."""
    blocks = [*_place(strip)]
    if not blocks:
        return Picture(0, "0 turns", ())
    scale, ends = _Scale(blocks), (blocks[0].turn, blocks[-1].turn)
    has_simulated = any(strip.simulated(turn.started_at or "") is not None for turn in ends)
    first, last = map(seconds_of, strip.view or ("", ""))
    shapes = [*_draw_turns(blocks, scale)]
    if first is not None and last is not None:
        width = max(3.0, scale.x(last) - scale.x(first))
        shown = svg.rect("lane0", scale.x(first), _BASE + 1, width, 3)
        shapes.append(svg.group("view", ["the steps below"], shown))
    shapes += _draw_ticks(strip, scale, has_simulated=has_simulated)
    moments = (seconds_of(time) for time in strip.calls)
    places = {round(scale.x(moment)) for moment in moments if moment is not None}
    calls = (f"M{x},{_BASE:g}v-9" for x in sorted(places))
    shapes += [svg.path("lane0-line mark", "".join(calls)), *_draw_faults(blocks, scale)]
    shapes += [*_draw_folds(scale), *_draw_links(strip, blocks, scale)]
    shapes += _draw_above(strip, blocks, scale)
    name = f"{count_words(len(blocks), 'turn')} over time of the host"
    return Picture(_BASE + (54 if has_simulated else 38), name, shapes, width=WIDTH)


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
    """Yield turns as frames with a fill; of turns at the same pixels, the one with most output."""
    bars: dict[tuple[bool, int, int], int] = {}
    for block in blocks:
        x, end = round(scale.x(block.begin)), round(scale.x(block.end))
        bar = block.turn.is_cut_off, x, max(1, end - x)
        bars[bar] = max(bars.get(bar, 0), block.turn.usage.output_tokens)
    for kind, wanted in (("grid-line hair none", False), ("lost-line hair none", True)):
        frames = (
            f"M{x},{_TOP:g}h{w}v{_HEIGHT:g}h-{w}z" for is_cut, x, w in bars if is_cut == wanted
        )
        yield svg.path(kind, "".join(frames))
    scale_y = _HEIGHT / (max(bars.values()) or 1)
    fills = (
        f"M{x},{_BASE:g}v-{output * scale_y:.1f}h{width}V{_BASE:g}z"
        for (_, x, width), output in bars.items()
    )
    yield svg.path("fill", "".join(fills))


def _draw_faults(blocks: Sequence[_Block], scale: _Scale) -> Iterator[Markup]:
    for kind, is_bad in (("warning-line", False), ("bad-line", True)):
        faults = [
            (one.end, f"turn {one.turn.number}: {describe_turn(one.turn)} {one.turn.last_error}")
            for one in blocks
            if bool(one.turn.limits or one.turn.errors) == is_bad
            if is_bad or one.turn.retries
        ]
        yield from _draw_marks("fault", faults, scale, f"{kind} mark", (0, _BASE + 5), "v10")


def _draw_marks(
    name: str,
    moments: Iterable[tuple[float | None, str]],
    scale: _Scale,
    kind: str,
    offset: tuple[float, float],
    shape: str,
) -> Iterator[Markup]:
    """Yield marks with their words, those in a column as one."""
    known = [(scale.x(moment), words) for moment, words in moments if moment is not None]
    for _, group in groupby(known, key=lambda one: int(one[0] // _MARK)):
        (x, first), *others = group
        words = [first, *(more for _, more in others[:1])]
        words += [f"and {len(others) - 1} more"] if len(others) > 1 else []
        path = f"M{x + offset[0]:.1f},{offset[1]:g}{shape}"
        yield svg.group(name, words, svg.path(kind, path))


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
    for first, last in scale.parts:
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
    size = -(-len(blocks) // _MAX_LINKS)
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
    turns = ((one.begin, one.turn) for one in blocks if not one.turn.is_automatic)
    told = ((at, f"turn {turn.number}: {turn.prompt[:80]}") for at, turn in turns if turn.prompt)
    saved = [(seconds_of(time), f"checkpoint {name}") for time, name in strip.checkpoints]
    yield from _draw_marks("message", told, scale, "warning", (-6, _TOP - 12), "h12l-6,9z")
    ring = "m-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z"
    yield from _draw_marks("save", saved, scale, "page ink-line ring", (0, _TOP - 7), ring)
