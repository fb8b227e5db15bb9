"""Waiting for conditions, without sleeping for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import anyio

POLL_INTERVAL_S = 0.005
HANG_S = 120.0
"""Seconds after which a wait counts as a hang; no test measures time with it."""
T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = HANG_S, what: str = "") -> T:
    """Poll a condition until it is true; return its value, or fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or condition}"
        time.sleep(POLL_INTERVAL_S)
    return value


async def wait_until_async(
    condition: Callable[[], T], timeout: float = HANG_S, what: str = ""
) -> T:
    """Wait like :func:`wait_until`, but let other tasks run."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what or condition}"
        await anyio.sleep(POLL_INTERVAL_S)
    return value
