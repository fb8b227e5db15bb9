"""``DataStorePages``, the result of ``GetSortedAsync``: an array with further pages.

``MemoryStoreHashMapPages``, the result of ``ListItemsAsync``, get their pages from memory stores.

The array contains the entries of the first page, for scripts that only iterate over it. Its
metatable has the members of pages as ``__index``, and a `SortedPages`. Scripts may copy the array,
and replace its metatable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from clawblox.engine.datastore.store import ReadSorted
from clawblox.engine.errors import to_luau_text
from clawblox.engine.json_text import Charge, read_text
from clawblox.engine.services.store_requests import read_request, write_request
from clawblox.engine.values.value import as_list, expect_contents
from clawblox.luau import Host, HostValue, LuaTable, RuntimeFault
from clawblox.luau.core.values import raw_get, raw_set, set_metatable

MOST_ROWS: Final = 1000
"""Maximum length of a page."""
ADVANCE: Final = "AdvanceToNextPageAsync"
_CURRENT: Final = "GetCurrentPage"
_FINISHED: Final = "IsFinished"
_PAGES: Final = "pages"

Rows: TypeAlias = Sequence[tuple[str, str]]


class SortedPages(HostValue):
    """The page that a script has reached.

    Attributes:
        page: The entries of the current page.
        members: The members that scripts can access in addition to the entries.
        next: The request for the next page; None after the last one.
    """

    __slots__ = ("members", "next", "page")

    type_name = "DataStorePages"
    members: LuaTable
    next: ReadSorted | None
    page: LuaTable

    def contents(self) -> tuple[Any, ...]:
        """Return the current page, the members, and the next request as JSON text."""
        text = "" if self.next is None else json.dumps(write_request(self.next))
        return self.page, self.members, text

    def fill(self, *values: Any) -> None:
        """Restore the result of `contents`."""
        expect_contents(values, LuaTable, LuaTable, str)
        page, members, text = values
        request = read_request(json.loads(text)) if text else None
        if not isinstance(request, ReadSorted | None):
            raise ValueError("pages of an ordered store continue with another request")
        if request is not None and request.after is not None:
            to_luau_text(request.after[1])  # raises ValueError if damaged
        self.page, self.members, self.next = page, members, request


class HashMapPages(SortedPages):
    """The page that a script has reached, for a hash map of a memory store."""

    __slots__ = ()

    type_name = "MemoryStoreHashMapPages"


def find_score(value: Any) -> Any:
    """Return the score of a value in an ordered store, or None."""
    if isinstance(value, LuaTable):
        return value.get("score")
    return value if value.__class__ is float else None


def lend_page_methods(
    host: Host, kind: type[SortedPages], ask: Callable[[SortedPages, ReadSorted], Any]
) -> dict[str, Any]:
    """Register pages with a host; return their methods by name.

    Args:
        host: The engine's functions and objects for the VM.
        kind: The type of the pages.
        ask: Requests the next page; the running thread waits.
    """
    host.value_type(kind)

    @host.raw(f"{kind.type_name}:{_CURRENT}")
    def current_page(table: Any = None, *_: Any) -> Any:
        return _checked(table, kind, _CURRENT).page

    @host.raw(f"{kind.type_name}:{ADVANCE}")
    def advance(table: Any = None, *_: Any) -> Any:
        pages = _checked(table, kind, ADVANCE)
        if pages.next is None:
            raise RuntimeFault(f"{ADVANCE}: this is the last page; look at {_FINISHED} first")
        return ask(pages, pages.next)

    return {_CURRENT: current_page, ADVANCE: advance}


def _checked(table: Any, kind: type[SortedPages], method: str) -> SortedPages:
    meta = table.meta if isinstance(table, LuaTable) else None
    pages = None if meta is None else raw_get(meta, _PAGES)
    if not isinstance(pages, SortedPages) or pages.__class__ is not kind:
        raise RuntimeFault(f"Expected ':' not '.' calling member function {method}")
    return pages


def make_pages(
    kind: type[SortedPages],
    methods: Mapping[str, Any],
    request: ReadSorted,
    rows: Rows,
    charge: Charge,
) -> LuaTable:
    """Return the array of pages for scripts, at the page that answers a request."""
    pages = kind.empty()
    pages.fill(LuaTable(), LuaTable(methods), "")
    show_page(pages, request, rows, charge)
    table = as_list(pages.page.values())
    set_metatable(table, LuaTable({"__index": pages.members, _PAGES: pages}))
    return table


def show_page(pages: SortedPages, request: ReadSorted, rows: Rows, charge: Charge) -> None:
    """Advance pages to the page that answers a request.

    Args:
        pages: The pages.
        request: The request.
        rows: Keys, and values as JSON texts; one more row than the page length if more follow.
        charge: Charges the steps.

    Raises:
        ValueError: A value cannot be read.
        LuaError: The script has used up its steps.
    """
    size = request.limit
    values = [read_text(text, charge, sort=True) for _, text in rows[:size]]
    keys = [to_luau_text(key) for key, _ in rows[:size]]
    pairs = zip(keys, values, strict=True)
    pages.page = as_list(LuaTable({"key": key, "value": value}) for key, value in pairs)
    pages.next = None
    if values and len(rows) > size:
        score = find_score(values[-1])
        number = score if score.__class__ is float else None
        pages.next = attrs.evolve(request, after=(number, rows[size - 1][0]))
    raw_set(pages.members, _FINISHED, pages.next is None)  # a script may have made it read-only
