"""How far the replay of a recording has come, as values and as JSON. Pure.

A replaying world reports it, and an orchestrator reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, Self, TypeAlias

import attrs

from clawblox.foreign_values import clean_text, clean_value, finite_number, whole_number
from clawblox.recording.blocks import KIT_WRITER
from clawblox.recording.reader import RecordingReader

MAX_DIGESTS: Final = 1000
"""Maximum number of digests that a replay reports, and of the ticks for which they are wanted."""

Outcome: TypeAlias = Literal["running", "equal", "different", "impossible"]

_OUTCOMES: Final[tuple[Outcome, ...]] = ("running", "equal", "different", "impossible")
_COUNTS: Final = (
    "tick",
    "first_tick",
    "last_tick",
    "events",
    "observations",
    "frames",
    "fingerprints",
    "states",
    "unchecked",
)
_MAX_CHARS: Final = 1000
_DIGEST_CHARS: Final = 64


def find_obstacle(reader: RecordingReader) -> str | None:
    """Return why no world can repeat a recording; None if nothing in its start prevents it.

    Args:
        reader: The recording.

    Raises:
        OSError: The file cannot be read.
        RecordingError: It is damaged, or not a recording of a known format.
    """
    start = reader.start()
    if reader.is_old:
        return "the recording has the older format, without the state at its start"
    if start.get("writer") != KIT_WRITER:
        return "it was not recorded by a world on the kit or the engine"
    for name in ("snapshot", "rows"):
        value = start.get(name)
        if isinstance(value, dict) and "unavailable" in value:
            reason = clean_text(str(value["unavailable"]), max_chars=_MAX_CHARS)
            return f"the recording has no {name}: {reason}"
    if not isinstance(start.get("snapshot"), dict):
        return "the recording has no snapshot of its start"
    return None


@attrs.frozen
class StateDigest:
    """A digest of the state that a replay has reached.

    Attributes:
        tick: The tick. It can have several states, because inputs come between two ticks.
        digest: SHA-256 of the encoded state, in hexadecimal digits.
    """

    tick: int
    digest: str

    @classmethod
    def parse(cls, fields: object) -> Self | None:
        """Return the digest that a JSON object describes; None if it describes none."""
        if not isinstance(fields, Mapping):
            return None
        tick, digest = whole_number(fields.get("tick")), fields.get("digest")
        if tick is None or not isinstance(digest, str) or len(digest) != _DIGEST_CHARS:
            return None
        return cls(tick, digest)


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

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Self:
        """Return a difference from a JSON object, whatever is in it."""
        texts = (clean_text(str(fields.get(key)), max_chars=_MAX_CHARS) for key in ("what", "path"))
        sides = (clean_value(fields.get(key)) for key in ("recorded", "replayed"))
        tick, time = whole_number(fields.get("tick")), finite_number(fields.get("time"))
        return cls(tick or 0, time or 0.0, *texts, *sides)


@attrs.define
class ReplayProgress:
    """How far a replay has come.

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
        has_begun_again: Whether the fresh world began again with its seed, instead of with the
            recorded state.
        has_other_files: Whether the files of the world have changed since it was recorded.
        is_complete: Whether the recording has an end; that of a killed world has none.
        divergence: The first difference; None without one.
        start: The state that a resumed recording begins with; None for one of a fresh world, and
            where the state was given another seed.
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
    has_begun_again: bool = False
    has_other_files: bool = False
    is_complete: bool = False
    divergence: Divergence | None = None
    start: StateDigest | None = None
    digests: tuple[StateDigest, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return attrs.asdict(self)

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Self:
        """Return the progress that a JSON object describes, whatever is in it.

        Raises:
            ValueError: It has no known ``outcome``.
        """
        outcome, divergence = fields.get("outcome"), fields.get("divergence")
        if outcome not in _OUTCOMES:
            raise ValueError("it has no known outcome")
        counts = {name: whole_number(fields.get(name)) or 0 for name in _COUNTS}
        return cls(
            outcome=outcome,
            reason=clean_text(str(fields.get("reason") or ""), max_chars=_MAX_CHARS),
            time=finite_number(fields.get("time")) or 0.0,
            has_begun_again=fields.get("has_begun_again") is True,
            has_other_files=fields.get("has_other_files") is True,
            is_complete=fields.get("is_complete") is True,
            divergence=Divergence.parse(divergence) if isinstance(divergence, dict) else None,
            start=StateDigest.parse(fields.get("start")),
            digests=_parse_digests(fields.get("digests")),
            **counts,
        )


def _parse_digests(values: object) -> tuple[StateDigest, ...]:
    if not isinstance(values, list):
        return ()
    parsed = map(StateDigest.parse, values[:MAX_DIGESTS])
    return tuple(digest for digest in parsed if digest is not None)
