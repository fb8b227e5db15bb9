"""Lives of a world that runs by itself; their documents are compared at equal simulated times.

Two lives of such a world are never at the same moment when they answer. But both pass the same
simulated times, and their documents of the same time must be equal, without any tolerance. A life
is watched in the same spans of simulated time as the one that it is compared with, however slow the
machine is by then.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import attrs

from clawblox.conformance.comparison import Comparison, Saved, Seen, Subject
from clawblox.conformance.exchange import Exchange, is_json, read_json
from clawblox.conformance.inputs import Inputs
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import (
    Arrival,
    LiveWorld,
    Newcomer,
    Player,
    Step,
    arrive,
    welcome,
)
from clawblox.conformance.once import Once
from clawblox.conformance.pace import has_time_for
from clawblox.conformance.polling import LEAST_COMMON, Documents, collect
from clawblox.conformance.registry import CouldNotRun, Failed, Findings, TooLittleSeen
from clawblox.differences import Difference, find_differences
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

_Life = TypeVar("_Life")


@attrs.frozen
class Watched:
    """What was seen of a life.

    Attributes:
        observations: Observations of the first agent, while the world was not saved.
        saved_observations: Those that were seen while the world was also saved.
        snapshots: Snapshots, after the observations.
        is_opaque: Whether snapshots have no simulated time to compare them by.
    """

    observations: Mapping[float, Exchange]
    saved_observations: Mapping[float, Exchange]
    snapshots: Mapping[float, Exchange]
    is_opaque: bool

    @property
    def seen(self) -> Seen:
        """The documents by which it is compared."""
        return Seen(observations=self.observations, snapshots=self.snapshots)

    def joined(self, later: Watched) -> Watched:
        """Return what was seen of this life and of a later one from the same save."""
        return Watched(
            {**later.observations, **self.observations},
            {**later.saved_observations, **self.saved_observations},
            {**later.snapshots, **self.snapshots},
            self.is_opaque,
        )


@attrs.frozen
class Life:
    """A life without inputs.

    Attributes:
        arrival: What its agents found at the begin.
        watched: How it continued.
        newcomer: An agent that joined at its end; None if it was refused.
    """

    arrival: Arrival
    watched: Watched
    newcomer: Newcomer | None


@attrs.frozen
class Original(Life):
    """The life of the instance that was saved.

    Attributes:
        saved: The beginning that it shares with the restored lives.
    """

    saved: Saved


@attrs.frozen
class Restored(Life):
    """A restored life.

    Attributes:
        resave: A save before the newcomer; None if it was not asked for.
        after: Snapshots between that save and the join.
    """

    resave: SavedSnapshot | None = None
    after: Mapping[float, Exchange] = attrs.field(factory=dict)

    def joined(self, later: Restored) -> Restored:
        """Return this life, watched together with a later one from the same save."""
        return attrs.evolve(self, watched=self.watched.joined(later.watched))


class Realtime(Comparison):
    """Lives of a world that runs by itself; see :class:`Comparison`.

    Attributes:
        original: Returns the life of the instance that is saved.
        restored: Returns a restored life, saved at its end.
        resaved: Returns one that is also saved while it is observed.
        again: Returns documents of a life that was restored from the save of a restored one.
    """

    manner = "the world runs by itself, so it is compared at equal simulated times"
    unit = "simulated times"
    runs_by_itself = True
    warm_rounds = 4

    def __init__(self, instances: Instances, inputs: Inputs) -> None:
        super().__init__(instances, inputs)
        self.original = Once(self._live_original)
        self.restored = Once(self._live_until_restored)
        self.resaved = Once(self._live_until_resaved)
        self.again = Once(self._live_until_again)

    async def _live_original(self) -> Original:
        async with self.saving() as (live, saved):
            players = saved.players
            arrival = await arrive(players)
            watched = await _watch(players[0])
            return Original(arrival, watched, await welcome(live, players), saved)

    async def _live_until_restored(self) -> Restored:
        like = (await self.original()).watched
        return await _live_until_met(
            self._live_restored,
            Restored.joined,
            lambda life: [
                (like.observations, life.watched.observations),
                (like.snapshots, life.watched.snapshots),
            ],
        )

    async def _live_until_resaved(self) -> Restored:
        like = (await self.restored()).watched
        return await _live_until_met(
            self._live_resaved,
            Restored.joined,
            lambda life: [(like.observations, life.watched.saved_observations)],
        )

    async def _live_until_again(self) -> Mapping[float, Exchange]:
        after = (await self.restored()).after
        return await _live_until_met(
            self._live_again,
            lambda documents, later: {**later, **documents},
            lambda documents: [(after, documents)],
        )

    @asynccontextmanager
    async def _restoring(self, save: SavedSnapshot | None = None) -> AsyncIterator[list[Player]]:
        """Restore a save, by default that of the original, and give a block the agents there."""
        saved = (await self.original()).saved
        async with self.instances.start(resume=save or saved.save) as live:
            yield saved.moved(live)

    async def _live_restored(self) -> Restored:
        original = await self.original()
        async with self._restoring() as players:
            live = players[0].live
            arrival = await arrive(players)
            watched = await _watch(players[0], original.watched)
            after: Documents = {}
            resave = await self.instances.save(live)
            await collect(players[0].observe if watched.is_opaque else live.snapshot, after)
            return Restored(arrival, watched, await welcome(live, players), resave, after)

    async def _live_resaved(self) -> Restored:
        like = (await self.restored()).watched
        async with self._restoring() as players:
            arrival = await arrive(players)
            watched = await _watch(players[0], like, saving=True)
            return Restored(arrival, watched, await welcome(players[0].live, players))

    async def _live_again(self) -> Documents:
        restored = await self.restored()
        documents: Documents = {}
        async with self._restoring(restored.resave) as players:
            player = players[0]
            ask = player.observe if restored.watched.is_opaque else player.live.snapshot
            await collect(ask, documents, until=max(restored.after, default=-math.inf))
        return documents

    # -- comparisons ------------------------------------------------------------------------------

    def count_equal(self, script: Sequence[Step], expected: Seen, actual: Seen, who: str) -> int:
        """Return the number of documents of equal time in two lives; all of them are equal."""
        kinds = [(expected.observations, actual.observations)]
        if expected.snapshots:
            kinds.append((expected.snapshots, actual.snapshots))
        return require_equal(who, *kinds)

    async def _compare(self, who: str, first: Watched, second: Watched) -> Findings:
        """Compare two lives; by snapshots too if those changed neither of them."""
        snapshots = first.snapshots, second.snapshots
        is_comparable = not first.is_opaque and await self._is_saving_harmless()
        kinds = [snapshots] if is_comparable else []
        count = require_equal(who, (first.observations, second.observations), *kinds)
        evidence = f"documents of {count} simulated times were equal"
        if first.is_opaque or (is_comparable and first.snapshots.keys() & second.snapshots.keys()):
            return Findings(evidence, equal_times=count)
        limit = f"no snapshots of {who} were compared"
        evidence += ", no snapshots among them"
        return Findings(evidence, equal_times=count, limits=(limit,))

    async def _is_saving_harmless(self) -> bool:
        try:
            await self.compare_saved()
        except (Failed, CouldNotRun):
            return False
        return True

    async def compare_trace(self) -> Findings:
        """Compare the original with its first restore."""
        original, restored = (await self.original()).watched, (await self.restored()).watched
        findings = await self._compare("the restored world", original, restored)
        if original.is_opaque:
            limit = "snapshots have no simulated time to compare them by"
            findings = attrs.evolve(findings, limits=(limit, *findings.limits))
        return findings

    async def compare_second(self) -> Findings:
        """Compare two restores of the same save."""
        first, second = (await self.restored()).watched, (await self.resaved()).watched
        return await self._compare("the second restore", first, second)

    async def compare_again(self) -> Findings:
        """Compare a restored world with a restore of its own save."""
        after = (await self.restored()).after
        count = require_equal("the restore of a restored world", (after, await self.again()))
        return Findings(f"documents of {count} simulated times were equal")

    async def compare_saved(self) -> Findings:
        """Compare two restores of the same save, of which one is saved while it is observed."""
        first, second = (await self.restored()).watched, (await self.resaved()).watched
        seen = first.observations, second.saved_observations
        count = require_equal("a restored world that was saved in between", seen)
        return Findings(
            f"observations of {count} simulated times were equal, with and without saves in between"
        )

    async def compare_joins(self, agent_id: str) -> Findings:
        """Require an id of the agent; what it sees depends on when it joined."""
        if not agent_id:
            raise CouldNotRun("a join answers no text as agent_id")
        return Findings("an agent that joined after the restore got an id of its own")

    # -- lives that are looked at -----------------------------------------------------------------

    async def find_arrivals(self) -> tuple[Arrival, Arrival]:
        """Return what the agents found right after the save, and right after the restore."""
        return (await self.original()).arrival, (await self.restored()).arrival

    async def find_first_message(self) -> Exchange | None:
        """Return the answer to the first message after the restore; None without one."""
        newcomer = (await self.restored()).newcomer
        return None if newcomer is None else newcomer.said

    async def find_newcomers(self) -> Sequence[Newcomer | None]:
        """Return the agent that joined at the end, in the original and in two restores."""
        lives = [await self.original(), await self.restored(), await self.resaved()]
        return [life.newcomer for life in lives]

    async def pair_observations(self) -> Sequence[tuple[Exchange, Exchange]]:
        """Return the observations of the original and of a restore at the same times."""
        seen = (await self.original()).watched.observations
        again = (await self.restored()).watched.observations
        return [(seen[time], again[time]) for time in sorted(seen.keys() & again.keys())]

    async def find_subjects(self) -> Sequence[Subject]:
        """Return the life of the original."""
        original = await self.original()
        return [
            Subject(
                players=original.saved.players,
                save=original.saved.save.path,
                warm=await self.warm_script(),
                seen=original.watched.seen,
            )
        ]


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
    times = sorted(like.observations) if like else []
    end = times[-1] if times else -math.inf
    saved_until = max(like.snapshots, default=-math.inf) if like else -math.inf
    if saving:
        observations: Documents = {}
        saved: Documents = {}
        begin = times[len(times) // 3] if times else -math.inf
        await collect(player.observe, observations, wanted=1, until=begin)
        await collect(_saving_too(player), saved, wanted=1, until=end)
        snapshots, opaque = await _watch_saves(player, saved_until)
        return Watched(observations, saved, snapshots, opaque)
    return await watch_quietly(player, observed_until=end, saved_until=saved_until)


async def watch_quietly(player: Player, *, observed_until: float, saved_until: float) -> Watched:
    """Watch a life: observations without saves in between, then snapshots.

    Args:
        player: The agent that observes.
        observed_until: Simulated time that observations have to reach; below 0 for any.
        saved_until: Simulated time that snapshots have to reach.
    """
    observations: Documents = {}
    # The other life was not observed later: its snapshots begin there.
    wanted = _QUIET_TIMES if observed_until < 0 else 1
    await collect(player.observe, observations, wanted=wanted, until=observed_until)
    snapshots, opaque = await _watch_saves(player, saved_until)
    return Watched(observations, {}, snapshots, opaque)


async def _watch_saves(player: Player, until: float) -> tuple[Documents, bool]:
    """Return snapshots by time, and whether they have no time."""
    snapshots: Documents = {}
    opaque = await is_opaque(player.live)
    if not opaque:
        await collect(player.live.snapshot, snapshots, until=until, least=_FEW_SAVES)
    return snapshots, opaque


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
        join: Returns what was seen of a life and a later one.
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
                raise Failed(evidence, exchange=actual[time], difference=found)
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


def compare_documents(expected: Exchange, actual: Exchange) -> Difference | None:
    """Return the first difference between two documents; the order of keys is none."""
    if expected.content == actual.content:
        return None
    documents: tuple[Any, Any] = read_json(expected.content), read_json(actual.content)
    if not all(map(is_json, documents)):
        return Difference("", expected.content[:60].decode(errors="replace"), "other bytes")
    found = find_differences(*documents)
    return found[0] if found else None
