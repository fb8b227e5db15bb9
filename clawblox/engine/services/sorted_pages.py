"""``DataStorePages``: what ``GetSortedAsync`` returns, an array that has more pages.

The array holds the entries of the first page, as in worlds that just iterate over it. Its locked
metatable holds the methods and, where no script reads it, the present page and the next request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from clawblox.engine.datastore.store import ReadSorted
from clawblox.engine.json_text import Charge, read_text
from clawblox.engine.services.store_requests import read_request, write_request
from clawblox.engine.values.value import as_list, expect_contents
from clawblox.luau import Host, HostValue, LuaTable, RuntimeFault
from clawblox.luau.core.values import raw_get, set_metatable

MOST_ROWS: Final = 1000
"""The greatest length of a page."""
ADVANCE: Final = "AdvanceToNextPageAsync"
_CURRENT: Final = "GetCurrentPage"
_FINISHED: Final = "IsFinished"
_PAGES: Final = "pages"
_LOCKED: Final = "The metatable is locked"

Rows: TypeAlias = Sequence[tuple[str, str]]


class SortedPages(HostValue):
    """How far a script has gone through the pages.

    Attributes:
        page: The entries of the present page.
        next: The request for the next page; None after the last one.
    """

    __slots__ = ("next", "page")

    type_name = "DataStorePages"
    next: ReadSorted | None
    page: LuaTable

    def contents(self) -> tuple[Any, ...]:
        """Return the present page, and the next request as JSON text."""
        return self.page, "" if self.next is None else json.dumps(write_request(self.next))

    def fill(self, *values: Any) -> None:
        """Restore what `contents` returned."""
        expect_contents(values, LuaTable, str)
        page, text = values
        request = read_request(json.loads(text)) if text else None
        if not isinstance(request, ReadSorted | None):
            raise ValueError("pages of an ordered store continue with another request")
        self.page, self.next = page, request


def score_of(value: Any) -> Any:
    """Return the score of a value in an ordered store; None if it has none."""
    if isinstance(value, LuaTable):
        return value.get("score")
    return value if value.__class__ is float else None


def lend_page_methods(host: Host, ask: Callable[[LuaTable, ReadSorted], Any]) -> dict[str, Any]:
    """Register pages with a host; return their methods by name.

    Args:
        host: The engine's functions and objects for the VM.
        ask: Asks for the next page of a table of pages; the running thread waits.
    """
    host.value_type(SortedPages)

    @host.raw(f"{SortedPages.type_name}:{_CURRENT}")
    def current_page(table: Any = None, *_: Any) -> Any:
        return _checked(table, _CURRENT).page

    @host.raw(f"{SortedPages.type_name}:{ADVANCE}")
    def advance(table: Any = None, *_: Any) -> Any:
        request = _checked(table, ADVANCE).next
        if request is None:
            raise RuntimeFault(f"{ADVANCE}: this is the last page; look at {_FINISHED} first")
        return ask(table, request)

    return {_CURRENT: current_page, ADVANCE: advance}


def _checked(table: Any, method: str) -> SortedPages:
    pages = find_pages(table)
    if pages is None:
        raise RuntimeFault(f"Expected ':' not '.' calling member function {method}")
    return pages


def find_pages(table: Any) -> SortedPages | None:
    """Return the pages behind the table that scripts see; None for any other value."""
    meta = table.meta if isinstance(table, LuaTable) else None
    pages = None if meta is None else raw_get(meta, _PAGES)
    return pages if isinstance(pages, SortedPages) else None


def make_pages(methods: Mapping[str, Any]) -> LuaTable:
    """Return a table of pages, empty until `show_page`."""
    pages = SortedPages.empty()
    pages.fill(LuaTable(), "")
    meta = LuaTable({"__index": LuaTable(methods), "__metatable": _LOCKED, _PAGES: pages})
    table = LuaTable()
    set_metatable(table, meta)
    return table


def show_page(table: LuaTable, request: ReadSorted, rows: Rows, charge: Charge) -> None:
    """Turn a table of pages to the page that answers a request.

    Args:
        table: What `make_pages` returned.
        request: The request.
        rows: Keys, and values as JSON texts; one more than the page has if it is not the last.
        charge: Takes the steps.

    Raises:
        ValueError: A value cannot be read.
        LuaError: The script has used up its steps.
    """
    meta: Any = table.meta
    pages, size = meta[_PAGES], request.limit
    values = [read_text(text, charge, sort=True) for _, text in rows[:size]]
    keys = [key.encode("utf-8", "surrogateescape").decode("latin-1") for key, _ in rows[:size]]
    pairs = zip(keys, values, strict=True)
    pages.page = as_list(LuaTable({"key": key, "value": value}) for key, value in pairs)
    pages.next = None
    if values and len(rows) > size:
        score = score_of(values[-1])
        number = score if score.__class__ is float else None
        pages.next = attrs.evolve(request, after=(number, rows[size - 1][0]))
    meta["__index"][_FINISHED] = pages.next is None
    if request.after is None:
        table.update(pages.page)
