"""The twin of an async class: the same methods without ``await``, which use the portal."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial, update_wrapper, wraps
from types import FunctionType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, cast

import attrs

from clawblox.concurrency.portal import portal, without_portal
from clawblox.spelling import nearest_name

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_U = TypeVar("_U")
_Target = TypeVar("_Target")
_Async = TypeVar("_Async", bound=AbstractAsyncContextManager[Any])
_Twin = TypeVar("_Twin", bound="Twin[Any]")
_C = TypeVar("_C", bound=Callable[..., Any])

_UNKNOWN_ARGUMENT: Final = re.compile(r"unexpected keyword argument '(\w+)'")


def run(function: Callable[[], Awaitable[_T]]) -> _T:
    """Run ``function()`` in the portal; an error shows the caller's frames and the function's.

    Raises:
        Exception: ``function()`` raised it.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    try:
        return portal.run(function)
    except BaseException as error:
        error.__traceback__ = without_portal(error.__traceback__)
        raise


class Bridged(Generic[_T_co]):
    """A class without ``await``: its methods run the methods of an async object in the portal.

    The methods are made with :func:`synchronous` and similar functions.
    """

    def __init_subclass__(cls) -> None:
        """Set the qualified names of the copied methods to this class."""
        super().__init_subclass__()
        for name, member in vars(cls).items():
            function = getattr(member, "__func__", member)
            if isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
                function.__module__, function.__qualname__ = (
                    cls.__module__,
                    f"{cls.__qualname__}.{name}",
                )

    def _ready(self) -> _T_co:
        """Return the async object for a call."""
        raise NotImplementedError


class Twin(Bridged[_Async]):
    """A bridged class whose ``with`` block enters and leaves the block of the async object.

    Properties are read from the async object.

    Args:
        target: The async object.
    """

    def __init__(self, target: _Async) -> None:
        self._async = target
        self._is_open = False

    def __repr__(self) -> str:
        return repr(self._async).replace(type(self._async).__name__, type(self).__name__, 1)

    def _ready(self) -> _Async:
        """Return the async object for a call."""
        return self._async

    def _kill_now(self) -> None:
        """Called in the loop when leaving the block must not take any longer."""

    def _enter(self) -> None:
        if not self._is_open:
            portal.enter(self._async, self._kill_now)
            self._is_open = True

    def _leave(self, error: BaseException | None = None) -> None:
        self._is_open = False
        portal.leave(self._async, error)

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._leave(error)


class _Killable(AbstractAsyncContextManager[Any], Protocol):
    def kill_now(self) -> None: ...


_Opens = TypeVar("_Opens", bound=_Killable)


class OpenTwin(Twin[_Opens]):
    """A twin with an optional ``with`` block: opened by the first call, closed at the exit."""

    def _ready(self) -> _Opens:
        self.open()
        return self._async

    def _kill_now(self) -> None:
        self._async.kill_now()

    def open(self) -> None:
        """Open the object; other calls do this when needed.

        Raises:
            ClawbloxError: As for entering the block.
        """
        self._enter()

    def close(self) -> None:
        """Close the object, ending its operations. Idempotent.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed, and all remaining processes were killed.
        """
        self._leave()


def make_twin(kind: type[_Twin], target: AbstractAsyncContextManager[Any]) -> _Twin:
    """Return the twin of an existing async object that is not open.

    Args:
        kind: The class of the twin.
        target: The async object.
    """
    twin = kind.__new__(kind)
    Twin.__init__(twin, target)
    return twin


def unwrap(twin: Twin[_Async]) -> _Async:
    """Return the async object behind a twin, opened if the twin opens automatically."""
    return twin._ready()


def constructing(
    kind: Callable[_P, _Async],
) -> Callable[[Callable[[Any], None]], Callable[Concatenate[Twin[_Async], _P], None]]:
    """Return a decorator of a twin's constructor: it makes the async object, from its arguments.

    The body of the decorated function never runs; it exists because type checkers need a declared
    constructor.

    Args:
        kind: The async class.
    """

    def init(self: Twin[_Async], /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        target = call_as(type(self).__qualname__, kind, *args, **kwargs)
        Twin.__init__(self, target)

    return lambda _declaration: update_wrapper(init, cast(Any, kind).__init__)


class OpeningMethod(Protocol[_P]):
    """A class method of a twin, as type checkers see it."""

    def __get__(self, twin: object, kind: type[_Twin], /) -> Callable[_P, _Twin]: ...


def opening(method: Callable[_P, AbstractAsyncContextManager[Any]]) -> OpeningMethod[_P]:
    """Return a class method of a twin that calls the async class's method and returns a twin.

    Args:
        method: The class method, which returns the async object without waiting.
    """

    def call(cls: type[_Twin], /, *args: _P.args, **kwargs: _P.kwargs) -> _Twin:
        shown = f"{cls.__qualname__}.{function.__name__}"
        return make_twin(cls, call_as(shown, method, *args, **kwargs))

    function: Any = cast(Any, method).__func__
    opened: Any = classmethod(update_wrapper(cast(Any, call), function))
    return cast(OpeningMethod[_P], opened)


def synchronous(
    method: Callable[Concatenate[_Target, _P], Awaitable[_T]], *, returns: str | None = None
) -> Callable[Concatenate[Bridged[_Target], _P], _T]:
    """Return a method of a bridged class that calls an async method and waits for it.

    The new method has the name, docstring, signature and types of that method.

    Args:
        method: The method of the async class.
        returns: The return annotation; None means the annotation of ``method``.
    """
    return _bridge(method, lambda awaitable: awaitable, returns)


class Mirrored(Protocol[_T_co]):
    """A property of a twin, as type checkers see it."""

    def __get__(self, twin: Any, kind: type, /) -> _T_co: ...  # noqa: ANN401


def mirrored(getter: Callable[[Any], _T]) -> Mirrored[_T]:
    """Return a property of a twin that reads a property of the async object.

    Args:
        getter: The property, as an attribute of the class.
    """
    read = cast(property, getter).fget
    assert read is not None
    doc = f"See :attr:`{read.__qualname__}`."
    return cast(Any, property(lambda twin: getattr(twin._async, read.__name__), doc=doc))  # type: ignore[no-any-return]


def converting(
    method: Callable[Concatenate[_Target, _P], Awaitable[_T]],
    convert: Callable[[_T], _U],
    *,
    returns: str,
) -> Callable[Concatenate[Bridged[_Target], _P], _U]:
    """Return a method of a bridged class that converts the result of an async method."""

    async def finish(awaitable: Awaitable[_T]) -> _U:
        return convert(await awaitable)

    return _bridge(method, finish, returns)


def immediate(
    method: Callable[Concatenate[_Target, _P], _T],
) -> Callable[Concatenate[Bridged[_Target], _P], _T]:
    """Return a method of a bridged class that calls a non-waiting method in the loop."""

    async def finish(value: _T) -> _T:
        return value

    return _bridge(method, finish, None)


def streaming(
    method: Callable[Concatenate[_Target, _P], AsyncStream[_T]], *, returns: str
) -> Callable[Concatenate[Bridged[_Target], _P], Stream[_T]]:
    """Return a method of a bridged class that opens an async stream."""

    async def finish(source: AsyncStream[_T]) -> Stream[_T]:
        return Stream(source)

    return _bridge(method, finish, returns)


def _bridge(
    method: Callable[Concatenate[_Target, _P], _T],
    finish: Callable[[_T], Awaitable[_U]],
    returns: str | None,
) -> Callable[Concatenate[Bridged[_Target], _P], _U]:
    def call(self: Bridged[_Target], /, *args: _P.args, **kwargs: _P.kwargs) -> _U:
        shown = call.__qualname__
        operation = _Operation(shown, method, self._ready(), args, kwargs, finish)
        del args, kwargs  # tracebacks may print local variables, which may be secrets
        return run(operation)

    update_wrapper(call, method)
    if returns is not None:
        signature = inspect.signature(method).replace(return_annotation=returns)
        call.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    return call


@attrs.frozen
class _Operation(Generic[_T]):
    """A call of a method whose representation hides the arguments."""

    _shown: str
    _method: Callable[..., Any]
    _target: object
    _args: tuple[Any, ...] = attrs.field(repr=False)
    _kwargs: dict[str, Any] = attrs.field(repr=False)
    _finish: Callable[[Any], Awaitable[_T]]

    def __call__(self) -> Awaitable[_T]:
        result = call_as(self._shown, self._method, self._target, *self._args, **self._kwargs)
        return self._finish(result)


def suggesting(function: _C) -> _C:
    """Return a function whose error for an unknown argument suggests the nearest name."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the arguments of the function
        return call_as(function.__qualname__, function, *args, **kwargs)

    return cast(_C, call)


def call_as(shown: str, function: Callable[..., _T], /, *args: Any, **kwargs: Any) -> _T:
    """Call a function; an error about its arguments uses the name that its caller used.

    Args:
        shown: Qualified name that the caller used.
        function: The function.
        *args: Positional arguments.
        **kwargs: Keyword arguments.

    Raises:
        TypeError: The function takes other arguments.
    """
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        text, name = str(error), function.__qualname__
        if isinstance(function, type):
            name = cast(Any, function).__init__.__qualname__  # a base class may define it
            shown = f"{shown}.__init__"
        if not text.startswith(f"{name}() "):
            raise
    text = f"{shown}{text.removeprefix(name)}"
    unknown = _UNKNOWN_ARGUMENT.search(text)
    likely = unknown and nearest_name(unknown[1], inspect.signature(function).parameters)
    if likely and "Did you mean" not in text:  # Python 3.13 itself suggests the name
        text = f"{text}. Did you mean {likely!r}?"
    raise TypeError(text)


class AsyncStream(Protocol[_T_co]):
    """An async iterator that can be closed, for example a LogReader or an EventStream."""

    def __aiter__(self) -> AsyncIterator[_T_co]: ...

    async def __aexit__(self, *_: object) -> None: ...


class Stream(Generic[_T]):
    """An iterator over an async stream; also a context manager, which closes it early."""

    def __init__(self, source: AsyncStream[_T]) -> None:
        self._source = source
        self._iterator = aiter(source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        run(partial(self._source.__aexit__, *exc_info))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        try:
            return run(self._next)
        except StopAsyncIteration:
            raise StopIteration from None

    async def _next(self) -> _T:
        return await anext(self._iterator)
