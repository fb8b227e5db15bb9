"""Lives of a world that runs by itself; their documents are compared at equal simulated times.

Two lives of such a world are never at the same moment when they answer. But both pass the same
simulated times, and their documents of the same time must be equal, without any tolerance. A life
is watched in the same spans of simulated time as the one that it is compared with, however slow the
machine is by then.
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
"""Least number of times at which the first life is observed before it is also saved."""
_MOST_LIVES: Final = 6
"""Maximum number of lives from a save that are watched to see enough times of an earlier life."""
_SAVE_EVERY, _SAVES = 5, 12
"""Number of observations from one save to the next, and maximum number of saves."""
_FEW_SAVES: Final = LEAST_COMMON // 2
"""Expected common snapshots that are enough besides observations."""

Pair: TypeAlias = tuple[Mapping[float, Exchange], Mapping[float, Exchange]]
"""Documents of the same kind from two lives."""

OPAQUE: Final = "snapshots have no simulated time to compare them by"
"""Why snapshots cannot be compared."""

_Life = TypeVar("_Life")


@attrs.define(kw_only=True)
class Watched(Seen):
    """The observed part of a life: observations while it was not saved, then snapshots.

    Attributes:
        saved_observations: Observations that were seen while the world was also saved.
    """

    saved_observations: Mapping[float, Exchange] = attrs.field(factory=dict)

    @property
    def is_opaque(self) -> bool:
        """True if snapshots have no simulated time to compare them by."""
        return not self.snapshots

    def joined(self, later: Watched) -> Watched:
        """Return the observations of this life and of a later one from the same save."""
        return Watched(
            observations={**later.observations, **self.observations},
            saved_observations={**later.saved_observations, **self.saved_observations},
            snapshots={**later.snapshots, **self.snapshots},
        )


@attrs.frozen(kw_only=True)
class RealtimeLife(ContinuedLife):
    """A life without inputs.

    Attributes:
        resave: A save before the late joiner; None if it was not asked for.
        after: Documents between that save and the join.
    """

    seen: Watched
    resave: SavedSnapshot | None
    after: Mapping[float, Exchange]

    def joined(self, later: RealtimeLife) -> RealtimeLife:
        """Return this life, watched together with a later one from the same save."""
        return attrs.evolve(self, seen=self.seen.joined(later.seen))


class Realtime(RestoreComparison[RealtimeLife]):
    """Lives of a world that runs by itself; see :class:`RestoreComparison`.

    The first restore is saved at its end, the second one while it is observed.

    Attributes:
        again: Returns documents of a life that was restored from the save of a restored one.
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
        """Return a restored life that is watched as far as another one."""
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
        """Live on from a save.

        Args:
            saved: The beginning.
            players: The agents in this life.
            like: Observations of the life with which this one is compared.
            saving: Whether it is also saved while it is observed.
            resaves: Whether it is saved at its end.
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
        """Return the number of documents of equal time in two lives; all of them are equal."""
        kinds = [(expected.observations, actual.observations)]
        if expected.snapshots:
            kinds.append((expected.snapshots, actual.snapshots))
        return require_equal(who, *kinds)

    async def compare(self, expected: RealtimeLife, actual: RealtimeLife, who: str) -> Findings:
        """Return the evidence that two lives are equal; by snapshots if those changed neither."""
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
        """Compare the observations of two restores, of which one is saved in between."""
        first, second = (await self.restored()).seen, (await self.second()).seen
        seen = first.observations, second.saved_observations
        count = require_equal("a restored world that was saved in between", seen)
        return Findings(
            f"observations of {count} simulated times were equal, with and without saves in between"
        )

    async def compare_joins(self, late_joiner: LateJoiner) -> Findings:
        """Require an id of the agent; what it sees depends on when it joined."""
        if not late_joiner.player.agent_id:
            raise CouldNotRun("a join answers no text as agent_id")
        return Findings("an agent that joined after the restore got an id of its own")

    # -- lives that are looked at -----------------------------------------------------------------

    async def pair_observations(self) -> Sequence[tuple[Exchange, Exchange]]:
        """Return the observations of the original and of a restore at the same times."""
        seen = (await self.original()).seen.observations
        again = (await self.restored()).seen.observations
        return [(seen[time], again[time]) for time in sorted(seen.keys() & again.keys())]

    async def find_subjects(self) -> Sequence[RepeatableLife]:
        """Return the life of the original."""
        original = await self.original()
        saved, warm = original.saved, await self.warm_script()
        return [
            RepeatableLife(
                players=saved.players, save=saved.save.path, warm=warm, seen=original.seen
            )
        ]


def _asking(player: Player, seen: Watched) -> Callable[[], Awaitable[Exchange]]:
    """Return a function that asks for a snapshot if that states its time, else for a view."""
    return player.observe if seen.is_opaque else player.live.snapshot


def _saving_too(player: Player) -> Callable[[], Awaitable[Exchange]]:
    """Return a function that observes, and saves the world before some of the observations."""
    number = 0

    async def observe() -> Exchange:
        nonlocal number
        is_saved = number % _SAVE_EVERY == 0 and number < _SAVES * _SAVE_EVERY
        number += 1  # before others observe too
        if is_saved:
            await player.live.snapshot()
        return await player.observe()

    return observe


async def _watch(player: Player, like: Watched | None = None, *, saving: bool = False) -> Watched:
    """Watch a life: observations, with saves in between after a while, then snapshots.

    Args:
        player: The agent that observes.
        like: The life with which it is compared; it is watched as far as that one at least.
        saving: Whether the world is saved in between.
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
    """Watch a life: observations without saves in between, then snapshots.

    Args:
        player: The agent that observes.
        observed_until: Simulated time that observations have to reach; below 0 for any.
        saved_until: Simulated time that snapshots have to reach.
    """
    # The other life was not observed later: its snapshots begin there.
    wanted = _QUIET_TIMES if observed_until < 0 else 1
    return Watched(
        observations=await collect(player.observe, wanted=wanted, until=observed_until),
        snapshots=await _watch_saves(player, saved_until),
    )


async def _watch_saves(player: Player, until: float) -> Documents:
    """Return snapshots by time; none if they state no time."""
    if await is_opaque(player.live):
        return {}
    return await collect(player.live.snapshot, until=until, least=_FEW_SAVES)


async def is_opaque(live: LiveWorld) -> bool:
    """Return whether snapshots have no simulated time to compare them by."""
    return not (await live.snapshot()).times


async def _live_until_met(
    live: Callable[[], Awaitable[_Life]],
    join: Callable[[_Life, _Life], _Life],
    seen: Callable[[_Life], Sequence[Pair]],
) -> _Life:
    """Live again and again from one save, until enough times of an earlier life were seen.

    A machine that becomes slow after the earlier life shows less of each of these.

    Args:
        live: Lives once.
        join: Returns the observations of a life and a later one.
        seen: Returns the documents of the earlier life and of this one that are compared.
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
    """Return the number of documents of equal time in two lives; all of them are equal.

    Args:
        who: The second life, in words.
        *seen: Documents of the first and of the second life, for each kind of document.

    Raises:
        Failed: Documents of the same time differ; the first difference is given.
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
            f"only {count} simulated times were seen in both lives, of {counts};"
            f" {LEAST_COMMON} are needed"
        )
    return count


def has_changes(documents: Sequence[Exchange]) -> bool:
    """Return whether documents of a life differ in more than their simulated time."""
    first = _without_time(documents[0]) if documents else {}
    return any(_without_time(document) != first for document in documents)


def _without_time(document: Exchange) -> dict[str, Any]:
    return {key: value for key, value in document.fields.items() if key not in ("time", "tick")}


def compare_documents(expected: Exchange, actual: Exchange) -> ValueDifference | None:
    """Return the first difference between two documents; the order of keys is none."""
    if expected.content == actual.content:
        return None
    documents: tuple[Any, Any] = read_json(expected.content), read_json(actual.content)
    if not all(map(is_json, documents)):
        return ValueDifference("", expected.content[:60].decode(errors="replace"), "other bytes")
    found = find_differences(*documents)
    return found[0] if found else None
