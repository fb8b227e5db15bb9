"""Progress of the replay of a recording, as values and as JSON. Pure."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import attrs

Outcome: TypeAlias = Literal["running", "equal", "different", "impossible"]


@attrs.frozen
class StateDigest:
    """A digest of the state that a replay has reached, with its agents and its chat.

    Attributes:
        tick: The tick. It can have several states, because inputs come between two ticks.
        digest: What ``digest_history`` returns for its snapshot.
    """

    tick: int
    digest: str


@attrs.frozen
class Divergence:
    """The first difference between a recording and its replay.

    Attributes:
        tick: The tick at which it shows.
        time: Simulation time of that tick, in seconds.
        what: What differs, in words.
        path: Where in it; empty for all of it.
        recorded: The recorded value, as JSON; None where there is none.
        replayed: The value in the replay, as JSON; None where there is none.
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
        time: Simulation time of it, in seconds.
        first_tick: Tick at which the recording begins.
        last_tick: Last tick of the recording.
        events: Number of events that were applied and equal.
        observations: Number of observations that were equal.
        frames: Number of views of a spectator that were equal.
        fingerprints: Number of ticks whose fingerprints were equal.
        states: Number of digests of the whole state that were equal.
        unchecked: Number of records that follow an input which a killed world did not write.
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
        is_complete: Whether the recording has an end; that of a killed world has none.
        divergence: The first difference; None without one.
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
        """Whether whole states are compared: those of other code and engines have another form."""
        return not self.has_other_files and self.revisions is None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return attrs.asdict(self)
