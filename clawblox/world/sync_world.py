"""World: the sync facade. Every method is one call of AsyncWorld's, through the portal.

It works without a ``with`` block, inside a running event loop (a notebook cell), and with
Ctrl-C. What a script leaves open is closed when the interpreter ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from clawblox.concurrency.batch import Batch
from clawblox.config.options import (
    DEFAULT_KEEP,
    DEFAULT_MAX_RESTARTS,
    DEFAULT_SAVE_TIMEOUT_S,
    DEFAULT_WINDOW_S,
    InstanceSpec,
)
from clawblox.config.world_toml import WorldConfig
from clawblox.instance.supervisor import DEFAULT_GRACE_S
from clawblox.protocol import API_ROUTE
from clawblox.results import (
    LogLine,
    RestartMode,
    SavedSnapshot,
    SnapshotLike,
    StartedWorld,
    StopResult,
    WorldEvent,
)
from clawblox.rundir.manifest_updates import RunStatus
from clawblox.snapshot.capture import DEFAULT_MAX_BYTES as DEFAULT_SNAPSHOT_BYTES
from clawblox.telemetry.logs import DEFAULT_MAX_BYTES as DEFAULT_LOG_BYTES
from clawblox.telemetry.metrics import Metrics
from clawblox.world.access import AgentLike
from clawblox.world.async_world import AsyncWorld, OnFailure
from clawblox.world.portal import portal
from clawblox.world.properties import WorldMetadata

__all__ = ["Stream", "World"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


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
        portal.run(partial(self._source.__aexit__, exc_type, exc, traceback))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        try:
            return portal.run(self._next)
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
        """Make ready for calls; each of them does it when it is needed."""
        if not self._is_open:
            portal.enter(self._world, self._world._hurry)
            self._is_open = True

    def close(self) -> None:
        """Stop every instance that is not detached; a second call does nothing."""
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

    def _run(self, method: Callable[..., Awaitable[_T]], *args: object, **options: object) -> _T:
        self.open()
        return portal.run(partial(method, *args, **options))

    def start(
        self,
        *,
        port: int | None = None,
        record: bool = False,
        record_dir: str | Path | None = None,
        resume: SnapshotLike | None = None,
        host: str = "127.0.0.1",
        base_path: str = "",
        run_dir: str | Path | None = None,
        name: str | None = None,
        health_timeout: float = 60.0,
        port_wait: float = 0.0,
        command_file: str | Path | None = None,
        log_file: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_WINDOW_S,
        _tmux_session: str | None = None,
    ) -> StartedWorld:
        """Start an instance and return when it is ready; see :meth:`AsyncWorld.start`."""
        return self._run(
            self._world.start,
            port=port,
            record=record,
            record_dir=record_dir,
            resume=resume,
            host=host,
            base_path=base_path,
            run_dir=run_dir,
            name=name,
            health_timeout=health_timeout,
            port_wait=port_wait,
            command_file=command_file,
            log_file=log_file,
            env=env,
            detach=detach,
            restart=restart,
            max_restarts=max_restarts,
            restart_window=restart_window,
            _tmux_session=_tmux_session,
        )

    def start_many(
        self,
        instances: int | Sequence[InstanceSpec | Mapping[str, Any]],
        *,
        run_dir: str | Path | None = None,
        record: bool = False,
        resume: SnapshotLike | None = None,
        env: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        base_path: str = "",
        health_timeout: float = 60.0,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_WINDOW_S,
        on_failure: OnFailure = "keep",
    ) -> Batch[StartedWorld]:
        """Start many instances at once; see :meth:`AsyncWorld.start_many`."""
        return self._run(
            self._world.start_many,
            instances,
            run_dir=run_dir,
            record=record,
            resume=resume,
            env=env,
            host=host,
            base_path=base_path,
            health_timeout=health_timeout,
            detach=detach,
            restart=restart,
            max_restarts=max_restarts,
            restart_window=restart_window,
            on_failure=on_failure,
        )

    def fork(
        self,
        checkpoint: SnapshotLike,
        count: int = 1,
        *,
        run_dir: str | Path | None = None,
        reseed: int | None = None,
        record: bool = False,
        env: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        base_path: str = "",
        health_timeout: float = 60.0,
        detach: bool = False,
        restart: RestartMode = "never",
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_WINDOW_S,
        on_failure: OnFailure = "keep",
    ) -> Batch[StartedWorld]:
        """Start instances that go on from one snapshot; see :meth:`AsyncWorld.fork`."""
        return self._run(
            self._world.fork,
            checkpoint,
            count,
            run_dir=run_dir,
            record=record,
            reseed=reseed,
            env=env,
            host=host,
            base_path=base_path,
            health_timeout=health_timeout,
            detach=detach,
            restart=restart,
            max_restarts=max_restarts,
            restart_window=restart_window,
            on_failure=on_failure,
        )

    def stop(
        self, *, grace_seconds: float = DEFAULT_GRACE_S, instance: str | None = None
    ) -> StopResult:
        """Stop an instance, or do nothing; see :meth:`AsyncWorld.stop`."""
        return self._run(self._world.stop, grace_seconds=grace_seconds, instance=instance)

    def stop_all(self, *, grace_seconds: float = DEFAULT_GRACE_S) -> Batch[StopResult]:
        """Stop every instance, all at once; see :meth:`AsyncWorld.stop_all`."""
        return self._run(self._world.stop_all, grace_seconds=grace_seconds)

    def drain(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        grace_seconds: float = DEFAULT_GRACE_S,
    ) -> Batch[SavedSnapshot]:
        """Save every instance, then stop it; see :meth:`AsyncWorld.drain`."""
        return self._run(self._world.drain, dir=dir, timeout=timeout, grace_seconds=grace_seconds)

    def connect(
        self, agent: str | AgentLike, *, instance: str | None = None, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Give an agent access to an instance; see :meth:`AsyncWorld.connect`."""
        return self._run(self._world.connect, agent, instance=instance, timeout=timeout)

    def api_path(self, *, path: str = API_ROUTE, access: Mapping[str, Any]) -> str:
        """Return the address of a document or route; see :meth:`AsyncWorld.api_path`."""
        return self._world.api_path(path=path, access=access)

    def leave(
        self, access: Mapping[str, Any], *, instance: str | None = None, timeout: float = 30.0
    ) -> None:
        """Take an agent out of an instance; see :meth:`AsyncWorld.leave`."""
        return self._run(self._world.leave, access, instance=instance, timeout=timeout)

    def save(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        instance: str | None = None,
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    ) -> SavedSnapshot:
        """Save a snapshot of an instance; see :meth:`AsyncWorld.save`."""
        return self._run(
            self._world.save, dir=dir, instance=instance, timeout=timeout, max_bytes=max_bytes
        )

    def save_all(
        self,
        *,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
        instances: Iterable[str] | None = None,
        timeout: float = DEFAULT_SAVE_TIMEOUT_S,
        max_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    ) -> Batch[SavedSnapshot]:
        """Save snapshots of many instances at once; see :meth:`AsyncWorld.save_all`."""
        return self._run(
            self._world.save_all,
            dir=dir,
            instances=instances,
            timeout=timeout,
            max_bytes=max_bytes,
        )

    def autosave(
        self,
        *,
        every: float | None,
        keep: int = DEFAULT_KEEP,
        dir: str | Path | None = None,  # noqa: A002 - the documented name
    ) -> None:
        """Save every instance again and again; see :meth:`AsyncWorld.autosave`."""
        return self._run(self._world.autosave, every=every, keep=keep, dir=dir)

    def record_run(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the documented name
        index: int | None = None,
        status: RunStatus | None = None,
        started_at: datetime | str | None = None,
        ended_at: datetime | str | None = None,
        resume_from: str | Path | Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        """Label a run in its manifest; see :meth:`AsyncWorld.record_run`."""
        return self._run(
            self._world.record_run,
            id=id,
            index=index,
            status=status,
            started_at=started_at,
            ended_at=ended_at,
            resume_from=resume_from,
            run_dir=run_dir,
        )

    def logs(
        self, *, instance: str | None = None, follow: bool = False, tail: int | None = None
    ) -> Stream[LogLine]:
        """Return the lines of an instance's log; see :meth:`AsyncWorld.logs`."""
        return self._stream(self._world.logs, instance=instance, follow=follow, tail=tail)

    def events(self) -> Stream[WorldEvent]:
        """Return the events from now on; see :meth:`AsyncWorld.events`."""
        return self._stream(self._world.events)

    def _stream(self, method: Callable[..., _Source[_T]], **options: object) -> Stream[_T]:
        self.open()

        async def subscribe() -> Stream[_T]:
            return Stream(method(**options))

        return portal.run(subscribe)
