"""Objects of which each event loop has one, made when it first asks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from anyio.lowlevel import RunVar

_T = TypeVar("_T")


def per_loop(make: Callable[[], _T]) -> Callable[[], _T]:
    """Turn a function that makes an object into one that returns the running loop's object.

    Args:
        make: Called once in each event loop, at the first call there; never returns None.
    """
    made: RunVar[_T] = RunVar(f"{make.__module__}.{make.__qualname__}")

    @functools.wraps(make)
    def current() -> _T:
        found = made.get(None)
        if found is None:
            found = make()
            made.set(found)
        return found

    return current
