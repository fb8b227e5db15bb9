"""The comparison of runs of a world that continue from the same save, for either clock.

A restored run must continue as the original would have, for any number of restores and saves in
between. The answers that can be equal depend on the clock: ``lockstep`` and ``realtime`` have the
two implementations.
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
    """The common start of several runs of a world.

    Attributes:
        players: The agents of the original run that had joined before the save.
        save: The save.
    """

    players: tuple[Player, ...]
    save: SavedSnapshot

    def moved(self, live: LiveWorld) -> list[Player]:
        """Return the agents in another run."""
        return [player.moved(live) for player in self.players]


@attrs.define(kw_only=True)
class Seen:
    """The documents for comparing runs; they depend on the clock.

    Attributes:
        trace: Answers to a script; empty for a world that runs by itself.
        final: The snapshot after the script.
        observations: Observations by simulated time.
        snapshots: Snapshots by simulated time.
    """

    trace: Trace = attrs.field(factory=Trace)
    final: Exchange | None = None
    observations: Mapping[float, Exchange] = attrs.field(factory=dict)
    snapshots: Mapping[float, Exchange] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ContinuedLife:
    """A run that continues from a save or from its restore.

    Attributes:
        saved: The start that it shares with the other runs.
        first: The agents' first observations.
        seen: The later observations.
        said: The answer to the first message; None without a message.
        late_joiner: An agent that joined at the end; None if the world refused it.
    """

    saved: SavedBeginning
    first: FirstObservation
    seen: Seen
    said: Exchange | None
    late_joiner: LateJoiner | None


_Life = TypeVar("_Life", bound=ContinuedLife)


@attrs.frozen(kw_only=True)
class RepeatableLife:
    """A run that can be repeated in other places.

    Attributes:
        players: Its agents.
        save: The save from which it continues.
        warm: Steps that bring a fresh world into the state of the save.
        seen: Its observations after the save.
    """

    players: tuple[Player, ...]
    save: Path
    warm: tuple[Step, ...]
    seen: Seen


class RestoreComparison(ABC, Generic[_Life]):
    """Runs of a world, and their comparison.

    Args:
        instances: The instances of the world.
        inputs: Its inputs.

    Attributes:
        manner: The method of the comparison, in words.
        unit: The counted unit, in words.
        runs_by_itself: Whether time passes in the world without inputs.
        warm_rounds: Number of actions of each agent before the save.
        instances: The same as the argument.
        inputs: The same as the argument.
        original: Returns the run of the saved instance.
        restored: Returns the run of a restore.
        second: Returns the run of another restore of the same save.
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

    # -- comparisons ---------------------------------------------------------------------------

    @abstractmethod
    def count_equal(self, expected: Seen, actual: Seen, who: str) -> int:
        """Return the size of the equal part of two runs.

        Args:
            expected: Observations of the earlier run.
            actual: Observations of the later run, after the same script.
            who: The later run, in words.

        Raises:
            Failed: A document differs; the error has the first difference.
            CouldNotRun: There is too little to compare.
        """

    @abstractmethod
    async def compare(self, expected: _Life, actual: _Life, who: str) -> Findings:
        """Return the evidence that two runs are equal; raises the errors of :meth:`count_equal`."""

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
        """Compare two restores of the same save; one of them is saved in between."""

    @abstractmethod
    async def compare_joins(self, late_joiner: LateJoiner) -> Findings:
        """Compare the observations of an agent that joins the original and a restored world.

        Args:
            late_joiner: The agent in the restored world.
        """

    # -- runs for other checks -----------------------------------------------------------------

    @abstractmethod
    async def pair_observations(self) -> Sequence[tuple[Exchange, Exchange]]:
        """Return observations of the original and of a restore at the same simulated times."""

    @abstractmethod
    async def find_subjects(self) -> Sequence[RepeatableLife]:
        """Return the runs to repeat in other places."""

    async def require_late_joiners(self) -> Sequence[LateJoiner]:
        """Return the agents that joined after the save, in the original and in two restores.

        Raises:
            CouldNotRun: No agent could join one of the worlds.
        """
        lives = [await self.original(), await self.restored(), await self.second()]
        late_joiners = [life.late_joiner for life in lives if life.late_joiner is not None]
        if len(late_joiners) < len(lives):
            raise CouldNotRun("no further agent could join after the save")
        return late_joiners

    # -- starts --------------------------------------------------------------------------------

    async def warm_up(self, live: LiveWorld) -> list[Player]:
        """Let agents join and play, so that the world has state to save.

        Raises:
            Failed: An agent cannot join.
        """
        players = await self.instances.join_two(live)
        await run_script(players, await self.warm_script())
        return players

    async def warm_script(self) -> tuple[Step, ...]:
        """Return the script that agents play before a save."""
        return make_script(
            self.instances.random("warm"),
            await self.inputs.actions(),
            rounds=self.warm_rounds,
            players=self.instances.count_players(),
        )

    @asynccontextmanager
    async def saving(self) -> AsyncIterator[tuple[LiveWorld, SavedBeginning]]:
        """Start an instance for a block, let agents play, and save the instance.

        Raises:
            CouldNotRun: The instance could not be saved.
        """
        async with self.instances.start() as live:
            with before_save():
                players = await self.warm_up(live)
                save = await self.instances.save_instance(live)
            yield live, SavedBeginning(tuple(players), save)
