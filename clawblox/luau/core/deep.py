"""Runs code on a thread whose stack is large enough for Luau's recursion.

Luau calls are Python calls, and some also use C stack. On an ordinary thread, recursion would
exhaust the stack and kill the process. The stack of a deep thread has 512 MB of address space,
allocated as needed, and its recursion limit raises ``RecursionError`` long before the stack is
full.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

STACK_BYTES = 512 << 20
MAX_CALLS = 19_999  # as in the reference, the main function included
_STARTING_CALLS = 8  # of Python itself, below the main function
COUNTS_C_CALLS = sys.version_info < (3, 12)  # whether calls from C count like Python calls
HEADROOM = 200  # calls available for error handling on a full stack
_LOOK_S = 1.0
_PROBE_CALLS = 3_000
_PROBE_LIMIT = 500
_lock = threading.Lock()
_local = threading.local()
_active = 0
_usual_limit = 0
_is_defective: bool | None = None


def is_deep() -> bool:
    """Return whether this thread was started by `run_deep`."""
    return getattr(_local, "is_deep", False)


def run_deep(function: Callable[[], Result], interrupt: Callable[[], None] | None = None) -> Result:
    """Run a function on a deep thread, or directly if this thread is deep; return its result.

    Args:
        function: The function.
        interrupt: Called when an exception, such as KeyboardInterrupt, is raised in the waiting
            thread, to make the function end; None to wait for the function.

    Raises:
        BaseException: An exception from the function, or from the waiting thread, raised after the
            function has ended.
    """
    if is_deep():
        return function()
    outcome: list[Any] = []
    waker = threading.Lock()
    waker.acquire()

    def run() -> None:
        _raise_limit()
        _local.is_deep = True
        try:
            outcome.extend((function(), None))
        except BaseException as error:  # noqa: BLE001 - raised in the waiting thread
            outcome.extend((None, error))
        finally:
            _lower_limit()
            waker.release()

    with _lock:
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="luau", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    interruption = _wait(outcome, waker, interrupt)
    thread.join()
    if interruption is not None:
        raise interruption
    result, error = outcome
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _wait(
    outcome: list[Any], waker: threading.Lock, interrupt: Callable[[], None] | None
) -> BaseException | None:
    """Wait for an outcome; return the exception raised in this thread meanwhile, or None.

    It waits for a lock, because an exception within ``Thread.join`` makes the thread look ended,
    and an exception within ``Event.wait`` can turn into a ``RuntimeError``. A signal at the start
    of the wait is handled after up to a second.
    """
    interruption = None
    while not outcome:
        try:
            waker.acquire(timeout=_LOOK_S)
        except BaseException as error:  # noqa: BLE001 - raised when the thread has ended
            interruption = error
            if interrupt is not None:
                interrupt()
    return interruption


def _raise_limit() -> None:
    global _active, _usual_limit, _is_defective
    with _lock:
        if _is_defective is None:
            _is_defective = _probe()
        if not _active:
            _usual_limit = sys.getrecursionlimit()
            sys.setrecursionlimit(call_limit())
        _active += 1


def _lower_limit() -> None:
    global _active
    with _lock:
        _active -= 1
        if not _active and sys.getrecursionlimit() - call_limit() in (0, HEADROOM):
            sys.setrecursionlimit(_usual_limit)


def call_limit() -> int:
    """Return the recursion limit while scripts run.

    If the interpreter misses some recursion, the limit is only a safety net.
    """
    return max(_usual_limit, MAX_CALLS + (HEADROOM if _is_defective else _STARTING_CALLS))


def recursion_is_unchecked() -> bool:
    """Return whether this interpreter misses some recursion (CPython 3.13.0 to 3.13.7 do).

    An experiment, run before the first use of a deep thread, determines the result.

    Raises:
        RuntimeError: A thread cannot be started.
    """
    if _is_defective is None:
        run_deep(lambda: None)
    return bool(_is_defective)


def _probe() -> bool:
    calls = 0

    def dive(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls < _PROBE_CALLS:
            dive(None)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_PROBE_LIMIT)
    try:
        dive()
    except RecursionError:
        return False
    finally:
        sys.setrecursionlimit(limit)
    return True
