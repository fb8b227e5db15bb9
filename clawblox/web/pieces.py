"""Pieces that several pages share: states, times, tables, facts, commands to copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import attrs

from clawblox.views.formatting import format_cost, format_count
from clawblox.views.html import Child, Markup, element, join, void
from clawblox.web.page import Links

_T = TypeVar("_T")

_SIGNS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("ready", "working", "idle", "running"), ("●", "good")),
    **dict.fromkeys(
        ("starting", "restarting", "stopping", "waiting", "paused", "blocked", "new"),
        ("◐", "warning"),
    ),
    **dict.fromkeys(("failed", "halted", "died", "unreadable"), ("✕", "bad")),
    "interrupted": ("◇", "lost"),
}
_ENDED: Final = ("■", "muted")


def state_mark(state: str, *, is_bad: bool = False) -> Markup:
    """Return a state as sign and word; colour only stresses it.

    Args:
        state: The state of an instance, an agent, a chain or an experiment.
        is_bad: Whether it ended badly, where the word alone does not say so.
    """
    sign, kind = ("✕", "bad") if is_bad else _SIGNS.get(state, _ENDED)
    return element(
        "span", element("span", sign, aria_hidden="true"), " ", state, class_=f"state {kind}"
    )


def moment(utc: str | None) -> Markup | None:
    """Return a UTC time; the browser writes how long ago that is, so that the page stays equal."""
    if not utc:
        return None
    shown = utc[:19].replace("T", " ") + " UTC"
    return element("time", shown, datetime=utc)


def clock(utc: str | None, *, is_long: bool = False) -> Markup | None:
    """Return the time of day of a UTC time, which stays as it is.

    Args:
        utc: The time.
        is_long: Whether the date is shown as well.
    """
    if not utc:
        return None
    shown = f"{utc[:19].replace('T', ' ')} UTC" if is_long else utc[11:19]
    return element("time", shown, datetime=utc, data_fixed="")


def code(words: str) -> Markup:
    """Return a command line to copy."""
    return element("code", words, class_="copy", tabindex="0")


def commands(suggested: Mapping[str, str]) -> Markup:
    """Return command lines to copy, by what they do; empty ones are left out."""
    rows = [
        element("div", element("dt", words), element("dd", code(command)))
        for words, command in suggested.items()
        if command
    ]
    return element("dl", *rows, class_="commands")


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Return facts, each with its name above it; those without a value are left out."""
    shown = [
        element("div", element("dt", name), element("dd", value))
        for name, value in pairs
        if value is not None and value != ""
    ]
    return element("dl", *shown, class_="facts")


@attrs.frozen
class Cell:
    """A cell of a table.

    Attributes:
        content: Its content.
        is_number: Whether it is aligned at the right.
        sort: By what the browser sorts it; empty for its text.
    """

    content: Child
    is_number: bool = False
    sort: str = ""


def table(name: str, headings: Sequence[str], rows: Iterable[Sequence[Cell | Child]]) -> Markup:
    """Return a table; on a narrow screen, each row becomes a list with the headings as labels.

    Args:
        name: What it shows, for people who cannot see it.
        headings: The headings; a column without any content is left out.
        rows: The cells of each row; the first one is its heading.
    """
    cells = [[_as_cell(cell) for cell in row] for row in rows]
    used = [
        place
        for place in range(len(headings))
        if place == 0 or any(row[place].content not in (None, "") for row in cells)
    ]
    numbers = {place for row in cells for place in used if row[place].is_number}
    head = [
        element("th", headings[place], scope="col", class_="number" if place in numbers else None)
        for place in used
    ]
    body = [
        element("tr", *(_draw_cell(row[place], headings[place], place) for place in used))
        for row in cells
    ]
    return element(
        "table",
        element("caption", name, class_="hidden"),
        element("thead", element("tr", *head)),
        element("tbody", *body),
    )


def listing(
    name: str, items: Sequence[_T], columns: Mapping[str, Callable[[_T], Cell | Child]], most: int
) -> Markup:
    """Return a table of the first items, and how many more there are; nothing without items.

    Args:
        name: As for :func:`table`.
        items: The items, a row each.
        columns: What draws an item in each column, by its heading.
        most: Maximum number of rows.
    """
    rows = [[draw(item) for draw in columns.values()] for item in items[:most]]
    return join((table(name, [*columns], rows), and_more(len(items) - most)) if rows else ())


def _as_cell(cell: Cell | Child) -> Cell:
    return cell if isinstance(cell, Cell) else Cell(cell)


def _draw_cell(cell: Cell, heading: str, place: int) -> Markup:
    kind = "number" if cell.is_number else None
    sort = cell.sort or None
    if place == 0:
        return element("th", cell.content, scope="row", class_=kind, data_sort=sort)
    return element("td", cell.content, class_=kind, data_label=heading, data_sort=sort)


def count(number: int | None) -> Cell:
    """Return a number as a cell; None and 0 are empty."""
    return Cell(format_count(number or 0), is_number=True, sort=str(number or 0))


def cost(usd: float | None) -> Cell:
    """Return a cost in US dollars as a cell."""
    return Cell(format_cost(usd), is_number=True, sort=f"{usd or 0:.6f}")


def lines(texts: Iterable[Child]) -> Markup:
    """Return texts, a line each."""
    return join(element("div", one) for one in texts)


def and_more(number: int) -> Markup | None:
    """Return how many more there are; None if there are none."""
    return element("p", f"and {number} more", class_="muted") if number > 0 else None


def filter_field(part: str, value: str, words: str) -> Markup:
    """Return a field whose words the rows of a part must contain.

    Args:
        part: Name of the part.
        value: The words so far.
        words: Description, for example of the columns that are searched.
    """
    return void(
        "input",
        type="search",
        name="q",
        value=value,
        placeholder=words,
        aria_label=f"Filter: {words}",
        class_="filter",
        data_part=part,
    )


def selection(name: str, words: str, options: Sequence[str], chosen: str) -> Markup:
    """Return a choice among options; an empty option means all."""
    made = [
        element("option", option or "all", value=option, selected="" if option == chosen else None)
        for option in options
    ]
    return element("label", words, " ", element("select", *made, name=name))


def comparison(
    links: Links, options: Sequence[tuple[str, str]], chosen: tuple[str, str] = ("", "")
) -> Markup:
    """Return a form that leads to the comparison of two of several things.

    Args:
        links: Makes addresses.
        options: Their names in addresses, and their words.
        chosen: Those that are chosen already, by their names in addresses.
    """
    if chosen == ("", "") and len(options) > 1:
        chosen = (options[0][0], options[1][0])
    fields = []
    for name, value in zip("ab", chosen, strict=True):
        made = [
            element("option", words, value=ident, selected="" if ident == value else None)
            for ident, words in options
        ]
        choice = element("select", *made, name=name)
        fields.append(element("label", f"{name.upper()} ", choice, class_="choice"))
    button = element("button", "Compare", type="submit")
    return element("form", *fields, button, method="get", action=links.to("compare"), class_="row")
