"""``DataStoreService``: rows that outlive the world, as scripts see them.

A request that a script makes in one tick is answered at the start of the next. `UpdateAsync` takes
one more tick, because it reads and then writes. The database works between ticks, and the tick
waits for it, so the results never depend on its speed.

A snapshot contains the waiting requests. Completed requests are saved with their answers and are
not repeated after a restore; the others are carried out after the restore. Within one world
`UpdateAsync` is atomic: its function always gets the latest value. Between worlds that share rows,
the last write wins.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Final

import attrs

from clawblox.engine import shapes
from clawblox.engine.datastore.store import (
    REMOVED,
    Answer,
    Info,
    Read,
    ReadSorted,
    Request,
    Row,
    StoreError,
    WriteRequest,
)
from clawblox.engine.datastore.worker import RequestBatch, Worker
from clawblox.engine.instances.instance import DataModel, Instance
from clawblox.engine.instances.members import text_argument, wrong_argument
from clawblox.engine.instances.spec import bind_methods
from clawblox.engine.json_text import Charge, read_text, to_text, write_text
from clawblox.engine.saved_state import Layouts, SavedState, Stored, object_slot, record
from clawblox.engine.services.sorted_pages import (
    ADVANCE,
    MOST_ROWS,
    Rows,
    SortedPages,
    find_score,
    lend_page_methods,
    make_pages,
    show_page,
)
from clawblox.engine.services.store_options import add_store_options, get_metadata
from clawblox.engine.services.store_requests import ANSWER, REQUEST
from clawblox.engine.slots import Slots
from clawblox.engine.values.key_info import DataStoreKeyInfo
from clawblox.luau import Coroutine, LuaError, LuaTable, RuntimeFault, fail_call
from clawblox.luau.core.operators import shown_type
from clawblox.luau.core.values import is_function

_log = logging.getLogger("clawblox.engine")

_ORDERED: Final = "OrderedDataStore"
_SORT: Final = "GetSortedAsync"
_ROWS: Final = 100  # of a page, by default
_UNAVAILABLE: Final = "DataStoreService not available (no database connection)"
_INCREMENT: Final = "IncrementAsync"
_STORES_PER_STEP: Final = 2  # searching for a store by name
_SET: Final = "SetAsync"
_GLOBAL: Final = "global"  # the default scope
_SCOPE_MARK: Final = "\x1f"
_CHANGES: Final = ("UpdateAsync", _INCREMENT)
"""The methods that read a value, then write and return a new value."""
_LATE: Final = StoreError("the database has not answered an earlier request yet")


@attrs.define(eq=False)
class _Call:
    """A call of a script that waits for the database.

    Attributes:
        name: The method, for messages.
        thread: The thread that waits.
        request: The request to the database.
        ordered: Whether the store is ordered.
        change: Computes the new value from the old: the function of `UpdateAsync`, or the number
            that `IncrementAsync` adds. For `AdvanceToNextPageAsync`, the pages; None for other
            calls.
    """

    name: str
    thread: Coroutine
    request: Request
    ordered: bool = False
    change: Any = None


def _read_change(slots: Slots, number: int) -> Any:
    value = slots.take(number)
    is_plain = value.__class__ in (float, NoneType, SortedPages)
    return value if is_plain else slots.take_function(number)


_CHANGE: Final = Stored(shapes.whole, Slots.put, _read_change)
_CALL: Final = record(_Call, shapes.text, object_slot(Coroutine), REQUEST, shapes.flag, _CHANGE)


class DataStores(SavedState):
    """The calls of a world that wait for the database.

    Args:
        model: The data model; the methods of ``DataStoreService`` and of stores are added to it.
        worker: Uses the database; None without a database.
        game_id: The id under which the world's rows are stored.

    Attributes:
        game_id: The same as the argument; a restore replaces it by the id in the snapshot.
    """

    layouts: ClassVar[Layouts] = {
        "game_id": shapes.text,
        "_made": [_CALL],
        "_sent": [_CALL],
        "_answers": [ANSWER],
    }

    def __init__(self, model: DataModel, worker: Worker | None, game_id: str) -> None:
        self.game_id = game_id
        self._model = model
        self._worker = worker
        self._made: list[_Call] = []
        self._sent: list[_Call] = []
        self._batch: RequestBatch | None = None
        self._answers: list[Answer | StoreError] = []
        for name, receiver in (
            ("DataStoreService", "service"),
            ("GlobalDataStore", "store"),
            (_ORDERED, "ordered_store"),
        ):
            model.classes.add(name, methods=bind_methods(self, receiver))
        add_store_options(model.classes)
        self._page_methods = lend_page_methods(model.host, SortedPages, self._advance)

    # Methods of the service and of stores

    def get_data_store(self, service: Instance, name: Any, scope: Any) -> Any:
        """``GetDataStore(name, scope)``: return one object per name and scope."""
        return open_store(service, "DataStore", _full_name(name, scope, "GetDataStore"))

    def get_ordered_data_store(self, service: Instance, name: Any, scope: Any) -> Any:
        """``GetOrderedDataStore(name, scope)``: return one object per name and scope."""
        full_name = _full_name(name, scope, "GetOrderedDataStore")
        return open_store(service, _ORDERED, full_name)

    def _address(self, store: Instance, key: Any, method: str) -> tuple[str, str]:
        if self._worker is None:
            raise RuntimeFault(_UNAVAILABLE)
        try:
            return to_text(store.name), to_text(text_argument(key, 1, method))
        except ValueError as error:
            raise RuntimeFault(f"Database error in {method}: {error}") from None

    def get_async(self, store: Instance, key: Any) -> Any:
        """``GetAsync(key)``: return the value and its DataStoreKeyInfo, or nil without a value."""
        return self._call("GetAsync", store, Read(*self._address(store, key, "GetAsync")))

    def set_async(self, store: Instance, key: Any, value: Any, user_ids: Any, options: Any) -> Any:
        """``SetAsync(key, value, userIds, options)``: return the version."""
        address = self._address(store, key, _SET)
        text = self._write_value(value, store.spec.name == _ORDERED)
        has_options = isinstance(options, Instance) and options.is_a("DataStoreSetOptions")
        metadata = get_metadata(options) if has_options else None
        tags = self._write_tags(user_ids, metadata, _SET)
        return self._call(_SET, store, WriteRequest(*address, text, self._time_ms, tags))

    def remove_async(self, store: Instance, key: Any) -> Any:
        """``RemoveAsync(key)``: store a null that reads as nil; return the old value."""
        address = self._address(store, key, "RemoveAsync")
        return self._call("RemoveAsync", store, WriteRequest(*address, REMOVED, self._time_ms))

    def update_async(self, store: Instance, key: Any, function: Any) -> Any:
        """``UpdateAsync(key, function)``: write the function's result; nil cancels.

        The function gets the value and its DataStoreKeyInfo, and returns the new value, user ids
        and metadata.
        """
        address = self._address(store, key, "UpdateAsync")
        if not is_function(function):
            raise RuntimeFault("invalid argument #2 to 'UpdateAsync' (function expected)")
        return self._call("UpdateAsync", store, Read(*address), function)

    def increment_async(self, store: Instance, key: Any, delta: Any) -> Any:
        """``IncrementAsync(key, delta)``: add 1, or ``delta``, and return the sum.

        In an ordered store it adds to the ``score`` of a table and keeps the other fields.
        """
        address = self._address(store, key, _INCREMENT)
        delta = 1.0 if delta is None else delta
        if delta.__class__ is not float or not math.isfinite(delta):
            raise RuntimeFault(f"invalid argument #2 to '{_INCREMENT}' (finite number expected)")
        return self._call(_INCREMENT, store, Read(*address), delta)

    def get_sorted_async(
        self, ordered_store: Instance, ascending: Any, size: Any, low: Any, high: Any
    ) -> Any:
        """``GetSortedAsync(ascending, pageSize, minValue, maxValue)``: return a page."""
        name, _ = self._address(ordered_store, "", _SORT)
        if size is not None and (size.__class__ is not float or not size >= 0):
            raise RuntimeFault(f"invalid argument #2 to '{_SORT}' (number of at least 0 expected)")
        length = _ROWS if size is None else int(min(size, MOST_ROWS))
        limits = _limit(low, 3), _limit(high, 4)
        request = ReadSorted(name, ascending not in (None, False), length, *limits)
        return self._call(_SORT, ordered_store, request)

    def _call(self, name: str, store: Instance, request: Request, change: Any = None) -> Any:
        """Let the running thread wait for an answer.

        Raises:
            Yield: Always, if the thread can wait here.
            LuaError: The thread cannot wait here.
        """
        thread, suspension = self._model.scheduler.park()
        ordered = store.spec.name == _ORDERED
        self._made.append(_Call(name, thread, request, ordered, change))
        raise suspension

    def _advance(self, pages: SortedPages, request: ReadSorted) -> Any:
        thread, suspension = self._model.scheduler.park()
        self._made.append(_Call(ADVANCE, thread, request, change=pages))
        raise suspension

    @property
    def _time_ms(self) -> int:
        return round(self._model.scheduler.time * 1000)

    def _write_tags(self, user_ids: Any, metadata: Any, method: str) -> str:
        """Return user ids and metadata as JSON text; empty for none.

        Raises:
            RuntimeFault: An argument is neither nil nor a table, or has no JSON form.
        """
        tags = {"user_ids": user_ids, "metadata": metadata}
        for name, value in tags.items():
            if not isinstance(value, LuaTable | NoneType):
                raise RuntimeFault(f"{method}: {name} must be a table, not {shown_type(value)}")
        given = {name: value for name, value in tags.items() if value}
        return self._write_value(LuaTable(given), False) if given else ""

    def _write_value(self, value: Any, ordered: bool) -> str:
        """Return a value as JSON text.

        Raises:
            RuntimeFault: The value has no JSON form, or lacks the number or ``score`` that an
                ordered store needs.
        """
        if ordered and find_score(value) is None:
            raise RuntimeFault("OrderedDataStore value must have a 'score' field, or be a number")
        return value_text(value, self._charge)

    def _charge(self, steps: int) -> None:
        self._model.scheduler.vm.charge(steps)

    # The phases of a tick

    def submit(self) -> None:
        """Give the requests of this tick to the database, at the end of the tick."""
        if not self._made:
            return
        # UpdateAsync must read the values that were written in the same tick.
        self._sent = sorted(self._made, key=lambda call: call.change is not None)
        self._made = []
        requests = [call.request for call in self._sent]
        if self._worker is None:  # calls from a snapshot of a world that had a database
            self._answers = [StoreError(_UNAVAILABLE)] * len(requests)
        elif self._worker.is_late:
            self._answers = [_LATE] * len(requests)
        else:
            self._batch = self._worker.submit(self.game_id, requests)

    def deliver(self) -> None:
        """Answer the calls of the last tick, at the start of this tick; wait for the database.

        Raises:
            WorldHalted: The error of a script halts the world, possibly an error of the database.
        """
        self._settle()
        calls, answers = self._sent, self._answers
        self._sent, self._answers = [], []
        for call, answer in zip(calls, answers, strict=True):
            if call.thread.status == "suspended":
                self._answer(call, answer)

    def _settle(self) -> None:
        """Wait until the database has answered."""
        if self._batch is not None:
            self._answers, self._batch = self._batch.wait(), None

    def _answer(self, call: _Call, answer: Answer | StoreError) -> None:
        try:
            values = () if isinstance(answer, StoreError) else self._results(call, answer)
        except ValueError as error:
            answer = StoreError(str(error))
        if isinstance(answer, StoreError):
            text = f"Database error in {call.name}: {answer}"
            _log.error("data store %r: %s", call.request.store, text)
            self._fail(call, RuntimeFault(text))
        elif call.change is not None and isinstance(call.request, Read):
            self._update(call, call.request, *values)
        else:
            self._model.scheduler.resume(call.thread, values)

    def _latest(self, read: Read, row: Row | None) -> Row | None:
        """Return the row that was read, or the row written since."""
        for call in self._made:
            write = call.request
            if isinstance(write, WriteRequest) and attrs.astuple(write)[:2] == attrs.astuple(read):
                row = Row(write.value, write.next_info(row))
        return row

    def _update(self, call: _Call, read: Read, *old: Any) -> None:
        """Compute the new value, and write it unless it is nil."""
        try:
            new, user_ids, metadata = self._changed(call, *old)
            value = None if new is None else self._write_value(new, call.ordered)
            tags = self._write_tags(user_ids, metadata, call.name)
        except LuaError as error:
            self._fail(call, error)
            return
        if value is None:
            self._model.scheduler.resume(call.thread, (None,))
            return
        request = WriteRequest(read.store, read.key, value, self._time_ms, tags)
        self._made.append(_Call(call.name, call.thread, request, call.ordered))

    def _changed(self, call: _Call, *old: Any) -> tuple[Any, Any, Any]:
        """Return the new value, its user ids and its metadata."""
        if call.change.__class__ is float:
            return _incremented(old[0], call.change, call.ordered), None, None
        values = (*self._model.scheduler.vm.call(call.change, *old), None, None, None)
        return values[0], values[1], values[2]

    def _fail(self, call: _Call, error: LuaError) -> None:
        fail_call(call.thread, error)
        self._model.scheduler.resume(call.thread, ())

    def _results(self, call: _Call, answer: Answer) -> tuple[Any, ...]:
        """Return the results of a call, or the arguments of its change."""
        if isinstance(answer, list):
            return self._show_page(call, answer)
        row, request = answer, call.request
        if call.name == _SET:
            return (None if row is None or call.ordered else _version(row.info),)
        if isinstance(request, WriteRequest) and call.name in _CHANGES:
            row = Row(request.value, Info() if row is None else row.info)
        elif isinstance(request, Read) and call.change is not None:
            row = self._latest(request, row)
        if row is None or row.value == REMOVED:
            return (None,)
        value = read_text(row.value, self._charge, sort=True)
        if call.name == _INCREMENT and isinstance(request, WriteRequest):
            value = find_score(value)
        return (value,) if call.ordered else (value, _key_info(row.info))

    def _show_page(self, call: _Call, rows: Rows) -> tuple[Any, ...]:
        """Return new pages, or advance those of the call and return an empty tuple."""
        assert isinstance(call.request, ReadSorted)
        if call.change is None:
            methods = self._page_methods
            return (make_pages(SortedPages, methods, call.request, rows, self._charge),)
        show_page(call.change, call.request, rows, self._charge)
        return ()

    def close(self) -> None:
        """Carry out the waiting requests, drop the answers and close the database."""
        self.submit()
        if self._worker is not None:
            self._worker.close()

    # Snapshots

    def document(self, slots: Slots) -> Any:
        """Return the waiting calls and the answers to completed calls, for a snapshot."""
        self._settle()
        return super().document(slots)

    @property
    def is_shared(self) -> bool:
        """True if other worlds may use the database."""
        return self._worker is not None and self._worker.is_shared

    def copier(self) -> Callable[[Path], None] | None:
        """Return a function that copies the current rows, see `Store.copier`; None without rows.

        Raises:
            StoreError: The database cannot be read.
        """
        self._settle()
        return None if self._worker is None else self._worker.copier()

    def restore(self, document: dict[str, Any], slots: Slots) -> None:
        """Restore the waiting calls of a snapshot.

        Raises:
            ValueError: The snapshot is damaged.
        """
        super().restore(document, slots)
        if len(self._sent) != len(self._answers):
            raise ValueError("a request to a data store has no answer")
        for call in (*self._made, *self._sent):
            turns = isinstance(call.request, ReadSorted) and call.change is not None
            if turns != isinstance(call.change, SortedPages):
                raise ValueError(f"{call.name} cannot continue with its request")
            self._model.scheduler.restore_parked(call.thread)
        for call, answer in zip(self._sent, self._answers, strict=True):
            is_page = isinstance(call.request, ReadSorted)
            if isinstance(answer, list) != is_page and not isinstance(answer, StoreError):
                raise ValueError(f"{call.name} has the answer to another request")


def _version(info: Info) -> str:
    return f"{info.version:010}"


def _key_info(info: Info) -> DataStoreKeyInfo:
    tags = info.tags.encode("utf-8", "replace").decode("latin-1")
    created, updated = float(info.created_ms), float(info.updated_ms)
    return DataStoreKeyInfo(created, updated, _version(info), tags)


def _limit(score: Any, at: int) -> float | None:
    """Return a limit of scores: a finite number, or None for no limit."""
    if score is None:
        return None
    if score.__class__ is not float or score != score:
        raise wrong_argument(score, at, _SORT, "number")
    return max(-sys.float_info.max, min(score, sys.float_info.max))


def open_store(service: Instance, class_name: str, name: str) -> Instance:
    """Return the store with a class and name; create it on first access.

    Raises:
        LuaError: The scripts have used up their memory, or the steps of this tick.
    """
    service.model.scheduler.charge(len(service.children) // _STORES_PER_STEP)
    for child in service.children:
        if child.spec.name == class_name and child.name == name:
            return child
    store = service.model.make(class_name)
    store.name = name
    store.link(service)
    return store


def value_text(value: Any, charge: Charge) -> str:
    """Return a value as JSON text.

    Raises:
        RuntimeFault: The value has no JSON form.
        LuaError: The script has used up its steps.
    """
    try:
        return write_text(value, charge, strict=True)
    except ValueError as error:
        raise RuntimeFault(f"Failed to serialize value to JSON: {error}") from None


def _full_name(name: Any, scope: Any, method: str) -> str:
    shown = text_argument(name, 1, method)
    scope = "" if scope is None else text_argument(scope, 2, method)
    return shown if scope in ("", _GLOBAL) else f"{shown}{_SCOPE_MARK}{scope}"


def _incremented(old: Any, delta: float, ordered: bool) -> Any:
    """Return a value increased by a number.

    Raises:
        RuntimeFault: The value is not a number, or, in an ordered store, has no score.
    """
    number = find_score(old) if ordered else old
    number = 0.0 if old is None else number
    if number.__class__ is not float or not math.isfinite(number + delta):
        raise RuntimeFault(f"{_INCREMENT} needs a number in the store, not {shown_type(old)}")
    if old is None or old.__class__ is float:
        return number + delta
    old["score"] = number + delta
    return old
