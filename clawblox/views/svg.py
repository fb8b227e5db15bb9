"""SVG pictures and their elements, without scripts, fonts or external files.

Colours are classes, which follow the reader's colour scheme, light or dark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import attrs
from rich.cells import cell_len

from clawblox.columns import shorten
from clawblox.printable import printable
from clawblox.views import html
from clawblox.views.html import Markup, PageAddress, element, void

Knot: TypeAlias = tuple[float, float]
"""Two coordinates of the same moment, such as a time and a position on an axis."""

WIDTH: Final = 900.0
MARGIN: Final = 20.0
SIZE: Final = 13.0
"""Font size; ``SMALL`` is the font size of the class ``small``."""
SMALL: Final = 12.0
LEGEND_ROW: Final = 22.0
"""Height of a line of a legend."""
_EM: Final = 0.61
"""Width of a character of a monospaced font, in font sizes."""

_LANES: Final = 6
"""Number of colours of lines."""
_DASHES: Final = ("", "stub", "leader")
_MARKS: Final = (
    "m-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",  # a circle
    "m-3.6,-3.6h7.2v7.2h-7.2z",
    "m0,-5l4.8,8.6h-9.6z",
    "m0,-5.2l5.2,5.2l-5.2,5.2l-5.2,-5.2z",
    "m0,5l4.8,-8.6h-9.6z",
    "m-1.6,-5h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4z",
)
"""Shapes around the place of a point."""

_MAX_WORDS: Final = 2
SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    "save": ("page lane0-line ring", "m-4.6,0a4.6,4.6,0,1,0,9.2,0a4.6,4.6,0,1,0,-9.2,0"),
    "start": ("lane0", "m-3.5,0a3.5,3.5,0,1,0,7,0a3.5,3.5,0,1,0,-7,0"),
    "crash": ("bad-line mark line", "m-4,-4l8,8m0,-8l-8,8"),
    "end": ("ink-line mark line", "m0,-6v12"),
    "restart": ("ink-line mark line", "m6,-5l5,5l-5,5"),
    "resume": ("ink-line mark line", "m6,-5l5,5l-5,5m5,-10l5,5l-5,5"),
    "fork": ("ink-line mark line", "m0,14v-8m0,2l8,6"),
    "message": ("warning", "m-6,-5h12l-6,9z"),
    "retry": ("warning-line mark", "v10"),
    "failure": ("bad-line mark", "v10"),
}
"""CSS classes and path of each kind of sign."""


@attrs.frozen
class Picture:
    """A picture, for a separate file or as part of a page.

    Attributes:
        height: Height in pixels.
        name: Description for readers who cannot see the picture.
        shapes: The elements.
        width: Width in pixels.
    """

    height: float
    name: str
    shapes: Sequence[Markup]
    width: float = WIDTH

    def document(self) -> str:
        """Return the picture as a file, with styles and a background."""
        page = rect("page", 0, 0, self.width, self.height)
        return self._draw(html.style("picture"), page, *self.shapes, role="img").html + "\n"

    def part(self) -> Markup:
        """Return the picture as part of a page that has the style rules of its classes."""
        return self._draw(*self.shapes, role="group")

    def _draw(self, *shapes: Markup, role: str) -> Markup:
        pieces = (html.text("\n"), element("title", printable(self.name)), *shapes, html.text(""))
        size = {"width": f"{self.width:g}", "height": f"{self.height:g}"}
        box = f"0 0 {self.width:g} {self.height:g}"
        space = {"xmlns": "http://www.w3.org/2000/svg", **size, "viewBox": box}
        return element("svg", html.join(pieces, "\n"), **space, role=role)


def line_colour(number: int) -> str:
    """Return the class of a line's colour, given its number from 0; colours repeat."""
    return f"lane{number % _LANES}"


def line_dashes(number: int) -> str:
    """Return the class of a line's dashes, which differ between lines of the same colour."""
    return _DASHES[number // _LANES % len(_DASHES)]


def mark(number: int, x: float, y: float) -> Markup:
    """Return the mark of a line in its colour, given the line's number from 0.

    Six shapes alternate; lines of the same colour have different shapes.
    """
    shape = _MARKS[(number + number // _LANES) % len(_MARKS)]
    return path(f"page-line hair {line_colour(number)}", f"M{x:.1f},{y:.1f}{shape}")


def text_width(text: str, size: float) -> float:
    """Return the width of a text in pixels, given its font size."""
    return cell_len(text) * size * _EM


def text(
    x: float,
    y: float,
    text: str,
    names: str,
    *,
    anchor: str = "start",
    to: PageAddress | None = None,
) -> Markup:
    """Return a line of text.

    Args:
        x: Position of the start, middle or end of the text, depending on ``anchor``.
        y: Position of the baseline.
        text: The text; foreign text is made printable.
        names: CSS classes.
        anchor: ``start``, ``middle`` or ``end``.
        to: The page to link to; None for no link.
    """
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor if anchor != "start" else None}
    line = element("text", printable(text), class_=names, **place)
    return line if to is None else html.link(line, to)


def heading(title: str, words: str) -> Sequence[Markup]:
    """Return the title of a picture, which may be foreign, and a line of words below it."""
    name = shorten(printable(title), 80, "middle")
    return text(MARGIN, 32, name, "ink title"), text(MARGIN, 54, words, "muted")


def place_legend(
    texts: Iterable[str], left: float, top: float, sign: float
) -> list[tuple[float, float]]:
    """Return the left edge and the baseline of each entry of a legend, filling line by line.

    Args:
        texts: The words of the entries.
        left: Left edge of the lines.
        top: Baseline of the first line.
        sign: Width of the sign before each text, in pixels.
    """
    places, x, y = list[tuple[float, float]](), left, top
    for words in texts:
        width = sign + text_width(words, SMALL) + 16
        if x > left and x + width > WIDTH - MARGIN:
            x, y = left, y + LEGEND_ROW
        places.append((x, y))
        x += width
    return places


def path(names: str, line: str) -> Markup:
    """Return a path, given its CSS classes and its ``d``."""
    return void("path", class_=names, d=line)


def circle(names: str, x: float, y: float, radius: float) -> Markup:
    """Return a circle, given its CSS classes, and its centre and radius in pixels."""
    return void("circle", class_=names, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{radius:g}")


def rect(names: str, x: float, y: float, width: float, height: float) -> Markup:
    """Return a rectangle, given its CSS classes, and its top left corner and size in pixels."""
    places = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    return void("rect", class_=names, width=f"{width:.1f}", height=f"{height:.1f}", **places)


def group(
    name: str, words: Iterable[str], shape: Markup, *, to: PageAddress | None = None
) -> Markup:
    """Return a shape with a tooltip.

    Args:
        name: CSS class.
        words: The lines of the tooltip; empty lines are left out.
        shape: The shape.
        to: The page to link to; None for no link.
    """
    title = element("title", "\n".join(printable(word) for word in words if word))
    drawn = element("g", title, shape, class_=name)
    return drawn if to is None else html.link(drawn, to)


def interpolate(knots: Sequence[Knot], value: float, known: int) -> float:
    """Return one coordinate of a moment from the other, by linear interpolation between knots.

    Args:
        knots: The knots; neither coordinate decreases from knot to knot.
        value: The known coordinate; outside the knots, the nearest knot is used.
        known: Index of the known coordinate, 0 or 1; of several knots with its value, the first is
            used.
    """
    number, wanted = bisect_left(knots, value, key=itemgetter(known)), 1 - known
    if number in (0, len(knots)):
        return knots[max(number - 1, 0)][wanted]
    before, after = knots[number - 1], knots[number]
    share = (value - before[known]) / (after[known] - before[known])
    return min(before[wanted] + (after[wanted] - before[wanted]) * share, after[wanted])


class Sign(NamedTuple):
    """A sign for an event.

    Attributes:
        kind: Its kind, one of :data:`SIGNS`.
        x: Horizontal position in pixels.
        y: Vertical position in pixels.
        words: Description of the event.
        to: The page to link to; None for no link.
    """

    kind: str
    x: float
    y: float
    words: str
    to: PageAddress | None = None


def draw_signs(signs: Iterable[Sign], column: float) -> Iterator[Markup]:
    """Yield signs with their words; signs of the same kind and height in a column are merged.

    Args:
        signs: The signs.
        column: Width of a column in pixels.
    """
    groups = defaultdict[tuple[str, int, float], list[Sign]](list)
    for sign in signs:
        groups[sign.kind, int(sign.x // column), sign.y].append(sign)
    for same in groups.values():
        first, more = same[0], len(same) - _MAX_WORDS
        words = [
            *(sign.words for sign in same[:_MAX_WORDS]),
            f"and {more} more" if more > 0 else "",
        ]
        shape = draw_sign(first.kind, first.x, first.y)
        yield group(first.kind, words, shape, to=first.to)


def draw_sign(kind: str, x: float, y: float) -> Markup:
    """Return a sign without words, given its kind and its position in pixels."""
    names, line = SIGNS[kind]
    return path(names, f"M{x:.1f},{y:g}{line}")


def draw_folds(
    folds: Iterable[tuple[float, str]], words: str, top: float, bottom: float
) -> Iterator[Markup]:
    """Yield the marks of folded times, with labels of their length where they fit.

    Args:
        folds: Positions of the folds from left to right, and their lengths as text.
        words: Text after the length in the tooltips.
        top: Upper end in pixels.
        bottom: Lower end in pixels.
    """
    free = 0.0
    for x, label in folds:
        width = text_width(label, SMALL)
        shapes = [
            path("muted-line hair stub", f"M{x:.1f},{top:g}V{bottom:.1f}"),
            path("page muted-line hair", f"M{x - 4:.1f},{bottom - 4:.1f}l4,-12l4,0l-4,12z"),
        ]
        if x - width / 2 > free:
            shapes.append(text(x, top - 6, label, "ink small", anchor="middle"))
            free = x + width / 2 + 6
        yield group("fold", [f"{label} {words}"], html.join(shapes))
