"""The columns of a table that fit a terminal, and their widths.

Pure: texts and a width go in, columns come out. Columns are added by importance until the next
would not fit, so a wider terminal never shows less.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import attrs
from rich.cells import cell_len, set_cell_size

from clawblox.printable import printable_name

GAP = "  "
"""The space between two columns."""
_MAX_NAME = 64
"""Characters of the longest names that are kept different."""
_JOINER = "\u200d"
_PARTS_OF_EMOJI = f"{_JOINER}\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
"""Characters that belong to the picture before them, and are left out with it."""


def _printable_cells(cells: Sequence[str]) -> Sequence[str]:
    return [printable_name(cell) for cell in cells]


@attrs.frozen
class Column:
    """A column that a table may have.

    Attributes:
        heading: Its heading.
        cells: Its text in each row; a column without any text is left out.
        rank: How important it is: 0 is always shown, and 1 before 2.
        least: Its minimum width in characters, so that a changing table stays in place.
        shortest: Width to which it may be cut; None never cuts it.
        cut: Where texts are cut: at the end, or in the middle. Names are cut in the middle, and
            only so far that different names stay different, if there is room for that.
        is_number: Whether it is aligned at the right.
        replaces: Heading of a less specific column that this column displaces.
    """

    heading: str
    cells: Sequence[str] = attrs.field(converter=_printable_cells)
    rank: int = attrs.field()
    least: int = 0
    shortest: int | None = None
    cut: Literal["middle", "end"] = "end"
    is_number: bool = False
    replaces: str = ""

    @property
    def natural(self) -> int:
        """The width that shows every text in full."""
        return max(self.least, cell_len(self.heading), *map(cell_len, self.cells), 0)

    @property
    def minimum(self) -> int:
        """The least width to which it may be cut."""
        if self.shortest is None:
            return self.natural
        return min(self.natural, max(self.shortest, cell_len(self.heading)))

    @property
    def narrowest(self) -> int:
        """The least width with which it is useful: different names stay different."""
        return self.minimum if self.cut == "end" else distinct_width(self.cells, self.minimum)


@attrs.frozen
class FittedColumn:
    """A column that is shown, and its width in characters."""

    column: Column
    width: int

    def format_cell(self, text: str) -> str:
        """Return a text cut and padded to the width."""
        cut = shorten(text, self.width, self.column.cut)
        padding = " " * (self.width - cell_len(cut))
        return padding + cut if self.column.is_number else cut + padding


def fit_columns(columns: Sequence[Column], width: int | None) -> list[FittedColumn]:
    """Choose the columns that fit, and their widths.

    Args:
        columns: The columns in the order in which they are shown.
        width: Characters of a line; None has no limit. If even the columns of rank 0 do not fit
            when they are cut, they are wider than this.
    """
    chosen: list[Column] = []
    for column in sorted(columns, key=lambda column: column.rank):
        if column.rank and not any(column.cells):
            continue
        together = [*(other for other in chosen if other.heading != column.replaces), column]
        fits = width is None or _total([other.narrowest for other in together]) <= width
        if column.rank and not fits:
            break
        chosen = together
    shown = {id(column) for column in chosen}  # equal columns can have different meanings
    return _widen([column for column in columns if id(column) in shown], width)


def _widen(shown: Sequence[Column], width: int | None) -> list[FittedColumn]:
    """Give the room that is left to the columns that were cut, the most important first."""
    widths = [column.narrowest for column in shown]
    if width is not None and _total(widths) > width:
        widths = [column.minimum for column in shown]
    for place, column in sorted(enumerate(shown), key=lambda pair: pair[1].rank):
        wanted = column.natural - widths[place]
        room = wanted if width is None else width - _total(widths)
        widths[place] += max(0, min(wanted, room))
    return [FittedColumn(column, width) for column, width in zip(shown, widths, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def format_line(fitted: Sequence[FittedColumn], row: int | None) -> str:
    """Return a line of a table.

    Args:
        fitted: The columns.
        row: The place of the row; None gives the headings.
    """
    cells = (
        column.format_cell(column.column.heading if row is None else column.column.cells[row])
        for column in fitted
    )
    return GAP.join(cells).rstrip()


def format_lines(columns: Sequence[Column], width: int | None) -> list[str]:
    """Return the headings and the rows of a table; see :func:`fit_columns`."""
    fitted = fit_columns(columns, width)
    return [format_line(fitted, row) for row in (None, *range(len(columns[0].cells)))]


def distinct_width(names: Collection[str], least: int) -> int:
    """Return the least width at which different names that are cut in the middle stay different.

    Args:
        names: The names.
        least: The width to begin with, which is also returned for texts that are too long for that.
    """
    different = set(names)
    longest = max(map(cell_len, different), default=0)
    for width in range(least, min(longest, _MAX_NAME)):
        if len({shorten(name, width, "middle") for name in different}) == len(different):
            return width
    return longest if least < longest <= _MAX_NAME else least


def shorten(text: str, width: int, cut: Literal["middle", "end"] = "end") -> str:
    """Return a text no wider than ``width``, with ``…`` in place of the rest."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    tail_width = (width - 1) // 2 if cut == "middle" else 0
    head = set_cell_size(text, width - 1 - tail_width)
    tail = set_cell_size(text[::-1], tail_width)[::-1]
    return f"{head.rstrip(_JOINER)}…{tail.lstrip(_PARTS_OF_EMOJI)}"
