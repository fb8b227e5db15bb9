"""Lives of a world that stands still between inputs; their answers are compared by their bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs

from clawblox.conformance.exchange import Exchange, compare_answers
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import (
    Arrival,
    LiveWorld,
    Newcomer,
    Player,
    Step,
    Trace,
    arrive,
    make_script,
    run_script,
)
from clawblox.conformance.registry import CouldNotRun, Failed, preparing
from clawblox.differences import find_differences
from clawblox.results import SavedSnapshot

WARM_ROUNDS: Final = 6
"""Number of actions of each agent before the save."""
_ROUNDS: Final = 12
_AFTER_ROUNDS: Final = 4


@attrs.frozen
class Life:
    """A stretch of the life of an instance.

    Attributes:
        arrival: What the agents found at its begin.
        trace: The answers to the script.
        final: The snapshot after it.
        joined: An agent that joined after that; None if it was refused.
        after: The answers to the script with that agent; its session and id are numbered.
    """

    arrival: Arrival
    trace: Trace
    final: Exchange
    joined: Player | None
    after: Trace

    @property
    def newcomer(self) -> Newcomer | None:
        """The agent that joined; None if it was refused."""
        if self.joined is None:
            return None
        return Newcomer(self.joined, self.after.said)

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
        script: The script that every life continues with.
        after: The script after that, with one more agent.
    """

    players: tuple[Player, ...]
    save: SavedSnapshot
    saved: Exchange
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
            with preparing():
                players = await lab.warm_up(live, rounds=WARM_ROUNDS)
                save = await lab.save(live)
            saved = await live.snapshot()
            count = len(players)
            script = make_script(lab.random("script"), actions, rounds=_ROUNDS, players=count)
            after = make_script(
                lab.random("after"), actions, rounds=_AFTER_ROUNDS, players=count + 1
            )
            beginning = Beginning(tuple(players), save, saved, script, after)
            return Original(beginning, await _continue(players, beginning))

    return await lab.once("lockstep.original", live_it)


async def _continue(
    players: Sequence[Player],
    beginning: Beginning,
    run: Callable[[Sequence[Player], Sequence[Step]], Awaitable[Trace]] = run_script,
    since: int = 0,
) -> Life:
    """Live on from a save.

    Args:
        players: The agents in this life.
        beginning: The scripts.
        run: Runs the first of them.
        since: Number of steps of it that came before the save.
    """
    live = players[0].live
    arrival = await arrive(players)
    trace = await run(players, beginning.script[since:])
    final = await live.snapshot()
    try:
        joined = await live.join(live.names[len(players)])
    except Failed:  # the world may be full
        return Life(arrival, trace, final, None, Trace((), ()))
    after = await run_script([*players, joined], beginning.after)
    return Life(arrival, trace, final, joined, after.numbered([joined.session, joined.agent_id]))


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
    """A restored life that is saved before every step.

    Attributes:
        first: The snapshot that it answered before anything else.
        saves: The save before each step of the script.
        life: The life.
    """

    first: Exchange
    saves: tuple[SavedSnapshot, ...]
    life: Life

    @property
    def middle(self) -> int:
        """Number of the step in the middle of the script."""
        return len(self.saves) // 2

    def find_other_state(self) -> int:
        """Return the number of the step before which observations differed most from the first.

        State that the first save did not need, such as a speed of zero, is likely needed there. At
        least a third of the script follows. Blocks.
        """
        first: dict[int, dict[str, Any]] = {}
        changes: dict[int, int] = {}
        counts = {self.middle: 0}
        for number in range(len(self.saves) * 2 // 3):
            step, fields = self.life.trace.steps[number], self.life.trace.exchanges[number].fields
            if step.kind == "observe":
                before = first.setdefault(step.player, fields)
                changes[step.player] = len(find_differences(before, fields))
                counts[number + 1] = sum(changes.values())
        return max(counts, key=counts.__getitem__)


async def live_resaved(lab: Lab) -> Resaved:
    """Return a restored life that is saved before every step; lived once."""

    async def live_it() -> Resaved:
        beginning = (await live_original(lab)).beginning
        saves: list[SavedSnapshot] = []
        async with lab.start(resume=beginning.save) as live:
            first = await live.snapshot()
            run = partial(_run_with_saves, lab, saves)
            life = await _continue(beginning.moved(live), beginning, run)
        return Resaved(first, tuple(saves), life)

    return await lab.once("lockstep.resaved", live_it)


async def _run_with_saves(
    lab: Lab, saves: list[SavedSnapshot], players: Sequence[Player], script: Sequence[Step]
) -> Trace:
    exchanges: list[Exchange] = []
    for step in script:
        saves.append(await lab.save(players[0].live))
        exchanges += (await run_script(players, [step])).exchanges
    return Trace(tuple(script), tuple(exchanges))


async def live_again(lab: Lab) -> Life:
    """Return the life of a world that was restored from a save of a restored one; lived once.

    Its trace begins in the middle of the script, where that save was made.
    """

    async def live_it() -> Life:
        beginning = (await live_original(lab)).beginning
        resaved = await live_resaved(lab)
        async with lab.start(resume=resaved.saves[resaved.middle]) as live:
            return await _continue(beginning.moved(live), beginning, since=resaved.middle)

    return await lab.once("lockstep.again", live_it)


async def continue_from_cut(lab: Lab, cut: int) -> None:
    """Restore the save before a step, and require the rest of the script to be answered equally.

    Args:
        lab: The world under test.
        cut: Number of the step, from 0.

    Raises:
        Failed: An answer differs.
    """
    beginning = (await live_original(lab)).beginning
    resaved = await live_resaved(lab)
    async with lab.start(resume=resaved.saves[cut]) as live:
        # The resaved life was saved before each step too.
        rest = await _run_with_saves(lab, [], beginning.moved(live), beginning.script[cut:])
    who = f"the life restored before step {cut + 1}"
    require_equal_traces(resaved.life.trace.since(cut), rest, who)


def has_changing_answers(trace: Trace) -> bool:
    """Return whether an agent got different answers to the inputs that were accepted."""
    answers: dict[int, set[bytes]] = {}
    for step, exchange in zip(trace.steps, trace.exchanges, strict=True):
        if step.kind == "act" and exchange.is_accepted:
            answers.setdefault(step.player, set()).add(exchange.content)
    return any(len(contents) > 1 for contents in answers.values())


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
        CouldNotRun: Neither life answered a step.
    """
    pairs = zip(expected.steps, expected.exchanges, actual.exchanges, strict=True)
    for number, (step, before, after) in enumerate(pairs, 1):
        found = compare_answers(before, after)
        if found is None and after.answer is None:
            raise CouldNotRun(f"step {number} of the script got no answer: {after.outcome}")
        if found is not None:
            evidence = f"{who} answered differently at step {number} of the script ({step})"
            raise Failed(evidence, exchange=after, difference=found)
