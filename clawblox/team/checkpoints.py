"""Checkpoints of a running world and its agents, between turns and at an interval.

Nothing is sent to the agents. A checkpoint waits for a moment in which no agent is in the middle of
a turn, and suppresses automatic continuation until it is made. If there is no such moment in time,
it is made anyway, and records which agents were in the middle of a turn.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeAlias, runtime_checkable

import anyio
import attrs

from clawblox.checkpoint.collect.plan import is_idle, looks
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.agent_arguments import Agents, require_agent
from clawblox.config.arguments import check_count, check_path, check_seconds, check_size
from clawblox.errors import ClawbloxError, UsageError
from clawblox.protocol import ARCHIVE_SUFFIX
from clawblox.results import SavedCheckpoint
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import utc_now
from clawblox.system.files import available_bytes
from clawblox.team.pointer import POINTER_NAME, write_pointer
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.async_world import AsyncWorld

DEFAULT_EVERY_S: Final = 900.0
DEFAULT_IDLE_QUIET_S: Final = 5.0
DEFAULT_CHECKPOINTER_IDLE_WAIT_S: Final = 60.0
"""Longer than for a single save, because a checkpointer's caller does not wait."""

Outcome: TypeAlias = Callable[[SavedCheckpoint | Exception], object]
"""Called with each checkpoint made at the interval, or with the error."""

_LOG: Final = Path("logs", "agent.log")
_UNCERTAIN: Final = (None, "starting", "working")
"""States of an agent in which its files are checked."""

_log = OwnLog(__name__)


# -- moments between turns ------------------------------------------------------------------------


@runtime_checkable
class _TurnKeeper(Protocol):
    """An object that knows an agent's turns, and can keep the agent between two turns."""

    @property
    def is_between_turns(self) -> bool: ...

    def hold_turns(self) -> AbstractContextManager[None]: ...


@attrs.frozen
class WatchedAgent:
    """An agent watched for moments between two turns.

    Attributes:
        name: Its full name.
        dir: Its directory, absolute.
        agent: Object that knows its state, or None.
    """

    name: str
    dir: Path
    agent: object = None

    def is_idle(self, quiet_s: float) -> bool:
        """Return whether it is between turns and not about to start one. Blocks.

        Its object knows best, since a program records a turn some time after its start. Without
        such an object, an agent is idle if its log is quiet and its conversation between turns.

        Args:
            quiet_s: Seconds without output; a program that waits for its model is quiet too.
        """
        if isinstance(self.agent, _TurnKeeper):
            return self.agent.is_between_turns
        if getattr(self.agent, "state", None) not in _UNCERTAIN:
            return True
        try:
            changed_at = (self.dir / _LOG).stat().st_mtime
        except OSError:
            changed_at = 0.0
        return utc_now().timestamp() - changed_at >= quiet_s and is_idle({"": self.dir}, None)


def check_agents(agents: Agents) -> tuple[WatchedAgent, ...]:
    """Return the agents that a caller passed.

    Raises:
        ConfigError: They are neither directories by name nor objects with a name and a directory.
    """
    if isinstance(agents, Mapping):
        return tuple(
            WatchedAgent(name, check_path(path, f"agents.{name}").absolute())
            for name, path in agents.items()
        )
    return tuple(
        WatchedAgent(agent.name, check_path(agent.dir, "agents").absolute(), agent)
        for agent in map(require_agent, agents)
    )


@asynccontextmanager
async def idle_moment(
    agents: Sequence[WatchedAgent], *, quiet_s: float, wait_s: float
) -> AsyncIterator[None]:
    """Wait for a moment between turns, and keep the agents there while the block runs.

    If there is no such moment in time, the block runs anyway.

    Args:
        agents: The agents.
        quiet_s: Seconds without output of an agent that does not report its state.
        wait_s: Maximum wait in seconds.

    Cancellation: the agents continue.
    """
    with ExitStack() as held:
        for watched in agents:
            if isinstance(watched.agent, _TurnKeeper):
                held.enter_context(watched.agent.hold_turns())
        pauses = looks(lambda: all(agent.is_idle(quiet_s) for agent in agents), wait_s)
        while (pause := await run_blocking(next, pauses, None)) is not None:  # noqa: ASYNC110 - files
            await anyio.sleep(pause)
        yield


async def save_now(
    world: AsyncWorld,
    agents: Sequence[WatchedAgent],
    directory: Path,
    stem: str,
    *,
    instance: str | None,
    metadata: Mapping[str, Any],
    known_secrets: Iterable[str] = (),
) -> SavedCheckpoint:
    """Make an archive of an instance and its agents, whatever the agents are doing.

    Args:
        world: The world, open.
        agents: The agents.
        directory: The directory of the archive.
        stem: Its name without the suffix; a number is added to it if the name is taken.
        instance: Name of the instance.
        metadata: JSON values for the top level of the archive's metadata.
        known_secrets: Values that the archive must not contain.

    Raises:
        ClawbloxError: As in ``AsyncWorld.checkpoint``.

    Cancellation: the archive is complete or absent.
    """
    return await world.checkpoint(
        await run_blocking(_free_archive, directory, stem),
        {agent.name: agent.dir for agent in agents},
        instance=instance,
        metadata=metadata,
        known_secrets=known_secrets,
        idle_wait=0.0,
        on_unarchivable="record",
    )


def _free_archive(directory: Path, stem: str) -> Path:
    number, free = 1, stem
    while (path := directory / f"{free}{ARCHIVE_SUFFIX}").exists():
        number += 1
        free = f"{stem}-{number}"
    return path


async def remove_archive(world: AsyncWorld, path: Path, instance: str | None) -> None:
    """Remove an archive and its save; log a failure.

    Cancellation: it is removed or not.
    """
    try:
        await world.remove_checkpoint(path, instance=instance)
    except ClawbloxError as error:  # another process may have removed it
        _log.warning("checkpoint not removed", path=str(path), error=str(error))


# -- at an interval -------------------------------------------------------------------------------


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
            raise UsageError(
                message, hint="start the world first, or name an instance with instance="
            )
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
