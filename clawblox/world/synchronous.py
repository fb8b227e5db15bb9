"""Turns the methods of an async class into those of its sync twin, which uses the portal."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from clawblox.world.portal import portal, without_portal

__all__ = ["disguised", "run", "synchronous"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Sync = TypeVar("_Sync")
_Async = TypeVar("_Async")
_C = TypeVar("_C", bound=Callable[..., Any])


def run(function: Callable[[], Awaitable[_T]]) -> _T:
    """Run ``function()`` in the portal; an error shows the caller's frames and the function's.

    Raises:
        Exception: Whatever ``function()`` raises.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    try:
        return portal.run(function)
    except BaseException as error:
        error.__traceback__ = without_portal(error.__traceback__)
        raise


def synchronous(
    method: Callable[Concatenate[_Async, _P], Awaitable[_T]],
    owner: str,
    find_twin: Callable[[_Sync], _Async],
    *,
    returns: str | None = None,
) -> Callable[Concatenate[_Sync, _P], _T]:
    """Return the sync method that calls an async one and waits for it.

    Args:
        method: The method of the async class, with the signature, docstring and types to copy.
        owner: Full name of the sync class.
        find_twin: Returns the async object behind a sync one.
        returns: The return annotation; None means that of ``method``.
    """

    def call(self: _Sync, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return run(partial(method, find_twin(self), *args, **kwargs))

    return disguised(call, method, owner, returns)


def disguised(call: _C, method: Callable[..., Any], owner: str, returns: str | None) -> _C:
    """Give ``call`` the name, docstring and signature of ``method``, as a method of ``owner``."""
    update_wrapper(call, method)
    call.__module__, _, class_name = owner.rpartition(".")
    call.__qualname__ = f"{class_name}.{method.__name__}"
    if returns is not None:
        signature = inspect.signature(method).replace(return_annotation=returns)
        call.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    return call
