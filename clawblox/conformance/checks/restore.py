"""Checks of the restore: a restored world continues exactly as the original would have.

For a world that stands still between inputs, the bytes of answers are compared; for a world that
runs by itself, documents of the same simulated time.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from anyio import from_thread

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import input_timing
from clawblox.conformance.comparison import NOTHING_CHANGED
from clawblox.conformance.context import CheckContext
from clawblox.conformance.exchange import compare_answers, compare_bodies
from clawblox.conformance.fresh.lives import live_fresh
from clawblox.conformance.input_timing import InputArrival
from clawblox.conformance.lockstep import Lockstep
from clawblox.conformance.realtime import OPAQUE, has_changes, require_equal
from clawblox.conformance.registry import (
    AreaChecks,
    CouldNotRun,
    Findings,
    NotApplicable,
    NotMet,
    TooLittleSeen,
)
from clawblox.extras import install_command

CHECKS: Final = AreaChecks("restore")
_must = partial(CHECKS.must, needs_directory=True)

_EXAMPLES: Final = 5
"""Number of cut points to try."""


@_must(
    "trace",
    "A restored world answers as the saved world would have answered: with the same bytes to the"
    " same inputs, or with the same documents at the same simulated times.",
)
async def check_trace(ctx: CheckContext) -> Findings:
    """Compare the original with its first restore."""
    return await (await ctx.comparison()).compare_trace()


@_must(
    "landings",
    "A running world continues equally after an input that landed at the same simulated time.",
)
async def check_landings(ctx: CheckContext) -> Findings:
    """Compare runs of a running world in which the same input landed at the same time."""
    lives = await ctx.input_timing()
    landed = lives.pairs(saved=False)
    pairs, times = _require_equal_pairs(landed)
    with_original, _ = _require_equal_pairs([each for each in landed if each[0] is lives.original])
    if not with_original:  # state that a save loses is missing in all restored runs alike
        seen = ", ".join(f"{life.time:g}" for life in (lives.original, *lives.restored))
        raise TooLittleSeen(
            f"no input of a restored run landed at the time of the original: {seen}"
        )
    is_changing = has_changes([*lives.original.documents.values()])
    return Findings(
        f"{_count(pairs, 'pair')} of {len(lives.restored) + 1} runs landed together"
        f" ({with_original} with the original), and were equal at {times} simulated times",
        equal_landings=pairs,
        limits=() if is_changing else (NOTHING_CHANGED,),
    )


def _require_equal_pairs(pairs: Sequence[tuple[InputArrival, InputArrival]]) -> tuple[int, int]:
    """Return the number of equal pairs with enough common times, and the number of these times.

    Raises:
        Failed: A pair differs.
    """
    count = times = 0
    for first, second in pairs:
        saved = ", saved while the input waited," if second.is_saved else ""
        who = f"{second.who}{saved} whose input landed at {first.time:g} like that of {first.who},"
        try:
            times += require_equal(who, (first.documents, second.documents))
        except CouldNotRun:
            continue
        count += 1
    return count, times


@_must(
    "pending",
    "A save keeps the inputs that wait for the next tick, in the world and in the snapshot.",
)
async def check_pending(ctx: CheckContext) -> str:
    """Save a running world while an input waits, and restore the save."""
    lives = await ctx.input_timing()
    if lives.is_opaque:
        raise CouldNotRun(OPAQUE)
    try:
        _require_equal_pairs(lives.pairs(saved=False))
    except NotMet:
        raise CouldNotRun("runs differ even without a save in between: restore.landings") from None
    _require_equal_pairs(lives.pairs(saved=True))
    waiting = await input_timing.find_queued_input(ctx.instances, lives)
    if waiting is None:
        raise TooLittleSeen("no save had an input waiting")
    landing, exchange = waiting
    restored = await input_timing.continue_queued_input(ctx.instances, exchange)
    who = "the world restored from a save made while the input waited"
    times = require_equal(who, (landing.documents, restored))
    return f"after a restore with a waiting input, {times} simulated times were equal"


@_must("second", "Every restore of a save continues in the same way.")
async def check_second(ctx: CheckContext) -> Findings:
    """Compare two restores of the same save."""
    return await (await ctx.comparison()).compare_second()


@_must("again", "A restore of a restored world is also exact.")
async def check_again(ctx: CheckContext) -> Findings:
    """Compare a restored world with a restore of its own save."""
    return await (await ctx.comparison()).compare_again()


@_must(
    "fresh_places",
    "A restore is exact even if only the save is left of an earlier run: no file, process or"
    " listener.",
)
async def check_fresh_places(ctx: CheckContext) -> Findings:
    """Compare the original with a restore in fresh places."""
    return await live_fresh(ctx.instances, await ctx.comparison())


@_must("save_changes_nothing", "A save does not change the later behaviour of the world.")
async def check_saves(ctx: CheckContext) -> Findings:
    """Compare two restores of the same save; one of them is saved in between."""
    return await (await ctx.comparison()).compare_saved()


@_must(
    "resnapshot",
    "While time stands still, the snapshot of a restored world has the bytes of the save.",
)
async def check_resnapshot(ctx: CheckContext) -> str:
    """Compare the save with the first snapshot of a restored world."""
    lives = await ctx.require(Lockstep)
    saved = (await lives.original()).saved.snapshot
    first = (await lives.resaved()).first
    found = compare_answers(saved, first)
    if found is not None:
        evidence = "the first snapshot of the restored world differs from the save"
        raise NotMet(evidence, exchange=first, difference=found)
    return f"{len(first.content)} bytes were equal"


@_must("cut_points", "A restore is exact regardless of the moment at which the world was saved.")
async def check_cut_points(ctx: CheckContext) -> str:
    """Restore saves from before random steps of a script; report the earliest failing step."""
    lives = await ctx.require(Lockstep)
    try:
        await run_blocking(importlib.import_module, "hypothesis")  # takes one or more seconds
        import hypothesis
        from hypothesis import strategies
    except ImportError:
        raise CouldNotRun(f"it needs hypothesis: {install_command('check')}") from None
    await ctx.inputs.require_actions()
    steps = len((await lives.resaved()).saves)
    tried = set[int]()
    outcomes: list[Exception] = []

    def search() -> None:
        @hypothesis.seed(ctx.instances.seed)
        @hypothesis.settings(
            max_examples=_EXAMPLES,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            suppress_health_check=list(hypothesis.HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        )
        @hypothesis.given(strategies.integers(0, steps - 1))
        def continue_from(cut: int) -> None:
            tried.add(cut)
            try:
                from_thread.run(lives.continue_from_cut, cut)
            except Exception as outcome:
                outcomes.append(outcome)
                raise

        continue_from()

    try:
        await run_blocking(search)
    except hypothesis.errors.Flaky:
        raise _without_repetition(outcomes[0]) from None
    return f"restores from {len(tried)} of {steps} cut points were exact"


def _without_repetition(outcome: Exception) -> Exception:
    """Add to an outcome that another restore of the same save did not show it."""
    evidence = f"{outcome}; another restore of the same save did not show this"
    if isinstance(outcome, NotMet):
        return NotMet(evidence, exchange=outcome.exchange, difference=outcome.difference)
    return CouldNotRun(evidence) if isinstance(outcome, CouldNotRun) else outcome


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# -- state that a restore keeps ------------------------------------------------------------------


@_must("sessions", "The sessions of all agents keep working after a restore, without a new join.")
async def check_sessions(ctx: CheckContext) -> str:
    """Observe with every session of the original."""
    first = (await (await ctx.comparison()).restored()).first
    return f"{len(first.observed)} sessions were accepted"


@_must("chat", "The chat history is the same after a restore.")
async def check_chat(ctx: CheckContext) -> str:
    """Compare the chat of each agent before the save and after the restore."""
    comparison = await ctx.comparison()
    before, restored = (await comparison.original()).first, await comparison.restored()
    after = restored.first
    if not before.heard[0].is_accepted:
        raise NotApplicable(f"the world has no chat: {before.heard[0].outcome}")
    for player, first, second in zip(after.players, before.heard, after.heard, strict=True):
        found = compare_bodies(first.content, second.content)
        if first.status != second.status or found is not None:
            evidence = f"{player.name} gets other messages than before"
            raise NotMet(evidence, exchange=second, difference=found)
    messages = after.heard[0].fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise CouldNotRun("no message was posted before the save")
    ids = [message.get("id") for message in messages if isinstance(message, dict)]
    said = restored.said
    if said is not None and said.fields.get("id") in ids:
        evidence = f"a message after the restore has the id of another: {said.fields['id']!r}"
        raise NotMet(evidence, exchange=said)
    return f"the history of {_count(len(messages), 'message')} was the same"


@_must(
    "joins",
    "An agent that joins a restored world sees the same as it would have without the restore.",
)
async def check_joins(ctx: CheckContext) -> Findings:
    """Compare the observations of a new agent in the original and in a restored world."""
    comparison = await ctx.comparison()
    players = (await comparison.restored()).first.players
    late_joiner = (await comparison.require_late_joiners())[1]
    agent_id = late_joiner.player.agent_id
    if agent_id and agent_id in {player.agent_id for player in players}:
        raise NotMet(f"an agent that joined after the restore got the id of another: {agent_id!r}")
    return await comparison.compare_joins(late_joiner)
