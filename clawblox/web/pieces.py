"""Pieces that several pages share: states, times, tables, facts, trees, commands to copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from clawblox.differences import (
    ABSENT,
    ValueDifference,
    add_id,
    add_index,
    add_key,
    find_differences,
    objects_by_id,
)
from clawblox.printable import printable_name
from clawblox.views.formatting import count_words, format_cost, format_count
from clawblox.views.html import Child, Markup, PageAddress, element, join, void
from clawblox.views.observations import format_inline, is_flat
from clawblox.web.page import Ask, Links

_T = TypeVar("_T")
_SIGNS: Final = (
    ("●", "good", ("ready", "working", "idle", "running", "preparing", "saving", "scoring")),
    ("◐", "warning", ("starting", "restarting", "stopping", "waiting", "paused", "blocked", "new")),
    ("✕", "bad", ("failed", "halted", "died", "unreadable")),
    ("◇", "lost", ("interrupted",)),
    ("□", "muted", ("imported",)),
)
"""Signs, their kinds, and their states."""
_MAX_NODES: Final = 600
"""Maximum number of nodes of a tree; further members are counted."""
_MAX_MEMBERS: Final = 100
_MAX_CHARS: Final = 200
_MAX_DEPTH: Final = 20
_OPEN_DEPTH: Final = 2


def find_sign(state: str) -> tuple[str, str]:
    """Return the sign of a state, and its kind, which determines the colour."""
    found = ((sign, kind) for sign, kind, states in _SIGNS if state in states)
    return next(found, ("■", "muted"))


def state_mark(state: str, *, is_bad: bool = False) -> Markup:
    """Return a state as a sign and a word; the colour is only for emphasis.

    Args:
        state: The state of an instance, an agent, a chain or an experiment.
        is_bad: Whether it failed although the word alone does not show that.
    """
    sign, kind = ("✕", "bad") if is_bad else find_sign(state)
    shown = element("span", sign, aria_hidden="true")
    return element("span", shown, " ", state, class_=f"state {kind}")


def moment(utc: str | None) -> Markup | None:
    """Return a UTC time; the browser shows its age, so that the page does not change."""
    return element("time", _format_utc(utc), datetime=utc) if utc else None


def clock(utc: str | None, *, is_long: bool = False) -> Markup | None:
    """Return the time of day of a UTC time, which the browser does not change.

    Args:
        utc: The time.
        is_long: Whether to show the date as well.
    """
    shown = utc and (_format_utc(utc) if is_long else utc[11:19])
    return element("time", shown, datetime=utc, data_fixed="") if shown else None


def _format_utc(utc: str) -> str:
    return f"{utc[:19].replace('T', ' ')} UTC"


def code(words: str) -> Markup:
    """Return a command line to copy."""
    return element("code", words, class_="copy", tabindex="0")


def commands(suggested: Mapping[str, str]) -> Markup:
    """Return command lines to copy, labelled with their purpose; empty lines are left out."""
    return _pairs("commands", ((words, line and code(line)) for words, line in suggested.items()))


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Return facts, each below its name; facts without a value are left out."""
    return _pairs("facts", pairs)


def _pairs(kind: str, pairs: Iterable[tuple[str, Child]]) -> Markup:
    shown = [
        element("div", element("dt", name), element("dd", value))
        for name, value in pairs
        if value not in (None, "")
    ]
    return element("dl", *shown, class_=kind)


@attrs.frozen
class Cell:
    """A cell of a table.

    Attributes:
        content: Its content.
        is_number: Whether it is right-aligned.
        sort: Sort key for the browser; empty to use the text.
    """

    content: Child
    is_number: bool = False
    sort: str = ""


Columns: TypeAlias = Mapping[str, Callable[[_T], Cell | Child]]
"""Functions that return the cells of an item, by the heading of the column."""


def table(name: str, headings: Sequence[str], rows: Iterable[Sequence[Cell | Child]]) -> Markup:
    """Return a table; on a narrow screen, each row becomes a list with the headings as labels.

    Args:
        name: Description of the table for screen readers.
        headings: The headings; columns without content are left out.
        rows: The cells of each row; the first cell is the heading of the row.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    filled = {at for row in cells for at, cell in enumerate(row) if cell.content not in (None, "")}
    used = [place for place in range(len(headings)) if place == 0 or place in filled]
    numbers = {place for row in cells for place in used if row[place].is_number}
    kinds = {place: "number" if place in numbers else None for place in used}
    head = [element("th", headings[at], scope="col", class_=kind) for at, kind in kinds.items()]
    body = [
        element("tr", *(_draw_cell(row[place], headings[place], place) for place in used))
        for row in cells
    ]
    caption = element("caption", name, class_="hidden")
    thead, tbody = element("thead", element("tr", *head)), element("tbody", *body)
    return element("table", caption, thead, tbody)


def _draw_cell(cell: Cell, heading: str, place: int) -> Markup:
    kind, sort = "number" if cell.is_number else None, cell.sort or None
    tag, more = ("td", {"data_label": heading}) if place else ("th", {"scope": "row"})
    return element(tag, cell.content, class_=kind, data_sort=sort, **more)


def listing(name: str, things: Sequence[_T], columns: Columns[_T], *, most: int) -> Markup:
    """Return a table of the first items, and the number of further items; empty without items.

    Args:
        name: As for :func:`table`.
        things: The items, one per row.
        columns: The columns.
        most: Maximum number of rows.
    """
    rows = [[draw(thing) for draw in columns.values()] for thing in things[:most]]
    return join((table(name, [*columns], rows), and_more(len(things) - most)) if rows else ())


def section(
    heading: str, things: Sequence[_T], columns: Columns[_T], *, most: int, nothing: str = ""
) -> Markup:
    """Return a heading with a listing, or with a sentence if there are no items.

    Args:
        heading: The heading, and the name of the table.
        things: As for :func:`listing`.
        columns: As for :func:`listing`.
        most: As for :func:`listing`.
        nothing: The sentence; empty for none.
    """
    if not things:
        return element("p", nothing, class_="muted") if nothing else join(())
    return join((element("h2", heading), listing(heading, things, columns, most=most)))


def count(number: int | None) -> Cell:
    """Return a number as a cell; None and 0 are empty."""
    return Cell(format_count(number or 0), is_number=True, sort=str(number or 0))


def cost(usd: float | None) -> Cell:
    """Return a cost in US dollars as a cell."""
    return Cell(format_cost(usd), is_number=True, sort=f"{usd or 0:.6f}")


def lines(texts: Iterable[Child]) -> Markup:
    """Return texts, one per line."""
    return join(element("div", one) for one in texts)


def and_more(number: int) -> Markup | None:
    """Return words for a number of further items; None if there are none."""
    return element("p", f"and {number} more", class_="muted") if number > 0 else None


def filters(
    ask: Ask,
    to: PageAddress,
    part: str,
    words: str,
    choices: Mapping[str, Sequence[str]],
    *more: Child,
) -> Markup:
    """Return a form that filters the rows of a page.

    Args:
        ask: The request for the page.
        to: Address of the page.
        part: Name of the part whose rows are filtered by the words of the field.
        words: Description of the field, for example the searched columns.
        choices: Parameters of the address, and the options of each; an empty option means all.
        more: Further content of the form.
    """
    label = f"Filter: {words}"
    shown = {"value": ask.query.get("q", ""), "placeholder": words, "aria_label": label}
    field = void("input", type="search", name="q", class_="filter", data_part=part, **shown)
    fields = [
        _choice(name, [(option, option or "all") for option in options], ask.query.get(name))
        for name, options in choices.items()
    ]
    button = element("button", "Show", type="submit")
    return element("form", field, *fields, button, *more, method="get", action=to, class_="row")


def has_words(ask: Ask, texts: Iterable[str]) -> bool:
    """Return whether texts contain all words of the field of :func:`filters`."""
    text = " ".join(texts).lower()
    return all(word in text for word in ask.query.get("q", "").lower().split())


def comparison(
    links: Links, options: Sequence[tuple[str, str]], chosen: Sequence[str] = ("", "")
) -> Markup:
    """Return a form for comparing two of several runs or instances.

    Args:
        links: Makes addresses.
        options: The names of the options in addresses, and their words.
        chosen: The current choices, by their names in addresses.
    """
    first, second = chosen
    first = first or next((name for name, _ in options), "")
    chosen = first, second or next((name for name, _ in options if name != first), "")
    fields = [_choice(name, options, one) for name, one in zip("ab", chosen, strict=True)]
    button = element("button", "Compare", type="submit")
    return element("form", *fields, button, method="get", action=links.to("compare"), class_="row")


def _choice(name: str, options: Iterable[tuple[str, str]], chosen: str | None) -> Markup:
    drawn = [
        element("option", shown, value=value, selected="" if value == chosen else None)
        for value, shown in options
    ]
    select = element("select", *drawn, name=name)
    return element("label", f"{name.capitalize()} ", select, class_="choice")


# -- a value -------------------------------------------------------------------------------------


def tree(name: str, value: Any, before: Any = None) -> Markup:  # noqa: ANN401 - JSON
    """Return a value as a tree of folds that marks the changes since an earlier value.

    Args:
        name: Name of the tree, unique in the page; the state of the folds is stored under this
            name.
        value: The value.
        before: An earlier value; None if there is none.
    """
    changes = [] if before is None else find_differences(before, value)
    drawer = _Tree(name, changes)
    is_leaf = not isinstance(value, Mapping | list)
    body = [drawer.draw_leaf("", "", value)] if is_leaf else drawer.draw_members(value, "", 0)
    gone = [change for change in changes if change.after is ABSENT][:_MAX_MEMBERS]
    lost = [(element("mark", "gone"), f" {one.path}, was {_short(one.before)}") for one in gone]
    return element("div", *body, *(element("div", *words) for words in lost), class_="tree")


class _Tree:
    """Draws members, up to a maximum number of nodes."""

    def __init__(self, name: str, changes: Sequence[ValueDifference]) -> None:
        self._name = name
        self._changes = {one.path: one for one in changes if one.after is not ABSENT}
        self._inside: Counter[str] = Counter(
            one.path[:end] for one in changes for end, sign in enumerate(one.path) if sign in ".["
        )
        self._left = _MAX_NODES

    def draw_members(self, value: Any, path: str, depth: int) -> Iterator[Child]:  # noqa: ANN401
        members = [*_name_members(value, path)]
        for number, (name, place, member) in enumerate(members):
            if number >= _MAX_MEMBERS or self._left <= 0:
                yield and_more(len(members) - number)
                return
            self._left -= 1
            if depth >= _MAX_DEPTH or not member or is_flat(member):
                yield self.draw_leaf(name, place, member)
                continue
            size = count_words(len(member), "item" if isinstance(member, list) else "key")
            words = (element("b", printable_name(name)), " ", _muted(size), " ", self._note(place))
            folded = (element("summary", *words), *self.draw_members(member, place, depth + 1))
            is_open = self._inside[place] or depth < _OPEN_DEPTH
            fold = {"open": "" if is_open else None, "id": f"{self._name}.{place}"}
            yield element("details", *folded, **fold)

    def draw_leaf(self, name: str, path: str, value: Any) -> Markup:  # noqa: ANN401
        shown = format_inline(value, max_chars=_MAX_CHARS)
        content = element("mark", shown) if path in self._changes else shown
        words = (element("b", printable_name(name)), ": ", content, " ", self._note(path))
        return element("div", *words)

    def _note(self, path: str) -> Markup | None:
        """Return how a place has changed, or the number of changes below it."""
        change, inside = self._changes.get(path), self._inside[path]
        if change is None:
            return element("mark", f"{inside} changed") if inside else None
        is_new = change.before is ABSENT
        return element("mark", "new") if is_new else _muted(f"was {_short(change.before)}")


def _muted(words: str) -> Markup:
    return element("span", words, class_="muted")


def _short(value: Any) -> str:  # noqa: ANN401 - JSON
    return format_inline(value, max_chars=_MAX_CHARS // 2)


def _name_members(value: Any, path: str) -> Iterator[tuple[str, str, Any]]:  # noqa: ANN401
    """Yield the name, path and value of each member, with paths as in ``find_differences``."""
    if isinstance(value, Mapping):
        yield from ((key, add_key(path, key), member) for key, member in value.items())
    elif value and objects_by_id(value) is not None:
        yield from ((item["id"], add_id(path, item["id"]), item) for item in value)
    else:
        yield from ((str(n), add_index(path, n), item) for n, item in enumerate(value))
