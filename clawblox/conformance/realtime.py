"""Lives of a world that runs by itself; their documents are compared at equal simulated times.

Two lives of such a world are never at the same moment when they answer. But both pass the same
simulated times, and their documents of the same time must be equal, without any tolerance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import combinations
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
_WANTED_TIMES: Final = 60
"""Different times after which enough has been seen of a life."""
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
    ask: Callable[[], Awaitable[Exchange]], documents: Documents, *, wanted: int = _WANTED_TIMES
) -> None:
    """Ask again and again, until enough different times have been seen.

    Args:
        ask: Asks for a document.
        documents: Filled with the answers by time.
        wanted: Number of different times.

    Raises:
        Failed: An answer is an error.
    """
    begun = anyio.current_time()
    while True:
        exchange = await ask()
        if not exchange.is_accepted:
            raise Failed(f"the world did not answer: {exchange.outcome}", exchange=exchange)
        time = read_time(read_json(exchange.content))
        if time is not None:
            documents.setdefault(time, exchange)
        elapsed = anyio.current_time() - begun
        enough = len(documents) >= wanted or (elapsed > _SHORT_S and len(documents) == 0)
        if (
            enough
            or elapsed > _LONG_S
            or (elapsed > _SHORT_S and len(documents) > 2 * LEAST_COMMON)
        ):
            return


async def _watch(player: Player, *, saving: bool = False) -> Watched:
    """Watch a life: observations, perhaps with saves in between, then snapshots."""
    observations: Documents = {}
    saved: Documents = {}
    snapshots: Documents = {}
    await collect(player.observe, observations)
    if saving:
        number = 0

        async def observe_and_save() -> Exchange:
            nonlocal number
            number += 1
            if number % _SAVE_EVERY == 0:
                await player.live.snapshot()
            return await player.observe()

        await collect(observe_and_save, saved)
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
        found = _compare(expected[time], actual[time])
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


def _compare(expected: Exchange, actual: Exchange) -> Difference | None:
    if expected.content == actual.content:
        return None
    documents: tuple[Any, Any] = read_json(expected.content), read_json(actual.content)
    if not all(map(is_json, documents)):
        return Difference("", expected.content[:60].decode(errors="replace"), "other bytes")
    found = find_differences(*documents)
    return found[0] if found else None  # only the order of keys differs


@attrs.frozen
class Landing:
    """A restored life in which one input landed.

    Attributes:
        time: Simulated time at which it landed.
        documents: Snapshots afterwards; observations of an opaque world.
    """

    time: float
    documents: Mapping[float, Exchange]


@attrs.frozen
class Landings:
    """The restored lives in which the same input was aimed at the same moment.

    Attributes:
        landings: Each of them.
        pairs: Pairs whose inputs landed together, and that have enough times in common.
        times: Common times of all pairs.
    """

    landings: tuple[Landing, ...]
    pairs: int
    times: int


async def live_landings(lab: Lab) -> Landings:
    """Restore until the same input has landed at the same time twice; lived once.

    Raises:
        CouldNotRun: No two inputs landed together, or their landing cannot be seen.
        Failed: Two lives in which it landed together differ.
    """
    return await lab.once("realtime.landings", lambda: _try_landings(lab))


async def _try_landings(lab: Lab) -> Landings:
    actions = await lab.require_actions()
    original = await live_original(lab)
    action = lab.random("landing").choice(list(actions))
    landings: list[Landing] = []
    aim = None
    for _ in range(_LANDINGS):
        async with lab.start(resume=original.save) as live:
            player = original.moved(live)[-1]
            reached = await _wait_until(player, aim)
            if aim is None:
                aim = reached + _LEAD["time" in (await player.observe()).fields]
                await _wait_until(player, aim)
            exchange = await player.act(action)
            time = read_time(exchange.fields)
            if not exchange.is_accepted or time is None:
                raise CouldNotRun(
                    f"the input {action.type} was refused, or its answer has no time: "
                    f"{exchange.outcome}"
                )
            documents: Documents = {}
            is_opaque = original.watched.is_opaque
            await collect(
                player.observe if is_opaque else live.snapshot, documents, wanted=2 * LEAST_COMMON
            )
            landings.append(Landing(time, documents))
        found = _judge_pairs(landings)
        if found.pairs:
            return found
    raise CouldNotRun(
        f"in {_LANDINGS} restores no input landed at the same simulated time as another: "
        + ", ".join(f"{landing.time:g}" for landing in landings)
    )


async def _wait_until(player: Player, aim: float | None) -> float:
    """Observe until a simulated time has come, and return the time that was reached."""
    deadline = anyio.current_time() + _LONG_S
    while True:
        time = read_time((await player.observe()).fields)
        if time is None:
            raise CouldNotRun("observations have no simulated time")
        if aim is None or time >= aim or anyio.current_time() > deadline:
            return time


def _judge_pairs(landings: list[Landing]) -> Landings:
    pairs = times = 0
    for first, second in combinations(landings, 2):
        if first.time != second.time:
            continue
        try:
            times += require_equal(
                first.documents,
                second.documents,
                f"a restore in which the input landed at {first.time:g}, as in another,",
            )
        except CouldNotRun:
            continue
        pairs += 1
    return Landings(tuple(landings), pairs, times)
