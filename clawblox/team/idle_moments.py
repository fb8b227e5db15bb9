"""Moments in which no agent is in the middle of a turn, and checkpoints in them.

Nothing is sent to the agents. A checkpoint waits for a moment between turns, and suppresses
automatic continuation until it is made. If there is no such moment in time, it is made anyway, and
records which agents were cut in a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import anyio
import attrs

from clawblox.checkpoint.collect.plan import is_idle
from clawblox.concurrency.threads import run_blocking
from clawblox.config.agent_arguments import Agents, require_agent
from clawblox.config.arguments import check_path
from clawblox.protocol import ARCHIVE_SUFFIX
from clawblox.results import SavedCheckpoint
from clawblox.system.clock import utc_now
from clawblox.world.async_world import AsyncWorld

_LOG: Final = Path("logs", "agent.log")
_LOOK_S: Final = 0.25
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


@contextmanager
def held(agents: Iterable[WatchedAgent]) -> Iterator[None]:
    """Keep agents between turns, once they get there, while the block runs."""
    with ExitStack() as stack:
        for watched in agents:
            if isinstance(watched.agent, _TurnKeeper):
                stack.enter_context(watched.agent.hold_turns())
        yield


async def idle_moment(agents: Sequence[WatchedAgent], *, quiet_s: float, wait_s: float) -> bool:
    """Wait until no agent is in the middle of a turn; return whether that happened in time.

    Args:
        agents: The agents.
        quiet_s: Seconds without output of an agent that does not report its state.
        wait_s: Maximum wait in seconds.

    Cancellation: changes nothing.
    """
    deadline = anyio.current_time() + wait_s
    while True:
        is_busy = any(agent.is_known_busy for agent in agents)
        open_questions = [agent for agent in agents if not agent.is_known_idle]
        if not is_busy and await run_blocking(_all_idle, open_questions, quiet_s):
            return True
        if anyio.current_time() + _LOOK_S > deadline:
            return False
        await anyio.sleep(_LOOK_S)


def _all_idle(agents: Sequence[WatchedAgent], quiet_s: float) -> bool:
    return all(agent.looks_idle(quiet_s) for agent in agents)


async def save_now(
    world: AsyncWorld,
    agents: Sequence[WatchedAgent],
    path: Path,
    *,
    instance: str | None,
    metadata: Mapping[str, Any],
    known_secrets: Iterable[str] = (),
) -> SavedCheckpoint:
    """Make an archive of an instance and its agents, whatever the agents are doing.

    Args:
        world: The world, open.
        agents: The agents.
        path: The archive.
        instance: Name of the instance.
        metadata: JSON values for the top level of the archive's metadata.
        known_secrets: Values that the archive must not contain.

    Raises:
        ClawbloxError: As in ``AsyncWorld.checkpoint``.

    Cancellation: the archive is complete or absent.
    """
    return await world.checkpoint(
        path,
        {agent.name: agent.dir for agent in agents},
        instance=instance,
        metadata=metadata,
        known_secrets=known_secrets,
        idle_wait=0.0,
        on_unarchivable="record",
    )


def free_archive(directory: Path, stem: str) -> Path:
    """Return a path for a new archive. Blocks.

    Args:
        directory: The directory of the archive.
        stem: Its name without the suffix; a number is added to it if the name is taken.
    """
    number, free = 1, stem
    while (path := directory / f"{free}{ARCHIVE_SUFFIX}").exists():
        number += 1
        free = f"{stem}-{number}"
    return path
