"""A baseline run of a world, from start to stop, which many checks use."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import anyio
import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.host_traces import find_body_leaves
from clawblox.conformance.inputs import WorldInputs
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import (
    AgentInput,
    LateJoiner,
    LiveWorld,
    Player,
    join_late,
    make_script,
    run_script,
)
from clawblox.conformance.registry import CouldNotRun, NotMet
from clawblox.errors import WorldError
from clawblox.results import SavedSnapshot

BLOCKS: Final = 3
BLOCK_INPUTS: Final = 12
GROWTH_BYTES: Final = 20
"""Minimum growth in bytes per input; less may come from the changing length of numbers."""

_WARM_ROUNDS: Final = 6
_LONG_BLOCKS: Final = 25
"""Blocks after which a snapshot that keeps only the latest inputs, such as 256, stops growing."""
_GROWTH_S: Final = 20.0
"""Seconds of real time after which no further block of inputs starts.

The limit applies to all types together, and to the type that is watched for longer.
"""
_MOST_PLAYERS: Final = 32
_IDENTITY: Final = re.compile(r"hash|digest|checksum|fingerprint|sha\d|scene", re.IGNORECASE)
_LEAST_IDENTITY: Final = 4

_T = TypeVar("_T")


@attrs.frozen
class StateGrowth:
    """Growth of the snapshot and of an agent's observations, in blocks of equal inputs.

    Attributes:
        action: The input.
        sizes: Size of the snapshot in bytes, before the first block and after each block.
        values: Number of values in an observation at the same times.
        inputs: Number of accepted inputs in each block.
    """

    action: AgentInput
    sizes: tuple[int, ...]
    values: tuple[int, ...]
    inputs: tuple[int, ...]

    @property
    def is_everywhere(self) -> bool:
        """True if the snapshot grew in every block by more than noise."""
        return all(rate > GROWTH_BYTES for rate in self._rates(self.sizes))

    @property
    def is_seen(self) -> bool:
        """True if the observations grew with every input, so that the snapshot has to grow too."""
        return all(rate >= 1 for rate in self._rates(self.values))

    @property
    def last_block(self) -> StateGrowth:
        """The growth in only the last block."""
        return StateGrowth(self.action, self.sizes[-2:], self.values[-2:], self.inputs[-1:])

    def _rates(self, totals: Sequence[int]) -> list[float]:
        """Return the growth per input in each block."""
        blocks = zip(pairwise(totals), self.inputs, strict=True)
        return [(after - before) / count for (before, after), count in blocks]

    def __str__(self) -> str:
        sizes = f"{self.sizes[0]} → {self.sizes[-1]} bytes"
        return f"{self.action.type}: {sizes} with {sum(self.inputs)} inputs"


@attrs.define
class BaselineRun:
    """The observed part of a baseline run; it ends at a failure.

    Attributes:
        live: The instance, stopped.
        failure: The error that ended the observation; None if the whole run was observed.
        players: Its agents.
        save: The save.
        snapshots: The answers to the operator's requests for snapshots.
        late_joiner: An agent that joined right after the save; None if the world refused it.
        growth: Growth of the snapshot for each type of input; empty without snapshots.
        overflow: The join of an agent beyond ``max_players``; None without such a limit.
    """

    live: LiveWorld
    failure: Exception | None = None
    players: list[Player] = attrs.field(factory=list)
    save: SavedSnapshot | None = None
    snapshots: list[Exchange] = attrs.field(factory=list)
    late_joiner: LateJoiner | None = None
    growth: list[StateGrowth] = attrs.field(factory=list)
    overflow: Exchange | None = None

    def require(self, seen: _T | None) -> _T:
        """Return an observation of the run.

        Raises:
            CouldNotRun: The observation is missing because of an earlier failure.
        """
        if seen:
            return seen
        raise CouldNotRun(f"the world did not get that far: {self.failure or 'it was refused'}")

    def find_identity(self) -> Mapping[str, str]:
        """Return the top-level texts of a snapshot that identify the content of its world.

        Their keys look like names of hashes, and their values stay the same while the state
        changes.
        """
        self.require(self.save)
        first, *rest = (snapshot.fields for snapshot in self.snapshots)
        return {
            key: value
            for key, value in first.items()
            if isinstance(value, str)
            and len(value) >= _LEAST_IDENTITY
            and _IDENTITY.search(key)
            and all(fields.get(key) == value for fields in rest)
        }


async def record_baseline(instances: Instances, inputs: WorldInputs) -> BaselineRun:
    """Record a baseline run and return it.

    Raises:
        WorldStartError: The instance does not become ready.
    """
    actions = await inputs.actions()
    async with instances.start() as live:
        baseline = BaselineRun(live)
        try:
            await _play(instances, baseline, actions)
        except (NotMet, CouldNotRun, WorldError) as failure:
            baseline.failure = failure
    return baseline


async def _play(instances: Instances, baseline: BaselineRun, actions: Sequence[AgentInput]) -> None:
    live = baseline.live
    players = baseline.players = await instances.join_two(live)
    baseline.snapshots.append(await live.snapshot())
    random, count = instances.random("ordinary"), len(players)
    await run_script(players, make_script(random, actions, rounds=_WARM_ROUNDS, players=count))
    baseline.save = await instances.save_instance(live)
    baseline.snapshots.append(await live.snapshot())
    baseline.late_joiner = await join_late(live, players)
    await _watch_growth(baseline, actions)
    await _fill(instances, baseline)


async def _watch_growth(baseline: BaselineRun, actions: Sequence[AgentInput]) -> None:
    """Send one type of input after the other, until the snapshot does not grow with a type.

    A history of inputs grows with each type. An apparent history could be bounded, so the type with
    the smallest growth is watched for longer.
    """
    deadline = anyio.current_time() + _GROWTH_S
    for action in {action.type: action for action in actions}.values():
        growth = await _grow(baseline, action, BLOCKS, deadline)
        if growth is not None:
            baseline.growth.append(growth)
            if not growth.is_everywhere:
                return
    unseen = [growth for growth in baseline.growth if not growth.is_seen]
    if unseen:
        least = min(unseen, key=lambda growth: growth.sizes[-1] - growth.sizes[0])
        deadline = anyio.current_time() + _GROWTH_S
        longer = await _grow(baseline, least.action, _LONG_BLOCKS, deadline)
        if longer is not None:
            baseline.growth.remove(least)
            baseline.growth.append(longer)


async def _grow(
    baseline: BaselineRun, action: AgentInput, blocks: int, deadline: float
) -> StateGrowth | None:
    """Return the growth of the snapshot with an input, up to a block without growth.

    The result is None if the world refuses the input, or if there is no time for enough blocks.
    """
    live, player = baseline.live, baseline.players[0]
    snapshot = await live.snapshot()
    growth = StateGrowth(action, (len(snapshot.content),), (await _count_seen(player),), ())
    while growth.is_everywhere and len(growth.inputs) < blocks:
        if anyio.current_time() > deadline:
            return growth if len(growth.inputs) >= BLOCKS else None
        exchanges = [await player.act(action) for _ in range(BLOCK_INPUTS)]
        accepted = sum(exchange.is_accepted for exchange in exchanges)
        snapshot = await live.snapshot()
        if not snapshot.is_accepted or not accepted:
            return None
        growth = StateGrowth(
            action,
            (*growth.sizes, len(snapshot.content)),
            (*growth.values, await _count_seen(player)),
            (*growth.inputs, accepted),
        )
    baseline.snapshots.append(snapshot)
    return growth


async def _count_seen(player: Player) -> int:
    """Return the number of values in an observation."""
    content = (await player.observe()).content
    return await run_blocking(lambda: sum(1 for _ in find_body_leaves(content)))


async def _fill(instances: Instances, baseline: BaselineRun) -> None:
    """Let as many agents join as ``max_players`` allows, and one more."""
    limit = instances.config.get("max_players")
    if not isinstance(limit, int) or limit > _MOST_PLAYERS:
        return
    present = len(baseline.players) + (baseline.late_joiner is not None)
    for number in range(present, limit):
        await baseline.live.join(f"Guest{number}")
    baseline.overflow = await baseline.live.try_join("Overflow")
