"""Runs of a world that stands still between inputs; the bytes of their answers are compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Final

import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance.comparison import (
    NOTHING_CHANGED,
    ContinuedLife,
    RepeatableLife,
    RestoreComparison,
    SavedBeginning,
    Seen,
)
from clawblox.conformance.exchange import Exchange, compare_answers
from clawblox.conformance.inputs import WorldInputs
from clawblox.conformance.instances import Instances
from clawblox.conformance.live import (
    LateJoiner,
    Player,
    Step,
    Trace,
    make_script,
    observe_all,
    run_script,
)
from clawblox.conformance.once import Once
from clawblox.conformance.registry import CouldNotRun, Findings, NotMet
from clawblox.differences import find_differences
from clawblox.results import SavedSnapshot

_ROUNDS: Final = 12
_AFTER_ROUNDS: Final = 4


@attrs.frozen
class Beginning(SavedBeginning):
    """The common start of all runs of a world, with their scripts.

    Attributes:
        snapshot: The original's answer to a snapshot request right after the save.
        script: The script with which every run continues.
        after: The following script, with one more agent.
    """

    snapshot: Exchange
    script: tuple[Step, ...]
    after: tuple[Step, ...]


@attrs.frozen(kw_only=True)
class LockstepLife(ContinuedLife):
    """A run that answers scripts.

    Attributes:
        saved: The start that it shares with the other runs.
        after: The answers to the script with the late joiner, whose session and id are numbered.
    """

    saved: Beginning
    after: Trace

    def since(self, step: int) -> LockstepLife:
        """Return the part of the run from a step of the script on."""
        return attrs.evolve(self, seen=attrs.evolve(self.seen, trace=self.seen.trace.since(step)))


@attrs.frozen
class Resaved:
    """A restored run that is saved before every step.

    Attributes:
        first: The answer to its first request, for a snapshot.
        saves: The save before each step of the script.
        life: The run.
    """

    first: Exchange
    saves: tuple[SavedSnapshot, ...]
    life: LockstepLife

    @property
    def middle(self) -> int:
        """Number of the step in the middle of the script."""
        return len(self.saves) // 2

    def find_other_state(self) -> int:
        """Return the number of the step before which observations differed most from the first.

        State that did not matter in the first save, such as a speed of zero, is likely to matter
        there. At least a third of the script follows that step. Blocks.
        """
        first: dict[int, dict[str, Any]] = {}
        changes: dict[int, int] = {}
        counts = {self.middle: 0}
        steps = islice(self.life.seen.trace, len(self.saves) * 2 // 3)
        for number, (step, exchange) in enumerate(steps, 1):
            if step.kind == "observe":
                fields = exchange.fields
                before = first.setdefault(step.player, fields)
                changes[step.player] = len(find_differences(before, fields))
                counts[number] = sum(changes.values())
        return max(counts, key=counts.__getitem__)


class Lockstep(RestoreComparison[LockstepLife]):
    """Runs of a world that stands still; see :class:`RestoreComparison`.

    Attributes:
        resaved: Returns a restored run that is saved before every step.
        again: Returns a run restored from a save of a restored run. Its script starts in the
            middle, where that save was made.
    """

    manner = "the world stands still between inputs, so its bytes are compared"
    unit = "answers"
    runs_by_itself = False
    warm_rounds = 6

    def __init__(self, instances: Instances, inputs: WorldInputs) -> None:
        super().__init__(instances, inputs)
        self.resaved = Once(self._live_resaved)
        self.again = Once(self._live_again)

    async def _live_original(self) -> LockstepLife:
        actions, random = await self.inputs.actions(), self.instances.random
        async with self.saving() as (live, saved):
            snapshot = await live.snapshot()
            count = len(saved.players)
            script = make_script(random("script"), actions, rounds=_ROUNDS, players=count)
            after = make_script(random("after"), actions, rounds=_AFTER_ROUNDS, players=count + 1)
            beginning = Beginning(saved.players, saved.save, snapshot, script, after)
            return await _continue(saved.players, beginning)

    async def _live_restored(self) -> LockstepLife:
        beginning = (await self.original()).saved
        async with self.instances.start(resume=beginning.save) as live:
            return await _continue(beginning.moved(live), beginning)

    _live_second = _live_restored

    async def _live_resaved(self) -> Resaved:
        beginning = (await self.original()).saved
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
            saves.append(await self.instances.save_instance(players[0].live))
            exchanges += (await run_script(players, [step])).exchanges
        return Trace(tuple(script), tuple(exchanges))

    async def _live_again(self) -> LockstepLife:
        beginning = (await self.original()).saved
        resaved = await self.resaved()
        async with self.instances.start(resume=resaved.saves[resaved.middle]) as live:
            return await _continue(beginning.moved(live), beginning, since=resaved.middle)

    # -- comparisons ------------------------------------------------------------------------------

    def count_equal(self, expected: Seen, actual: Seen, who: str) -> int:
        """Return the number of common answers of two runs, all with equal bytes."""
        assert expected.final is not None
        assert actual.final is not None
        require_equal_traces(expected.trace, actual.trace, who)
        found = compare_answers(expected.final, actual.final)
        if found is not None:
            evidence = f"{who} answered equally, but its snapshot at the end differs"
            raise NotMet(evidence, exchange=actual.final, difference=found)
        if not expected.trace.accepted:
            raise CouldNotRun("the world accepted none of the known inputs")
        return len(expected.trace.exchanges) + 1

    async def compare(self, expected: LockstepLife, actual: LockstepLife, who: str) -> Findings:
        """Return the evidence that two runs are equal."""
        count = self.count_equal(expected.seen, actual.seen, who)
        return Findings(f"{count} answers were equal to the byte", equal_answers=count)

    async def compare_trace(self) -> Findings:
        """Compare the original with its first restore."""
        original = await self.original()
        equal = await self.compare(original, await self.restored(), "the restored world")
        limits = () if has_changing_answers(original.seen.trace) else (NOTHING_CHANGED,)
        return attrs.evolve(equal, evidence=f"{equal.evidence}, headers included", limits=limits)

    async def compare_again(self) -> Findings:
        """Compare a restored world with a restore of its own save."""
        restored = (await self.restored()).since((await self.resaved()).middle)
        return await self.compare(restored, await self.again(), "the restore of a restored world")

    async def compare_saved(self) -> Findings:
        """Compare two restores of the same save; one of them is saved before every step."""
        restored, resaved = await self.restored(), (await self.resaved()).life
        return await self.compare(restored, resaved, "a restored world that was saved in between")

    async def compare_joins(self, late_joiner: LateJoiner) -> Findings:
        """Compare the answers after an agent has joined."""
        original, restored = await self.original(), await self.restored()
        who = "with an agent that joined after the restore, the world"
        require_equal_traces(original.after, restored.after, who)
        return Findings(f"{len(restored.after.exchanges)} answers were equal to the byte")

    async def continue_from_cut(self, cut: int) -> None:
        """Restore the save before a step, and require equal answers to the rest of the script.

        Args:
            cut: Number of the step, from 0.

        Raises:
            Failed: An answer differs.
        """
        beginning = (await self.original()).saved
        resaved = await self.resaved()
        async with self.instances.start(resume=resaved.saves[cut]) as live:
            # The resaved run was also saved before each step.
            rest = await self._run_with_saves([], beginning.moved(live), beginning.script[cut:])
        who = f"the world restored before step {cut + 1}"
        require_equal_traces(resaved.life.since(cut).seen.trace, rest, who)

    # -- runs for other checks --------------------------------------------------------------------

    async def pair_observations(self) -> Sequence[tuple[Exchange, Exchange]]:
        """Return the observations of the first agent in the original and in a restore."""
        original, restored = (await self.original()).seen, (await self.restored()).seen
        return [
            (before, after)
            for (step, before), after in zip(original.trace, restored.trace.exchanges, strict=True)
            if (step.kind, step.player) == ("observe", 0)
        ]

    async def find_subjects(self) -> Sequence[RepeatableLife]:
        """Return the run of the original, and its remainder from a save in another state."""
        original, resaved = await self.original(), await self.resaved()
        cut = await run_blocking(resaved.find_other_state)
        warm, script = await self.warm_script(), original.saved.script
        players, save = original.saved.players, original.saved.save
        rest, later = resaved.life.since(cut).seen, resaved.saves[cut]
        return [
            RepeatableLife(players=players, save=save.path, warm=warm, seen=original.seen),
            RepeatableLife(
                players=players, save=later.path, warm=(*warm, *script[:cut]), seen=rest
            ),
        ]


async def _continue(
    players: Sequence[Player],
    beginning: Beginning,
    run: Callable[[Sequence[Player], Sequence[Step]], Awaitable[Trace]] = run_script,
    since: int = 0,
) -> LockstepLife:
    """Continue a run from a save.

    Args:
        players: The agents in this run.
        beginning: The scripts.
        run: Runs the first script.
        since: Number of steps of the first script before the save.
    """
    live = players[0].live
    first = await observe_all(players)
    trace = await run(players, beginning.script[since:])
    final = await live.snapshot()
    late_joiner, after = None, Trace()
    with suppress(NotMet):  # the world may be full
        joined = await live.join(live.names[len(players)])
        answers = await run_script([*players, joined], beginning.after)
        after = answers.numbered([joined.session, joined.agent_id])
        late_joiner = LateJoiner(joined, after.said)
    return LockstepLife(
        first=first,
        seen=Seen(trace=trace, final=final),
        said=trace.said,
        late_joiner=late_joiner,
        saved=beginning,
        after=after,
    )


def has_changing_answers(trace: Trace) -> bool:
    """Return whether an agent got different answers to accepted inputs."""
    answers: dict[int, set[bytes]] = {}
    for step, exchange in trace:
        if step.kind == "act" and exchange.is_accepted:
            answers.setdefault(step.player, set()).add(exchange.content)
    return any(len(contents) > 1 for contents in answers.values())


def require_equal_traces(expected: Trace, actual: Trace, who: str) -> None:
    """Require two traces to be equal to the byte.

    Raises:
        Failed: An answer differs; the error has the first difference.
        CouldNotRun: Neither run answered a step.
    """
    pairs = zip(expected, actual.exchanges, strict=True)
    for number, ((step, before), after) in enumerate(pairs, 1):
        found = compare_answers(before, after)
        if found is None and after.answer is None:
            raise CouldNotRun(f"step {number} of the script got no answer: {after.outcome}")
        if found is not None:
            evidence = f"{who} answered differently at step {number} of the script ({step})"
            raise NotMet(evidence, exchange=after, difference=found)
