"""Async twins of functions that block: the same call in a worker thread, which can be cancelled.

A twin takes its signature and its documentation from the function. A cancellation makes the
progress hook raise, and the function ends there.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import anyio
import anyio.lowlevel
import attrs

from clawblox.checkpoint.progress import Report
from clawblox.concurrency.tasks import in_own_task
from clawblox.concurrency.threads import run_blocking

__all__ = ["async_twin", "run_interruptible"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_BLOCKS: Final = " Blocks."


def async_twin(
    function: Callable[_P, _T], *, cancellation: str
) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return the async twin of a function; it is called ``async_`` and the function's name.

    Args:
        function: A function that blocks and takes ``progress``, a hook or None, by keyword.
        cancellation: What a cancelled call leaves behind, for the documentation.
    """

    @functools.wraps(function)
    async def twin(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        call = _Call(function, args, kwargs)
        del args, kwargs  # the locals in a traceback may be printed, and they may be secrets
        return await run_interruptible(call.run, call.progress)

    first, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n")
    twin.__doc__ = "\n\n".join(
        (
            first.removesuffix(_BLOCKS),
            "``progress`` is called in a worker thread.",
            rest.strip(),
            f"Cancellation: {cancellation}",
        )
    )
    twin.__name__ = f"async_{function.__name__}"
    twin.__qualname__ = twin.__name__
    return twin


@attrs.frozen
class _Call:
    _function: Callable[..., Any]
    _args: tuple[Any, ...] = attrs.field(repr=False)
    _kwargs: dict[str, Any] = attrs.field(repr=False)

    @property
    def progress(self) -> Report | None:
        return self._kwargs.get("progress")

    def run(self, hook: Report) -> Any:  # noqa: ANN401 - what the function returns
        return self._function(*self._args, **{**self._kwargs, "progress": hook})


class _Interrupted(Exception):  # noqa: N818 - says the condition; it never leaves this module
    """The caller does not wait for the operation any more."""


async def run_interruptible(function: Callable[[Report], _T], report: Report | None) -> _T:
    """Run ``function(hook)`` in a worker thread; a cancellation makes the hook raise.

    Args:
        function: What blocks; it calls the hook with bytes done and bytes in all.
        report: Takes what the hook is called with, in the worker thread; None for nothing.

    Raises:
        Exception: What the function raised.

    Cancellation: waits for the function, which ends as soon as it calls the hook.
    """
    # A task of its own: asyncio's Task.cancel would leave the thread at work behind.
    return await in_own_task(partial(_run_interruptible, function, report))


async def _run_interruptible(function: Callable[[Report], _T], report: Report | None) -> _T:
    is_abandoned = threading.Event()
    outcome: Future[_T] = Future()

    def hook(done: int, total: int) -> None:
        if is_abandoned.is_set():
            raise _Interrupted
        if report is not None:
            report(done, total)

    async def abandon_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            is_abandoned.set()

    def run() -> None:
        # What it raises must not come out in the exception group of the tasks.
        try:
            outcome.set_result(function(hook))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            outcome.set_exception(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(abandon_when_cancelled)
        try:
            await run_blocking(run)
        finally:
            tasks.cancel_scope.cancel()
    await anyio.lowlevel.checkpoint_if_cancelled()
    return outcome.result()
