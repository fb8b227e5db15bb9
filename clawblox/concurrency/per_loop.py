"""Objects that exist once in each event loop, created at the first use there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from anyio.lowlevel import RunVar

_T = TypeVar("_T")


def per_loop(make: Callable[[], _T]) -> Callable[[], _T]:
    """Have a factory return the same object at every call in an event loop.

    Args:
        make: Called once in each event loop, at the first call there; never returns None.
    """
    current_value: RunVar[_T] = RunVar(f"{make.__module__}.{make.__qualname__}")

    @functools.wraps(make)
    def current() -> _T:
        value = current_value.get(None)
        if value is None:
            value = make()
            current_value.set(value)
        return value

    return current
