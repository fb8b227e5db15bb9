"""Lives of a world that stands still between inputs; their answers are compared by their bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.comparison import (
    NOTHING_CHANGED,
    Comparison,
    Saved,
    Seen,
    Subject,
)
from clawblox.conformance.exchange import Exchange, compare_answers
from clawblox.conformance.inputs import Inputs
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import (
    Arrival,
    Newcomer,
    Player,
    Step,
    Trace,
    arrive,
    make_script,
    run_script,
)
from clawblox.conformance.once import Once
from clawblox.conformance.registry import CouldNotRun, Failed, Findings
from clawblox.differences import find_differences
from clawblox.results import SavedSnapshot

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

    @property
    def seen(self) -> Seen:
        """The documents by which it is compared."""
        return Seen(exchanges=self.trace.exchanges, final=self.final)

    def since(self, step: int) -> Life:
        """Return the life from a step of the script on."""
        return attrs.evolve(self, trace=self.trace.since(step))


@attrs.frozen
class Beginning(Saved):
    """The beginning that all lives of a world share, with their scripts.

    Attributes:
        snapshot: The snapshot that the original answered right after the save.
        script: The script that every life continues with.
        after: The script after that, with one more agent.
    """

    snapshot: Exchange
    script: tuple[Step, ...]
    after: tuple[Step, ...]


@attrs.frozen
class Original:
    """The life of the instance that was saved.

    Attributes:
        beginning: The beginning that it shares with the restored lives.
        life: How it continued.
    """

    beginning: Beginning
    life: Life


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


class Lockstep(Comparison):
    """Lives of a world that stands still; see :class:`Comparison`.

    Attributes:
        original: Returns the life of the instance that is saved.
        restored: Returns a restored life that continues with the script of the original.
        second: Returns another one that is the same.
        resaved: Returns one that is saved before every step.
        again: Returns the life of a world that was restored from a save of a restored one; its
            trace begins in the middle of the script, where that save was made.
    """

    manner = "the world stands still between inputs, so its bytes are compared"
    unit = "answers"
    runs_by_itself = False
    warm_rounds = 6

    def __init__(self, instances: Instances, inputs: Inputs) -> None:
        super().__init__(instances, inputs)
        self.original = Once(self._live_original)
        self.restored = Once(self._live_restored)
        self.second = Once(self._live_restored)
        self.resaved = Once(self._live_resaved)
        self.again = Once(self._live_again)

    async def _live_original(self) -> Original:
        actions, random = await self.inputs.actions(), self.instances.random
        async with self.saving() as (live, saved):
            snapshot = await live.snapshot()
            count = len(saved.players)
            script = make_script(random("script"), actions, rounds=_ROUNDS, players=count)
            after = make_script(random("after"), actions, rounds=_AFTER_ROUNDS, players=count + 1)
            beginning = Beginning(saved.players, saved.save, snapshot, script, after)
            return Original(beginning, await _continue(saved.players, beginning))

    async def _live_restored(self) -> Life:
        beginning = (await self.original()).beginning
        async with self.instances.start(resume=beginning.save) as live:
            return await _continue(beginning.moved(live), beginning)

    async def _live_resaved(self) -> Resaved:
        beginning = (await self.original()).beginning
        saves: list[SavedSnapshot] = []
        async with self.instances.start(resume=beginning.save) as live:
            first = await live.snapshot()
            run = partial(self._run_with_saves, saves)
            life = await _continue(beginning.moved(live), beginning, run)
        return Resaved(first, tuple(saves), life)

    async def _run_with_saves(
        self, saves: list[SavedSnapshot], players: Sequence[Player], script: Sequence[Step]
    ) -> Trace:
        exchanges: list[Exchange] = []
        for step in script:
            saves.append(await self.instances.save(players[0].live))
            exchanges += (await run_script(players, [step])).exchanges
        return Trace(tuple(script), tuple(exchanges))

    async def _live_again(self) -> Life:
        beginning = (await self.original()).beginning
        resaved = await self.resaved()
        async with self.instances.start(resume=resaved.saves[resaved.middle]) as live:
            return await _continue(beginning.moved(live), beginning, since=resaved.middle)

    # -- comparisons ------------------------------------------------------------------------------

    def count_equal(self, script: Sequence[Step], expected: Seen, actual: Seen, who: str) -> int:
        """Return the number of answers that two lives have in common, with equal bytes."""
        traces = [Trace(tuple(script), seen.exchanges) for seen in (expected, actual)]
        require_equal_traces(traces[0], traces[1], who)
        assert expected.final is not None
        assert actual.final is not None
        found = compare_answers(expected.final, actual.final)
        if found is not None:
            evidence = f"{who} answered equally, but its snapshot at the end differs"
            raise Failed(evidence, exchange=actual.final, difference=found)
        if not traces[0].accepted:
            raise CouldNotRun("the world accepted none of the inputs that are known")
        return len(expected.exchanges) + 1

    def _compare(self, expected: Life, actual: Life, who: str) -> Findings:
        count = self.count_equal(expected.trace.steps, expected.seen, actual.seen, who)
        return Findings(f"{count} answers were equal to the byte")

    async def compare_trace(self) -> Findings:
        """Compare the original with its first restore."""
        original, restored = (await self.original()).life, await self.restored()
        script, who = original.trace.steps, "the restored world"
        count = self.count_equal(script, original.seen, restored.seen, who)
        return Findings(
            f"{count} answers were equal to the byte, headers included",
            equal_answers=count,
            limits=() if has_changing_answers(original.trace) else (NOTHING_CHANGED,),
        )

    async def compare_second(self) -> Findings:
        """Compare two restores of the same save."""
        return self._compare(await self.restored(), await self.second(), "the second restore")

    async def compare_again(self) -> Findings:
        """Compare a restored world with a restore of its own save."""
        middle = (await self.resaved()).middle
        restored = (await self.restored()).since(middle)
        return self._compare(restored, await self.again(), "the restore of a restored world")

    async def compare_saved(self) -> Findings:
        """Compare two restores of the same save, of which one is saved before every step."""
        restored, resaved = await self.restored(), await self.resaved()
        return self._compare(restored, resaved.life, "a restored world that was saved in between")

    async def compare_joins(self, agent_id: str) -> Findings:
        """Compare the answers after an agent has joined."""
        original, restored = (await self.original()).life, await self.restored()
        who = "with an agent that joined after the restore, the world"
        require_equal_traces(original.after, restored.after, who)
        count = len(restored.after.exchanges)
        return Findings(f"{count} answer{'' if count == 1 else 's'} were equal to the byte")

    async def continue_from_cut(self, cut: int) -> None:
        """Restore the save before a step, and require equal answers to the rest of the script.

        Args:
            cut: Number of the step, from 0.

        Raises:
            Failed: An answer differs.
        """
        beginning = (await self.original()).beginning
        resaved = await self.resaved()
        async with self.instances.start(resume=resaved.saves[cut]) as live:
            # The resaved life was saved before each step too.
            players = beginning.moved(live)
            rest = await self._run_with_saves([], players, beginning.script[cut:])
        who = f"the life restored before step {cut + 1}"
        require_equal_traces(resaved.life.trace.since(cut), rest, who)

    # -- lives that are looked at -----------------------------------------------------------------

    async def find_arrivals(self) -> tuple[Arrival, Arrival]:
        """Return what the agents found right after the save, and right after the restore."""
        return (await self.original()).life.arrival, (await self.restored()).arrival

    async def find_first_message(self) -> Exchange | None:
        """Return the answer to the first message after the restore; None without one."""
        return (await self.restored()).trace.said

    async def find_newcomers(self) -> Sequence[Newcomer | None]:
        """Return the agent that joined after the script, in the original and in two restores."""
        lives = [(await self.original()).life, await self.restored(), await self.second()]
        return [life.newcomer for life in lives]

    async def pair_observations(self) -> Sequence[tuple[Exchange, Exchange]]:
        """Return the observations of the first agent in the original and in a restore."""
        original, restored = (await self.original()).life.trace, (await self.restored()).trace
        steps = zip(original.steps, original.exchanges, restored.exchanges, strict=True)
        return [
            (before, after)
            for step, before, after in steps
            if (step.kind, step.player) == ("observe", 0)
        ]

    async def find_subjects(self) -> Sequence[Subject]:
        """Return the life of the original, and its rest from a save in another state."""
        original, resaved = await self.original(), await self.resaved()
        cut = await run_blocking(resaved.find_other_state)
        beginning, warm = original.beginning, await self.warm_script()

        def make(save: SavedSnapshot, life: Life, past: Sequence[Step]) -> Subject:
            return Subject(
                players=beginning.players,
                save=save.path,
                warm=(*warm, *past),
                script=life.trace.steps,
                seen=life.seen,
            )

        return [
            make(beginning.save, original.life, ()),
            make(resaved.saves[cut], resaved.life.since(cut), beginning.script[:cut]),
        ]


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


def has_changing_answers(trace: Trace) -> bool:
    """Return whether an agent got different answers to the inputs that were accepted."""
    answers: dict[int, set[bytes]] = {}
    for step, exchange in zip(trace.steps, trace.exchanges, strict=True):
        if step.kind == "act" and exchange.is_accepted:
            answers.setdefault(step.player, set()).add(exchange.content)
    return any(len(contents) > 1 for contents in answers.values())


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
