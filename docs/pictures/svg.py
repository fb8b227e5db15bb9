"""Small SVG pictures that are readable on a light and on a dark page.

A :class:`Canvas` collects shapes and writes one file. Colours are classes, which follow the
reader's colour scheme; the background is transparent.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final, Literal

__all__ = ["Canvas", "Colour", "text_width"]

Colour = Literal["ink", "muted", "line", "box", "first", "second", "third", "fourth", "bad"]

_LIGHT: Final[dict[Colour, str]] = {
    "ink": "#1f2328",
    "muted": "#59636e",
    "line": "#d1d9e0",
    "box": "#f6f8fa",
    "first": "#0969da",
    "second": "#9a6700",
    "third": "#8250df",
    "fourth": "#1a7f37",
    "bad": "#cf222e",
}
_DARK: Final[dict[Colour, str]] = {
    "ink": "#f0f6fc",
    "muted": "#9198a1",
    "line": "#3d444d",
    "box": "#151b23",
    "first": "#4493f8",
    "second": "#d29922",
    "third": "#ab7df8",
    "fourth": "#3fb950",
    "bad": "#f85149",
}
_FONT: Final = "-apple-system,BlinkMacSystemFont,'Segoe UI',Helvetica,Arial,sans-serif"


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in pixels, generously."""
    return 0.56 * size * len(text)


class Canvas:
    """A picture under construction.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        title: What the picture shows, for readers who cannot see it.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" role="img">\n<title>{escape(title)}</title>'
        )
        self._shapes: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        colour: Colour = "ink",
        size: float = 13,
        anchor: Literal["start", "middle", "end"] = "start",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        """Write a line of text whose baseline begins, is centred or ends at a point."""
        more = (
            ("" if anchor == "start" else f' text-anchor="{anchor}"')
            + (' font-weight="600"' if bold else "")
            + (' font-family="ui-monospace,Menlo,Consolas,monospace"' if mono else "")
        )
        place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"'
        self._shapes.append(f'<text class="{colour}" {place}{more}>{escape(text)}</text>')

    def rectangle(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: Colour,
        edge: Colour | None = None,
        radius: float = 2,
    ) -> None:
        """Draw a rectangle from its upper left corner."""
        classes = fill if edge is None else f"{fill} {edge}-edge"
        place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
        self._shapes.append(f'<rect class="{classes}" {place} rx="{radius:g}"/>')

    def path(
        self,
        *points: tuple[float, float],
        colour: Colour,
        width: float = 1,
        dashed: bool = False,
        arrow: bool = False,
    ) -> None:
        """Draw a line through points, if wanted with an arrowhead at its end."""
        more = (' stroke-dasharray="4 3"' if dashed else "") + (
            f' marker-end="url(#{colour}-head)"' if arrow else ""
        )
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._shapes.append(
            f'<polyline class="{colour}-edge" fill="none" stroke-width="{width:g}"{more}'
            f' points="{line}"/>'
        )

    def dot(self, x: float, y: float, *, colour: Colour, radius: float = 3.5) -> None:
        """Draw a filled circle."""
        self._shapes.append(f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')

    def write(self, path: Path) -> None:
        """Write the picture to a file."""
        path.write_text(self.render())

    def render(self) -> str:
        """Return the picture as SVG."""
        body = "\n".join(self._shapes)
        used = {colour for colour in _LIGHT if f'"{colour}' in body or f" {colour}-edge" in body}
        heads = "".join(
            f'<marker id="{colour}-head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9"'
            f' markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
            f'<path class="{colour}" d="M0,0L8,4L0,8z"/></marker>'
            for colour in _LIGHT
            if f"#{colour}-head" in body
        )
        style = (
            f"text{{font-family:{_FONT}}}\n{_rules(_LIGHT, used)}\n"
            f"@media (prefers-color-scheme:dark){{\n{_rules(_DARK, used)}\n}}"
        )
        defs = f"<defs>{heads}</defs>\n" if heads else ""
        return f"{self._head}\n<style>\n{style}\n</style>\n{defs}{body}\n</svg>\n"


def _rules(colours: dict[Colour, str], used: set[Colour]) -> str:
    return "\n".join(
        f".{name}{{fill:{value}}} .{name}-edge{{stroke:{value}}}"
        for name, value in colours.items()
        if name in used
    )
