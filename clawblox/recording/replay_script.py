"""The script of a replay: the inputs that a new process of a world repeats, without their results.

Clawblox makes it from a recording, and a world that is started with ``WORLD_REPLAY_PATH`` performs
it: lines of JSON, first the start, then orders, each at its tick. It omits refusals, observations,
frames, fingerprints and events that the world caused itself.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Final, Self

import attrs

FORMAT: Final = "clawblox-replay-v1"

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Do(StrEnum):
    """Action of an order, once its tick is reached."""

    JOIN = "join"
    LEAVE = "leave"
    INPUT = "input"
    CHAT = "chat"
    AUDIENCE = "audience"
    """Ask who hears an agent; for a message during which a world halted, only this is known."""
    OBSERVE = "observe"
    FRAME = "frame"
    """Record a frame with the parts named in the order."""
    REACH = "reach"
    """Only run to its tick."""
    END = "end"
    """Run to this tick and stop. Always the last order."""


@attrs.frozen
class ScriptStart:
    """Start of a replay.

    Attributes:
        snapshot: The state to restore; None for a fresh world, which starts from its seed.
        seed: The seed given to the world, or None.
        is_resumed: Whether the recorded world was restored from a snapshot. Otherwise it starts
            from its seed if its files have changed and no longer accept the snapshot.
        digest_ticks: Ticks for which digests of the state are recorded.
        is_reseeded: Whether the seed is set after restoring the snapshot, as for a save's snapshot.
            A recording's snapshot is made after setting the seed.
    """

    snapshot: dict[str, Any] | None = attrs.field(repr=False)
    seed: int | None
    is_resumed: bool
    digest_ticks: tuple[int, ...] = ()
    is_reseeded: bool = False

    def encode(self) -> bytes:
        """Return the start as a line."""
        return _encode_line({"format": FORMAT, **attrs.asdict(self, recurse=False)})

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Return the start of a script.

        Raises:
            ValueError: The line is not a start, or has another format.
        """
        fields = json.loads(line)
        if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        try:
            return cls(**{**fields, "digest_ticks": tuple(fields["digest_ticks"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"its start is malformed: {error}") from None


@attrs.frozen
class ReplayOrder:
    """An action of a world in a replay.

    Attributes:
        tick: The tick of the action.
        do: The action.
        fields: Further fields: the input of an agent, or the parts to record.
    """

    tick: int
    do: Do
    fields: dict[str, Any] = attrs.field(factory=dict, repr=False)

    def encode(self) -> bytes:
        """Return the order as a line."""
        return _encode_line({"tick": self.tick, "do": self.do, **self.fields})


def parse_order(line: bytes) -> ReplayOrder:
    """Return the order in a line after the start.

    Raises:
        ValueError: It is malformed.
    """
    fields = json.loads(line)
    return ReplayOrder(fields.pop("tick"), Do(fields.pop("do")), fields)


def _encode_line(value: object) -> bytes:
    """Return a JSON value as one line in ASCII, with its newline."""
    return _ENCODER.encode(value).encode("ascii") + b"\n"
