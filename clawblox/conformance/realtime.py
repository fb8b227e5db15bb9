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

from clawblox.conformance.exchange import Exchange, is_json, read_json
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import (
    Arrival,
    LiveWorld,
    Newcomer,
    Player,
    arrive,
    welcome,
)
from clawblox.conformance.pace import has_time_for
from clawblox.conformance.polling import LEAST_COMMON, Documents, collect
from clawblox.conformance.registry import Failed, TooLittleSeen, preparing
from clawblox.conformance.simulated_time import read_times
from clawblox.differences import Difference, find_differences
from clawblox.results import SavedSnapshot

_QUIET_TIMES: Final = 90
"""Least number of times at which the first life is observed before it is also saved."""
_MOST_LIVES: Final = 6
"""Maximum number of lives from a save that are watched to see enough times of an earlier life."""
WARM_ROUNDS: Final = 4
"""Number of actions of each agent before the save."""
_SAVE_EVERY, _SAVES = 5, 12
"""Number of observations from one save to the next, and maximum number of saves."""
_FEW_SAVES: Final = LEAST_COMMON // 2
"""Expected common snapshots that are enough besides observations."""

Seen: TypeAlias = tuple[Mapping[float, Exchange], Mapping[float, Exchange]]
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

    def joined(self, later: Watched) -> Watched:
        """Return what was seen of this life and of a later one from the same save."""
        return Watched(
            {**later.observations, **self.observations},
            {**later.saved_observations, **self.saved_observations},
            {**later.snapshots, **self.snapshots},
            self.is_opaque,
        )


@attrs.frozen
class Original:
    """The life of the instance that was saved.

    Attributes:
        players: Its agents.
        save: The save.
        arrival: What they found right after the save.
        watched: How it continued.
        newcomer: An agent that joined at its end; None if it was refused.
    """

    players: tuple[Player, ...]
    save: SavedSnapshot
    arrival: Arrival
    watched: Watched
    newcomer: Newcomer | None

    def moved(self, live: LiveWorld) -> list[Player]:
        """Return the agents in another life."""
        return [player.moved(live) for player in self.players]


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
    return not read_times((await live.snapshot()).content)


async def live_original(lab: Lab) -> Original:
    """Return the life of the instance that is saved, continued without inputs; lived once."""

    async def live_it() -> Original:
        async with lab.start() as live:
            with preparing():
                players = await lab.warm_up(live, rounds=WARM_ROUNDS)
                save = await lab.save(live)
            arrival = await arrive(players)
            watched = await _watch(players[0])
            newcomer = await welcome(live, players)
            return Original(tuple(players), save, arrival, watched, newcomer)

    return await lab.once("realtime.original", live_it)


@attrs.frozen
class Restored:
    """A restored life without inputs.

    Attributes:
        arrival: What its agents found at the begin.
        watched: How it continued.
        newcomer: An agent that joined at its end; None if it was refused.
        resave: A save before that; None if it was not asked for.
        after: Snapshots between that save and the join.
    """

    arrival: Arrival
    watched: Watched
    newcomer: Newcomer | None
    resave: SavedSnapshot | None = None
    after: Mapping[float, Exchange] = attrs.field(factory=dict)

    def joined(self, later: Restored) -> Restored:
        """Return this life, watched together with a later one from the same save."""
        return attrs.evolve(self, watched=self.watched.joined(later.watched))


async def live_restored(lab: Lab, *, saving: bool) -> Restored:
    """Return a restored life without inputs; lived once.

    Args:
        lab: The world under test.
        saving: Whether it is also saved while it is observed; without, it is saved at the end.
    """

    async def live_it() -> Restored:
        original = await live_original(lab)
        if not saving:
            like = original.watched
            return await _live_until_met(
                partial(_live_plain, lab, original),
                Restored.joined,
                lambda life: [
                    (like.observations, life.watched.observations),
                    (like.snapshots, life.watched.snapshots),
                ],
            )
        like = (await live_restored(lab, saving=False)).watched
        return await _live_until_met(
            partial(_live_saving, lab, original, like),
            Restored.joined,
            lambda life: [(like.observations, life.watched.saved_observations)],
        )

    return await lab.once(f"realtime.restored.{saving}", live_it)


async def _live_until_met(
    live: Callable[[], Awaitable[_Life]],
    join: Callable[[_Life, _Life], _Life],
    seen: Callable[[_Life], Sequence[Seen]],
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


async def _live_plain(lab: Lab, original: Original) -> Restored:
    async with lab.start(resume=original.save) as live:
        players = original.moved(live)
        arrival = await arrive(players)
        watched = await _watch(players[0], original.watched)
        after: Documents = {}
        resave = await lab.save(live)
        await collect(players[0].observe if watched.is_opaque else live.snapshot, after)
        return Restored(arrival, watched, await welcome(live, players), resave, after)


async def _live_saving(lab: Lab, original: Original, like: Watched) -> Restored:
    async with lab.start(resume=original.save) as live:
        players = original.moved(live)
        arrival = await arrive(players)
        watched = await _watch(players[0], like, saving=True)
        return Restored(arrival, watched, await welcome(live, players))


async def live_again(lab: Lab) -> Mapping[float, Exchange]:
    """Return documents of a life that was restored from a save of a restored one; lived once."""

    async def live_it() -> Mapping[float, Exchange]:
        original = await live_original(lab)
        restored = await live_restored(lab, saving=False)
        end = max(restored.after, default=-math.inf)

        async def live_once() -> Documents:
            documents: Documents = {}
            async with lab.start(resume=restored.resave) as live:
                player = original.moved(live)[0]
                is_opaque = restored.watched.is_opaque
                ask = player.observe if is_opaque else live.snapshot
                await collect(ask, documents, until=end)
            return documents

        return await _live_until_met(
            live_once,
            lambda documents, later: {**later, **documents},
            lambda documents: [(restored.after, documents)],
        )

    return await lab.once("realtime.again", live_it)


def require_equal(who: str, *seen: Seen) -> int:
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
