"""Scores of an experiment, computed again from states that replays have reached.

The checkpoint at the end of a generation counts only if the replay of the attempt that made it has
reached its state. Then a world without agents is started from it, and the score function is called.
Models that judge may vary, so a different score is reported but is not a difference of the replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.checkpoint.load.load import extract_snapshot
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError, ConfigError, UsageError
from clawblox.experiment import layout
from clawblox.experiment.history.checkpoints import Checkpoint
from clawblox.experiment.history.lines import About, LineType
from clawblox.experiment.history.state import GenerationState
from clawblox.experiment.live.live_backend import LiveBackend
from clawblox.experiment.live.preparing import find_archive
from clawblox.experiment.reading.record import ExperimentRecord, read_experiment
from clawblox.experiment.running.rescoring import Rescoring, find_end
from clawblox.experiment.schedule.callbacks import Callbacks, Score
from clawblox.foreign_values import parse_document
from clawblox.recording.blocks import MAX_START_BYTES, MAX_START_MEMBERS
from clawblox.replay.plan import digest_state
from clawblox.replay.results import CheckedScore, StateDigest, VerifiedReplay
from clawblox.system.clock import SystemClock
from clawblox.system.regular_files import read_regular
from clawblox.system.scratch import scratch_directory, temporary_directory
from clawblox.world.private_copies import MissingFilesError, place_world
from clawblox.world.recorded_worlds import find_forger
from clawblox.world.sources import find_world_dir

_NOT_REACHED: Final = "no replay has reached the state of its last checkpoint"


@attrs.frozen
class ExpectedEnd:
    """The checkpoint at the end of a committed generation.

    Attributes:
        chain: Its chain.
        generation: Its generation.
        attempt: Name of the attempt that made it.
        recorded: The scores in the journal.
        state: The state of the world in it, if it can be compared, or None.
        problem: Why there is no such state; else empty.
    """

    chain: str
    generation: int
    attempt: str
    recorded: Mapping[str, float]
    state: StateDigest | None
    problem: str = ""


@attrs.frozen
class _ReachedWorld:
    """The world of a replay that has reached the end of a generation.

    Attributes:
        world: Its directory, or its address in a GitHub repository.
        has_repository_files: Whether it starts only with the other files of its git repository.
    """

    world: str
    has_repository_files: bool = False


def find_ends(directory: Path, score: Score | None) -> Sequence[ExpectedEnd]:
    """Return the checkpoints at the end of the committed generations of an experiment. Blocks.

    Args:
        directory: The directory of the experiment, resolved.
        score: The score function; None means that of the plan.

    Raises:
        ClawbloxError: Its journal or a plan cannot be read.
        ConfigError: There is no score function, or it cannot be imported.
        UsageError: Another user or an agent can have written the plan, which names programs.
        OSError: No file can be written.
    """
    record = read_experiment(directory)
    problem = find_forger(directory, directory / record.state.plan_file)
    if problem is not None:
        raise UsageError(f"the plan of the experiment cannot be trusted, since {problem}")
    callbacks = Callbacks(score)
    callbacks.load(record.plan)
    if not callbacks.has_score:
        raise ConfigError("must be given, as the plan has none", key="score")
    return [
        _read_end(record, generation, find_end(generation))
        for chain in record.state.chains.values()
        for generation in chain.generations.values()
        if generation.committed is not None
    ]


def _read_end(
    record: ExperimentRecord, generation: GenerationState, end: Checkpoint | None
) -> ExpectedEnd:
    attempt = "" if end is None else end.ref.attempt
    scores = dict(generation.scores.values)
    expected = partial(ExpectedEnd, generation.chain, generation.number, attempt, scores)
    if end is None:
        return expected(None, "it has no checkpoint at its end")
    archive = find_archive(layout.chain_dir(record.dir, end.ref.chain, record.plan.layout), end.ref)
    if archive is None:
        return expected(None, "its last checkpoint is gone")
    try:
        with temporary_directory("clawblox-verify-") as scratch:
            path, _ = extract_snapshot(archive, scratch)
            content = read_regular(path, max_bytes=MAX_START_BYTES)
        snapshot = parse_document(content, max_members=MAX_START_MEMBERS)
        is_of_kit = isinstance(snapshot, dict) and "state" in snapshot
        if not is_of_kit or (state := digest_state(snapshot)) is None:
            return expected(None, "its last checkpoint has no state of the kit")
        return expected(state)
    except (ClawbloxError, OSError, ValueError, TypeError) as error:
        return expected(None, f"its last checkpoint cannot be read: {error}".partition("\n")[0])


class _Scores:
    """Receives the scores instead of the journal, which is not changed."""

    def __init__(self) -> None:
        self.facts: dict[tuple[str, int], Mapping[str, Any]] = {}

    async def write(self, type: LineType, data: Mapping[str, Any], about: About) -> None:  # noqa: A002
        self.facts[str(about.chain), int(about.generation or 0)] = data


async def check_scores(
    directory: Path,
    ends: Sequence[ExpectedEnd],
    replays: Sequence[VerifiedReplay],
    *,
    score: Score | None = None,
    in_place: bool = False,
) -> Sequence[CheckedScore]:
    """Compute the scores of an experiment again, in worlds that start from replayed ends.

    Args:
        directory: The directory of the experiment, resolved. Run directories are made in it, and
            removed again; its journal is not written.
        ends: The ends of its generations.
        replays: The results of the replays of its recordings.
        score: The score function; None means that of the plan.
        in_place: Whether worlds run in their own directories instead of private copies.

    Returns:
        A result for each end, in their order.

    Raises:
        ConfigError: The score function or the world cannot be used.
        OSError: A file cannot be written.

    Cancellation: every process is ended, and every directory removed.
    """
    record = await run_blocking(read_experiment, directory)
    worlds = _find_reached(replays, ends)
    facts: dict[tuple[str, int], Mapping[str, Any]] = {}
    for world in dict.fromkeys(worlds.values()):
        chosen = {(end.chain, end.generation) for end in ends if worlds.get(end.attempt) == world}
        try:
            facts |= await _score(record, world, chosen, score, in_place=in_place)
        except MissingFilesError as error:
            reason = f"{error}; verify it in place: --in-place"
            facts |= {generation: {"error": reason} for generation in chosen}
    return [_judge(end, facts.get((end.chain, end.generation))) for end in ends]


def _find_reached(
    replays: Sequence[VerifiedReplay], ends: Sequence[ExpectedEnd]
) -> Mapping[str, _ReachedWorld]:
    """Return, by attempt, the worlds whose replays have reached the end of the generation."""
    states = {end.attempt: end.state for end in ends if end.state is not None}
    return {
        replay.attempt.name: _ReachedWorld(replay.world, replay.progress.has_repository_files)
        for replay in replays
        if replay.attempt is not None
        and replay.status == "equal"
        and states.get(replay.attempt.name) in replay.progress.digests
    }


async def _score(
    record: ExperimentRecord,
    reached: _ReachedWorld,
    chosen: set[tuple[str, int]],
    score: Score | None,
    *,
    in_place: bool,
) -> Mapping[tuple[str, int], Mapping[str, Any]]:
    """Return the data of the scores of some generations with the same world."""
    async with scratch_directory("clawblox-verify-") as scratch:
        directory = await run_blocking(find_world_dir, reached.world)
        is_whole = reached.has_repository_files
        world = await place_world(directory, scratch, in_place=in_place, is_whole=is_whole)
        backend = LiveBackend(record.dir, record.plan.layout, {})
        sink = _Scores()
        scoring = Rescoring(
            record.plans,
            backend,
            sink,
            Callbacks(score),
            SystemClock(),
            wanted=lambda generation: (generation.chain, generation.number) in chosen,
            world_dir=world.dir,
        )
        async with Tasks() as tasks:
            tasks.start_soon(backend.serve)
            await scoring.run()
        return sink.facts


def _judge(end: ExpectedEnd, facts: Mapping[str, Any] | None) -> CheckedScore:
    checked = CheckedScore(end.chain, end.generation, end.attempt, end.recorded)
    if facts is None:
        return attrs.evolve(checked, reason=end.problem or _NOT_REACHED)
    return attrs.evolve(
        checked, computed=dict(facts.get("scores", {})), reason=str(facts.get("error", ""))
    )
