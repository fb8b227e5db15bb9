"""An ordinary life of a world, from its start to its stop, that many checks look at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import anyio
import attrs

from clawblox.conformance import lockstep, realtime
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import (
    LiveWorld,
    Newcomer,
    Player,
    make_script,
    run_script,
    welcome,
)
from clawblox.conformance.registry import CouldNotRun, Failed
from clawblox.errors import WorldError
from clawblox.results import SavedSnapshot

BLOCKS: Final = 3
BLOCK_INPUTS: Final = 12
GROWTH_BYTES: Final = 20
"""Growth in bytes for each input that is more than the noise of number lengths."""

_WARM_ROUNDS: Final = 6
_GROWTH_ACTIONS: Final = 3
_GROWTH_S: Final = 20.0
"""Real time in seconds after which no further block of inputs begins."""
_MOST_PLAYERS: Final = 32
_IDENTITY: Final = re.compile(r"hash|digest|checksum|fingerprint|sha\d|scene", re.IGNORECASE)
_LEAST_IDENTITY: Final = 4

_T = TypeVar("_T")


@attrs.frozen
class Growth:
    """Sizes of the snapshot in blocks of equal inputs.

    Attributes:
        action: Type of the input.
        sizes: Size in bytes before the first block and after each.
        inputs: Number of accepted inputs in each block.
    """

    action: str
    sizes: tuple[int, ...]
    inputs: tuple[int, ...]

    @property
    def rates(self) -> list[float]:
        """Bytes for each input, by block."""
        pairs = zip(self.sizes, self.sizes[1:], strict=False)
        return [
            (after - before) / max(1, count)
            for (before, after), count in zip(pairs, self.inputs, strict=True)
        ]

    @property
    def is_history(self) -> bool:
        """Whether it grew in every block, by more than noise."""
        return all(rate > GROWTH_BYTES for rate in self.rates)


@attrs.define
class Ordinary:
    """What was seen of the life; what came after a failure is missing.

    Attributes:
        live: The instance, stopped.
        failure: Why the rest could not be seen; None if everything was.
        players: Its agents.
        save: A save of it.
        snapshots: The snapshots that it answered, as the operator got them.
        newcomer: An agent that joined right after the save; None if it was refused.
        growth: How the snapshot grew, for each input that was tried; empty without snapshots.
        overflow: The join of one agent more than ``max_players``; None without such a limit.
    """

    live: LiveWorld
    failure: Exception | None = None
    players: list[Player] = attrs.field(factory=list)
    save: SavedSnapshot | None = None
    snapshots: list[Exchange] = attrs.field(factory=list)
    newcomer: Newcomer | None = None
    growth: list[Growth] = attrs.field(factory=list)
    overflow: Exchange | None = None

    def require(self, seen: _T | None) -> _T:
        """Return what was seen.

        Raises:
            CouldNotRun: It was not, because of an earlier failure.
        """
        if seen:
            return seen
        raise CouldNotRun(f"the world did not get that far: {self.failure or 'it was refused'}")


async def live_ordinary(lab: Lab) -> Ordinary:
    """Return an ordinary life; it is lived once.

    Raises:
        WorldStartError: The instance does not become ready.
    """

    async def live_it() -> Ordinary:
        actions = await lab.actions()
        async with lab.start() as live:
            ordinary = Ordinary(live)
            try:
                await _play(lab, ordinary, actions)
            except (Failed, CouldNotRun, WorldError) as failure:
                ordinary.failure = failure
        return ordinary

    return await lab.once("ordinary", live_it)


async def _play(lab: Lab, ordinary: Ordinary, actions: Sequence[Any]) -> None:
    live = ordinary.live
    players = ordinary.players = await lab.join_two(live)
    ordinary.snapshots.append(await live.snapshot())
    script = make_script(lab.random("ordinary"), actions, rounds=_WARM_ROUNDS, players=len(players))
    await run_script(players, script)
    ordinary.save = await lab.save(live)
    ordinary.snapshots.append(await live.snapshot())
    ordinary.newcomer = await welcome(live, players)
    for action in actions[:_GROWTH_ACTIONS]:
        growth = await _grow(ordinary, action)
        if growth is not None:
            ordinary.growth.append(growth)
        if growth is not None and not growth.is_history:
            break
    await _fill(lab, ordinary)


async def _grow(ordinary: Ordinary, action: Any) -> Growth | None:  # noqa: ANN401 - an Action
    """Return how the snapshot grows with one input; None if it is refused or takes too long."""
    deadline = anyio.current_time() + _GROWTH_S
    player = ordinary.players[0]
    sizes, inputs = [len((await ordinary.live.snapshot()).content)], []
    for _ in range(BLOCKS):
        if anyio.current_time() > deadline:
            return None
        exchanges = [await player.act(action) for _ in range(BLOCK_INPUTS)]
        inputs.append(sum(exchange.is_accepted for exchange in exchanges))
        snapshot = await ordinary.live.snapshot()
        if not snapshot.is_accepted or not inputs[-1]:
            return None
        sizes.append(len(snapshot.content))
        ordinary.snapshots.append(snapshot)
    return Growth(action.type, tuple(sizes), tuple(inputs))


async def _fill(lab: Lab, ordinary: Ordinary) -> None:
    """Let as many agents join as ``max_players`` allows, and one more."""
    limit = lab.config.get("max_players")
    if not isinstance(limit, int) or limit > _MOST_PLAYERS:
        return
    present = len(ordinary.players) + (ordinary.newcomer is not None)
    for number in range(present, limit):
        await ordinary.live.join(f"Guest{number}")
    ordinary.overflow = await ordinary.live.try_join("Overflow")


async def find_identity(lab: Lab) -> Mapping[str, str]:
    """Return the texts in the top level of a snapshot that identify the content of its world.

    Their keys look like names of hashes, and they stay the same while the state changes.
    """
    ordinary = await live_ordinary(lab)
    ordinary.require(ordinary.save)
    first, *rest = (snapshot.fields for snapshot in ordinary.snapshots)
    return {
        key: value
        for key, value in first.items()
        if isinstance(value, str)
        and len(value) >= _LEAST_IDENTITY
        and _IDENTITY.search(key)
        and all(fields.get(key) == value for fields in rest)
    }


# -- agents that join after a save ----------------------------------------------------------------


async def find_newcomers(lab: Lab) -> list[Newcomer]:
    """Return the agent that joined after a save: in the original and in two restored worlds.

    Raises:
        CouldNotRun: No agent could join one of them.
    """
    newcomers: list[Newcomer | None]
    if await lab.clock() == "lockstep":
        original = (await lockstep.live_original(lab)).life
        lives = [original, *[await lockstep.live_restored(lab, number) for number in (1, 2)]]
        newcomers = [life.newcomer for life in lives]
    else:
        newcomers = [(await realtime.live_original(lab)).newcomer]
        for saving in (False, True):
            newcomers.append((await realtime.live_restored(lab, saving=saving)).newcomer)
    present = [newcomer for newcomer in newcomers if newcomer is not None]
    if len(present) < len(newcomers):
        raise CouldNotRun("no further agent could join after the save")
    return present
