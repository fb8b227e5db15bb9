"""Runs of a world that runs by itself; documents of the same simulated time are compared.

Two runs of such a world do not answer at the same moments. But both pass through the same simulated
times, and their documents of the same time must be equal, without tolerance. A run is observed in
the same periods of simulated time as the run that it is compared with, regardless of the machine's
speed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import attrs

from clawblox.conformance.comparison import (
    ContinuedLife,
    RepeatableLife,
    RestoreComparison,
    SavedBeginning,
    Seen,
)
from clawblox.conformance.exchange import Exchange, is_json, read_json
from clawblox.conformance.inputs import WorldInputs
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import LateJoiner, LiveWorld, Player, join_late, observe_all
from clawblox.conformance.once import Once
from clawblox.conformance.pace import has_time_for
from clawblox.conformance.polling import LEAST_COMMON, Documents, collect
from clawblox.conformance.registry import CouldNotRun, Findings, NotMet, TooLittleSeen
from clawblox.differences import ValueDifference, find_differences
from clawblox.results import SavedSnapshot

_QUIET_TIMES: Final = 90
"""Minimum number of times at which the first run is observed before it is also saved."""
_MOST_LIVES: Final = 6
"""Maximum number of runs from a save to get enough common times with an earlier run."""
_SAVE_EVERY, _SAVES = 5, 12
"""Number of observations between two saves, and maximum number of saves."""
_FEW_SAVES: Final = LEAST_COMMON // 2
"""Expected number of common snapshots that suffices in addition to observations."""

Pair: TypeAlias = tuple[Mapping[float, Exchange], Mapping[float, Exchange]]
"""Documents of the same kind from two runs."""

OPAQUE: Final = "snapshots have no simulated time to compare them by"
"""Reason why snapshots cannot be compared."""

_Life = TypeVar("_Life")


@attrs.define(kw_only=True)
class Watched(Seen):
    """The observed part of a run: observations without saves in between, then snapshots.

    Attributes:
        saved_observations: Observations made while the world was also saved.
    """

    saved_observations: Mapping[float, Exchange] = attrs.field(factory=dict)

    @property
    def is_opaque(self) -> bool:
        """True if snapshots have no simulated time for a comparison."""
        return not self.snapshots

    def joined(self, later: Watched) -> Watched:
        """Return the observations of this run and of a later run from the same save."""
        return Watched(
            observations={**later.observations, **self.observations},
            saved_observations={**later.saved_observations, **self.saved_observations},
            snapshots={**later.snapshots, **self.snapshots},
        )


@attrs.frozen(kw_only=True)
class RealtimeLife(ContinuedLife):
    """A run without inputs.

    Attributes:
        resave: A save before the late joiner; None if no such save was requested.
        after: Documents between that save and the join.
    """

    seen: Watched
    resave: SavedSnapshot | None
    after: Mapping[float, Exchange]

    def joined(self, later: RealtimeLife) -> RealtimeLife:
        """Return this run, with the observations of a later run from the same save added."""
        return attrs.evolve(self, seen=self.seen.joined(later.seen))


class Realtime(RestoreComparison[RealtimeLife]):
    """Runs of a world that runs by itself; see :class:`RestoreComparison`.

    The first restore is saved at its end, the second while it is observed.

    Attributes:
        again: Returns documents of a run restored from the save of a restored run.
    """

    manner = "the world runs by itself, so it is compared at equal simulated times"
    unit = "simulated times"
    runs_by_itself = True
    warm_rounds = 4

    def __init__(self, instances: Instances, inputs: WorldInputs) -> None:
        super().__init__(instances, inputs)
        self.again = Once(self._live_again)

    async def _live_original(self) -> RealtimeLife:
        async with self.saving() as (_, saved):
            return await self._continue(saved, saved.players)

    async def _live_restored(self) -> RealtimeLife:
        original = await self.original()
        return await _live_until_met(
            partial(self._restore, original, resaves=True),
            RealtimeLife.joined,
            lambda life: [
                (original.seen.observations, life.seen.observations),
                (original.seen.snapshots, life.seen.snapshots),
            ],
        )

    async def _live_second(self) -> RealtimeLife:
        first = await self.restored()
        return await _live_until_met(
            partial(self._restore, first, saving=True),
            RealtimeLife.joined,
            lambda life: [(first.seen.observations, life.seen.saved_observations)],
        )

    async def _live_again(self) -> Mapping[float, Exchange]:
        restored = await self.restored()

        async def live() -> Documents:
            async with self.instances.start(resume=restored.resave) as live:
                player = restored.saved.moved(live)[0]
                until = max(restored.after, default=-math.inf)
                return await collect(_asking(player, restored.seen), until=until)

        return await _live_until_met(
            live,
            lambda documents, later: {**later, **documents},
            lambda documents: [(restored.after, documents)],
        )

    async def _restore(
        self, like: RealtimeLife, *, saving: bool = False, resaves: bool = False
    ) -> RealtimeLife:
        """Return a restored run, observed as far as another run."""
        saved = like.saved
        async with self.instances.start(resume=saved.save) as live:
            return await self._continue(
                saved, saved.moved(live), like.seen, saving=saving, resaves=resaves
            )

    async def _continue(
        self,
        saved: SavedBeginning,
        players: Sequence[Player],
        like: Watched | None = None,
        *,
        saving: bool = False,
        resaves: bool = False,
    ) -> RealtimeLife:
        """Continue a run from a save.

        Args:
            saved: The common start.
            players: The agents in this run.
            like: Observations of the run to compare with.
            saving: Whether to save the world while observing.
            resaves: Whether to save the world at the end.
        """
        live = players[0].live
        first = await observe_all(players)
        seen = await _watch(players[0], like, saving=saving)
        resave = await self.instances.save_instance(live) if resaves else None
        after = await collect(_asking(players[0], seen)) if resaves else {}
        late_joiner = await join_late(live, players)
        return RealtimeLife(
            saved=saved,
            first=first,
            seen=seen,
            said=late_joiner.said if late_joiner else None,
            late_joiner=late_joiner,
            resave=resave,
            after=after,
        )

    # -- comparisons ------------------------------------------------------------------------------

    def count_equal(self, expected: Seen, actual: Seen, who: str) -> int:
        """Return the number of documents of the same time in two runs, which must be equal."""
        kinds = [(expected.observations, actual.observations)]
        if expected.snapshots:
            kinds.append((expected.snapshots, actual.snapshots))
        return require_equal(who, *kinds)

    async def compare(self, expected: RealtimeLife, actual: RealtimeLife, who: str) -> Findings:
        """Return the evidence that two runs are equal, with snapshots if they changed no run."""
        first, second = expected.seen, actual.seen
        kinds = [(first.observations, second.observations)]
        is_comparable = not first.is_opaque and await self._is_saving_harmless()
        if is_comparable:
            kinds.append((first.snapshots, second.snapshots))
        count = require_equal(who, *kinds)
        equal = Findings(f"documents of {count} simulated times were equal", equal_times=count)
        if first.is_opaque or (is_comparable and first.snapshots.keys() & second.snapshots.keys()):
            return equal
        return attrs.evolve(
            equal,
            evidence=f"{equal.evidence}, no snapshots among them",
            limits=(f"no snapshots of {who} were compared",),
        )

    async def _is_saving_harmless(self) -> bool:
        try:
            await self.compare_saved()
        except (NotMet, CouldNotRun):
            return False
        return True

    async def compare_trace(self) -> Findings:
        """Compare the original with its first restore."""
        original = await self.original()
        equal = await self.compare(original, await self.restored(), "the restored world")
        if not original.seen.is_opaque:
            return equal
        return attrs.evolve(equal, limits=(OPAQUE,))

    async def compare_again(self) -> Findings:
        """Compare a restored world with a restore of its own save."""
        after = (await self.restored()).after
        count = require_equal("the restore of a restored world", (after, await self.again()))
        return Findings(f"documents of {count} simulated times were equal")

    async def compare_saved(self) -> Findings:
        """Compare the observations of two restores; one of them is saved in between."""
        first, second = (await self.restored()).seen, (await self.second()).seen
        seen = first.observations, second.saved_observations
        count = require_equal("a restored world that was saved in between", seen)
        return Findings(
            f"observations of {count} simulated times were equal, with and without saves in between"
        )

    async def compare_joins(self, late_joiner: LateJoiner) -> Findings:
        """Require an id of the agent; its observations depend on the time of the join."""
        if not late_joiner.player.agent_id:
            raise CouldNotRun("a join answers no text as agent_id")
        return Findings("an agent that joined after the restore got an id of its own")

    # -- runs for other checks --------------------------------------------------------------------

    async def pair_observations(self) -> Sequence[tuple[Exchange, Exchange]]:
        """Return the observations of the original and of a restore at the same times."""
        seen = (await self.original()).seen.observations
        again = (await self.restored()).seen.observations
        return [(seen[time], again[time]) for time in sorted(seen.keys() & again.keys())]

    async def find_subjects(self) -> Sequence[RepeatableLife]:
        """Return the run of the original."""
        original = await self.original()
        saved, warm = original.saved, await self.warm_script()
        return [
            RepeatableLife(
                players=saved.players, save=saved.save.path, warm=warm, seen=original.seen
            )
        ]


def _asking(player: Player, seen: Watched) -> Callable[[], Awaitable[Exchange]]:
    """Return a function that requests a snapshot if snapshots have a time, else an observation."""
    return player.observe if seen.is_opaque else player.live.snapshot


def _saving_too(player: Player) -> Callable[[], Awaitable[Exchange]]:
    """Return a function that observes, and saves the world before some observations."""
    number = 0

    async def observe() -> Exchange:
        nonlocal number
        is_saved = number % _SAVE_EVERY == 0 and number < _SAVES * _SAVE_EVERY
        number += 1  # before others also observe
        if is_saved:
            await player.live.snapshot()
        return await player.observe()

    return observe


async def _watch(player: Player, like: Watched | None = None, *, saving: bool = False) -> Watched:
    """Observe a run: observations, after a while with saves in between, then snapshots.

    Args:
        player: The agent that observes.
        like: The run to compare with; this run is observed at least as far.
        saving: Whether to save the world in between.
    """
    times = sorted(like.observations if like else ()) or [-math.inf]
    saved_until = max(like.snapshots if like else (), default=-math.inf)
    if not saving:
        return await watch_quietly(player, observed_until=times[-1], saved_until=saved_until)
    return Watched(
        observations=await collect(player.observe, wanted=1, until=times[len(times) // 3]),
        saved_observations=await collect(_saving_too(player), wanted=1, until=times[-1]),
        snapshots=await _watch_saves(player, saved_until),
    )


async def watch_quietly(player: Player, *, observed_until: float, saved_until: float) -> Watched:
    """Observe a run: observations without saves in between, then snapshots.

    Args:
        player: The agent that observes.
        observed_until: Simulated time that observations must reach; negative for no minimum.
        saved_until: Simulated time that snapshots must reach.
    """
    # The observations of the other run end there, followed by its snapshots.
    wanted = _QUIET_TIMES if observed_until < 0 else 1
    return Watched(
        observations=await collect(player.observe, wanted=wanted, until=observed_until),
        snapshots=await _watch_saves(player, saved_until),
    )


async def _watch_saves(player: Player, until: float) -> Documents:
    """Return snapshots by time; empty if they have no time."""
    if await is_opaque(player.live):
        return {}
    return await collect(player.live.snapshot, until=until, least=_FEW_SAVES)


async def is_opaque(live: LiveWorld) -> bool:
    """Return whether snapshots lack a simulated time for a comparison."""
    return not (await live.snapshot()).times


async def _live_until_met(
    live: Callable[[], Awaitable[_Life]],
    join: Callable[[_Life, _Life], _Life],
    seen: Callable[[_Life], Sequence[Pair]],
) -> _Life:
    """Repeat runs from a save until there are enough common times with an earlier run.

    If the machine has become slower since the earlier run, each run is observed at fewer times.

    Args:
        live: Makes a run.
        join: Combines the observations of a run and a later run.
        seen: Returns the documents of the earlier run and of this run to compare.
    """
    begun = anyio.current_time()
    life = await live()
    seconds = anyio.current_time() - begun
    for _ in range(_MOST_LIVES - 1):
        count = sum(len(before.keys() & after.keys()) for before, after in seen(life))
        if not 0 < count < LEAST_COMMON or not has_time_for(seconds):
            break
        life = join(life, await live())
    return life


def require_equal(who: str, *seen: Pair) -> int:
    """Return the number of documents of the same time in two runs, all of which are equal.

    Args:
        who: The second run, in words.
        *seen: Documents of the first and of the second run, for each kind of document.

    Raises:
        Failed: Documents of the same time differ; the error has the first difference.
        TooLittleSeen: There are too few common times.
    """
    count = 0
    for expected, actual in seen:
        common = sorted(expected.keys() & actual.keys())
        count += len(common)
        for time in common:
            found = compare_documents(expected[time], actual[time])
            if found is not None:
                evidence = f"{who} differs at simulated time {time:g}"
                raise NotMet(evidence, exchange=actual[time], difference=found)
    if count < LEAST_COMMON:
        counts = ", ".join(f"{len(first)} and {len(second)}" for first, second in seen)
        raise TooLittleSeen(
            f"only {count} simulated times were seen in both runs, of {counts};"
            f" {LEAST_COMMON} are needed"
        )
    return count


def has_changes(documents: Sequence[Exchange]) -> bool:
    """Return whether documents of a run differ in more than their simulated time."""
    first = _without_time(documents[0]) if documents else {}
    return any(_without_time(document) != first for document in documents)


def _without_time(document: Exchange) -> dict[str, Any]:
    return {key: value for key, value in document.fields.items() if key not in ("time", "tick")}


def compare_documents(expected: Exchange, actual: Exchange) -> ValueDifference | None:
    """Return the first difference between two documents, ignoring the order of keys."""
    if expected.content == actual.content:
        return None
    documents: tuple[Any, Any] = read_json(expected.content), read_json(actual.content)
    if not all(map(is_json, documents)):
        return ValueDifference("", expected.content[:60].decode(errors="replace"), "other bytes")
    found = find_differences(*documents)
    return found[0] if found else None
