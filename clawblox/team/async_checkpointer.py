"""Checkpoints of a running world and its agents, at an interval.

``idle_moments`` finds the moment of each; this module owns the interval, the pointer to the latest
archive, and the removal of older archives.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

import anyio

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.agent_arguments import Agents
from clawblox.config.arguments import check_count, check_path, check_seconds, check_size
from clawblox.errors import ClawbloxError, UsageError
from clawblox.results import SavedCheckpoint
from clawblox.system.amounts import format_bytes
from clawblox.system.files import available_bytes
from clawblox.team.idle_moments import check_agents, idle_moment, remove_archive, save_now
from clawblox.team.pointer import POINTER_NAME, write_pointer
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.async_world import AsyncWorld

DEFAULT_EVERY_S: Final = 900.0
DEFAULT_IDLE_QUIET_S: Final = 5.0
DEFAULT_CHECKPOINTER_IDLE_WAIT_S: Final = 60.0
"""Longer than for a single save: a checkpointer works unattended, and no caller waits for it."""

_log = OwnLog(__name__)


Outcome: TypeAlias = Callable[[SavedCheckpoint | Exception], object]
"""Called with each checkpoint made at the interval, or with the error."""


class AsyncCheckpointer:
    """Makes archives of a world and its agents while both run.

    Use it as an async context manager, or call :meth:`run` in a task. The archives are called
    ``t000900.ckpt``, after the age of the run in seconds.

    Args:
        world: The world, open.
        agents: Its agents, or their directories by name.
        dir: Directory for the archives; it is created if it is missing.
        every: Seconds from the beginning of one checkpoint to that of the next.
        idle_quiet: Seconds without output after which an agent that does not report its state may
            be between two turns.
        idle_wait: Seconds to wait for a moment in which no agent is in the middle of a turn.
        keep: Number of this object's archives to keep; None keeps all.
        min_free: Free disk space below which no checkpoint is made at the interval, in
            bytes or as text such as ``"5 GB"``; None for no limit.
        metadata: JSON values for the top level of the archives' metadata; None for none.
        instance: Name of the instance; not needed while there is only one.
        pointer: The file that names the latest archive; None means ``checkpoint.json`` in ``dir``.
        elapsed: Seconds that the run had lasted before it was resumed.
        on_outcome: Called with each checkpoint made at the interval, or with the error; None
            for no calls.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        world: AsyncWorld,
        agents: Agents,
        *,
        dir: str | os.PathLike[str],  # noqa: A002 - the word of the API
        every: float = DEFAULT_EVERY_S,
        idle_quiet: float = DEFAULT_IDLE_QUIET_S,
        idle_wait: float = DEFAULT_CHECKPOINTER_IDLE_WAIT_S,
        keep: int | None = None,
        min_free: int | str | None = None,
        metadata: Mapping[str, Any] | None = None,
        instance: str | None = None,
        pointer: str | os.PathLike[str] | None = None,
        elapsed: float = 0.0,
        on_outcome: Outcome | None = None,
    ) -> None:
        self._world = world
        self._agents = check_agents(agents)
        self._dir = check_path(dir, "dir").absolute()
        self._every_s = check_seconds(every, "every")
        self._idle_quiet_s = check_seconds(idle_quiet, "idle_quiet", may_be_zero=True)
        self._idle_wait_s = check_seconds(idle_wait, "idle_wait", may_be_zero=True)
        self._keep = None if keep is None else check_count(keep, "keep")
        self._min_free = None if min_free is None else check_size(min_free, "min_free")
        self._metadata = dict(metadata or {})
        self._instance = instance
        default = self._dir / POINTER_NAME
        self._pointer = default if pointer is None else check_path(pointer, "pointer").absolute()
        self._elapsed_s = check_seconds(elapsed, "elapsed", may_be_zero=True)
        self._on_outcome = on_outcome
        self._begun_at: float | None = None
        self._saving = anyio.Lock()
        self._archives: list[Path] = []
        self._latest: SavedCheckpoint | None = None
        self._tasks: Tasks | None = None

    @property
    def latest(self) -> SavedCheckpoint | None:
        """The latest checkpoint; None before the first."""
        return self._latest

    async def __aenter__(self) -> Self:
        self._begin()
        self._tasks = Tasks()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run_in_block)
        return self

    async def __aexit__(self, *exc_info: Any) -> bool | None:
        tasks, self._tasks = self._tasks, None
        return None if tasks is None else await tasks.__aexit__(*exc_info)

    async def run(self) -> None:
        """Make checkpoints until the instance has ended permanently.

        A checkpoint that fails is logged, and the next one follows as usual.

        Raises:
            UsageError: The instance does not exist, or several run and none was named.

        Cancellation: an archive in progress is complete or absent.
        """
        self._begin()
        async with Tasks() as tasks:
            tasks.start_soon(self._save_repeatedly)
            await self._world.wait(self._instance)

    async def _run_in_block(self) -> None:
        with contextlib.suppress(UsageError):  # the world was closed within the block
            await self.run()

    async def save(self, *, idle_wait: float | None = None) -> SavedCheckpoint:
        """Make a checkpoint now, after waiting for an idle moment.

        Args:
            idle_wait: Maximum wait for that moment, in seconds; None means that of the constructor.

        Returns:
            The checkpoint.

        Raises:
            ConfigError: ``idle_wait`` is not a number of seconds, 0 or more.
            UsageError: The instance does not exist, or several run and none was named.
            ClawbloxError: The checkpoint failed, as in ``AsyncWorld.checkpoint``; or it is
                complete, but the pointer could not be updated.

        Cancellation: the archive is complete or absent, and the pointer names an existing archive.
        """
        wait_s = self._idle_wait_s
        if idle_wait is not None:
            wait_s = check_seconds(idle_wait, "idle_wait", may_be_zero=True)
        self._begin()
        async with self._saving:
            async with idle_moment(self._agents, quiet_s=self._idle_quiet_s, wait_s=wait_s):
                saved = await self._save()
            await self._retain()
            return saved

    def _begin(self) -> None:
        """Find the instance, and start counting the seconds."""
        if self._begun_at is not None:
            return
        names = self._world.instances
        if self._instance is None and len(names) != 1:
            message = f"a checkpointer needs one instance; there are {len(names)}"
            raise UsageError(message, hint="start the world first, or name one with instance=")
        self._instance = self._instance or names[0]
        self._begun_at = anyio.current_time()

    async def _save_repeatedly(self) -> None:
        next_at = anyio.current_time() + self._every_s
        while True:
            await anyio.sleep(max(0.0, next_at - anyio.current_time()))
            next_at = anyio.current_time() + self._every_s
            try:
                await run_blocking(self._require_space)
                outcome: SavedCheckpoint | Exception = await self.save()
            except Exception as error:  # noqa: BLE001 - a run continues without a checkpoint
                _log.warning("no checkpoint", instance=self._instance, error=str(error))
                outcome = error
            if self._on_outcome is not None:
                self._on_outcome(outcome)

    def _require_space(self) -> None:
        if self._min_free is None:
            return
        place = next(path for path in (self._dir, *self._dir.parents) if path.is_dir())
        free = available_bytes(place)
        if free < self._min_free:
            raise ClawbloxError(
                f"only {format_bytes(free)} are free in {place}, and min_free is "
                f"{format_bytes(self._min_free)}",
                hint="make room; checkpoints continue when there is enough",
            )

    async def _save(self) -> SavedCheckpoint:
        assert self._begun_at is not None
        elapsed_s = int(self._elapsed_s + anyio.current_time() - self._begun_at)
        facts = {**self._metadata, "elapsed_seconds": elapsed_s}
        saved = await save_now(
            self._world,
            self._agents,
            self._dir,
            f"t{elapsed_s:06}",
            instance=self._instance,
            metadata=facts,
        )
        self._archives.append(saved.path)
        self._latest = saved
        await run_blocking(self._point, saved.path, facts)
        return saved

    def _point(self, path: Path, facts: Mapping[str, Any]) -> None:
        try:
            write_pointer(self._pointer, path, facts)
        except OSError as error:
            message = f"{path} is complete, but {self._pointer} does not name it: {error.strerror}"
            raise ClawbloxError(message) from error

    async def _retain(self) -> None:
        """Remove the oldest archives, after the pointer names the latest."""
        if self._keep is None:
            return
        while len(self._archives) > self._keep:
            await remove_archive(self._world, self._archives[0], self._instance)
            del self._archives[0]
