"""Lives of a world that runs by itself; their documents are compared at equal simulated times.

Two lives of such a world are never at the same moment when they answer. But both pass the same
simulated times, and their documents of the same time must be equal, without any tolerance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias

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
    read_times,
    welcome,
)
from clawblox.conformance.registry import CouldNotRun, Failed, preparing
from clawblox.differences import Difference, find_differences
from clawblox.results import SavedSnapshot

LEAST_COMMON: Final = 20
"""Equal times that two lives must have in common, or the check could not run."""
WANTED_TIMES: Final = 60
"""Different times after which enough has been seen of a life."""
_QUIET_TIMES: Final = 30
"""Different times at which a life is observed before it is also saved."""
_EXPECTED: Final = 4 * LEAST_COMMON
"""Expected common times after which enough has been seen; luck and load may quarter them."""
_BETWEEN_S: Final = 0.002
_DENSE: Final = 0.7
"""Share of the ticks that is seen of a life after which it needs no more time."""
_SHORT_S, _LONG_S = 1.2, 8.0
"""Real time in seconds for which documents without a time are asked for, and documents at most."""
WARM_ROUNDS: Final = 4
"""How often each agent acts before the save."""
_SAVE_EVERY: Final = 5

Documents = dict[float, Exchange]
"""The answers of a life by their simulated time; the first of each time."""


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


async def collect(
    ask: Callable[[], Awaitable[Exchange]], documents: Documents, *, wanted: int = WANTED_TIMES
) -> None:
    """Ask again and again, until enough has been seen to meet another life.

    Two lives that are each seen at n of N ticks have n²/N ticks in common, on average.

    Args:
        ask: Asks for a document.
        documents: Filled with the answers by time.
        wanted: Least number of further times.

    Raises:
        Failed: An answer is an error.
    """
    begun = anyio.current_time()
    seen = _Seen()
    while True:
        exchange = await ask()
        if not exchange.is_accepted:
            raise Failed(f"the world did not answer: {exchange.outcome}", exchange=exchange)
        known = seen.count
        time = seen.add(exchange.content)
        if time is not None:
            documents.setdefault(time, exchange)
        if seen.count == known:  # the world has not ticked: asking on would only slow it down
            await anyio.sleep(_BETWEEN_S)
        elapsed = anyio.current_time() - begun
        is_timeless = seen.count == 0 and elapsed > _SHORT_S
        is_enough = seen.count >= wanted and (wanted == 1 or seen.will_meet())
        if is_enough or is_timeless or elapsed > _LONG_S:
            return


class _Seen:
    """The simulated times at which a life was seen."""

    def __init__(self) -> None:
        self._times = set[float]()
        self._ticks: dict[float, float] = {}

    @property
    def count(self) -> int:
        """Number of different times."""
        return len(self._times)

    def will_meet(self) -> bool:
        """Return whether another life, seen as often, has enough times in common with this one."""
        span = max(self._times) - min(self._times) if self._times else 0.0
        length = self._tick_length() if span else 0.0
        if not length:
            return True
        ticks = span / length
        return self.count >= _DENSE * ticks or self.count**2 / ticks >= _EXPECTED

    def add(self, body: bytes) -> float | None:
        """Note a document, and return its time; None if it has none."""
        times = read_times(body)
        if not times:
            return None
        self._times.add(times[0])
        if len(times) > 1:
            self._ticks[times[0]] = times[1]
        return times[0]

    def _tick_length(self) -> float:
        """Return the time between two ticks: by their numbers, else the smallest step seen."""
        first, last = min(self._times), max(self._times)
        ticks = self._ticks.get(last, 0.0) - self._ticks.get(first, 0.0)
        if ticks > 0:
            return (last - first) / ticks
        times = sorted(self._times)
        return min(after - before for before, after in pairwise(times))


def _saving_too(player: Player) -> Callable[[], Awaitable[Exchange]]:
    """Return a function that observes, and saves the world before some of the observations."""
    number = 0

    async def observe() -> Exchange:
        nonlocal number
        if number % _SAVE_EVERY == 0:
            await player.live.snapshot()
        number += 1
        return await player.observe()

    return observe


async def _watch(player: Player, *, saving: bool = False) -> Watched:
    """Watch a life: observations, with saves in between after a while, then snapshots."""
    observations: Documents = {}
    saved: Documents = {}
    snapshots: Documents = {}
    await collect(player.observe, observations, wanted=_QUIET_TIMES)
    if saving:
        await collect(_saving_too(player), saved)
    else:
        await collect(player.observe, observations)
    opaque = await is_opaque(player.live)
    if not opaque:
        await collect(player.live.snapshot, snapshots)
    return Watched(observations, saved, snapshots, opaque)


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


async def live_restored(lab: Lab, *, saving: bool) -> Restored:
    """Return a restored life without inputs; lived once.

    Args:
        lab: The world under test.
        saving: Whether it is also saved while it is observed; without, it is saved at the end.
    """

    async def live_it() -> Restored:
        original = await live_original(lab)
        async with lab.start(resume=original.save) as live:
            players = original.moved(live)
            arrival = await arrive(players)
            watched = await _watch(players[0], saving=saving)
            if saving:
                return Restored(arrival, watched, await welcome(live, players))
            after: Documents = {}
            resave = await lab.save(live)
            await collect(players[0].observe if watched.is_opaque else live.snapshot, after)
            return Restored(arrival, watched, await welcome(live, players), resave, after)

    return await lab.once(f"realtime.restored.{saving}", live_it)


async def live_again(lab: Lab) -> Mapping[float, Exchange]:
    """Return documents of a life that was restored from a save of a restored one; lived once."""

    async def live_it() -> Mapping[float, Exchange]:
        original = await live_original(lab)
        restored = await live_restored(lab, saving=False)
        documents: Documents = {}
        async with lab.start(resume=restored.resave) as live:
            player = original.moved(live)[0]
            is_opaque = restored.watched.is_opaque
            await collect(player.observe if is_opaque else live.snapshot, documents)
        return documents

    return await lab.once("realtime.again", live_it)


Seen: TypeAlias = tuple[Mapping[float, Exchange], Mapping[float, Exchange]]
"""Documents of the same kind from two lives."""


def require_equal(who: str, *seen: Seen) -> int:
    """Return the number of documents of equal time in two lives; all of them are equal.

    Args:
        who: The second life, in words.
        *seen: Documents of the first and of the second life, for each kind of document.

    Raises:
        Failed: Documents of the same time differ; the first difference is given.
        CouldNotRun: There are too few common times.
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
        raise CouldNotRun(
            f"only {count} simulated times were seen in both lives, of {counts};"
            f" {LEAST_COMMON} are needed"
        )
    return count


def compare_documents(expected: Exchange, actual: Exchange) -> Difference | None:
    """Return the first difference between two documents; the order of keys is none."""
    if expected.content == actual.content:
        return None
    documents: tuple[Any, Any] = read_json(expected.content), read_json(actual.content)
    if not all(map(is_json, documents)):
        return Difference("", expected.content[:60].decode(errors="replace"), "other bytes")
    found = find_differences(*documents)
    return found[0] if found else None
