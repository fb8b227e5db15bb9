"""Checks of the restore: a restored world continues exactly as the original would have.

A world that stands still between inputs is compared by the bytes of its answers, a world that runs
by itself by its documents of equal simulated time.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from anyio import from_thread

from clawblox.concurrency.threads import run_blocking
from clawblox.conformance import landings, lockstep, realtime
from clawblox.conformance.exchange import Exchange, compare_answers, compare_bodies
from clawblox.conformance.fresh import lives as fresh
from clawblox.conformance.lab import Lab
from clawblox.conformance.live import Arrival
from clawblox.conformance.ordinary import find_newcomers
from clawblox.conformance.registry import Checks, CouldNotRun, Failed, NotApplicable, TooLittleSeen
from clawblox.extras import install_command

CHECKS: Final = Checks("restore")
_must = partial(CHECKS.must, needs_directory=True)

NOTHING_CHANGED: Final = (
    "no answer to an accepted input ever changed, so nothing was seen that a restore could lose"
)
_EXAMPLES: Final = 5
"""Cut points that are tried before the search ends."""


@_must(
    "trace",
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
        if not lockstep.has_changing_answers(original.trace):
            lab.findings.limits.append(NOTHING_CHANGED)
        return f"{count} answers were equal to the byte, headers included"
    original_life = (await realtime.live_original(lab)).watched
    restored_life = (await realtime.live_restored(lab, saving=False)).watched
    if original_life.is_opaque:
        lab.findings.limits.append("snapshots have no simulated time to compare them by")
    count, evidence = await _require_equal(lab, "the restored world", original_life, restored_life)
    lab.findings.equal_times = count
    return evidence


async def _require_equal(
    lab: Lab, who: str, first: realtime.Watched, second: realtime.Watched
) -> tuple[int, str]:
    """Return the number of equal documents of two lives, and the evidence.

    Snapshots are compared only if they changed neither life.
    """
    snapshots = first.snapshots, second.snapshots
    is_comparable = not first.is_opaque and await _saving_is_harmless(lab)
    kinds = [snapshots] if is_comparable else []
    count = realtime.require_equal(who, (first.observations, second.observations), *kinds)
    evidence = f"documents of {count} simulated times were equal"
    if first.is_opaque or (is_comparable and first.snapshots.keys() & second.snapshots.keys()):
        return count, evidence
    lab.findings.limits.append(f"no snapshots of {who} were compared")
    return count, f"{evidence}, no snapshots among them"


async def _saving_is_harmless(lab: Lab) -> bool:
    """Return whether lives can be compared by their snapshots."""
    try:
        await look_at_saves(lab)
    except (Failed, CouldNotRun):
        return False
    return True


@_must(
    "landings",
    "Lives of a running world are equal after an input that landed at the same simulated time.",
)
async def look_at_landings(lab: Lab) -> str:
    """Compare lives of a running world in which the same input landed together."""
    await lab.require_clock("realtime")
    lives = await landings.live_landings(lab)
    landed = lives.pairs(saved=False)
    pairs, times = _require_equal_pairs(landed)
    with_original, _ = _require_equal_pairs([each for each in landed if each[0] is lives.original])
    if not with_original:  # what a save loses, all restored lives lack alike
        seen = ", ".join(f"{life.time:g}" for life in (lives.original, *lives.restored))
        raise TooLittleSeen(
            f"no input of a restored life landed at the time of the original: {seen}"
        )
    lab.findings.equal_landings = pairs
    if not realtime.has_changes([*lives.original.documents.values()]):
        lab.findings.limits.append(NOTHING_CHANGED)
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


@_must(
    "pending",
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
    _require_equal_pairs(lives.pairs(saved=True))
    waiting = await landings.find_waiting(lab)
    if waiting is None:
        raise TooLittleSeen("no save had an input waiting")
    landing, exchange = waiting
    restored = await landings.continue_waiting(lab, exchange)
    who = "a life restored from a save that was made while the input waited"
    times = realtime.require_equal(who, (landing.documents, restored))
    return f"after a restore with a waiting input, {times} simulated times were equal"


@_must("second", "Every restore of a save continues in the same way.")
async def look_at_second(lab: Lab) -> str:
    """Compare two restores of the same save."""
    who = "the second restore"
    if await lab.clock() == "lockstep":
        first, second = [await lockstep.live_restored(lab, number) for number in (1, 2)]
        return f"{lockstep.require_equal(first, second, who)} answers were equal to the byte"
    plain, saved = [await realtime.live_restored(lab, saving=saving) for saving in (False, True)]
    return (await _require_equal(lab, who, plain.watched, saved.watched))[1]


@_must("again", "A restore of a restored world is exact too.")
async def look_at_again(lab: Lab) -> str:
    """Compare a restored world with a restore of its own save."""
    who = "the restore of a restored world"
    if await lab.clock() == "lockstep":
        middle = (await lockstep.live_resaved(lab)).middle
        restored = (await lockstep.live_restored(lab, 1)).since(middle)
        again = await lockstep.live_again(lab)
        return f"{lockstep.require_equal(restored, again, who)} answers were equal to the byte"
    after = (await realtime.live_restored(lab, saving=False)).after
    count = realtime.require_equal(who, (after, await realtime.live_again(lab)))
    return f"documents of {count} simulated times were equal"


@_must(
    "fresh_places",
    "A restore is exact also where nothing of an earlier life is left but the save: no file, no"
    " process and no listener.",
)
async def look_at_fresh_places(lab: Lab) -> str:
    """Compare the original with a restore in places of its own."""
    compared = await fresh.live_fresh(lab)
    lab.findings.places = compared.described
    if compared.left:
        lab.findings.limits.append(
            f"where other lives could find it, the world left {fresh.shorten(compared.left)}"
        )
    return compared.evidence


@_must("save_changes_nothing", "A save changes nothing that the world does afterwards.")
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


@_must(
    "resnapshot",
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


@_must("cut_points", "A restore is exact wherever in its life the world was saved.")
async def look_at_cut_points(lab: Lab) -> str:
    """Restore saves from before random steps of a script; a failure is reduced to the first."""
    await lab.require_clock("lockstep")
    try:
        await run_blocking(importlib.import_module, "hypothesis")  # takes a second, or several
        import hypothesis
        from hypothesis import strategies
    except ImportError:
        raise CouldNotRun(f"it needs hypothesis: {install_command('check')}") from None
    await lab.require_actions()
    steps = len((await lockstep.live_resaved(lab)).saves)
    tried = set[int]()
    outcomes: list[Exception] = []

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
        @hypothesis.given(strategies.integers(0, steps - 1))
        def continue_from(cut: int) -> None:
            tried.add(cut)
            try:
                from_thread.run(lockstep.continue_from_cut, lab, cut)
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
    """Return an outcome that another restore of the same save did not have, with these words."""
    evidence = f"{outcome}; another restore of the same save did not show this"
    if isinstance(outcome, Failed):
        return Failed(evidence, exchange=outcome.exchange, difference=outcome.difference)
    return CouldNotRun(evidence) if isinstance(outcome, CouldNotRun) else outcome


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


# -- what a restore keeps -------------------------------------------------------------------------


async def _find_arrivals(lab: Lab) -> tuple[Arrival, Arrival]:
    """Return what the agents found right after the save, and right after the restore."""
    if await lab.clock() == "lockstep":
        original = (await lockstep.live_original(lab)).life
        return original.arrival, (await lockstep.live_restored(lab, 1)).arrival
    before = (await realtime.live_original(lab)).arrival
    return before, (await realtime.live_restored(lab, saving=False)).arrival


@_must("sessions", "The sessions of all agents keep working after a restore, without a new join.")
async def look_at_sessions(lab: Lab) -> str:
    """Observe with every session of the original."""
    _, arrival = await _find_arrivals(lab)
    return f"{len(arrival.observed)} sessions were accepted"


@_must("chat", "The chat history is the same after a restore.")
async def look_at_chat(lab: Lab) -> str:
    """Compare the chat of each agent before the save and after the restore."""
    before, after = await _find_arrivals(lab)
    if not before.heard[0].is_accepted:
        raise NotApplicable(f"the world has no chat: {before.heard[0].outcome}")
    for player, first, second in zip(after.players, before.heard, after.heard, strict=True):
        found = compare_bodies(first.content, second.content)
        if first.status != second.status or found is not None:
            evidence = f"the messages that {player.name} gets are others than before"
            raise Failed(evidence, exchange=second, difference=found)
    messages = after.heard[0].fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise CouldNotRun("no message was posted before the save")
    ids = [message.get("id") for message in messages if isinstance(message, dict)]
    said = await _find_first_message(lab)
    if said is not None and said.fields.get("id") in ids:
        evidence = f"a message after the restore has the id of another: {said.fields['id']!r}"
        raise Failed(evidence, exchange=said)
    return f"the history of {_count(len(messages), 'message')} was the same"


async def _find_first_message(lab: Lab) -> Exchange | None:
    """Return the answer to the first message after the restore; None without one."""
    if await lab.clock() == "lockstep":
        return (await lockstep.live_restored(lab, 1)).trace.said
    newcomer = (await realtime.live_restored(lab, saving=False)).newcomer
    return None if newcomer is None else newcomer.said


@_must(
    "joins",
    "An agent that joins a restored world finds what it would have found without the restore.",
)
async def look_at_joins(lab: Lab) -> str:
    """Compare what a new agent sees in the original and in a restored world."""
    _, arrival = await _find_arrivals(lab)
    agent_id = (await find_newcomers(lab))[1].player.agent_id
    if agent_id and agent_id in {player.agent_id for player in arrival.players}:
        raise Failed(f"an agent that joined after the restore got the id of another: {agent_id!r}")
    if await lab.clock() == "realtime":
        if not agent_id:
            raise CouldNotRun("a join answers no text as agent_id")
        return "an agent that joined after the restore got an id of its own"
    original = (await lockstep.live_original(lab)).life
    restored = await lockstep.live_restored(lab, 1)
    who = "with an agent that joined after the restore, the world"
    lockstep.require_equal_traces(original.after, restored.after, who)
    return f"{_count(len(restored.after.exchanges), 'answer')} were equal to the byte"
