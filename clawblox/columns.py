"""Chooses the columns of a table that fit a terminal, and their widths. Pure.

Columns are added by importance until the next would not fit, so a wider terminal never shows less.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import attrs
import msgspec
from rich.cells import cell_len, set_cell_size

from clawblox.printable import printable_name

GAP = "  "
"""The space between two columns."""
_MAX_NAME = 64
"""Maximum length of names that are kept distinct, in characters."""
_JOINER = "\u200d"
_PARTS_OF_EMOJI = f"{_JOINER}\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
"""Characters that belong to the emoji before them, and are cut together with it."""


def _printable_cells(cells: Sequence[str]) -> Sequence[str]:
    return [printable_name(cell) for cell in cells]


@attrs.frozen
class Column:
    """A column that a table may have.

    Attributes:
        heading: Heading of the column.
        cells: Text in each row; a column without any text is left out.
        rank: Priority of the column: 0 is always shown, and 1 before 2.
        least: Minimum width in characters, so that a changing table stays in place.
        shortest: Width to which the column may be cut; None never cuts it.
        cut: Place where texts are cut: at the end, or in the middle. Names are cut in the middle,
            and stay distinct if there is enough room.
        is_number: Whether the column is aligned to the right.
        replaces: Heading of a less specific column that this column replaces.
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
        """The minimum width to which the column may be cut."""
        if self.shortest is None:
            return self.natural
        return min(self.natural, max(self.shortest, cell_len(self.heading)))

    @property
    def narrowest(self) -> int:
        """The minimum useful width, at which distinct names stay distinct."""
        return self.minimum if self.cut == "end" else distinct_width(self.cells, self.minimum)


class FittedColumn(msgspec.Struct, frozen=True):
    """A shown column with its width in characters."""

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
        width: Width of a line in characters; None for no limit. If even the cut columns of rank 0
            do not fit, the table is wider than this.
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
    """Distribute the remaining room among the cut columns, the most important first."""
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
        row: Index of the row; None for the headings.
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
    """Return the minimum width at which names that are cut in the middle stay distinct.

    Args:
        names: The names.
        least: The width to start with, which is also returned if the names are too long.
    """
    different = set(names)
    longest = max(map(cell_len, different), default=0)
    for width in range(least, min(longest, _MAX_NAME)):
        if len({shorten(name, width, "middle") for name in different}) == len(different):
            return width
    return longest if least < longest <= _MAX_NAME else least


def shorten(text: str, width: int, cut: Literal["middle", "end"] = "end") -> str:
    """Return a text cut to ``width``, with ``…`` in place of the rest."""
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    tail_width = (width - 1) // 2 if cut == "middle" else 0
    head = set_cell_size(text, width - 1 - tail_width)
    tail = set_cell_size(text[::-1], tail_width)[::-1]
    return f"{head.rstrip(_JOINER)}…{tail.lstrip(_PARTS_OF_EMOJI)}"
