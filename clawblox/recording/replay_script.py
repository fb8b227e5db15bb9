"""The script of a replay: what a new process of a world repeats, without what came of it then.

Clawblox makes it from a recording, and a world that is started with ``WORLD_REPLAY_PATH`` performs
it: lines of JSON, first the start, then orders, each at its tick. It has no refusal, no
observation, no frame, no fingerprint and no event that the world caused itself.
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
    """Ask who hears an agent: all that is known of a message during which a world halted."""
    OBSERVE = "observe"
    FRAME = "frame"
    """Record a frame, with the parts that the order names."""
    REACH = "reach"
    """Nothing but to reach its tick."""
    END = "end"
    """Nothing further: the world runs to this tick and no further. Always the last order."""


@attrs.frozen
class ScriptStart:
    """Start of a replay.

    Attributes:
        snapshot: The state to restore; None for a fresh world, which begins from its seed.
        seed: The seed that the world was given; None if it was given none.
        is_resumed: Whether the recorded world was restored from a snapshot. One that was not begins
            from its seed where its files have changed since, and refuse the snapshot.
        digest_ticks: Ticks for which digests of the state are recorded.
        is_reseeded: Whether the seed is set after the snapshot was restored; it is the snapshot of
            a save then. That of a recording was made afterwards.
    """

    snapshot: dict[str, Any] | None = attrs.field(repr=False)
    seed: int | None
    is_resumed: bool
    digest_ticks: tuple[int, ...] = ()
    is_reseeded: bool = False

    def encode(self) -> bytes:
        """Return it as a line."""
        return _encode_line({"format": FORMAT, **attrs.asdict(self, recurse=False)})

    @classmethod
    def parse(cls, line: bytes) -> Self:
        """Return the start of a script.

        Raises:
            ValueError: It is none, or has another format.
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
    """Something that a world does in a replay.

    Attributes:
        tick: The tick at which it does it.
        do: What.
        fields: The rest: what an agent sent, or what to record.
    """

    tick: int
    do: Do
    fields: dict[str, Any] = attrs.field(factory=dict, repr=False)

    def encode(self) -> bytes:
        """Return it as a line."""
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
