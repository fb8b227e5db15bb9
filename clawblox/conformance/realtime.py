"""Lives of a world that runs by itself; their documents are compared at equal simulated times.

Two lives of such a world are never at the same moment when they answer. But both pass the same
simulated times, and their documents of the same time must be equal, without any tolerance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import anyio
import attrs

from clawblox.conformance.exchange import Exchange, is_json, read_json
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import LiveWorld, Player, make_script, read_time, run_script
from clawblox.conformance.registry import CouldNotRun, Failed
from clawblox.differences import Difference, find_differences
from clawblox.results import SavedSnapshot

LEAST_COMMON: Final = 20
"""Equal times that two lives must have in common, or the check could not run."""
WANTED_TIMES: Final = 60
"""Different times after which enough has been seen of a life."""
_QUIET_TIMES: Final = 30
"""Different times at which a life is observed before it is also saved."""
_SHORT_S, _LONG_S = 1.2, 8.0
"""Real time in seconds for which a life is watched: usually, and at most."""
_WARM_ROUNDS: Final = 4
_SAVE_EVERY: Final = 5
_LANDINGS: Final = 6
_LEAD: Final = {True: 0.25, False: 20.0}
"""How far after the restore inputs are aimed: seconds if observations have a time, else ticks."""

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
        heard: What each agent heard right after the save.
        watched: How it continued.
    """

    players: tuple[Player, ...]
    save: SavedSnapshot
    heard: tuple[Exchange, ...]
    watched: Watched

    def moved(self, live: LiveWorld) -> list[Player]:
        """Return the agents in another life."""
        return [player.moved(live) for player in self.players]


async def collect(
    ask: Callable[[], Awaitable[Exchange]], documents: Documents, *, wanted: int = WANTED_TIMES
) -> None:
    """Ask again and again, until enough different times have been seen.

    Args:
        ask: Asks for a document.
        documents: Filled with the answers by time.
        wanted: Number of different times; fewer are enough if they take long.

    Raises:
        Failed: An answer is an error.
    """
    begun = anyio.current_time()
    enough = len(documents) + wanted
    at_least = len(documents) + min(wanted, 2 * LEAST_COMMON)
    while True:
        exchange = await ask()
        if not exchange.is_accepted:
            raise Failed(f"the world did not answer: {exchange.outcome}", exchange=exchange)
        time = read_time(read_json(exchange.content))
        if time is not None:
            documents.setdefault(time, exchange)
        elapsed = anyio.current_time() - begun
        if len(documents) >= enough or elapsed > _LONG_S:
            return
        if elapsed > _SHORT_S and (not documents or len(documents) >= at_least):
            return


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
    # A life that is saved must be compared with one that is not saved at the same times.
    wanted = _QUIET_TIMES if saving else _QUIET_TIMES + WANTED_TIMES
    await collect(player.observe, observations, wanted=wanted)
    if saving:
        await collect(_saving_too(player), saved)
    first = await player.live.snapshot()
    is_opaque = not first.is_accepted or read_time(read_json(first.content)) is None
    if not is_opaque:
        await collect(player.live.snapshot, snapshots)
    return Watched(observations, saved, snapshots, is_opaque)


async def live_original(lab: Lab) -> Original:
    """Return the life of the instance that is saved, continued without inputs; lived once."""

    async def live_it() -> Original:
        actions = await lab.actions()
        async with lab.start() as live:
            players = await lab.join_two(live)
            warm = make_script(
                lab.random("warm"), actions, rounds=_WARM_ROUNDS, players=len(players)
            )
            await run_script(players, warm)
            save = await lab.save(live)
            heard = [await player.hear() for player in players]
            return Original(tuple(players), save, tuple(heard), await _watch(players[0]))

    return await lab.once("realtime.original", live_it)


@attrs.frozen
class Restored:
    """A restored life without inputs.

    Attributes:
        watched: How it continued.
        resave: A save of it, at the end; None if it was not asked for.
        after: Snapshots after that save.
    """

    watched: Watched
    resave: SavedSnapshot | None
    after: Mapping[float, Exchange]


async def live_restored(lab: Lab, *, saving: bool) -> Restored:
    """Return a restored life without inputs; lived once.

    Args:
        lab: The world under test.
        saving: Whether it is also saved while it is observed; without, it is saved at the end.
    """

    async def live_it() -> Restored:
        original = await live_original(lab)
        async with lab.start(resume=original.save) as live:
            player = original.moved(live)[0]
            watched = await _watch(player, saving=saving)
            if saving:
                return Restored(watched, None, {})
            after: Documents = {}
            resave = await lab.save(live)
            await collect(player.observe if watched.is_opaque else live.snapshot, after)
            return Restored(watched, resave, after)

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


def require_equal(
    expected: Mapping[float, Exchange], actual: Mapping[float, Exchange], who: str
) -> int:
    """Return the number of simulated times at which two lives were seen, with equal documents.

    Raises:
        Failed: Documents of the same time differ; the first difference is given.
        CouldNotRun: There are too few common times.
    """
    common = sorted(expected.keys() & actual.keys())
    for time in common:
        found = compare_documents(expected[time], actual[time])
        if found is not None:
            raise Failed(
                f"{who} differs at simulated time {time:g}", exchange=actual[time], difference=found
            )
    if len(common) < LEAST_COMMON:
        raise CouldNotRun(
            f"only {len(common)} simulated times were seen in both lives ({len(expected)} in the"
            f" first, {len(actual)} in the second); {LEAST_COMMON} are needed"
        )
    return len(common)


def compare_documents(expected: Exchange, actual: Exchange) -> Difference | None:
    """Return the first difference between two documents; the order of keys is none."""
    if expected.content == actual.content:
        return None
    documents: tuple[Any, Any] = read_json(expected.content), read_json(actual.content)
    if not all(map(is_json, documents)):
        return Difference("", expected.content[:60].decode(errors="replace"), "other bytes")
    found = find_differences(*documents)
    return found[0] if found else None
