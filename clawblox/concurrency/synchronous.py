"""Turns the methods of an async class into those of its sync twin, which uses the portal."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial, update_wrapper, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, cast

import attrs

from clawblox.concurrency.portal import portal, without_portal
from clawblox.spelling import nearest_name

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_Sync = TypeVar("_Sync")
_Async = TypeVar("_Async")
_C = TypeVar("_C", bound=Callable[..., Any])

_UNKNOWN_ARGUMENT: Final = re.compile(r"unexpected keyword argument '(\w+)'")


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
    shown = _name_in(owner, method)

    def call(self: _Sync, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        operation = _Operation(method, shown, find_twin(self), args, kwargs)
        del args, kwargs  # the locals in a traceback may be printed, and they may be secrets
        return run(operation)

    return disguised(call, method, owner, returns)


@attrs.frozen
class _Operation(Generic[_T]):
    """A call of an async method; it does not show its arguments."""

    _method: Callable[..., Awaitable[_T]]
    _shown: str
    _twin: object
    _args: tuple[Any, ...] = attrs.field(repr=False)
    _kwargs: dict[str, Any] = attrs.field(repr=False)

    def __call__(self) -> Awaitable[_T]:
        return call_as(self._shown, self._method, self._twin, *self._args, **self._kwargs)


def suggesting(function: _C) -> _C:
    """Return a function whose error for an unknown argument names the nearest one."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as those of the function
        return call_as(function.__qualname__, function, *args, **kwargs)

    return cast(_C, call)


def call_as(shown: str, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:  # noqa: ANN401
    """Call a function; an error of its arguments names it as its caller did.

    Args:
        shown: Qualified name that the caller used.
        function: The function.
        *args: Its positional arguments.
        **kwargs: Its keyword arguments.

    Raises:
        TypeError: The function takes other arguments.
    """
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        text, name = str(error), function.__qualname__
        if isinstance(function, type):
            name, shown = f"{name}.__init__", f"{shown}.__init__"
        if not text.startswith(f"{name}() "):
            raise
    text = f"{shown}{text.removeprefix(name)}"
    unknown = _UNKNOWN_ARGUMENT.search(text)
    likely = unknown and nearest_name(unknown[1], inspect.signature(function).parameters)
    if likely and "Did you mean" not in text:  # Python 3.13 asks that itself
        text = f"{text}. Did you mean {likely!r}?"
    raise TypeError(text)


def disguised(call: _C, method: Callable[..., Any], owner: str, returns: str | None) -> _C:
    """Give ``call`` the name, docstring and signature of ``method``, as a method of ``owner``."""
    update_wrapper(call, method)
    call.__module__, call.__qualname__ = owner.rpartition(".")[0], _name_in(owner, method)
    if returns is not None:
        signature = inspect.signature(method).replace(return_annotation=returns)
        call.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    return call


def _name_in(owner: str, method: Callable[..., Any]) -> str:
    """Return the qualified name of a method in the class with the full name ``owner``."""
    return f"{owner.rpartition('.')[2]}.{method.__name__}"


def streaming(
    method: Callable[Concatenate[_Async, _P], AsyncStream[_T]],
    owner: str,
    find_twin: Callable[[_Sync], _Async],
    *,
    returns: str,
) -> Callable[Concatenate[_Sync, _P], Stream[_T]]:
    """Return the sync method that opens an async stream; see :func:`synchronous`."""
    shown = _name_in(owner, method)

    def call(self: _Sync, /, *args: _P.args, **kwargs: _P.kwargs) -> Stream[_T]:
        twin = find_twin(self)

        async def subscribe() -> Stream[_T]:
            return Stream(call_as(shown, method, twin, *args, **kwargs))

        return run(subscribe)

    return disguised(call, method, owner, returns)


class AsyncStream(Protocol[_T_co]):
    """An async iterator that can be closed, for example a LogReader or an EventStream."""

    def __aiter__(self) -> AsyncIterator[_T_co]: ...

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


class Stream(Generic[_T]):
    """An iterator over an async stream; also a context manager, which closes it early."""

    def __init__(self, source: AsyncStream[_T]) -> None:
        self._source = source
        self._iterator = aiter(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run(partial(self._source.__aexit__, exc_type, exc, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        try:
            return run(self._next)
        except StopAsyncIteration:
            raise StopIteration from None

    async def _next(self) -> _T:
        return await anext(self._iterator)
