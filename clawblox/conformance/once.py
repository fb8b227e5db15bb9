"""Functions that are called once, for the first caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

_T = TypeVar("_T")


class Once:
    """Calls functions once each, by key."""

    def __init__(self) -> None:
        self._results: dict[str, Any] = {}
        self._locks: dict[str, anyio.Lock] = {}

    async def __call__(self, key: str, learn: Callable[[], Awaitable[_T]]) -> _T:
        """Return the result of a function that is called at most once for a key.

        An error of it is raised again for every caller.
        """
        async with self._locks.setdefault(key, anyio.Lock()):
            if key not in self._results:
                try:
                    self._results[key] = await learn()
                except Exception as error:  # noqa: BLE001 - each caller gets it
                    self._results[key] = error
        result = self._results[key]
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]
