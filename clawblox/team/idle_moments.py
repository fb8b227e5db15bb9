"""Moments in which no agent is in the middle of a turn, and checkpoints in them.

Nothing is sent to the agents. A checkpoint waits for a moment between turns, and suppresses
automatic continuation until it is made. If there is no such moment in time, it is made anyway, and
records which agents were cut in a turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import anyio
import attrs

from clawblox.checkpoint.collect.plan import is_idle, looks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.agent_arguments import Agents, require_agent
from clawblox.config.arguments import check_path
from clawblox.errors import ClawbloxError
from clawblox.protocol import ARCHIVE_SUFFIX
from clawblox.results import SavedCheckpoint
from clawblox.system.clock import utc_now
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.async_world import AsyncWorld

_log = OwnLog(__name__)

_LOG: Final = Path("logs", "agent.log")
_WORKING: Final = ("starting", "working")


@runtime_checkable
class _TurnKeeper(Protocol):
    """An object that knows an agent's turns, and can keep the agent between two turns."""

    @property
    def is_between_turns(self) -> bool: ...

    def hold_turns(self) -> AbstractContextManager[None]: ...


@attrs.frozen
class WatchedAgent:
    """An agent that is watched for moments between two turns.

    Attributes:
        name: Its full name.
        dir: Its directory, absolute.
        agent: Object that knows its state; None without one.
    """

    name: str
    dir: Path
    agent: object = None

    @property
    def is_known_busy(self) -> bool:
        """Whether its object reports that it is within a turn, or is about to begin one.

        Its files may still look idle then: a program notes a turn some time after its start.
        """
        return isinstance(self.agent, _TurnKeeper) and not self.agent.is_between_turns

    @property
    def is_known_idle(self) -> bool:
        """Whether its object reports that it is not within a turn."""
        if isinstance(self.agent, _TurnKeeper):
            return self.agent.is_between_turns
        state = getattr(self.agent, "state", None)
        return state is not None and state not in _WORKING

    def looks_idle(self, quiet_s: float) -> bool:
        """Return whether its log is quiet and its conversation is between turns. Blocks.

        Args:
            quiet_s: Seconds without output; a program that waits for its model is quiet too.
        """
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

    If there is no such moment in time, the block runs nevertheless.

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
        pauses = looks(partial(all_idle, agents, quiet_s), wait_s)
        while (pause := await run_blocking(next, pauses, None)) is not None:  # noqa: ASYNC110 - files
            await anyio.sleep(pause)
        yield


def all_idle(agents: Sequence[WatchedAgent], quiet_s: float) -> bool:
    """Return whether no agent is in the middle of a turn, or about to begin one. Blocks.

    Args:
        agents: The agents.
        quiet_s: Seconds without output of an agent that does not report its state.
    """
    if any(agent.is_known_busy for agent in agents):
        return False
    return all(agent.is_known_idle or agent.looks_idle(quiet_s) for agent in agents)


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
    """Remove an archive and its save; one that cannot be removed is logged.

    Cancellation: it is removed or not.
    """
    try:
        await world.remove_checkpoint(path, instance=instance)
    except ClawbloxError as error:  # another process may have removed it
        _log.warning("checkpoint not removed", path=str(path), error=str(error))
