"""``MemoryStoreService``: maps and queues whose values expire in simulated time.

A call takes effect immediately, and its thread resumes in the next tick, like a thread that waits
for a data store. A thread that waits for a queue checks the queue in each tick. The values belong
to the world and are part of its snapshots.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.datastore.store import ReadSorted
from clawblox.engine.errors import to_luau_text
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import text_argument, wrong_argument
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.json_text import read_text
from clawblox.engine.saved_state import Layouts, SavedState, from_json, to_json
from clawblox.engine.scheduler import TICK_S, ticks_in
from clawblox.engine.services.data_stores import open_store, value_text
from clawblox.engine.services.memory_rows import (
    MOST_BYTES,
    MOST_ROWS,
    Bound,
    Item,
    MemoryRows,
    QueuedItem,
    RowsFull,
    SortKey,
)
from clawblox.engine.services.sorted_pages import (
    HashMapPages,
    Rows,
    SortedPages,
    lend_page_methods,
    make_pages,
    show_page,
)
from clawblox.engine.slots import Slots
from clawblox.engine.values.enums import EnumItem
from clawblox.engine.values.value import as_list
from clawblox.luau import LuaTable, RuntimeFault, suspend
from clawblox.luau.core.machine import call_unyieldable
from clawblox.luau.core.values import as_tuple, is_function
from clawblox.luau.runtime.suspension import Yield

MOST_SECONDS: Final = 3_888_000.0
"""Maximum expiry time of a value, as in Roblox: 45 days."""
_SORTED: Final = "MemoryStoreSortedMap"
_HASH: Final = "MemoryStoreHashMap"
_QUEUE: Final = "MemoryStoreQueue"
_HIDDEN: Final = "InvisibilityTimeout"
_MOST_IN_RANGE: Final = 200
_MOST_READ: Final = 100
_ROWS_PER_STEP: Final = 4
_MOST_DIGITS: Final = 18  # of a read id


@attrs.frozen(eq=False)
class QueueRead:
    """The items that a thread in ``ReadAsync`` waits for.

    Attributes:
        stores: The memory stores.
        queue: The name of the queue.
        count: Maximum number of values.
        only_all: Whether to read no values if there are fewer.
        hidden: Number of ticks for which the values are hidden.
        since: The tick of the call.
        until: The tick in which the wait ends without values; None for no timeout.
    """

    kind: ClassVar = "queue"

    stores: MemoryStores
    queue: str
    count: int
    only_all: bool
    hidden: int
    since: int
    until: int | None

    def find(self, tick: int) -> tuple[Any, ...] | None:
        """Return the values and the read id, or no values after the timeout; None to wait."""
        if tick <= self.since:
            return None
        rows = self.stores.rows
        self.stores.charge(rows.count(self.queue) // _ROWS_PER_STEP)
        reading, values = rows.read(
            self.queue, self.count, only_all=self.only_all, tick=tick, hidden=self.hidden
        )
        if values:
            return as_list(map(self.stores.read_value, values)), str(reading)
        return (LuaTable(), None) if self.until is not None and tick >= self.until else None

    def document(self, slots: Slots) -> list[Any]:
        """Return the search as saved in a snapshot."""
        values = [getattr(self, field.name) for field in attrs.fields(QueueRead)[1:]]
        return [self.kind, *to_json(_READ, values, slots)]


_READ: Final = (
    shapes.text,
    shapes.whole,
    shapes.flag,
    shapes.whole,
    shapes.whole,
    shapes.optional(shapes.whole),
)


class MemoryStores(SavedState):
    """The memory stores of a world.

    Args:
        model: The data model; the methods of the service, of maps and of queues are added to it.

    Attributes:
        rows: The values.
    """

    layouts: ClassVar[Layouts] = {"rows": MemoryRows}

    def __init__(self, model: DataModel) -> None:
        self.rows = MemoryRows()
        self._model = model
        model.scheduler.searches[QueueRead.kind] = self._read_search
        add = model.classes.add
        add("MemoryStoreService", methods=bind_methods(self, "service"))
        for name in (_SORTED, _HASH):
            add(name, methods=bind_methods(self, "memory_map"))
        add(_SORTED, methods=bind_methods(self, "sorted_map"))
        add(_HASH, methods=bind_methods(self, "hash_map"))
        self._page_methods = lend_page_methods(model.host, HashMapPages, self._advance)
        add(_QUEUE, methods=bind_methods(self, "queue") | {"RemoveAsync": self._remove_read})

    def _read_search(self, saved: list[Any], slots: Slots) -> QueueRead:
        """Return the search of a thread in a snapshot.

        Raises:
            ValueError: The snapshot is damaged.
        """
        shapes.check_shape(saved, _READ, "a thread that reads from a queue")
        return QueueRead(self, *from_json(_READ, saved, slots))

    def charge(self, steps: int) -> None:
        """Charge steps to the running script."""
        self._model.scheduler.charge(steps)

    def read_value(self, text: str) -> Any:
        """Return a stored value."""
        return read_text(text, self.charge, sort=True)

    @property
    def _tick(self) -> int:
        return self._model.scheduler.tick

    def _answer(self, suspension: Yield, *results: Any) -> Yield:
        """Let the running thread resume in the next tick; return the exception to raise."""
        scheduler = self._model.scheduler
        scheduler.start_later(TICK_S, scheduler.vm.running, results)
        return suspension

    # The service

    def get_sorted_map(self, service: Instance, name: Any) -> Any:
        """``GetSortedMap(name)``: return one object per name."""
        return open_store(service, _SORTED, text_argument(name, 1, "GetSortedMap"))

    def get_hash_map(self, service: Instance, name: Any) -> Any:
        """``GetHashMap(name)``: return one object per name."""
        return open_store(service, _HASH, text_argument(name, 1, "GetHashMap"))

    def get_queue(self, service: Instance, name: Any, invisibility_timeout: Any) -> Any:
        """``GetQueue(name, invisibilityTimeout)``: return one object per name; default 30 s."""
        queue = open_store(service, _QUEUE, text_argument(name, 1, "GetQueue"))
        if invisibility_timeout is not None:
            queue.store(_HIDDEN, _seconds(invisibility_timeout, 2, "GetQueue"))
        return queue

    # Maps

    def get_async(self, memory_map: Instance, key: Any) -> Any:
        """``GetAsync(key)``: return the value (and sort key in a sorted map), or nil."""
        suspension = suspend()
        raise self._answer(suspension, *self._find(memory_map, text_argument(key, 1, "GetAsync")))

    def set_async(
        self, memory_map: Instance, key: Any, value: Any, expiration: Any, sort_key: Any
    ) -> Any:
        """``SetAsync(key, value, expiration, sortKey)``: return true; hash maps lack sort keys."""
        suspension = suspend()
        name, ticks = text_argument(key, 1, "SetAsync"), _ticks(expiration, 3, "SetAsync")
        self._put(memory_map, name, (value, sort_key), ticks, "SetAsync")
        raise self._answer(suspension, True)

    def update_async(self, memory_map: Instance, key: Any, function: Any, expiration: Any) -> Any:
        """``UpdateAsync(key, function, expiration)``: store the function's results; nil cancels.

        The function gets and returns the same values as ``GetAsync``.
        """
        suspension = suspend()
        name, ticks = text_argument(key, 1, "UpdateAsync"), _ticks(expiration, 3, "UpdateAsync")
        if not is_function(function):
            raise wrong_argument(function, 2, "UpdateAsync", "function")
        values = as_tuple(call_unyieldable(function, *self._find(memory_map, name)))
        if not values or values[0] is None:
            raise self._answer(suspension, None)
        self._put(memory_map, name, (*values, None)[:2], ticks, "UpdateAsync")
        raise self._answer(suspension, *self._find(memory_map, name))

    def remove_async(self, memory_map: Instance, key: Any) -> Any:
        """``RemoveAsync(key)``: remove the value of a key."""
        suspension = suspend()
        self.rows.remove(_store_id(memory_map), text_argument(key, 1, "RemoveAsync"))
        raise self._answer(suspension)

    def list_items_async(self, hash_map: Instance, count: Any) -> Any:
        """``ListItemsAsync(count)``: return pages of keys and values, sorted by key."""
        suspension = suspend()
        most = _count(count, _MOST_IN_RANGE, 1, "ListItemsAsync")
        request = ReadSorted(_store_id(hash_map), ascending=True, limit=most)
        rows = self._page_rows(request)
        pages = make_pages(HashMapPages, self._page_methods, request, rows, self.charge)
        raise self._answer(suspension, pages)

    def _advance(self, pages: SortedPages, request: ReadSorted) -> Any:
        suspension = suspend()
        show_page(pages, request, self._page_rows(request), self.charge)
        raise self._answer(suspension)

    def _page_rows(self, request: ReadSorted) -> Rows:
        """Return the rows after the previous page, for `show_page`."""
        self.charge(self.rows.count(request.store))
        after = None if request.after is None else (None, to_luau_text(request.after[1]))
        rows = self.rows.select(request.store, after, None, self._tick)[: request.limit + 1]
        return [(_key_text(key), item.value) for key, item in rows]

    def get_range_async(
        self, sorted_map: Instance, direction: Any, count: Any, low: Any, high: Any
    ) -> Any:
        """``GetRangeAsync(direction, count, lower, upper)``: array of key, value, sortKey."""
        suspension = suspend()
        way = direction.name if isinstance(direction, EnumItem) else direction
        if way not in ("Ascending", "Descending"):
            raise wrong_argument(direction, 1, "GetRangeAsync", "Enum.SortDirection")
        most = _count(count, _MOST_IN_RANGE, 2, "GetRangeAsync")
        bounds = _bound(low, 3), _bound(high, 4)
        name = _store_id(sorted_map)
        self.charge(self.rows.count(name))
        rows = self.rows.select(name, *bounds, self._tick)
        chosen = (rows if way == "Ascending" else rows[::-1])[:most]
        raise self._answer(suspension, as_list([self._entry(key, item) for key, item in chosen]))

    def _entry(self, key: str, item: Item) -> LuaTable:
        entry = LuaTable({"key": key, "value": self.read_value(item.value)})
        if item.sort_key is not None:
            entry["sortKey"] = item.sort_key
        return entry

    def _find(self, memory_map: Instance, key: str) -> tuple[Any, ...]:
        item = self.rows.find(_store_id(memory_map), key, self._tick)
        found = (None, None) if item is None else (self.read_value(item.value), item.sort_key)
        return found if memory_map.spec.name == _SORTED else found[:1]

    def _put(
        self, memory_map: Instance, key: str, values: tuple[Any, Any], ticks: int, method: str
    ) -> None:
        value, sort_key = values
        if memory_map.spec.name != _SORTED:
            sort_key = None
        _check_sort_key(sort_key, method)
        item = Item(value_text(value, self.charge), self._tick + ticks, sort_key)
        try:
            self.rows.put(_store_id(memory_map), key, item, self._tick)
        except RowsFull:
            raise _full(method) from None

    # Queues

    def add_async(self, queue: Instance, value: Any, expiration: Any, priority: Any) -> Any:
        """``AddAsync(value, expiration, priority)``: high priorities are read first."""
        suspension = suspend()
        ticks = _ticks(expiration, 2, "AddAsync")
        rank = 0.0 if priority is None else priority
        if rank.__class__ is not float or not abs(rank) < float("inf"):
            raise wrong_argument(priority, 3, "AddAsync", "finite number")
        item = QueuedItem(value_text(value, self.charge), self._tick + ticks, rank)
        try:
            self.rows.add(_store_id(queue), item, self._tick)
        except RowsFull:
            raise _full("AddAsync") from None
        raise self._answer(suspension)

    def read_async(self, queue: Instance, count: Any, all_or_nothing: Any, timeout: Any) -> Any:
        """``ReadAsync(count, allOrNothing, waitTimeout)``: return values and an id for removal.

        Other reads do not find these values until the invisibility timeout ends.
        """
        most = _count(count, _MOST_READ, 1, "ReadAsync")
        if timeout is not None and (timeout.__class__ is not float or timeout != timeout):
            raise wrong_argument(timeout, 3, "ReadAsync", "number")
        hidden_s: Any = queue.read(_HIDDEN)
        tick, hidden = self._tick, ticks_in(hidden_s)
        until = tick + ticks_in(timeout) if timeout is not None and timeout >= 0 else None
        only_all = all_or_nothing not in (None, False)
        raise self._model.scheduler.wait_for(
            QueueRead(self, _store_id(queue), most, only_all, hidden, tick, until)
        )

    def get_size_async(self, queue: Instance, exclude_invisible: Any) -> Any:
        """``GetSizeAsync(excludeInvisible)``: return the number of values."""
        suspension = suspend()
        name, only_visible = _store_id(queue), exclude_invisible not in (None, False)
        self.charge(self.rows.count(name) // _ROWS_PER_STEP)
        size = self.rows.size(name, self._tick, only_visible=only_visible)
        raise self._answer(suspension, float(size))

    def _remove_read(self, queue: Instance, ident: Any) -> Any:
        """``RemoveAsync(id)``: remove the values of a read, unless they are visible again."""
        suspension = suspend()
        text, name = text_argument(ident, 1, "RemoveAsync"), _store_id(queue)
        self.charge(self.rows.count(name) // _ROWS_PER_STEP)
        if text.isascii() and text.isdecimal():
            self.rows.drop(name, int(text[:_MOST_DIGITS]), self._tick)
        raise self._answer(suspension)


def _store_id(store: Instance) -> str:
    return f"{store.spec.name}/{store.name}"


def _key_text(key: str) -> str:
    """Return a key as text; `to_luau_text` restores its bytes, even if they are not UTF-8."""
    return key.encode("latin-1").decode("utf-8", "surrogateescape")


def _full(method: str) -> RuntimeFault:
    return RuntimeFault(
        f"{method}: MemoryStoreService is full, at {MOST_ROWS} values or {MOST_BYTES >> 20} MiB"
    )


def _seconds(value: Any, at: int, method: str) -> float:
    if value.__class__ is not float or not 0 <= value <= MOST_SECONDS:
        raise wrong_argument(value, at, method, f"number from 0 to {MOST_SECONDS:.0f}")
    return float(value)


def _ticks(value: Any, at: int, method: str) -> int:
    return ticks_in(_seconds(value, at, method))


def _count(value: Any, most: int, at: int, method: str) -> int:
    if value.__class__ is not float or not 1 <= value <= most:
        raise wrong_argument(value, at, method, f"number from 1 to {most}")
    return int(value)


def _check_sort_key(value: Any, method: str) -> None:
    is_finite = value.__class__ is float and abs(value) < float("inf")
    if value is not None and value.__class__ is not str and not is_finite:
        raise RuntimeFault(f"{method}: the sort key must be a string or a finite number")


def _bound(value: Any, at: int) -> Bound | None:
    """Return a bound: a key, or a table with ``key``, ``sortKey`` or both."""
    if value is None:
        return None
    if value.__class__ is str:
        return None, value
    if not isinstance(value, LuaTable):
        raise wrong_argument(value, at, "GetRangeAsync", "table with key or sortKey")
    sort_key: SortKey = value.get("sortKey")
    _check_sort_key(sort_key, "GetRangeAsync")
    key = value.get("key")
    if key is None and sort_key is None:
        return None
    return sort_key, None if key is None else text_argument(key, at, "GetRangeAsync")
