"""World: AsyncWorld without ``await``.

Each method runs that of AsyncWorld through the portal, and has its signature, docstring and types.
World works without a ``with`` block, inside a running event loop (a notebook cell), and with
Ctrl-C. What a script leaves open is closed when the interpreter ends.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial, update_wrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from clawblox.config.world_toml import WorldConfig
from clawblox.results import StartedWorld
from clawblox.telemetry.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.telemetry.metrics import Metrics
from clawblox.world.async_world import AsyncWorld
from clawblox.world.portal import portal, without_portal
from clawblox.world.properties import WorldMetadata

__all__ = ["Stream", "World"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


def _run(function: Callable[[], Awaitable[_T]]) -> _T:
    """Run ``function()`` in the portal; an error shows the caller's frames and the function's."""
    try:
        return portal.run(function)
    except BaseException as error:
        error.__traceback__ = without_portal(error.__traceback__)
        raise


def _sync(
    method: Callable[Concatenate[AsyncWorld, _P], Awaitable[_T]], *, returns: str | None = None
) -> Callable[Concatenate[World, _P], _T]:
    """Return the method that calls an async one and waits for it.

    Args:
        method: The method of ``AsyncWorld``, with the signature, docstring and types to copy.
        returns: The return annotation; None means that of ``method``.
    """

    def call(self: World, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        self.open()
        return _run(partial(method, self._world, *args, **kwargs))

    return _disguised(call, method, returns)


def _stream(
    method: Callable[Concatenate[AsyncWorld, _P], _Source[_T]], *, returns: str
) -> Callable[Concatenate[World, _P], Stream[_T]]:
    """Return the method that opens an async stream; see :func:`_sync`."""

    def call(self: World, /, *args: _P.args, **kwargs: _P.kwargs) -> Stream[_T]:
        self.open()

        async def subscribe() -> Stream[_T]:
            return Stream(method(self._world, *args, **kwargs))

        return _run(subscribe)

    return _disguised(call, method, returns)


_C = TypeVar("_C", bound=Callable[..., Any])


def _disguised(call: _C, method: Callable[..., Any], returns: str | None) -> _C:
    """Give ``call`` the name, docstring and signature of ``method``."""
    update_wrapper(call, method)
    call.__qualname__ = f"World.{method.__name__}"
    call.__module__ = __name__
    if returns is not None:
        signature = inspect.signature(method).replace(return_annotation=returns)
        call.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    return call


class _Source(Protocol[_T_co]):
    """An async stream: LogReader or EventStream."""

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

    def __init__(self, source: _Source[_T]) -> None:
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
        _run(partial(self._source.__aexit__, exc_type, exc, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        try:
            return _run(self._next)
        except StopAsyncIteration:
            raise StopIteration from None

    async def _next(self) -> _T:
        return await anext(self._iterator)


class World(WorldMetadata):
    """A world directory, and the instances of it that this object started or attached.

    Leaving the optional ``with`` block, or the end of the interpreter, stops every instance
    that is not detached.

    Args:
        dir: Directory with a ``world.toml``, or the address of one in a GitHub repository.
        max_log_bytes: Size at which a log is cut to its newer half; None never cuts.

    Raises:
        ConfigError: The directory or its ``world.toml`` is missing or wrong.
        FetchError: The folder cannot be downloaded.
    """

    def __init__(
        self,
        dir: str | Path,  # noqa: A002 - the documented name
        *,
        max_log_bytes: int | None = DEFAULT_LOG_BYTES,
    ) -> None:
        self._world = AsyncWorld(dir, max_log_bytes=max_log_bytes)
        self._is_open = False

    @classmethod
    def attach(cls, run_dir: str | Path) -> Self:
        """See :meth:`AsyncWorld.attach`."""
        world = cls.__new__(cls)
        world._world = AsyncWorld.attach(run_dir)
        world._is_open = False
        world.open()
        return world

    @property
    def _config(self) -> WorldConfig:
        return self._world._config

    @property
    def _latest(self) -> StartedWorld | None:
        return self._world._latest

    @property
    def instances(self) -> tuple[str, ...]:
        """See :attr:`AsyncWorld.instances`."""
        return self._world.instances

    @property
    def metrics(self) -> Metrics:
        """See :attr:`AsyncWorld.metrics`."""
        return self._world.metrics

    def open(self) -> None:
        """Open the world; each call does so when needed.

        Raises:
            ConfigError: The directory or its ``world.toml`` is missing or wrong.
            FetchError: The folder cannot be downloaded.
        """
        if not self._is_open:
            portal.enter(self._world, self._world._kill_now)
            self._is_open = True

    def close(self) -> None:
        """Stop every instance that is not detached; a second call does nothing.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed: the instances were killed at once.
        """
        self._is_open = False
        portal.leave(self._world)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    start = _sync(AsyncWorld.start)
    start_many = _sync(AsyncWorld.start_many)
    fork = _sync(AsyncWorld.fork)
    stop = _sync(AsyncWorld.stop)
    restart = _sync(AsyncWorld.restart)
    stop_all = _sync(AsyncWorld.stop_all)
    drain = _sync(AsyncWorld.drain)
    connect = _sync(AsyncWorld.connect)
    leave = _sync(AsyncWorld.leave)
    save = _sync(AsyncWorld.save)
    save_all = _sync(AsyncWorld.save_all, returns="Batch[SavedSnapshot]")
    autosave = _sync(AsyncWorld.autosave)
    record_run = _sync(AsyncWorld.record_run)
    logs = _stream(AsyncWorld.logs, returns="Stream[LogLine]")
    events = _stream(AsyncWorld.events, returns="Stream[WorldEvent]")
