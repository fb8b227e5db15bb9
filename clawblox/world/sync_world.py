"""World: AsyncWorld without ``await``.

Each method runs that of AsyncWorld through the portal, and has its signature, docstring and types.
World works without a ``with`` block, inside a running event loop (a notebook cell), and with
Ctrl-C. What a script leaves open is closed when the interpreter ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from clawblox.concurrency.portal import portal
from clawblox.concurrency.synchronous import (
    AsyncStream,
    Stream,
    disguised,
    streaming,
    suggesting,
    synchronous,
)
from clawblox.config.world_toml import WorldConfig
from clawblox.protocol import TickRate
from clawblox.results import Labels, StartedWorld
from clawblox.telemetry.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.telemetry.metrics import Metrics
from clawblox.world.agent_client import AsyncAgentClient
from clawblox.world.async_world import AsyncWorld
from clawblox.world.properties import WorldMetadata
from clawblox.world.sync_agent_client import AgentClient

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SELF = f"{__name__}.World"


def _opened(world: World) -> AsyncWorld:
    world.open()
    return world._world


def _sync(
    method: Callable[Concatenate[AsyncWorld, _P], Awaitable[_T]], *, returns: str | None = None
) -> Callable[Concatenate[World, _P], _T]:
    """Return the method of ``World`` that calls one of ``AsyncWorld``; see :func:`synchronous`."""
    return synchronous(method, _SELF, _opened, returns=returns)


def _join(
    method: Callable[Concatenate[AsyncWorld, _P], Awaitable[AsyncAgentClient]],
) -> Callable[Concatenate[World, _P], AgentClient]:
    """Return the method of ``World`` that joins, and wraps the client."""
    join = _sync(method)

    def call(self: World, /, *args: _P.args, **kwargs: _P.kwargs) -> AgentClient:
        return AgentClient(join(self, *args, **kwargs))

    return disguised(call, method, _SELF, "AgentClient")


def _stream(
    method: Callable[Concatenate[AsyncWorld, _P], AsyncStream[_T]], *, returns: str
) -> Callable[Concatenate[World, _P], Stream[_T]]:
    """Return the method of ``World`` that opens an async stream; see :func:`streaming`."""
    return streaming(method, _SELF, _opened, returns=returns)


class World(WorldMetadata):
    """A world directory, and the instances of it that this object started or attached.

    Leaving the optional ``with`` block, or the end of the interpreter, stops every instance
    that is not detached.

    Args:
        dir: Directory with a ``world.toml``, or the address of one in a GitHub repository,
            ``https://github.com/<owner>/<repo>/tree/<ref>/<folder>``. A repository's folder is
            downloaded when the block is entered, or when an attribute is read before that.
        run_dir: Directory of the run, for every call that takes a ``run_dir`` and is given none;
            None leaves them their own defaults.
        max_log_bytes: Size at which a log is cut to its newer half; None never cuts.

    Raises:
        ConfigError: The directory or its ``world.toml`` is missing or wrong.
        FetchError: The folder cannot be downloaded.
    """

    @suggesting
    def __init__(
        self,
        dir: str | Path,  # noqa: A002 - the documented name
        *,
        run_dir: str | Path | None = None,
        max_log_bytes: int | None = DEFAULT_LOG_BYTES,
    ) -> None:
        self._world = AsyncWorld(dir, run_dir=run_dir, max_log_bytes=max_log_bytes)
        self._is_open = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._world._summary})"

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
    def labels(self) -> dict[str, Labels]:
        """See :attr:`AsyncWorld.labels`."""
        return self._world.labels

    @property
    def tick_rates(self) -> dict[str, TickRate]:
        """See :attr:`AsyncWorld.tick_rates`."""
        return self._world.tick_rates

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
        self._close()

    def _close(self, error: BaseException | None = None) -> None:
        self._is_open = False
        portal.leave(self._world, error)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(exc)

    start = _sync(AsyncWorld.start)
    start_many = _sync(AsyncWorld.start_many)
    fork = _sync(AsyncWorld.fork)
    resume_all = _sync(AsyncWorld.resume_all)
    stop = _sync(AsyncWorld.stop)
    wait = _sync(AsyncWorld.wait)
    restart = _sync(AsyncWorld.restart)
    stop_all = _sync(AsyncWorld.stop_all)
    drain = _sync(AsyncWorld.drain)
    connect = _sync(AsyncWorld.connect)
    join = _join(AsyncWorld.join)
    leave = _sync(AsyncWorld.leave)
    save = _sync(AsyncWorld.save)
    checkpoint = _sync(AsyncWorld.checkpoint)
    remove_checkpoint = _sync(AsyncWorld.remove_checkpoint)
    save_all = _sync(AsyncWorld.save_all, returns="Batch[SavedSnapshot]")
    autosave = _sync(AsyncWorld.autosave)
    record_run = _sync(AsyncWorld.record_run)
    lineage = _sync(AsyncWorld.lineage)
    logs = _stream(AsyncWorld.logs, returns="Stream[LogLine]")
    events = _stream(AsyncWorld.events, returns="Stream[WorldEvent]")
