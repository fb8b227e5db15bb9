"""Facts that are determined once, for the first caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

_T = TypeVar("_T")


class Once(Generic[_T]):
    """A fact that the first call determines and later calls return.

    Args:
        learn: Determines the fact; called at most once. Its error is raised for every caller.
    """

    def __init__(self, learn: Callable[[], Awaitable[_T]]) -> None:
        self._learn = learn
        self._lock = anyio.Lock()
        self._known: list[_T] = []
        self._error: Exception | None = None

    async def __call__(self) -> _T:
        """Return the fact."""
        async with self._lock:
            if not self._known and self._error is None:
                try:
                    self._known.append(await self._learn())
                except Exception as error:  # noqa: BLE001 - each caller gets it
                    self._error = error
        if self._error is not None:
            raise self._error
        return self._known[0]
