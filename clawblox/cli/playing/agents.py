"""The agent of a session or of ``act`` in an instance that any process runs."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from clawblox.concurrency.batch import Outcome
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import SaveOptions
from clawblox.errors import WorldExitedError, WorldSessionError
from clawblox.protocol import JoinAnswer
from clawblox.results import SavedSnapshot
from clawblox.rundir.operations import save_instances
from clawblox.rundir.presence import Presence, exited_error
from clawblox.world.access import join_answer
from clawblox.world.agent_client import AsyncAgentClient, join_place
from clawblox.world.recorded import RecordedPlace

TIMEOUT_S = 30.0
"""Seconds for the answer to a call."""


class Player:
    """An agent that goes on after a restart of its world; a context manager, which leaves it.

    Args:
        place: The instance.
        agent: Its client.
        life: The instance as it was when the agent joined.

    Attributes:
        agent: Its client; another one after a restart that made a new agent of it.
        life: The instance as it was when the agent joined.
    """

    def __init__(self, place: RecordedPlace, agent: AsyncAgentClient, life: Presence) -> None:
        self._place = place
        self.agent = agent
        self.life = life

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the world if it still serves.

        Cancellation: the world is told, and gets 2 s to answer.
        """
        await self.agent.__aexit__(exc_type, exc, traceback)

    async def look(self) -> Presence:
        """Return whether the world serves now.

        Cancellation: has no effect.
        """
        return await self._place.look()

    async def exited_error(self, before: Presence, now: Presence) -> WorldExitedError:
        """Return the error of a world that served before, and does not now.

        Cancellation: has no effect.
        """
        return await run_blocking(exited_error, now, before.record.log_start)

    async def save(self) -> SavedSnapshot:
        """Save the instance, as ``clawblox save`` does.

        Raises:
            ClawbloxError: It could not be saved.

        Cancellation: it has both file and manifest entry, or neither.
        """
        outcomes: list[Outcome[SavedSnapshot]] = []
        await save_instances(
            self._place.run_dir, [self._place.name], SaveOptions(), on_saved=outcomes.append
        )
        (outcome,) = outcomes
        if outcome.error is not None:
            raise outcome.error
        assert outcome.value is not None
        return outcome.value

    async def rejoin(self) -> bool:
        """Join again after a restart; return whether the world knew the session.

        Raises:
            ClawbloxError: As :meth:`AsyncWorld.join`.

        Cancellation: the agent may have joined.
        """
        self.agent, is_known = await join_again(
            self._place, self.agent.name, join_answer(self.agent.access)
        )
        return is_known


async def join_again(
    place: RecordedPlace, name: str, known: JoinAnswer
) -> tuple[AsyncAgentClient, bool]:
    """Rejoin with a session; join with a new one if the world does not know it.

    Returns:
        The client, and whether the world knew the session.

    Raises:
        ClawbloxError: As :meth:`AsyncWorld.join`.

    Cancellation: the agent may have joined.
    """
    try:
        return await join_place(place, name, known=known, timeout=TIMEOUT_S), True
    except WorldSessionError:
        return await join_place(place, name, timeout=TIMEOUT_S), False
