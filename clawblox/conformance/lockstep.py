"""Lives of a world that stands still between inputs; their answers are compared by their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from clawblox.conformance.exchange import Exchange, compare_answers
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import (
    NAMES,
    LiveWorld,
    Player,
    Step,
    Trace,
    make_script,
    run_script,
)
from clawblox.conformance.registry import CouldNotRun, Failed
from clawblox.results import SavedSnapshot

_WARM_ROUNDS: Final = 6
_ROUNDS: Final = 12
_AFTER_ROUNDS: Final = 4
_SAVE_EVERY: Final = 3
_CUT_ROUNDS: Final = 8


@attrs.frozen
class Life:
    """A stretch of the life of an instance.

    Attributes:
        trace: The answers to the script.
        final: The snapshot after it.
        joined: An agent that joined after that; None if it was refused.
        after: The answers to the script with that agent; its session and id are numbered.
    """

    trace: Trace
    final: Exchange
    joined: Player | None
    after: Trace

    def since(self, step: int) -> Life:
        """Return the life from a step of the script on."""
        return attrs.evolve(self, trace=self.trace.since(step))


@attrs.frozen
class Beginning:
    """What all lives of a world have in common.

    Attributes:
        players: The agents that had joined when it was saved; those of the original.
        save: The save.
        saved: The snapshot that the original answered right after the save.
        heard: What each agent heard right after the save.
        script: The script that every life continues with.
        after: The script after that, with one more agent.
    """

    players: tuple[Player, ...]
    save: SavedSnapshot
    saved: Exchange
    heard: tuple[Exchange, ...]
    script: tuple[Step, ...]
    after: tuple[Step, ...]

    def moved(self, live: LiveWorld) -> list[Player]:
        """Return the agents in another life."""
        return [player.moved(live) for player in self.players]


@attrs.frozen
class Original:
    """The life of the instance that was saved.

    Attributes:
        beginning: What it shares with the restored lives.
        life: How it continued.
    """

    beginning: Beginning
    life: Life


async def live_original(lab: Lab) -> Original:
    """Return the life of the instance that is saved; it is lived once."""

    async def live_it() -> Original:
        actions = await lab.actions()
        async with lab.start() as live:
            players = await lab.join_two(live)
            count = len(players)
            warm = make_script(lab.random("warm"), actions, rounds=_WARM_ROUNDS, players=count)
            await run_script(players, warm)
            save = await lab.save(live)
            saved = await live.snapshot()
            heard = [await player.hear() for player in players]
            script = make_script(lab.random("script"), actions, rounds=_ROUNDS, players=count)
            after = make_script(
                lab.random("after"), actions, rounds=_AFTER_ROUNDS, players=count + 1
            )
            beginning = Beginning(tuple(players), save, saved, tuple(heard), script, after)
            return Original(beginning, await _continue(players, beginning))

    return await lab.once("lockstep.original", live_it)


async def _continue(players: Sequence[Player], beginning: Beginning) -> Life:
    return await _finish(await run_script(players, beginning.script), players, beginning)


async def _finish(trace: Trace, players: Sequence[Player], beginning: Beginning) -> Life:
    live = players[0].live
    final = await live.snapshot()
    try:
        joined = await live.join(NAMES[len(players)])
    except Failed:  # the world may be full
        return Life(trace, final, None, Trace((), ()))
    after = await run_script([*players, joined], beginning.after)
    return Life(trace, final, joined, after.numbered([joined.session, joined.agent_id]))


async def live_restored(lab: Lab, number: int) -> Life:
    """Return a restored life that continues with the script of the original; lived once.

    Args:
        lab: The world under test.
        number: Which of several that are the same.
    """

    async def live_it() -> Life:
        beginning = (await live_original(lab)).beginning
        async with lab.start(resume=beginning.save) as live:
            return await _continue(beginning.moved(live), beginning)

    return await lab.once(f"lockstep.restored.{number}", live_it)


@attrs.frozen
class Resaved:
    """A restored life that is saved again and again.

    Attributes:
        first: The snapshot that it answered before anything else.
        save: A save in the middle of the script.
        saved_at: Number of steps before that save.
        life: How it continued, with a save after every few steps.
    """

    first: Exchange
    save: SavedSnapshot
    saved_at: int
    life: Life


async def live_resaved(lab: Lab) -> Resaved:
    """Return a restored life with saves in between; lived once."""

    async def live_it() -> Resaved:
        beginning = (await live_original(lab)).beginning
        async with lab.start(resume=beginning.save) as live:
            first = await live.snapshot()
            players, script = beginning.moved(live), beginning.script
            middle = len(script) // 2
            trace = await _run_with_saves(players, script[:middle])
            save = await lab.save(live)
            rest = await _run_with_saves(players, script[middle:])
            life = await _finish(_concatenate([trace, rest]), players, beginning)
            return Resaved(first, save, middle, life)

    return await lab.once("lockstep.resaved", live_it)


async def _run_with_saves(players: Sequence[Player], script: Sequence[Step]) -> Trace:
    parts: list[Trace] = []
    for at in range(0, len(script), _SAVE_EVERY):
        parts.append(await run_script(players, script[at : at + _SAVE_EVERY]))
        await players[0].live.snapshot()
    return _concatenate(parts)


def _concatenate(parts: Sequence[Trace]) -> Trace:
    return Trace(
        tuple(step for part in parts for step in part.steps),
        tuple(exchange for part in parts for exchange in part.exchanges),
    )


async def live_again(lab: Lab) -> Life:
    """Return the life of a world that was restored from a save of a restored one; lived once.

    Its trace begins in the middle of the script, where that save was made.
    """

    async def live_it() -> Life:
        beginning = (await live_original(lab)).beginning
        resaved = await live_resaved(lab)
        async with lab.start(resume=resaved.save) as live:
            players = beginning.moved(live)
            rest = await run_script(players, beginning.script[resaved.saved_at :])
            return await _finish(rest, players, beginning)

    return await lab.once("lockstep.again", live_it)


def require_equal(expected: Life, actual: Life, who: str) -> int:
    """Return the number of answers that two lives have in common, with equal bytes.

    Args:
        expected: The earlier life.
        actual: The later life.
        who: The later life, in words.

    Raises:
        Failed: An answer differs, or the final snapshot; the first difference is given.
        CouldNotRun: No input was accepted.
    """
    require_equal_traces(expected.trace, actual.trace, who)
    found = compare_answers(expected.final, actual.final)
    if found is not None:
        evidence = f"{who} answered equally, but its snapshot at the end differs"
        raise Failed(evidence, exchange=actual.final, difference=found)
    if not expected.trace.accepted:
        raise CouldNotRun("the world accepted none of the inputs that are known")
    return len(expected.trace.exchanges) + 1


def require_equal_traces(expected: Trace, actual: Trace, who: str) -> None:
    """Require two traces to be equal to the byte.

    Raises:
        Failed: An answer differs; the first difference is given.
    """
    pairs = zip(expected.steps, expected.exchanges, actual.exchanges, strict=True)
    for number, (step, before, after) in enumerate(pairs, 1):
        found = compare_answers(before, after)
        if found is not None:
            evidence = f"{who} answered differently at step {number} of the script ({step})"
            raise Failed(evidence, exchange=after, difference=found)


@attrs.frozen
class CutLife:
    """A life that was saved after every step.

    Attributes:
        script: Its script.
        saves: The save before each step.
        trace: Its answers.
    """

    script: tuple[Step, ...]
    saves: tuple[SavedSnapshot, ...]
    trace: Trace


async def live_cuts(lab: Lab) -> CutLife:
    """Return a restored life that was saved before every step; lived once."""

    async def live_it() -> CutLife:
        actions = await lab.require_actions()
        beginning = (await live_original(lab)).beginning
        count = len(beginning.players)
        script = make_script(lab.random("cuts"), actions, rounds=_CUT_ROUNDS, players=count)
        saves: list[SavedSnapshot] = []
        parts: list[Trace] = []
        async with lab.start(resume=beginning.save) as live:
            players = beginning.moved(live)
            for step in script:
                saves.append(await lab.save(live))
                parts.append(await run_script(players, [step]))
        return CutLife(script, tuple(saves), _concatenate(parts))

    return await lab.once("lockstep.cuts", live_it)


async def continue_from_cut(lab: Lab, cut: int) -> None:
    """Restore the save before a step, and require the rest of the script to be answered equally.

    Args:
        lab: The world under test.
        cut: Number of the step, from 0.

    Raises:
        Failed: An answer differs.
    """
    cuts = await live_cuts(lab)
    beginning = (await live_original(lab)).beginning
    async with lab.start(resume=cuts.saves[cut]) as live:
        players = beginning.moved(live)
        parts: list[Trace] = []
        for number, step in enumerate(cuts.script[cut:]):
            if number:  # the original was saved before each step too
                await lab.save(live)
            parts.append(await run_script(players, [step]))
    rest = Trace(cuts.script[cut:], cuts.trace.exchanges[cut:])
    require_equal_traces(rest, _concatenate(parts), f"the life restored before step {cut + 1}")
