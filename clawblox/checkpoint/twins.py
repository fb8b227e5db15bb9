"""Async twins of blocking functions: the same call in a worker thread, with cancellation.

A twin has the signature and the documentation of its function. A cancellation makes the progress
hook raise, and so ends the function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

import attrs

from clawblox.concurrency.progress import ProgressLike, Report, run_with_progress
from clawblox.config.arguments import check_progress

_P = ParamSpec("_P")
_T = TypeVar("_T")

_BLOCKS: Final = " Blocks."


def async_twin(
    function: Callable[_P, _T], *, verb: str, cancellation: str
) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Return the async twin of a function; its name has the prefix ``async_``.

    Args:
        function: A blocking function with the keyword ``progress``.
        verb: The action, for a line of progress: ``Saving``.
        cancellation: Text for the documentation: the effect of a cancelled call.
    """

    @functools.wraps(function)
    async def twin(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        call = _Call(function, args, kwargs)
        del args, kwargs  # a traceback may print locals, and these may be secrets
        return await run_with_progress(call.run, call.progress, verb)

    first, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n")
    twin.__doc__ = "\n\n".join(
        (
            first.removesuffix(_BLOCKS),
            "A function as ``progress`` is called in a worker thread.",
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
    def progress(self) -> ProgressLike:
        return check_progress(self._kwargs.get("progress", False), "progress")

    def run(self, hook: Report) -> Any:  # noqa: ANN401 - the function's result
        return self._function(*self._args, **{**self._kwargs, "progress": hook})
