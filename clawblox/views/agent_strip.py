"""The strip of an agent as SVG: its turns over host time, with pauses folded. Pure.

Messages, checkpoints, and ends and restarts of the world are above the turns; calls are inside the
turns; errors are below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import attrs

from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.trajectory import AgentTurn
from clawblox.system.clock import format_utc_ms
from clawblox.views import svg
from clawblox.views.agent_words import describe_turn, to_seconds
from clawblox.views.formatting import (
    count_words,
    format_count,
    format_rough_seconds,
    format_seconds,
)
from clawblox.views.html import Markup, PageAddress
from clawblox.views.svg import Picture, Sign, interpolate

WIDTH: Final = 1240.0
_MAX_LINKS: Final = 60
_LEFT: Final = 10.0
_TOP: Final = 26.0
_HEIGHT: Final = 38.0
_BASE: Final = _TOP + _HEIGHT
_FOLD_S: Final = 60.0
_FOLD_SHARE: Final = 0.05
"""A pause is drawn no longer than this share of all turns, or than a minute."""
_NARROW: Final = 4
"""Turns narrower than this many pixels are merged into columns of this width."""
_COLUMN: Final = 16.0
"""Width of a column in pixels; signs of the same kind in a column are drawn as one."""
_TICKS: Final = 8


@attrs.frozen(kw_only=True)
class Strip:
    """The content of the strip of an agent.

    Attributes:
        turns: Turns of the agent, oldest first.
        latest: UTC time of the agent's latest event; an unfinished turn is drawn up to this time.
        calls: UTC times of the known calls.
        marks: Other events: kind (``save``, ``crash`` or ``restart``), UTC time and words.
        view: UTC times of the first and the last step that the page shows; None if it shows no
            steps.
        simulated: Returns the simulated time at a UTC time, or None if it is unknown.
        address: Returns the address of a turn.
    """

    turns: Sequence[AgentTurn]
    latest: str
    calls: Sequence[str] = ()
    marks: Sequence[tuple[str, str, str]] = ()
    view: tuple[str, str] | None = None
    simulated: Callable[[str], float | None]
    address: Callable[[AgentTurn], PageAddress]


@attrs.frozen
class _Block:
    """A turn with its position."""

    turn: AgentTurn
    begin: float
    end: float


class _Scale:
    """Converts seconds since 1970 to pixels and back, with ``pauses`` folded."""

    def __init__(self, blocks: Sequence[_Block]) -> None:
        most = max(_FOLD_S, _FOLD_SHARE * sum(block.end - block.begin for block in blocks))
        knots, self.pauses = [(blocks[0].begin, 0.0)], list[tuple[float, float]]()
        for block in blocks:
            if (pause := block.begin - knots[-1][0]) > most:
                self.pauses.append((knots[-1][0], block.begin))
            for moment, room in ((block.begin, min(pause, most)), (block.end, None)):
                before, place = knots[-1]
                if moment > before:
                    knots.append((moment, place + (room or moment - before)))
        rate = (WIDTH - 2 * _LEFT) / (knots[-1][1] or 1.0)
        self.knots = [(moment, _LEFT + place * rate) for moment, place in knots]

    def x(self, moment: float) -> float:
        return interpolate(self.knots, moment, 0)

    def moment(self, x: float) -> float:
        return interpolate(self.knots, x, 1)


def draw_strip(strip: Strip) -> Picture:
    """Return the strip as a picture, which is empty without turns."""
    blocks = [*_place(strip)]
    if not blocks:
        return Picture(0, "0 turns", ())
    scale, shapes = _Scale(blocks), list[Markup]()
    shapes += _draw_turns(blocks, scale)
    first, last = map(to_seconds, strip.view or ("", ""))
    if first is not None and last is not None:
        width = max(3.0, scale.x(last) - scale.x(first))
        shown = svg.rect("lane0", scale.x(first), _BASE + 1, width, 3)
        shapes.append(svg.group("view", ["the steps below"], shown))
    shapes += _draw_ticks(strip, scale)
    moments = (to_seconds(time) for time in strip.calls)
    calls = {round(scale.x(moment)): None for moment in moments if moment is not None}
    shapes.append(svg.path("lane0-line mark", "".join(f"M{x},{_BASE:g}v-9" for x in calls)))
    pauses = ((scale.x((begin + end) / 2), end - begin) for begin, end in scale.pauses)
    folds = ((x, format_rough_seconds(pause)) for x, pause in pauses)
    shapes += svg.draw_folds(folds, "without a turn", _TOP, _BASE)
    shapes += _draw_links(strip, blocks, scale)
    shapes += svg.draw_signs(_list_signs(strip, blocks, scale), _COLUMN)
    name = f"{count_words(len(blocks), 'turn')} over time of the host"
    return Picture(_BASE + 54, name, shapes, width=WIDTH)


def _place(strip: Strip) -> Iterator[_Block]:
    latest = to_seconds(strip.latest)
    for number, turn in enumerate(strip.turns):
        begin, end = to_seconds(turn.started_at), to_seconds(turn.ended_at)
        if begin is None:
            continue
        if end is None and number + 1 < len(strip.turns):
            end = to_seconds(strip.turns[number + 1].started_at)
        yield _Block(turn, begin, max(begin, end or latest or begin))


def _draw_turns(blocks: Sequence[_Block], scale: _Scale) -> Iterator[Markup]:
    """Yield turns as filled frames; of narrow turns in a column, only the one with most output."""
    bars: dict[tuple[str, int, int], int] = {}
    for block in blocks:
        x, end = round(scale.x(block.begin)), round(scale.x(block.end))
        kind = "lost-line" if block.turn.is_cut_off else "grid-line"
        bar = (kind, x, end - x) if end - x > _NARROW else (kind, x - x % _NARROW, _NARROW)
        bars[bar] = max(bars.get(bar, 0), block.turn.usage.output_tokens)
    for wanted in ("grid-line", "lost-line"):
        frames = (f"M{x},{_TOP:g}h{w}v{_HEIGHT:g}h-{w}z" for kind, x, w in bars if kind == wanted)
        yield svg.path(f"{wanted} hair none", "".join(frames))
    scale_y = _HEIGHT / (max(bars.values()) or 1)
    fills = (
        f"M{x},{_BASE:g}v-{output * scale_y:.1f}h{width}V{_BASE:g}z"
        for (_, x, width), output in bars.items()
    )
    yield svg.path("fill", "".join(fills))


def _list_signs(strip: Strip, blocks: Sequence[_Block], scale: _Scale) -> Iterator[Sign]:
    for block in blocks:
        turn, name = block.turn, f"turn {block.turn.number}:"
        if turn.prompt and turn.prompt != AUTO_CONTINUE:
            words = f"{name} {turn.prompt[:80]}"
            yield Sign("message", scale.x(block.begin), _TOP - 7, words)
        has_failed = turn.limits or turn.errors
        if has_failed or turn.retries:
            words = f"{name} {describe_turn(turn)} {turn.last_limit or turn.last_error}"
            yield Sign("failure" if has_failed else "retry", scale.x(block.end), _BASE + 5, words)
    for kind, utc, words in strip.marks:
        if (moment := to_seconds(utc)) is not None:
            yield Sign(kind, scale.x(moment), _TOP - 7, words)


def _draw_ticks(strip: Strip, scale: _Scale) -> Iterator[Markup]:
    """Yield the start time of the first turn, the times since then, and simulated times."""
    begin = scale.knots[0][0]
    for number in range(_TICKS):
        x = _LEFT + number * (WIDTH - _LEFT) / _TICKS
        moment = scale.moment(x)
        utc = format_utc_ms(round(moment * 1e9))
        label = f"+{format_seconds(moment - begin)}" if number else f"{utc[11:19]} UTC"
        yield svg.text(x, _BASE + 30, label, "muted small")
        if (simulated := strip.simulated(utc)) is not None:
            yield svg.text(x, _BASE + 46, f"sim {simulated:.1f} s", "muted small")


def _draw_links(strip: Strip, blocks: Sequence[_Block], scale: _Scale) -> Iterator[Markup]:
    """Yield an area for each turn, or a few neighbouring turns, that links to their steps."""
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
