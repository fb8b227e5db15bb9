"""Verified replays of a run: each recording from its own start, and their connections.

If a world was killed and restored, a later recording starts from a state that the replay of an
earlier one must reach at the same tick.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_HEALTH_TIMEOUT_S, DEFAULT_STALL_TIMEOUT_S
from clawblox.errors import UsageError
from clawblox.replay.attempts import is_experiment
from clawblox.replay.kept_verification import digest_judged
from clawblox.replay.results import (
    RecordingLink,
    ReplayProgress,
    StartCheck,
    VerifiedReplay,
    VerifiedRun,
)
from clawblox.replay.sources import ReplaySource, VerifyOptions, find_sources
from clawblox.replay.verified_replay import OnProgress, replay_recording
from clawblox.rundir.paths import resolve_run_dir

if TYPE_CHECKING:
    from clawblox.experiment.schedule.callbacks import Score
    from clawblox.replay.verified_scores import ExpectedEnd

OnRunProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of repeated ticks, and of the ticks of all recordings."""
OnReplay: TypeAlias = Callable[[VerifiedReplay], None]
"""Called with each result, as soon as it is known."""
OnWorld: TypeAlias = Callable[[str], Awaitable[None]]
"""Awaited with the directory or address of each world, before any world is started."""


async def _ignore_world(_world: str) -> None:
    """Ignore a world that is about to run."""


async def verify_run(
    run: str | Path,
    *,
    number: int | None = None,
    world_dir: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    in_place: bool = False,
    strict: bool = False,
    scores: bool = False,
    score: Score | None = None,
    health_timeout: float = DEFAULT_HEALTH_TIMEOUT_S,
    stall_timeout: float = DEFAULT_STALL_TIMEOUT_S,
    on_progress: OnRunProgress = lambda _done, _total: None,
    on_replay: OnReplay = lambda _replay: None,
    on_world: OnWorld = _ignore_world,
) -> VerifiedRun:
    """Repeat the recordings of a run or an experiment in new processes of its world, and compare.

    Each new process gets the first state or the seed and the inputs of agents, and records its own
    run. This process compares the two recordings up to the first difference: events, observations,
    frames and fingerprints. The code of the world runs; recordings are only data.

    Args:
        run: A run directory, of one or many instances, the directory of an experiment, or the file
            of a recording.
        number: Verify only this recording of the run, counted from 1; None verifies all.
        world_dir: The directory of the world, or the address of one in a GitHub repository; None
            takes the world in the records of the run, if no other user and no agent can have
            written them or placed the world.
        env: Values of the environment variables that the run was given, before those of this
            process; they are not on disk.
        in_place: Whether the world runs in its own directory instead of a private copy.
        strict: Whether a recording with an unchecked start counts as not verified.
        scores: Whether the scores of an experiment are computed again, where the replay has reached
            the end of a generation. Their function is imported, and runs here.
        score: The score function; None means that of the plan.
        health_timeout: Seconds until a new process must be ready.
        stall_timeout: Seconds without any progress after which a replay is given up.
        on_progress: Called from time to time.
        on_replay: Called with each result, as soon as it is known.
        on_world: Awaited with the directory or address of each world, before any is started.

    Returns:
        The results; recordings that cannot be verified have a reason.

    Raises:
        ConfigError: The directory of the world is not a world, or cannot be copied; or a variable
            has no value.
        ManifestError: ``run`` is a directory without a manifest.
        ModuleNotFoundError: Zstandard is missing; the message has the command that installs it.
        OSError: A file cannot be read or written.
        UsageError: There is no such recording; or its world is not known, or must be given.
        ClawbloxError: The journal of the experiment cannot be read.

    Cancellation: every process is ended, and every file removed.
    """
    options = VerifyOptions(
        number=number,
        world_dir=world_dir,
        env=env,
        in_place=in_place,
        health_timeout=health_timeout,
        stall_timeout=stall_timeout,
    )
    ends = await run_blocking(_find_ends, Path(run), score) if scores else ()
    sources = await run_blocking(find_sources, Path(run), options)
    used = [*dict.fromkeys(source.world for source in sources if source.world)]
    for world in used:
        await on_world(world)
    judged = await run_blocking(digest_judged, Path(run), used)
    replays: list[VerifiedReplay] = []
    total, done = sum(source.ticks for source in sources), 0
    for place, source in enumerate(sources):
        reach = partial(_report, on_progress, done - source.first_tick, total)
        later = [other for other in sources[place + 1 :] if other.may_continue(source)]
        wanted = {*(other.first_tick for other in later), *_end_ticks(source, ends)}
        replay = await _verify_source(source, options, wanted, reach)
        done += source.ticks
        on_progress(done, total)
        link = _find_link(source, replay.progress, sources, replays)
        checked_by = _find_check(replay.progress, link, replays)
        replays.append(attrs.evolve(replay, link=link, start_checked_by=checked_by))
        on_replay(replays[-1])
    verified = VerifiedRun(tuple(replays), strict, judged=judged)
    if not scores:
        return verified
    from clawblox.replay.verified_scores import check_scores

    directory = await run_blocking(resolve_run_dir, run)
    checked = await check_scores(directory, ends, replays, score=score, in_place=in_place)
    return attrs.evolve(verified, scores=tuple(checked))


async def _verify_source(
    source: ReplaySource, options: VerifyOptions, digest_ticks: Collection[int], reach: OnProgress
) -> VerifiedReplay:
    """Return the result for one recording, without its connections to others."""
    begun_at = time.monotonic()
    progress = ReplayProgress("impossible", source.obstacle)
    if not source.obstacle:
        progress = await replay_recording(
            source, options, digest_ticks=digest_ticks, on_progress=reach
        )
    return VerifiedReplay(
        source.found.path,
        source.number,
        source.found.instance,
        progress,
        round(time.monotonic() - begun_at, 3),  # as it is kept: a kept report reads the same
        world=source.world,
        attempt=source.attempt,
        damage=source.damage,
        changed_files=source.changed_files,
    )


def _find_ends(run: Path, score: Score | None) -> Sequence[ExpectedEnd]:
    if not is_experiment(run):
        raise UsageError("only experiments have scores: give the directory of one")
    # Imported here, because runs do not need experiments, which are slow to import.
    from clawblox.replay.verified_scores import find_ends

    return find_ends(resolve_run_dir(run), score)


def _end_ticks(source: ReplaySource, ends: Sequence[ExpectedEnd]) -> Iterator[int]:
    """Yield the ticks at which the replay of a recording may reach the end of a generation."""
    for end in ends:
        is_own = source.attempt is not None and source.attempt.name == end.attempt
        if is_own and end.state is not None:
            yield end.state.tick


def _report(on_progress: OnRunProgress, before: int, total: int, progress: ReplayProgress) -> None:
    on_progress(before + progress.tick, total)


def _find_link(
    source: ReplaySource,
    progress: ReplayProgress,
    sources: Sequence[ReplaySource],
    replays: Sequence[VerifiedReplay],
) -> RecordingLink | None:
    """Return the link of a recording's start to an earlier recording or to its save.

    Args:
        source: The recording.
        progress: Progress of its replay.
        sources: All recordings.
        replays: The results of those before it.
    """
    link, start = _find_earlier(source, progress, sources, replays), progress.start
    has_other_save = start is not None and progress.saved not in (None, start)
    if start is None or source.save is None or not has_other_save:
        return link
    if link is not None and link.kind != "unknown":
        return link
    return RecordingLink("differs", start.tick, save=source.save.sha256 or "")


def _find_earlier(
    source: ReplaySource,
    progress: ReplayProgress,
    sources: Sequence[ReplaySource],
    replays: Sequence[VerifiedReplay],
) -> RecordingLink | None:
    """Return the link of a recording's start to an earlier recording."""
    start = progress.start
    before = zip(sources, replays, strict=False)
    earlier = [(other, replay) for other, replay in before if source.may_continue(other)]
    if start is None or not earlier:
        return None
    differs = None
    for other, replay in reversed(earlier):
        states = [digest for digest in replay.progress.digests if digest.tick == start.tick]
        place = other.number, other.found.instance, other.attempt
        save = "".join(source.find_origin_saves(other)[:1])
        link = RecordingLink("continues", start.tick, *place, save=save)
        if start in states:
            return link
        # After the last compared record, inputs of a killed world may be missing.
        has_all_inputs = replay.progress.is_complete or start.tick < replay.progress.tick
        if states and differs is None and has_all_inputs:
            differs = attrs.evolve(link, kind="differs")
    return differs or RecordingLink("unknown", start.tick)


def _find_check(
    progress: ReplayProgress, link: RecordingLink | None, before: Sequence[VerifiedReplay]
) -> StartCheck | None:
    """Return the proof that the first state of a recording is genuine, or None."""
    if progress.has_given_rows or progress.has_other_files:
        return None
    if progress.has_begun_again:
        return "seed" if progress.compares_states else None
    if link is not None and link.kind == "continues":
        earlier = next(other for other in before if link.leads_to(other))
        if earlier.start_checked_by:
            return "earlier"
    return "save" if progress.start is not None and progress.saved == progress.start else None
