"""Checks of the restore: a restored world continues exactly as the original would have.

A world that stands still between inputs is compared by the bytes of its answers, a world that runs
by itself by its documents of equal simulated time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
from anyio import from_thread

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import landings, lockstep, realtime
from clawblox.conformance.exchange import Exchange, compare_answers, compare_bodies
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import NAMES, Player
from clawblox.conformance.registry import Checks, CouldNotRun, Failed, NotApplicable
from clawblox.extras import install_command

CHECKS: Final = Checks("restore")
_check = partial(CHECKS.add, needs_directory=True)

_EXAMPLES: Final = 5
"""Cut points that are tried before the search ends."""


@_check(
    "trace",
    "must",
    "A restored world answers as the world that was saved would have answered: the same bytes to"
    " the same inputs, or the same documents at the same simulated times.",
)
async def look_at_trace(lab: Lab) -> str:
    """Compare the original with its first restore."""
    if await lab.clock() == "lockstep":
        original = (await lockstep.live_original(lab)).life
        restored = await lockstep.live_restored(lab, 1)
        count = lockstep.require_equal(original, restored, "the restored world")
        lab.findings.equal_answers = count
        return f"{count} answers were equal to the byte, headers included"
    original_life = (await realtime.live_original(lab)).watched
    restored_life = (await realtime.live_restored(lab, saving=False)).watched
    kinds = await _comparable(lab, original_life, restored_life)
    if original_life.is_opaque:
        lab.findings.limits.append("snapshots have no simulated time to compare them by")
    count = realtime.require_equal("the restored world", *kinds)
    lab.findings.equal_times = count
    return f"documents of {count} simulated times were equal"


async def _comparable(
    lab: Lab, first: realtime.Watched, second: realtime.Watched
) -> list[realtime.Seen]:
    """Return what two lives have in common; snapshots only if they changed neither life."""
    observations = first.observations, second.observations
    if first.is_opaque or not await _saving_is_harmless(lab):
        return [observations]
    return [observations, (first.snapshots, second.snapshots)]


async def _saving_is_harmless(lab: Lab) -> bool:
    """Return whether lives can be compared by their snapshots."""
    try:
        await look_at_saves(lab)
    except (Failed, CouldNotRun):
        return False
    return True


@_check(
    "landings",
    "must",
    "Lives of a running world are equal after an input that landed at the same simulated time.",
)
async def look_at_landings(lab: Lab) -> str:
    """Compare lives of a running world in which the same input landed together."""
    await lab.require_clock("realtime")
    lives = await landings.live_landings(lab)
    pairs, times = _require_equal_pairs(lives.pairs(saved=False))
    if not pairs:
        landed = ", ".join(f"{life.time:g}" for life in (lives.original, *lives.restored))
        raise CouldNotRun(f"no two inputs landed at the same simulated time: {landed}")
    with_original = sum(first is lives.original for first, _ in lives.pairs(saved=False))
    lab.findings.equal_landings = pairs
    return (
        f"{_count(pairs, 'pair')} of {len(lives.restored) + 1} lives landed together"
        f" ({with_original} with the original), and were equal at {times} simulated times"
    )


def _require_equal_pairs(
    pairs: Sequence[tuple[landings.Landing, landings.Landing]],
) -> tuple[int, int]:
    """Return the number of equal pairs with enough common times, and of these times.

    Raises:
        Failed: A pair differs.
    """
    count = times = 0
    for first, second in pairs:
        saved = ", saved while the input waited," if second.is_saved else ""
        who = f"{second.who}{saved} whose input landed at {first.time:g} like that of {first.who},"
        try:
            times += realtime.require_equal(who, (first.documents, second.documents))
        except CouldNotRun:
            continue
        count += 1
    return count, times


@_check(
    "pending",
    "must",
    "A save keeps the inputs that wait for the next tick, in the world and in the snapshot.",
)
async def look_at_pending(lab: Lab) -> str:
    """Save a running world while an input waits, and restore such a save."""
    await lab.require_clock("realtime")
    lives = await landings.live_landings(lab)
    if lives.is_opaque:
        raise CouldNotRun("snapshots have no simulated time to compare them by")
    try:
        _require_equal_pairs(lives.pairs(saved=False))
    except Failed:
        raise CouldNotRun("lives differ even without a save in between: restore.landings") from None
    pairs, _ = _require_equal_pairs(lives.pairs(saved=True))
    waiting = await landings.find_waiting(lab)
    if waiting is not None:
        landing, exchange = waiting
        restored = await landings.continue_waiting(lab, exchange)
        who = "a life restored from a save that was made while the input waited"
        times = realtime.require_equal(who, (landing.documents, restored))
        return f"after a restore with a waiting input, {times} simulated times were equal"
    if not pairs:
        raise CouldNotRun("no save was made while an input waited")
    return f"{_count(pairs, 'life', 'lives')} saved while an input waited continued equally"


@_check(
    "second",
    "must",
    "Every restore of a save continues in the same way.",
)
async def look_at_second(lab: Lab) -> str:
    """Compare two restores of the same save."""
    who = "the second restore"
    if await lab.clock() == "lockstep":
        first, second = [await lockstep.live_restored(lab, number) for number in (1, 2)]
        return f"{lockstep.require_equal(first, second, who)} answers were equal to the byte"
    plain, saved = [await realtime.live_restored(lab, saving=saving) for saving in (False, True)]
    count = realtime.require_equal(who, *await _comparable(lab, plain.watched, saved.watched))
    return f"documents of {count} simulated times were equal"


@_check(
    "again",
    "must",
    "A restore of a restored world is exact too.",
)
async def look_at_again(lab: Lab) -> str:
    """Compare a restored world with a restore of its own save."""
    who = "the restore of a restored world"
    if await lab.clock() == "lockstep":
        saved_at = (await lockstep.live_resaved(lab)).saved_at
        restored = (await lockstep.live_restored(lab, 1)).since(saved_at)
        again = await lockstep.live_again(lab)
        return f"{lockstep.require_equal(restored, again, who)} answers were equal to the byte"
    after = (await realtime.live_restored(lab, saving=False)).after
    count = realtime.require_equal(who, (after, await realtime.live_again(lab)))
    return f"documents of {count} simulated times were equal"


@_check(
    "save_changes_nothing",
    "must",
    "A save changes nothing that the world does afterwards.",
)
async def look_at_saves(lab: Lab) -> str:
    """Compare two restores of the same save, of which one is saved in between."""
    who = "a restored world that was saved in between"
    if await lab.clock() == "lockstep":
        restored = await lockstep.live_restored(lab, 1)
        resaved = (await lockstep.live_resaved(lab)).life
        return f"{lockstep.require_equal(restored, resaved, who)} answers were equal to the byte"
    plain, saved = [await realtime.live_restored(lab, saving=saving) for saving in (False, True)]
    seen = plain.watched.observations, saved.watched.saved_observations
    count = realtime.require_equal(who, seen)
    return f"observations of {count} simulated times were equal, with and without saves in between"


@_check(
    "resnapshot",
    "must",
    "The snapshot of a restored world, where time stands still, has the bytes of the save.",
)
async def look_at_resnapshot(lab: Lab) -> str:
    """Compare the save with the first snapshot of a restored world."""
    await lab.require_clock("lockstep")
    saved = (await lockstep.live_original(lab)).beginning.saved
    first = (await lockstep.live_resaved(lab)).first
    found = compare_answers(saved, first)
    if found is not None:
        evidence = "the first snapshot of the restored world differs from the save"
        raise Failed(evidence, exchange=first, difference=found)
    return f"{len(first.content)} bytes were equal"


@_check(
    "cut_points",
    "must",
    "A restore is exact wherever in its life the world was saved.",
)
async def look_at_cut_points(lab: Lab) -> str:
    """Restore saves from before random steps of a script; a failure is reduced to the first."""
    await lab.require_clock("lockstep")
    try:
        import hypothesis
        from hypothesis import strategies
    except ImportError:
        raise CouldNotRun(f"it needs hypothesis: {install_command('check')}") from None
    cuts = await lockstep.live_cuts(lab)
    tried = set[int]()

    def search() -> None:
        @hypothesis.seed(lab.seed)
        @hypothesis.settings(
            max_examples=_EXAMPLES,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            suppress_health_check=list(hypothesis.HealthCheck),
            print_blob=False,
            report_multiple_bugs=False,
        )
        @hypothesis.given(strategies.integers(0, len(cuts.script) - 1))
        def continue_from(cut: int) -> None:
            tried.add(cut)
            from_thread.run(lockstep.continue_from_cut, lab, cut)

        continue_from()

    await run_blocking(search)
    return f"restores from {len(tried)} of {len(cuts.script)} cut points were exact"


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


# -- what a restore keeps -------------------------------------------------------------------------


@attrs.frozen
class Kept:
    """What the agents of the original find in a restored world, before anything else.

    Attributes:
        players: The agents.
        observed: Their observations, without a join.
        heard_before: What they heard when the world was saved.
        heard: What they hear now.
        said: The answer to a message that the first of them sends now.
        joined: The answer to the join of a further agent.
    """

    players: tuple[Player, ...]
    observed: tuple[Exchange, ...]
    heard_before: tuple[Exchange, ...]
    heard: tuple[Exchange, ...]
    said: Exchange
    joined: Exchange


async def _look_after_restore(lab: Lab) -> Kept:
    async def look() -> Kept:
        original: lockstep.Beginning | realtime.Original
        if await lab.clock() == "lockstep":
            original = (await lockstep.live_original(lab)).beginning
        else:
            original = await realtime.live_original(lab)
        async with lab.start(resume=original.save) as live:
            players = original.moved(live)
            observed = [await player.observe() for player in players]
            heard = [await player.hear() for player in players]
            said = await players[0].say("after the restore")
            joined = await live.try_join(NAMES[len(players)])
        return Kept(tuple(players), tuple(observed), original.heard, tuple(heard), said, joined)

    return await lab.once("restore.kept", look)


@_check(
    "sessions",
    "must",
    "The sessions of all agents keep working after a restore, without a new join.",
)
async def look_at_sessions(lab: Lab) -> str:
    """Observe with every session of the original."""
    kept = await _look_after_restore(lab)
    for player, exchange in zip(kept.players, kept.observed, strict=True):
        if not exchange.is_accepted:
            evidence = f"the session of {player.name} was refused: {exchange.outcome}"
            raise Failed(evidence, exchange=exchange)
    return f"{len(kept.players)} sessions were accepted"


@_check(
    "chat",
    "must",
    "The chat history is the same after a restore.",
)
async def look_at_chat(lab: Lab) -> str:
    """Compare the chat of each agent before the save and after the restore."""
    kept = await _look_after_restore(lab)
    if not kept.heard_before[0].is_accepted:
        raise NotApplicable(f"the world has no chat: {kept.heard_before[0].outcome}")
    for player, before, after in zip(kept.players, kept.heard_before, kept.heard, strict=True):
        found = compare_bodies(before.content, after.content)
        if after.status != before.status or found is not None:
            evidence = f"the messages that {player.name} gets are others than before"
            raise Failed(evidence, exchange=after, difference=found)
    messages = kept.heard[0].fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise CouldNotRun("no message was posted before the save")
    new_id = kept.said.fields.get("id")
    if new_id in [message.get("id") for message in messages if isinstance(message, dict)]:
        evidence = f"a message after the restore got the id of an earlier one: {new_id!r}"
        raise Failed(evidence, exchange=kept.said)
    return f"the history of {_count(len(messages), 'message')} was the same"


@_check(
    "joins",
    "must",
    "An agent that joins a restored world finds what it would have found without the restore.",
)
async def look_at_joins(lab: Lab) -> str:
    """Compare what a new agent sees in the original and in a restored world."""
    kept = await _look_after_restore(lab)
    agent_id = kept.joined.fields.get("agent_id")
    if agent_id in {player.agent_id for player in kept.players}:
        evidence = f"an agent that joined after the restore got the id of another: {agent_id!r}"
        raise Failed(evidence, exchange=kept.joined)
    if await lab.clock() == "realtime":
        if not kept.joined.is_accepted:
            raise CouldNotRun(f"no further agent could join: {kept.joined.outcome}")
        return "an agent that joined after the restore got an id of its own"
    original = (await lockstep.live_original(lab)).life
    restored = await lockstep.live_restored(lab, 1)
    if original.joined is None:
        raise CouldNotRun("no further agent could join the original")
    if restored.joined is None:
        raise Failed("the restored world refuses an agent that the original admitted")
    who = "with an agent that joined after the restore, the world"
    lockstep.require_equal_traces(original.after, restored.after, who)
    return f"{len(restored.after.exchanges)} answers were equal to the byte"
