"""A score over the generations of an experiment, as an SVG picture.

Chains with the same values of some columns form a group with its own colour, dash and shape. A few
chains are drawn as lines, with the mean and standard error of each group; many chains are drawn as
bands that contain half and most of a group's chains, with the median.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from clawblox.columns import distinct_width, shorten
from clawblox.experiment.tables.estimates import estimate, find_quantiles
from clawblox.experiment.tables.results import By, Results, Series
from clawblox.printable import printable
from clawblox.views import svg
from clawblox.views.formatting import count_words, round_ticks
from clawblox.views.html import Markup
from clawblox.views.svg import Picture

MAX_LINES: Final = 12
"""Maximum number of chains drawn as lines, and maximum number of groups."""
_TOP: Final = 76.0
_BOTTOM: Final = 376.0
_LEFT: Final = 84.0
_FOOT: Final = 66.0
"""Height of the text below the axes, in pixels."""
_SIGN: Final = 28.0
"""Width of the sign of a group in the legend."""
_MAX_BESIDE: Final = 28
"""Maximum characters of names in a legend beside the axes; a legend with longer names is below."""
_MAX_TICKS: Final = 7
_MAX_GENERATIONS: Final = 12
_BAR: Final = 9.0
"""Half of the width of a band of a single generation."""
_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
_MAX_WIDE_BANDS: Final = 3
"""Maximum number of groups with wide bands, since more bands would hide each other."""
_AS_LINES: Final = "thick: mean of the group, with a band of one standard error; thin: its chains"
_AS_CHAINS: Final = "a line for each chain"
_AS_BANDS: Final = "line: median; band: the middle half of the chains"
_AS_WIDE_BANDS: Final = (
    "line: median; dark band: the middle half of the chains; light band: 8 of 10"
)


@attrs.frozen
class _Point:
    """A group in one generation: a middle value, and bands around it, widest first."""

    generation: int
    middle: float
    bands: Sequence[tuple[float, float]]
    words: str


@attrs.frozen
class _Group:
    """A group of chains to draw.

    Attributes:
        name: Its name.
        number: Its index, from 0.
        points: Its generations, in order.
        chains: The chains that are drawn as separate lines.
    """

    name: str
    number: int
    points: Sequence[_Point]
    chains: Series

    @property
    def colour(self) -> str:
        return svg.line_colour(self.number)

    def values(self) -> Iterator[float]:
        for point in self.points:
            yield from (point.middle, *(end for band in point.bands for end in band))
        for values in self.chains.values():
            yield from values.values()

    def generations(self) -> set[int]:
        return {point.generation for point in self.points}


def draw_scores(results: Results, score: str, *, by: By | None = None, title: str) -> Picture:
    """Return a score over generations as a picture.

    Args:
        results: The results.
        score: Name of the score, or of another column of numbers.
        by: The columns or labels whose values a group has in common; None means the labels in which
            chains differ, or else the chain. If these make more than 12 groups, columns with the
            most values are left out, and the picture names the remaining columns.
        title: The heading, for example the name of the experiment.

    Raises:
        ConfigError: There is no such column.
    """
    given = [by] if isinstance(by, str) else list(by or ())
    wanted = given or results.conditions() or ["chain"]
    names, series = _choose_groups(results, score, wanted)
    chains = sum(map(len, series.values()))
    groups, how = _make_groups(series, are_bands=chains > MAX_LINES)
    legend = _Legend.of(", ".join(names), groups)
    frame = _Frame.of(groups, legend)
    words = f"{score} by {', '.join(names)}" if names else f"{score} of all chains"
    versions = ", some of another version of the score function" if results.has_kept(score) else ""
    many = f" · {count_words(chains, 'chain')}" if chains > MAX_LINES else ""
    others = f" · more than {MAX_LINES} by {', '.join(wanted)}" if names != wanted else ""
    subtitle = shorten(printable(f"{words}{versions}{many}{others}"), _fit(svg.SIZE), "end")
    shapes = [
        *svg.heading(title, subtitle),
        *_draw_axes(frame),
        svg.text(_LEFT, _BOTTOM + 58, how, "muted small"),
        *(shape for group in groups for shape in _draw_bands(group, frame)),
        *(shape for group in groups for shape in _draw_lines(group, frame)),
        *legend.draw(frame),
    ]
    summary = f"{score} over generations, {count_words(len(groups), 'group')}"
    return Picture(legend.bottom, f"{title}: {summary}", shapes)


# -- groups --------------------------------------------------------------------------------------


def _choose_groups(
    results: Results, score: str, wanted: Sequence[str]
) -> tuple[list[str], dict[str, Series]]:
    """Return the columns that make at most 12 groups, and these groups."""
    for names in (list(wanted), results.conditions()):
        while names:
            series = results.series(score, by=names)
            if len(series) <= MAX_LINES:
                return names, series
            widest = max(names, key=lambda name: len(results.series(score, by=name)))
            names = [name for name in names if name != widest]
    return [], results.series(score, by=())


def _make_groups(series: Mapping[str, Series], *, are_bands: bool) -> tuple[list[_Group], str]:
    """Return the groups, and an explanation of their lines and bands."""
    shares = _SHARES if len(series) <= _MAX_WIDE_BANDS else _SHARES[1:-1]
    find = partial(_find_band, shares=shares) if are_bands else _find_mean
    groups = []
    for number, (name, chains) in enumerate(series.items()):
        generations = sorted({generation for values in chains.values() for generation in values})
        points = []
        for generation in generations:
            values = [line[generation] for line in chains.values() if generation in line]
            words = f"{name or 'all'}, generation {generation}"
            point = find(generation, values, words)
            points += [point] if point is not None else []
        is_one = are_bands or len(chains) < 2  # the line of a single chain is the mean
        groups.append(_Group(name, number, points, {} if is_one else chains))
    if are_bands:
        return groups, _AS_WIDE_BANDS if len(shares) == len(_SHARES) else _AS_BANDS
    return groups, _AS_LINES if any(group.chains for group in groups) else _AS_CHAINS


def _find_mean(generation: int, values: Sequence[float], words: str) -> _Point | None:
    found = estimate(values)
    if found.mean is None:
        return None
    if found.standard_error is None:
        return _Point(generation, found.mean, (), f"{words}: {found.mean:.4g}")
    band = (found.mean - found.standard_error, found.mean + found.standard_error)
    text = f"{words}: mean {found.mean:.4g} ± {found.standard_error:.2g} of {found.n}"
    return _Point(generation, found.mean, [band], text)


def _find_band(
    generation: int, values: Sequence[float], words: str, shares: Sequence[float]
) -> _Point:
    ends = find_quantiles(values, shares)
    middle = ends[len(ends) // 2]
    bands = list(zip(ends, reversed(ends), strict=True))[: len(ends) // 2]
    low, high = bands[-1]
    text = f"{words}: median {middle:.4g}, half of {len(values)} in {low:.4g} to {high:.4g}"
    return _Point(generation, middle, bands, text)


# -- axes ----------------------------------------------------------------------------------------


@attrs.frozen
class _Frame:
    """Maps values to positions in the picture.

    Attributes:
        first: The first generation.
        last: The last generation.
        low: The lowest value.
        high: The highest value.
        right: The right edge of the axes, in pixels.
        groups: Number of the groups.
    """

    first: int
    last: int
    low: float
    high: float
    right: float
    groups: int

    @classmethod
    def of(cls, groups: Sequence[_Group], legend: _Legend) -> _Frame:
        values = [value for group in groups for value in group.values()]
        low, high = min([0.0, *values]), max([0.0, *values])
        shown = {number for group in groups for number in group.generations()} or {1}
        high = high if high > low else low + 1.0
        return cls(min(shown), max(shown), low, high, legend.edge, len(groups))

    def x(self, generation: int, group: int) -> float:
        """Return the position of a generation; groups with a single generation are side by side."""
        if self.first == self.last:
            return _LEFT + (group + 0.5) / max(1, self.groups) * (self.right - _LEFT)
        share = (generation - self.first) / (self.last - self.first)
        return _LEFT + share * (self.right - _LEFT)

    def y(self, value: float) -> float:
        return _BOTTOM - (value - self.low) / (self.high - self.low) * (_BOTTOM - _TOP)


def _draw_axes(frame: _Frame) -> Iterator[Markup]:
    for value, label in round_ticks(frame.low, frame.high, _MAX_TICKS):
        y = frame.y(value)
        yield svg.path("grid-line hair", f"M{_LEFT - 8:g},{y:.1f}H{frame.right + 8:.1f}")
        yield svg.text(_LEFT - 16, y + 4, label, "muted small", anchor="end")
    middle = (_LEFT + frame.right) / 2
    if frame.first == frame.last:
        text = f"generation {frame.first}"
        yield svg.text(middle, _BOTTOM + 20, text, "muted small", anchor="middle")
        return
    step = -(-(frame.last - frame.first + 1) // _MAX_GENERATIONS)
    for generation in range(frame.first, frame.last + 1, step):
        x = frame.x(generation, 0)
        yield svg.text(x, _BOTTOM + 20, str(generation), "muted small", anchor="middle")
    yield svg.text(middle, _BOTTOM + 38, "generation", "muted small", anchor="middle")


# -- lines and bands -----------------------------------------------------------------------------


def _draw_bands(group: _Group, frame: _Frame) -> Iterator[Markup]:
    points = [point for point in group.points if point.bands]
    for depth in range(max((len(point.bands) for point in points), default=0)):
        for run in _find_runs(points):
            ends = [(frame.x(p.generation, group.number), *p.bands[depth]) for p in run]
            if len(ends) == 1:
                ((x, low, high),) = ends
                ends = [(x - _BAR, low, high), (x + _BAR, low, high)]
            upper = [f"{x:.1f},{frame.y(high):.1f}" for x, _, high in ends]
            lower = [f"{x:.1f},{frame.y(low):.1f}" for x, low, _ in reversed(ends)]
            yield svg.path(f"{group.colour} band", f"M{'L'.join([*upper, *lower])}z")


def _find_runs(points: Sequence[_Point]) -> list[list[_Point]]:
    """Return points split into runs of consecutive generations, since a band has no gaps."""
    runs: list[list[_Point]] = []
    for point in points:
        if runs and point.generation == runs[-1][-1].generation + 1:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _draw_lines(group: _Group, frame: _Frame) -> Iterator[Markup]:
    """Yield the chains of a group, with its means or medians on top."""
    for chain, values in group.chains.items():
        places = [(frame.x(at, group.number), frame.y(values[at])) for at in sorted(values)]
        yield from _join(f"{group.colour}-line line faint", places)
        for (x, y), at in zip(places, sorted(values), strict=True):
            words = f"{group.name}, {chain}, generation {at}: {values[at]:.4g}"
            circle = svg.circle(f"{group.colour} faint", x, y, 2.4)
            yield svg.group("value", [words], circle)
    places = [(frame.x(p.generation, group.number), frame.y(p.middle)) for p in group.points]
    yield from _join(_style_line(group.number), places)
    for point, (x, y) in zip(group.points, places, strict=True):
        yield svg.group("point", [point.words], svg.mark(group.number, x, y))


def _style_line(number: int) -> str:
    """Return the classes of the line of a group, given its index."""
    return f"{svg.line_colour(number)}-line line {svg.line_dashes(number)}".rstrip()


def _join(names: str, places: Sequence[tuple[float, float]]) -> Iterator[Markup]:
    if len(places) > 1:
        yield svg.path(names, "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places))


# -- the legend ----------------------------------------------------------------------------------


@attrs.frozen
class _Legend:
    """The names of the groups beside the axes, or below the axes if they are long.

    Attributes:
        title: The names of the columns; empty if all chains are in one group.
        texts: The names of the groups, shortened.
        edge: The right edge of the axes, in pixels, which leaves room for the labels.
        is_below: Whether the legend is below the axes.
    """

    title: str
    texts: Sequence[str]
    edge: float
    is_below: bool

    @classmethod
    def of(cls, title: str, groups: Sequence[_Group]) -> _Legend:
        texts = [printable(group.name) for group in groups]
        width = distinct_width(texts, _MAX_BESIDE)
        if not title:
            return cls("", [], svg.WIDTH - 40, is_below=True)
        if width > _MAX_BESIDE or any(len(text) > _MAX_BESIDE for text in texts):
            most = _fit(svg.SMALL, _SIGN)
            short = [shorten(text, most, "middle") for text in texts]
            return cls(title, short, svg.WIDTH - 40, is_below=True)
        head = shorten(printable(title), _MAX_BESIDE, "end")
        names = max(svg.text_width(text, svg.SMALL) for text in [head, *texts])
        edge = svg.WIDTH - svg.MARGIN - _SIGN - names - 26
        return cls(head, texts, edge, is_below=False)

    @property
    def bottom(self) -> float:
        """The height of the picture."""
        if self.is_below:
            return max((y for _, y in self._places()), default=_BOTTOM + _FOOT) + 20
        return max(_BOTTOM + _FOOT + 12, _TOP + svg.LEGEND_ROW * len(self.texts) + 20)

    def draw(self, frame: _Frame) -> Iterator[Markup]:
        if self.title and not self.is_below:
            yield svg.text(frame.right + 18, _TOP - svg.LEGEND_ROW, self.title, "muted small")
        for number, (text, (x, y)) in enumerate(zip(self.texts, self._places(), strict=True)):
            yield svg.path(_style_line(number), f"M{x:.1f},{y - 4:.1f}h22")
            yield svg.mark(number, x + 11, y - 4)
            yield svg.text(x + _SIGN, y, text, "ink small")

    def _places(self) -> list[tuple[float, float]]:
        """Return the left edge of each group's sign and the baseline of its name."""
        if not self.is_below:
            return [(self.edge + 18, _TOP + svg.LEGEND_ROW * n) for n in range(len(self.texts))]
        return svg.place_legend(self.texts, _LEFT, _BOTTOM + _FOOT + svg.LEGEND_ROW, _SIGN)


def _fit(size: float, taken: float = 0.0) -> int:
    """Return how many characters of a size fit into a line with some pixels already taken."""
    return int((svg.WIDTH - _LEFT - svg.MARGIN - taken) / svg.text_width("m", size))
