"""Verified replays of a run: each recording from its own start, and how its lives are connected.

Where a world was killed and restored, a later recording begins with a state that the replay of an
earlier one must reach at the same tick.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_HEALTH_TIMEOUT_S, DEFAULT_STALL_TIMEOUT_S
from clawblox.errors import UsageError
from clawblox.replay.attempt_places import AttemptPlace, is_experiment
from clawblox.replay.checked_scores import CheckedScore, ExpectedEnd, ReachedWorld
from clawblox.replay.judged_files import digest_judged
from clawblox.replay.progress import ReplayProgress
from clawblox.replay.sources import ReplaySource, SourceOptions, find_sources
from clawblox.replay.verified_replay import ReplayOptions, replay_recording
from clawblox.rundir.paths import resolve_run_dir
from clawblox.rundir.recordings import Damage
from clawblox.rundir.requests import to_path
from clawblox.typed_values import converter
from clawblox.world.world_files import WorldFiles

if TYPE_CHECKING:
    from clawblox.experiment.schedule.callbacks import Score

LinkKind: TypeAlias = Literal["continues", "differs", "unknown"]
StartCheck: TypeAlias = Literal["seed", "earlier", "save"]
Status: TypeAlias = Literal[
    "equal", "equal_unchecked_start", "different", "incomplete", "impossible"
]


@attrs.frozen
class Link:
    """Connection between the start of a recording and an earlier recording.

    That is one of the same instance, or of the one whose save this one began from.

    Attributes:
        kind: ``continues`` if the replay of the earlier one reaches the state with which this one
            begins; ``differs`` if it has other states at that tick; ``unknown`` if no replay
            reaches that tick.
        tick: The tick at which this recording begins.
        number: Number of the earlier recording; None if it is unknown, and where this one differs
            from the save that it began from.
        instance: Name of its instance in a run of many; empty for the only one.
        attempt: Its attempt, in an experiment.
        save: Digest of the save by which another instance continues it, or from which this one
            differs; empty for the same instance.
    """

    kind: LinkKind
    tick: int
    number: int | None = None
    instance: str = ""
    attempt: AttemptPlace | None = None
    save: str = ""

    def leads_to(self, other: VerifiedReplay) -> bool:
        """Return whether this names a recording."""
        place = self.number, self.instance, self.attempt
        return place == (other.number, other.instance, other.attempt)


@attrs.frozen
class VerifiedReplay:
    """The result of a verified replay of one recording.

    Attributes:
        recording: The file.
        number: Its number in the run, counted from 1; 0 for a recording in another format.
        instance: Name of its instance in a run of many; empty for the only one.
        progress: Progress of the replay, and its outcome.
        seconds: Duration in seconds of real time.
        link: How it is connected with an earlier recording; None if it begins a fresh world, has
            none before it, or begins with another seed.
        world: The directory or address of the world that repeats it; empty if it is not repeated.
        start_checked_by: What shows that the first state is genuine: ``seed`` if a fresh world
            began again with its seed and reached it, ``earlier`` if the replay of an earlier
            recording with a checked start reached it, ``save`` if it is that of the save that the
            world began from; None if nothing does.
        attempt: The attempt that made it, in an experiment.
        damage: How its file has changed since its writer closed it: ``incomplete``, ``changed``, or
            None if it has not, or its manifest has no digest.
        changed_files: Files of its world that changed since, by relative path: ``.`` where only
            that is known; None where nothing is.
    """

    recording: Path
    number: int
    instance: str
    progress: ReplayProgress
    seconds: float = 0.0
    link: Link | None = None
    world: str = ""
    start_checked_by: StartCheck | None = None
    attempt: AttemptPlace | None = None
    damage: Damage | None = None
    changed_files: tuple[str, ...] | None = None

    @property
    def status(self) -> Status:
        """The result in a word; a recording is ``equal`` only with a checked start."""
        if self.is_different:
            return "different"
        if self.progress.outcome != "equal":
            return "impossible"
        if self.damage is not None:
            return "incomplete"
        return "equal" if self.start_checked_by else "equal_unchecked_start"

    @property
    def is_different(self) -> bool:
        """Whether the file, the replay, or the link to an earlier recording has a difference."""
        if self.damage == "changed":
            return True
        has_other_start = self.link is not None and self.link.kind == "differs"
        return self.progress.outcome == "different" or has_other_start

    def document(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "recording": str(self.recording),
            "number": self.number,
            "instance": self.instance,
            "attempt": None if self.attempt is None else attrs.asdict(self.attempt),
            "world": self.world,
            "damage": self.damage,
            "changed_files": self.changed_files,
            **self.progress.document(),
            "outcome": self.status,
            "start_checked_by": self.start_checked_by,
            "seconds": round(self.seconds, 3),
            "link": None if self.link is None else attrs.asdict(self.link),
        }


@attrs.frozen
class VerifiedRun:
    """The results of the verified replays of a run.

    Attributes:
        replays: The results, in the order of the recordings.
        is_strict: Whether a recording with an unchecked start counts as not verified.
        scores: The scores of an experiment, computed again. Other scores are no differences.
        judged: The files that were judged, before the first replay, as a kept report has them;
            none for the file of a recording.
    """

    replays: tuple[VerifiedReplay, ...]
    is_strict: bool = False
    scores: tuple[CheckedScore, ...] = ()
    judged: Mapping[str, WorldFiles | None] = attrs.field(factory=dict, repr=False, eq=False)

    @property
    def exit_status(self) -> int:
        """Status of the command: 0 all equal, 1 a difference, 3 one could not be verified."""
        statuses = {replay.status for replay in self.replays}
        if "different" in statuses:
            return 1
        passing = {"equal"} if self.is_strict else {"equal", "equal_unchecked_start"}
        return 0 if statuses <= passing else 3

    def document(self) -> dict[str, Any]:
        """Return the results as a JSON object."""
        is_equal = all(replay.status == "equal" for replay in self.replays)
        recordings = [replay.document() for replay in self.replays]
        return {
            "equal": is_equal,
            "strict": self.is_strict,
            "recordings": recordings,
            "scores": [
                {**attrs.asdict(score), "differences": [*score.differences]}
                for score in self.scores
            ],
        }


_to_run = converter(VerifiedRun, dec_hook=to_path)


def parse_run(document: Mapping[str, Any]) -> VerifiedRun:
    """Return the results that a document of :meth:`VerifiedRun.document` has.

    Args:
        document: The document, whatever is in it.

    Raises:
        ValueError: The outcome of a recording does not follow from its result.
        msgspec.ValidationError: No results have this document.
    """
    recordings = document.get("recordings")
    if isinstance(recordings, list):
        recordings = [_nest_progress(recording) for recording in recordings]
    members = {"is_strict": document.get("strict"), "scores": document.get("scores")}
    run = _to_run({"replays": recordings, **members})
    written = [recording.get("outcome") for recording in document["recordings"]]
    if written != [replay.status for replay in run.replays]:
        raise ValueError("an outcome does not follow from the result of its recording")
    return run


def _nest_progress(document: object) -> object:
    """Return the fields of a replay, whose progress is among them in its document."""
    if not isinstance(document, dict):
        return document
    ended = "impossible" if document.get("reason") else "equal"
    outcome = "different" if document.get("divergence") is not None else ended
    return {**document, "progress": {**document, "outcome": outcome}}


OnRunProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of ticks that were repeated, and that of all recordings."""
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

    Each new process gets the first state or the seed and what agents sent, and records what it does
    with it. Here, outside of it, the two recordings are compared until the first difference:
    events, observations, frames and fingerprints. The code of the world runs; recordings are only
    data.

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
        on_progress: Called now and then.
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
    options = ReplayOptions(
        in_place=in_place, health_timeout=health_timeout, stall_timeout=stall_timeout
    )
    ends = await run_blocking(_find_ends, Path(run), score) if scores else ()
    choice = SourceOptions(number, world_dir, env or {})
    sources = await run_blocking(find_sources, Path(run), choice)
    total, done = sum(source.last_tick - source.first_tick for source in sources), 0
    replays: list[VerifiedReplay] = []
    used = [*dict.fromkeys(source.world for source in sources if source.world)]
    for world in used:
        await on_world(world)
    judged = await run_blocking(digest_judged, Path(run), used)
    for place, source in enumerate(sources):
        reach = partial(_report, on_progress, done - source.first_tick, total)
        later = [other for other in sources[place + 1 :] if other.may_continue(source)]
        begun_at = time.monotonic()
        progress = ReplayProgress("impossible", source.obstacle)
        if not source.obstacle:
            progress = await replay_recording(
                source.found.path,
                source.world,
                attrs.evolve(options, env=source.env, datastore=source.datastore),
                run_dir=source.run_dir,
                save=source.save,
                digest_ticks={*(other.first_tick for other in later), *_end_ticks(source, ends)},
                on_progress=reach,
            )
        done += source.last_tick - source.first_tick
        on_progress(done, total)
        seconds = time.monotonic() - begun_at
        replay = VerifiedReplay(
            source.found.path,
            source.number,
            source.found.instance,
            progress,
            seconds,
            world=source.world,
            attempt=source.attempt,
            damage=source.damage,
            changed_files=source.changed_files,
        )
        link = _find_link(source, progress, sources, replays)
        checked_by = _find_check(progress, link, replays)
        replay = attrs.evolve(replay, link=link, start_checked_by=checked_by)
        replays.append(replay)
        on_replay(replay)
    verified = VerifiedRun(tuple(replays), strict, judged=judged)
    if not scores:
        return verified
    from clawblox.replay.verified_scores import check_scores

    worlds = _find_reached(replays, ends)
    directory = await run_blocking(resolve_run_dir, run)
    checked = await check_scores(directory, ends, worlds, score=score, in_place=in_place)
    return attrs.evolve(verified, scores=tuple(checked))


def _find_ends(run: Path, score: Score | None) -> Sequence[ExpectedEnd]:
    if not is_experiment(run):
        raise UsageError("scores are those of an experiment: give its directory")
    # Here, because a run needs nothing of experiments, which take long to import.
    from clawblox.replay.verified_scores import find_ends

    return find_ends(resolve_run_dir(run), score)


def _end_ticks(source: ReplaySource, ends: Sequence[ExpectedEnd]) -> Iterator[int]:
    """Yield the ticks at which the replay of a recording may reach the end of a generation."""
    for end in ends:
        is_own = source.attempt is not None and source.attempt.name == end.attempt
        if is_own and end.state is not None:
            yield end.state.tick


def _find_reached(
    replays: Sequence[VerifiedReplay], ends: Sequence[ExpectedEnd]
) -> Mapping[str, ReachedWorld]:
    """Return the worlds by attempt where the replay has reached the end of the generation."""
    states = {end.attempt: end.state for end in ends if end.state is not None}
    return {
        replay.attempt.name: ReachedWorld(replay.world, replay.progress.has_repository_files)
        for replay in replays
        if replay.attempt is not None
        and replay.status == "equal"
        and states.get(replay.attempt.name) in replay.progress.digests
    }


def _report(on_progress: OnRunProgress, before: int, total: int, progress: ReplayProgress) -> None:
    on_progress(before + progress.tick, total)


def _find_link(
    source: ReplaySource,
    progress: ReplayProgress,
    sources: Sequence[ReplaySource],
    replays: Sequence[VerifiedReplay],
) -> Link | None:
    """Return how the start of a recording is connected with those before it, or with its save.

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
    return Link("differs", start.tick, save=source.save.sha256 or "")


def _find_earlier(
    source: ReplaySource,
    progress: ReplayProgress,
    sources: Sequence[ReplaySource],
    replays: Sequence[VerifiedReplay],
) -> Link | None:
    """Return how the start of a recording is connected with those before it."""
    start = progress.start
    before = zip(sources, replays, strict=False)
    earlier = [(other, replay) for other, replay in before if source.may_continue(other)]
    if start is None or not earlier:
        return None
    differs = None
    for other, replay in reversed(earlier):
        states = [digest for digest in replay.progress.digests if digest.tick == start.tick]
        link = Link(
            "continues",
            start.tick,
            other.number,
            other.found.instance,
            other.attempt,
            save="".join(source.find_origin_saves(other)[:1]),
        )
        if start in states:
            return link
        # From the last record that was compared on, inputs of a killed world may be missing.
        has_all_inputs = replay.progress.is_complete or start.tick < replay.progress.tick
        if states and differs is None and has_all_inputs:
            differs = attrs.evolve(link, kind="differs")
    return differs or Link("unknown", start.tick)


def _find_check(
    progress: ReplayProgress, link: Link | None, before: Sequence[VerifiedReplay]
) -> StartCheck | None:
    """Return what shows that the first state of a recording is genuine; None if nothing does."""
    if progress.has_given_rows or progress.has_other_files:
        return None
    if progress.has_begun_again:
        return "seed" if progress.compares_states else None
    if link is not None and link.kind == "continues":
        earlier = next(other for other in before if link.leads_to(other))
        if earlier.start_checked_by:
            return "earlier"
    return "save" if progress.start is not None and progress.saved == progress.start else None
