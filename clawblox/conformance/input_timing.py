"""Runs of a running world in which the same input lands at the same simulated time.

The time at which an input lands is random, so restored runs aim at the time of the original until
enough of them have hit it. Runs with the same landing time must be equal, whether or not they were
saved while the input waited.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import anyio
import attrs

from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.exchange import Exchange
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import AgentInput, Player
from clawblox.conformance.pace import SimulationPace, has_time_for
from clawblox.conformance.polling import BETWEEN_S, LEAST_COMMON, Documents, collect
from clawblox.conformance.realtime import Realtime, compare_documents, is_opaque
from clawblox.conformance.registry import CouldNotRun, NotMet, before_save
from clawblox.protocol import DATASTORE_HEADER
from clawblox.results import SavedSnapshot
from clawblox.snapshot.rows import rows_beside

_RESTORES: Final = 9
_MOST_SAVES: Final = 12
"""Maximum number of concurrent saves while an input waits; a save may copy rows."""
_BETWEEN_SAVES_S: Final = 0.002
_LEAD: Final = {True: 0.3, False: 20.0}
"""Distance from the save to the aim: seconds if documents have a time (True), else ticks."""
_AIM_S: Final = 8.0
"""Maximum seconds of real time until the aim is reached, for a world in real time."""
_SEARCH_S: Final = 60.0
"""Seconds of real time after which no further run starts, for a world in real time."""
_QUIET_TIMES: Final = 100
_WAITING_S: Final = 10.0
"""Seconds of real time for further runs, if no save so far contains the waiting input.

The value applies to a world in real time.
"""


@attrs.frozen
class InputArrival:
    """A run in which an input landed.

    Attributes:
        time: Simulated time at which the input landed.
        documents: The observations afterwards, by time.
        early: Snapshots taken while the input was on its way, by time.
        who: The run, in words.
        slowness: Real seconds per simulated second until the input was sent.
    """

    time: float
    documents: Mapping[float, Exchange]
    early: Mapping[float, Exchange]
    who: str
    slowness: float

    @property
    def is_saved(self) -> bool:
        """True if the world was saved while the input was on its way."""
        return bool(self.early)


@attrs.frozen
class InputTiming:
    """Runs from the same save.

    Attributes:
        players: The agents of the original run.
        save: The save.
        action: The input.
        original: The run of the saved instance.
        restored: The restored runs.
        is_opaque: Whether snapshots have no simulated time.
    """

    players: tuple[Player, ...]
    save: SavedSnapshot
    action: AgentInput
    original: InputArrival
    restored: tuple[InputArrival, ...]
    is_opaque: bool

    @property
    def slowness(self) -> float:
        """Real seconds per simulated second in the slowest run."""
        return max(life.slowness for life in (self.original, *self.restored))

    def pairs(self, *, saved: bool) -> list[tuple[InputArrival, InputArrival]]:
        """Return pairs of runs whose inputs landed at the same time, the earlier run first.

        Args:
            saved: Whether the later run was saved while the input was on its way.
        """
        lives = (self.original, *self.restored)
        return [
            (first, second)
            for first, second in combinations(sorted(lives, key=lambda life: life.is_saved), 2)
            if first.time == second.time and not first.is_saved and second.is_saved is saved
        ]


async def time_inputs(lives: Realtime) -> InputTiming:
    """Let the same input land in the original and in restored runs.

    Raises:
        CouldNotRun: No input is known or accepted, or its landing cannot be observed.
    """
    actions, instances = await lives.inputs.require_actions(), lives.instances
    candidates = instances.random("landing").sample(list(actions), len(actions))
    async with instances.start() as live:
        with before_save():
            players = await lives.warm_up(live)
            action = await _choose_action(players[-1], candidates)
            save = await instances.save_instance(live)
        opaque = await is_opaque(live)
        first = await players[-1].observe()
        aim = _require_time(first) + _LEAD["time" in first.fields]
        player, who = players[-1], "the original"
        original = await _land(player, action, aim, is_opaque=opaque, who=who)
    input_timing = InputTiming(tuple(players), save, action, original, (), opaque)
    return attrs.evolve(input_timing, restored=await _restore_landings(instances, input_timing))


async def _choose_action(player: Player, candidates: Sequence[AgentInput]) -> AgentInput:
    """Return an input that the world accepts and whose answer has the landing time."""
    outcome = ""
    for action in candidates:
        exchange = await player.act(action)
        if exchange.is_accepted and exchange.time is not None:
            return action
        outcome = exchange.outcome
    raise CouldNotRun(f"no known input was accepted with an answer that has a time: {outcome}")


async def _restore_landings(
    instances: Instances, input_timing: InputTiming
) -> tuple[InputArrival, ...]:
    """Aim at a landing time in one restored run after another, until both kinds have hit it."""
    restored: list[InputArrival] = []
    target, is_opaque = input_timing.original.time, input_timing.is_opaque
    begun, longest = anyio.current_time(), 0.0
    delays: list[float] = []
    for number in range(_RESTORES):
        hits = [landing.is_saved for landing in restored if landing.time == target]
        is_complete = False in hits and (True in hits or is_opaque)
        life_begun = anyio.current_time()
        slowness = attrs.evolve(input_timing, restored=tuple(restored)).slowness
        lasted = life_begun - begun
        # This leaves as much time for the runs that search for a waiting input.
        is_late = lasted > _SEARCH_S * slowness or not has_time_for(lasted + longest)
        if is_complete or is_late:
            break
        is_saved = False in hits or (number % 2 == 1 and not is_opaque)
        aim = target - (statistics.median(delays) if delays else 0.0)
        landing = await _restore_landing(instances, input_timing, aim, number, is_saved=is_saved)
        restored.append(landing)
        longest = max(longest, anyio.current_time() - life_begun)
        delays.append(max(0.0, landing.time - aim))
    return tuple(restored)


async def _restore_landing(
    instances: Instances, input_timing: InputTiming, aim: float, number: int, *, is_saved: bool
) -> InputArrival:
    async with instances.start(resume=input_timing.save) as live:
        return await _land(
            input_timing.players[-1].moved(live),
            input_timing.action,
            aim,
            is_opaque=input_timing.is_opaque,
            saves=instances.scratch / f"landing-{number}" if is_saved else None,
            who=f"restore {number + 1}",
        )


async def _land(
    player: Player,
    action: AgentInput,
    aim: float,
    *,
    is_opaque: bool,
    who: str,
    saves: Path | None = None,
) -> InputArrival:
    """Send an input as soon as a simulated time has come.

    Args:
        player: Sends it.
        action: The input.
        aim: The simulated time, in seconds.
        is_opaque: Whether snapshots have no simulated time.
        who: The name of the run.
        saves: Prefix of the paths for rows of data stores, for snapshots taken while the input
            waits; None takes no snapshots.
    """
    pace = SimulationPace(now := anyio.current_time())
    while (seen := _require_time(await player.observe())) < aim:
        if not pace.note(seen, now := anyio.current_time()):
            await anyio.sleep(BETWEEN_S)
        if pace.is_hopeless(now, still_s=_AIM_S, longest_s=_AIM_S):
            break
    early: Documents = {}
    answers: list[Exchange] = []

    is_answered = anyio.Event()

    async def act() -> None:
        answers.append(await player.act(action))
        is_answered.set()

    async def note_save(rows: Path) -> None:
        saved = await player.live.snapshot(rows)
        if (moment := saved.time) is not None:
            # The last snapshot of a time is the most likely to contain the input.
            early[moment] = saved

    async with Tasks() as tasks:
        tasks.start_soon(act)
        if saves is not None:
            await _save_until(is_answered, note_save, saves)
        await is_answered.wait()
    exchange = answers[0]
    time = exchange.time
    if not exchange.is_accepted or time is None:
        raise NotMet(
            f"in {who}, an input was refused that was accepted before: {exchange.outcome}",
            exchange=exchange,
        )
    ask = player.observe if is_opaque else player.live.snapshot
    documents = await collect(ask, wanted=3 * LEAST_COMMON)
    return InputArrival(time, documents, early, who, pace.slowness(now))


async def _save_until(
    is_answered: anyio.Event, save: Callable[[Path], Coroutine[Any, Any, None]], saves: Path
) -> None:
    """Start concurrent saves until the input is answered, then wait until they are done."""
    async with anyio.create_task_group() as saving:
        for number in range(_MOST_SAVES):
            if is_answered.is_set():
                break
            saving.start_soon(save, saves.with_name(f"{saves.name}-{number}.db"))
            await anyio.sleep(_BETWEEN_SAVES_S)


def _require_time(exchange: Exchange) -> float:
    time = exchange.time
    if time is None:
        raise CouldNotRun("observations have no simulated time")
    return time


async def find_queued_input(
    instances: Instances, input_timing: InputTiming
) -> tuple[InputArrival, Exchange] | None:
    """Return a run and a snapshot that contains the waiting input; None if there is none.

    Such a snapshot differs from the snapshot of a run without the input at the same time. The
    arrival of an input is random, so further runs are made until there is such a snapshot.
    """
    saved = [landing for landing in input_timing.restored if landing.early]
    number = len(input_timing.restored)
    begun = look_begun = anyio.current_time()
    while (found := await _find_queued_input_in(instances, input_timing.save, saved)) is None:
        now = anyio.current_time()
        is_late = now - begun > _WAITING_S * input_timing.slowness
        if is_late or not has_time_for(now - look_begun):
            return None
        look_begun = now
        aim = input_timing.original.time
        saved = [await _restore_landing(instances, input_timing, aim, number, is_saved=True)]
        number += 1
    return found


async def _find_queued_input_in(
    instances: Instances, save: SavedSnapshot, saved: Sequence[InputArrival]
) -> tuple[InputArrival, Exchange] | None:
    early = [time for landing in saved for time in landing.early]
    if not early:
        return None
    quiet: Documents = {}
    async with instances.start(resume=save) as live:
        while not quiet or max(quiet) < max(early):
            later = await collect(live.snapshot, wanted=_QUIET_TIMES)
            if later.keys() <= quiet.keys():
                break
            quiet = {**later, **quiet}
    for landing in saved:
        for time, exchange in landing.early.items():
            is_before = time < landing.time and time in quiet
            if is_before and compare_documents(quiet[time], exchange) is not None:
                return landing, exchange
    return None


async def continue_queued_input(
    instances: Instances, exchange: Exchange
) -> Mapping[float, Exchange]:
    """Return the observations of a run restored from a snapshot with a waiting input."""
    path = instances.scratch / "waiting-input.json"
    await run_blocking(Path.write_bytes, path, exchange.content)
    rows = Path(os.fsdecode(unquote_to_bytes(exchange.headers[DATASTORE_HEADER])))
    if await run_blocking(rows.is_file):
        await run_blocking(rows.replace, rows_beside(path))
    async with instances.start(resume=path) as live:
        return await collect(live.snapshot, wanted=6 * LEAST_COMMON)
