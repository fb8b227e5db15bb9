"""Results of verified replays, as values and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from clawblox.rundir.recordings import Damage
from clawblox.rundir.requests import to_path
from clawblox.typed_values import converter
from clawblox.world.sources import WorldFiles

Outcome: TypeAlias = Literal["running", "equal", "different", "impossible"]
LinkKind: TypeAlias = Literal["continues", "differs", "unknown"]
StartCheck: TypeAlias = Literal["seed", "earlier", "save"]
Status: TypeAlias = Literal[
    "equal", "equal_unchecked_start", "different", "incomplete", "impossible"
]


@attrs.frozen
class StateDigest:
    """A digest of the state that a replay has reached, with its agents and its chat.

    Attributes:
        tick: The tick. It can have several states, because inputs come between two ticks.
        digest: The result of ``digest_history`` for its snapshot.
    """

    tick: int
    digest: str


@attrs.frozen
class Divergence:
    """The first difference between a recording and its replay.

    Attributes:
        tick: The tick at which it shows.
        time: Simulation time of that tick, in seconds.
        what: Description of the differing part.
        path: Path within the part; empty for the whole.
        recorded: The recorded value, as JSON, or None.
        replayed: The value in the replay, as JSON, or None.
    """

    tick: int
    time: float
    what: str
    path: str = ""
    recorded: Any = None
    replayed: Any = None


@attrs.define
class ReplayProgress:
    """Progress of a replay.

    Attributes:
        outcome: How it ended; ``running`` until then.
        reason: Why it is impossible; empty unless it is.
        tick: Last tick that was reached.
        time: Simulation time of that tick, in seconds.
        first_tick: Tick at which the recording begins.
        last_tick: Last tick of the recording.
        events: Number of events that were applied and equal.
        observations: Number of observations that were equal.
        frames: Number of views of a spectator that were equal.
        fingerprints: Number of ticks whose fingerprints were equal.
        states: Number of digests of the whole state that were equal.
        unchecked: Number of records that follow an input that a killed world did not write.
        is_of_earlier_version: Whether the recording looks like one of a version of clawblox that
            wrote no digest of the world's files into it; anybody can remove that.
        revisions: The numbers of the behaviour of the engine that made the recording and of the one
            that repeats it, if they differ; None otherwise. Anybody can change the first.
        has_begun_again: Whether the fresh world began again with its seed, instead of with the
            recorded state.
        has_other_files: Whether the files of the world have changed since it was recorded.
        has_given_rows: Whether its data stores began with the recorded rows.
        has_repository_files: Whether the world started only from a copy with the other files of its
            git repository.
        is_complete: Whether the recording has an end; a killed world's recording has none.
        divergence: The first difference, or None.
        start: The state that a resumed recording begins with, before another seed; None for one of
            a fresh world, and where no save is known from before another seed.
        saved: The state in the save that it began from; None if that is not known.
        digests: The states at the ticks for which digests were wanted.
    """

    outcome: Outcome = "running"
    reason: str = ""
    tick: int = 0
    time: float = 0.0
    first_tick: int = 0
    last_tick: int = 0
    events: int = 0
    observations: int = 0
    frames: int = 0
    fingerprints: int = 0
    states: int = 0
    unchecked: int = 0
    is_of_earlier_version: bool = False
    revisions: tuple[int, int] | None = None
    has_begun_again: bool = False
    has_other_files: bool = False
    has_given_rows: bool = False
    has_repository_files: bool = False
    is_complete: bool = False
    divergence: Divergence | None = None
    start: StateDigest | None = None
    saved: StateDigest | None = None
    digests: tuple[StateDigest, ...] = ()

    @property
    def compares_states(self) -> bool:
        """True if whole states are compared: those of other code and engines have another form."""
        return not self.has_other_files and self.revisions is None


@attrs.frozen
class AttemptPlace:
    """An attempt in its experiment.

    Attributes:
        chain: Its chain.
        generation: Its generation, from 1.
        number: Its number among the attempts at the generation, from 1.
        name: Its name.
        outcome: How it ended, such as ``committed`` or ``failed``; empty while it runs.
    """

    chain: str
    generation: int
    number: int
    name: str
    outcome: str = ""


@attrs.frozen
class RecordingLink:
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
        """Return whether the link leads to a recording."""
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
    link: RecordingLink | None = None
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
        """True if the file, the replay, or the link to an earlier recording has a difference."""
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
            **attrs.asdict(self.progress),
            "outcome": self.status,
            "start_checked_by": self.start_checked_by,
            "seconds": self.seconds,
            "link": None if self.link is None else attrs.asdict(self.link),
        }


@attrs.frozen
class CheckedScore:
    """The scores of a generation, recorded and computed again.

    Attributes:
        chain: Its chain.
        generation: Its generation.
        attempt: Name of the attempt that made its last checkpoint.
        recorded: The scores that the journal has.
        computed: The scores of a world that was started from the replayed end.
        reason: Why some scores were not computed; empty if all were.
    """

    chain: str
    generation: int
    attempt: str
    recorded: Mapping[str, float]
    computed: Mapping[str, float] = attrs.field(factory=dict)
    reason: str = ""

    @property
    def differences(self) -> Sequence[str]:
        """The names of the computed scores that differ."""
        return [name for name, new in self.computed.items() if self.recorded.get(name) != new]


@attrs.frozen
class VerifiedRun:
    """The results of the verified replays of a run.

    Attributes:
        replays: The results, in the order of the recordings.
        is_strict: Whether a recording with an unchecked start counts as not verified.
        scores: The scores of an experiment, computed again. Different scores do not count as
            differences.
        judged: The files that were judged, before the first replay, as a kept report has them;
            none for the file of a recording.
    """

    replays: tuple[VerifiedReplay, ...]
    is_strict: bool = False
    scores: tuple[CheckedScore, ...] = ()
    judged: Mapping[str, WorldFiles | None] = attrs.field(factory=dict, repr=False, eq=False)

    @property
    def exit_status(self) -> int:
        """Status of the command: 0 if all are equal, 1 for a difference, 3 if any is unverified."""
        statuses = {replay.status for replay in self.replays}
        if "different" in statuses:
            return 1
        passing = {"equal"} if self.is_strict else {"equal", "equal_unchecked_start"}
        return 0 if statuses <= passing else 3

    def document(self) -> dict[str, Any]:
        """Return the results as a JSON object."""
        return {
            "equal": all(replay.status == "equal" for replay in self.replays),
            "strict": self.is_strict,
            "recordings": [replay.document() for replay in self.replays],
            "scores": [
                {**attrs.asdict(score), "differences": [*score.differences]}
                for score in self.scores
            ],
        }


_to_run = converter(VerifiedRun, dec_hook=to_path)


def parse_run(document: Mapping[str, Any]) -> VerifiedRun:
    """Return the results from a document of :meth:`VerifiedRun.document`.

    Args:
        document: The document, untrusted.

    Raises:
        ValueError: The outcome of a recording does not follow from its result.
        msgspec.ValidationError: The document does not have the form of results.
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
