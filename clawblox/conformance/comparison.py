"""The comparison of lives of a world that continue from one save, whatever its clock.

A restored life continues as the original would have, however often it is restored, and wherever
in between it is saved. Which answers can be equal depends on the clock: ``lockstep`` and
``realtime`` have the two implementations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, Final, Generic, TypeVar

import attrs

from clawblox.conformance.exchange import Exchange
from clawblox.conformance.inputs import WorldInputs
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import (
    FirstObservation,
    LateJoiner,
    LiveWorld,
    Player,
    Step,
    Trace,
    make_script,
    run_script,
)
from clawblox.conformance.once import Once
from clawblox.conformance.registry import CouldNotRun, Findings, before_save
from clawblox.results import SavedSnapshot

NOTHING_CHANGED: Final = (
    "no answer to an accepted input ever changed, so nothing was seen that a restore could lose"
)


@attrs.frozen
class SavedBeginning:
    """The beginning that lives of a world share.

    Attributes:
        players: The agents that had joined when it was saved; those of the original.
        save: The save.
    """

    players: tuple[Player, ...]
    save: SavedSnapshot

    def moved(self, live: LiveWorld) -> list[Player]:
        """Return the agents in another life."""
        return [player.moved(live) for player in self.players]


@attrs.define(kw_only=True)
class Seen:
    """The documents by which lives are compared; each clock has some.

    Attributes:
        trace: Answers to a script; empty for a world that runs by itself.
        final: The snapshot after it.
        observations: Observations by simulated time.
        snapshots: Snapshots by simulated time.
    """

    trace: Trace = attrs.field(factory=Trace)
    final: Exchange | None = None
    observations: Mapping[float, Exchange] = attrs.field(factory=dict)
    snapshots: Mapping[float, Exchange] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ContinuedLife:
    """A life that continues from a save or from its restore.

    Attributes:
        saved: The beginning that it shares with the others.
        first: The agents' first observations.
        seen: The observations after that.
        said: The answer to the first message; None without one.
        late_joiner: An agent that joined at its end; None if it was refused.
    """

    saved: SavedBeginning
    first: FirstObservation
    seen: Seen
    said: Exchange | None
    late_joiner: LateJoiner | None


_Life = TypeVar("_Life", bound=ContinuedLife)


@attrs.frozen(kw_only=True)
class RepeatableLife:
    """A life that can be lived again elsewhere.

    Attributes:
        players: Its agents.
        save: The save that it continues from.
        warm: Steps after which a fresh world is in the state of the save.
        seen: Its observations after the save.
    """

    players: tuple[Player, ...]
    save: Path
    warm: tuple[Step, ...]
    seen: Seen


class RestoreComparison(ABC, Generic[_Life]):
    """Lives of a world, and whether they are equal.

    Args:
        instances: The instances of the world.
        inputs: Its inputs.

    Attributes:
        manner: How lives are compared, in words.
        unit: The counted unit, in words.
        runs_by_itself: Whether time passes in the world without inputs.
        warm_rounds: Number of actions of each agent before the save.
        instances: The same as the argument.
        inputs: The same as the argument.
        original: Returns the life of the instance that was saved.
        restored: Returns the life of a restore.
        second: Returns the life of another restore of the same save.
    """

    manner: ClassVar[str]
    unit: ClassVar[str]
    runs_by_itself: ClassVar[bool]
    warm_rounds: ClassVar[int]

    def __init__(self, instances: Instances, inputs: WorldInputs) -> None:
        self.instances = instances
        self.inputs = inputs
        self.original = Once(self._live_original)
        self.restored = Once(self._live_restored)
        self.second = Once(self._live_second)

    @abstractmethod
    async def _live_original(self) -> _Life: ...

    @abstractmethod
    async def _live_restored(self) -> _Life: ...

    @abstractmethod
    async def _live_second(self) -> _Life: ...

    # -- lives that are equal ---------------------------------------------------------------------

    @abstractmethod
    def count_equal(self, expected: Seen, actual: Seen, who: str) -> int:
        """Return the equal part of two lives.

        Args:
            expected: Observations of the earlier life.
            actual: Observations of the later life, after the same script.
            who: The later life, in words.

        Raises:
            Failed: A document differs; the first difference is given.
            CouldNotRun: There is too little to compare.
        """

    @abstractmethod
    async def compare(self, expected: _Life, actual: _Life, who: str) -> Findings:
        """Return the evidence that two lives are equal; errors are those of :meth:`count_equal`."""

    @abstractmethod
    async def compare_trace(self) -> Findings:
        """Compare the original with its first restore."""

    async def compare_second(self) -> Findings:
        """Compare two restores of the same save."""
        return await self.compare(await self.restored(), await self.second(), "the second restore")

    @abstractmethod
    async def compare_again(self) -> Findings:
        """Compare a restored world with a restore of its own save."""

    @abstractmethod
    async def compare_saved(self) -> Findings:
        """Compare two restores of the same save, of which one is saved in between."""

    @abstractmethod
    async def compare_joins(self, late_joiner: LateJoiner) -> Findings:
        """Compare what an agent sees that joins the original and a restored world.

        Args:
            late_joiner: The agent in the restored world.
        """

    # -- lives that are looked at -----------------------------------------------------------------

    @abstractmethod
    async def pair_observations(self) -> Sequence[tuple[Exchange, Exchange]]:
        """Return observations of the original and of a restore at the same simulated times."""

    @abstractmethod
    async def find_subjects(self) -> Sequence[RepeatableLife]:
        """Return the lives that are lived again in other places."""

    async def require_late_joiners(self) -> Sequence[LateJoiner]:
        """Return the agent that joined after the save, in the original and in two restores.

        Raises:
            CouldNotRun: No agent could join one of the worlds.
        """
        lives = [await self.original(), await self.restored(), await self.second()]
        late_joiners = [life.late_joiner for life in lives if life.late_joiner is not None]
        if len(late_joiners) < len(lives):
            raise CouldNotRun("no further agent could join after the save")
        return late_joiners

    # -- beginnings -------------------------------------------------------------------------------

    async def warm_up(self, live: LiveWorld) -> list[Player]:
        """Let agents join and play, so that the world has something to save.

        Raises:
            Failed: An agent cannot join.
        """
        players = await self.instances.join_two(live)
        await run_script(players, await self.warm_script())
        return players

    async def warm_script(self) -> tuple[Step, ...]:
        """Return the script with which agents play before a save."""
        return make_script(
            self.instances.random("warm"),
            await self.inputs.actions(),
            rounds=self.warm_rounds,
            players=self.instances.count_players(),
        )

    @asynccontextmanager
    async def saving(self) -> AsyncIterator[tuple[LiveWorld, SavedBeginning]]:
        """Start an instance for a block, with agents that have played, and save it.

        Raises:
            CouldNotRun: It could not be saved.
        """
        async with self.instances.start() as live:
            with before_save():
                players = await self.warm_up(live)
                save = await self.instances.save_instance(live)
            yield live, SavedBeginning(tuple(players), save)
