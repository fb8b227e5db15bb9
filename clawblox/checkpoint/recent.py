"""A cache of bounded size that drops the oldest values."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

_T = TypeVar("_T")


class RecentValues(Generic[_T]):
    """The most recent values by key; thread-safe.

    Args:
        capacity: Maximum number of values.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: dict[bytes, _T] = {}
        self._lock = threading.Lock()

    def recall(self, key: bytes) -> _T | None:
        """Return the value of a key; None if it is not in the cache."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._values[key] = value  # becomes the most recent
            return value

    def remember(self, key: bytes, value: _T) -> None:
        """Add a value; drop the oldest value if there are too many."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = value
            if len(self._values) > self._capacity:
                del self._values[next(iter(self._values))]

    def values(self) -> list[_T]:
        """Return all values, the oldest first."""
        with self._lock:
            return list(self._values.values())

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
