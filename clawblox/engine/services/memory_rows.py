"""The values of memory stores, with an expiry time; they are part of snapshots.

Values are JSON texts, and time is counted in ticks. An expired value counts as absent, and is
removed when room is needed.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

import attrs

from clawblox.engine import shapes
from clawblox.engine.json_text import read_text
from clawblox.engine.saved_state import Layouts, SavedState, Stored, entries, record
from clawblox.engine.slots import Slots

MOST_ROWS: Final = 10_000
"""Maximum number of values in a world."""
MOST_BYTES: Final = 8 << 20
"""Maximum total length of keys and values in a world, in characters."""

_NEVER: Final = 1 << 62

SortKey: TypeAlias = float | str | None
Bound: TypeAlias = tuple[SortKey, str | None]
"""A sort key and a key, each None if not given."""


class RowsFull(Exception):  # noqa: N818 - names the condition
    """There is no room for another value."""


@attrs.frozen
class Item:
    """A value of a map.

    Attributes:
        value: JSON text.
        expires: The tick from which it is absent.
        sort_key: The primary sort criterion in a sorted map, before the key.
    """

    value: str
    expires: int
    sort_key: SortKey = None


@attrs.define
class QueuedItem:
    """A value of a queue.

    Attributes:
        value: JSON text.
        expires: The tick from which it is absent.
        priority: Values with higher priority are read first.
        visible: The tick from which it can be read.
        reading: The number of the last read that returned it; 0 for none.
    """

    value: str
    expires: int
    priority: float
    visible: int = 0
    reading: int = 0


def _read_value(slots: Slots, saved: str) -> str:
    read_text(saved, lambda steps: None)  # raises ValueError if damaged
    return saved


def _read_number(slots: Slots, saved: Any) -> Any:
    """Return a JSON number as a Luau number."""
    return float(saved) if isinstance(saved, int) else saved


_VALUE: Final = Stored(shapes.text, lambda slots, value: value, _read_value)
_NUMBER: Final = Stored(shapes.number, lambda slots, value: value, _read_number)
_SORT_KEY: Final = Stored(
    shapes.optional(shapes.one_of(shapes.number, shapes.text)),
    lambda slots, value: value,
    _read_number,
)
_ITEM: Final = record(Item, _VALUE, shapes.whole, _SORT_KEY)
_QUEUED: Final = record(QueuedItem, _VALUE, shapes.whole, _NUMBER, shapes.whole, shapes.whole)


class MemoryRows(SavedState):
    """The values of all maps and queues of a world, by the name of the map or queue."""

    layouts: ClassVar[Layouts] = {
        "_maps": entries(shapes.text, entries(shapes.text, _ITEM)),
        "_queues": entries(shapes.text, entries(shapes.whole, _QUEUED)),
        "_numbered": shapes.whole,
    }

    def __init__(self) -> None:
        self._maps: dict[str, dict[str, Item]] = {}
        self._queues: dict[str, dict[int, QueuedItem]] = {}
        self._numbered = 0  # values of queues, and reads
        self._count = 0
        self._size = 0
        self._first_expires = _NEVER  # or earlier, if the value was removed

    # Maps

    def find(self, name: str, key: str, tick: int) -> Item | None:
        """Return the value of a key, or None."""
        item = self._maps.get(name, {}).get(key)
        return None if item is None or tick >= item.expires else item

    def put(self, name: str, key: str, item: Item, tick: int) -> None:
        """Set the value of a key.

        Raises:
            RowsFull: There is no room; the old value is kept.
        """
        old = self.find(name, key, tick)
        if old is None:
            self.remove(name, key)  # it may have expired
            self._make_room(1, len(key) + len(item.value), tick)
        else:
            self._make_room(0, len(item.value) - len(old.value), tick)
        self._maps.setdefault(name, {})[key] = item
        self._first_expires = min(self._first_expires, item.expires)

    def remove(self, name: str, key: str) -> None:
        """Remove the value of a key, if there is one."""
        items = self._maps.get(name, {})
        item = items.pop(key, None)
        if item is not None:
            self._give_back(len(key) + len(item.value))
        if not items:
            self._maps.pop(name, None)

    def select(
        self, name: str, low: Bound | None, high: Bound | None, tick: int
    ) -> list[tuple[str, Item]]:
        """Return the keys and values of a sorted map between two bounds, in order."""
        rows = self._maps.get(name, {}).items()
        placed = sorted((_place(item.sort_key, key), key, item) for key, item in rows)
        low_place, high_place = _bound(low), _bound(high)
        return [
            (key, item)
            for place, key, item in placed
            if tick < item.expires
            and (low is None or place[: len(low_place)] > low_place)
            and (high is None or place[: len(high_place)] < high_place)
        ]

    def count(self, name: str) -> int:
        """Return the number of values in a map or queue, including expired values."""
        return len(self._maps.get(name, ())) + len(self._queues.get(name, ()))

    # Queues

    def add(self, name: str, item: QueuedItem, tick: int) -> None:
        """Add a value to a queue.

        Raises:
            RowsFull: There is no room.
        """
        self._make_room(1, len(item.value), tick)
        self._numbered += 1
        self._queues.setdefault(name, {})[self._numbered] = item
        self._first_expires = min(self._first_expires, item.expires)

    def read(
        self, name: str, count: int, *, only_all: bool, tick: int, hidden: int
    ) -> tuple[int, list[str]]:
        """Read values from a queue, and hide them for a time.

        Args:
            name: The queue.
            count: Maximum number of values.
            only_all: Whether to read no values if there are fewer.
            tick: The current tick.
            hidden: Number of ticks for which the values are hidden.

        Returns:
            The number of this read, for `drop`, and the values.
        """
        queue = self._queues.get(name, {})
        ready = [at for at, item in queue.items() if item.visible <= tick < item.expires]
        ready = sorted(ready, key=lambda at: (-queue[at].priority, at))[:count]
        if not ready or (only_all and len(ready) < count):
            return 0, []
        self._numbered += 1
        for at in ready:
            queue[at].visible, queue[at].reading = tick + hidden, self._numbered
        return self._numbered, [queue[at].value for at in ready]

    def size(self, name: str, tick: int, *, only_visible: bool) -> int:
        """Return the number of values in a queue, optionally without hidden values."""
        queue = self._queues.get(name, {}).values()
        return sum(
            tick < item.expires and (item.visible <= tick or not only_visible) for item in queue
        )

    def drop(self, name: str, reading: int, tick: int) -> None:
        """Remove the values that a read returned, if they are still hidden."""
        queue = self._queues.get(name, {})
        for at in [at for at, item in queue.items() if item.reading == reading > 0]:
            if tick < queue[at].visible:
                self._give_back(len(queue.pop(at).value))
        if not queue:
            self._queues.pop(name, None)

    # Room

    def _make_room(self, rows: int, size: int, tick: int) -> None:
        if not self._has_room(rows, size) and tick >= self._first_expires:
            # At most once per tick, since a script could fail for lack of room repeatedly.
            _drop_expired(self._maps, tick)
            _drop_expired(self._queues, tick)
            self._measure()
        if not self._has_room(rows, size):
            raise RowsFull
        self._count += rows
        self._size += size

    def _has_room(self, rows: int, size: int) -> bool:
        return self._count + rows <= MOST_ROWS and self._size + size <= MOST_BYTES

    def _give_back(self, size: int) -> None:
        self._count -= 1
        self._size -= size

    def _measure(self) -> None:
        sizes = [
            (len(key) + len(item.value), item.expires)
            for items in self._maps.values()
            for key, item in items.items()
        ]
        sizes += [
            (len(item.value), item.expires)
            for queue in self._queues.values()
            for item in queue.values()
        ]
        self._count, self._size = len(sizes), sum(size for size, _ in sizes)
        self._first_expires = min((expires for _, expires in sizes), default=_NEVER)

    def restore(self, document: Any, slots: Slots) -> None:
        """Restore the values of a snapshot.

        Raises:
            ValueError: The snapshot is damaged.
        """
        super().restore(document, slots)
        self._measure()


def _drop_expired(stores: dict[str, Any], tick: int) -> None:
    for name, items in list(stores.items()):
        stores[name] = {at: item for at, item in items.items() if tick < item.expires}
        if not stores[name]:
            del stores[name]


def _place(sort_key: SortKey, key: str) -> tuple[Any, ...]:
    """Return the sort key in a sorted map: numbers, then texts, then keys without sort key."""
    if sort_key is None:
        return 2, 0.0, key
    return (1 if isinstance(sort_key, str) else 0), sort_key, key


def _bound(bound: Bound | None) -> tuple[Any, ...]:
    if bound is None:
        return ()
    sort_key, key = bound
    return _place(sort_key, key) if key is not None else _place(sort_key, "")[:2]
