"""The lines of an experiment's journal: facts and decisions in chronological order.

This module names their types and the forms of their members, and encodes them. ``journal`` keeps
the file, ``state`` computes the state of an experiment from its lines.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

import attrs
import msgspec
from msgspec import Meta

from clawblox.agents.values import Usage
from clawblox.experiment.plan.naming import NAME_PATTERN
from clawblox.foreign_values import encode_line
from clawblox.typed_values import converter

LineType: TypeAlias = Literal[
    "experiment.begun",
    "session.begun",
    "session.ended",
    "plan.amended",
    "account.limited",
    "account.cleared",
    "chain.forked",
    "chain.retried",
    "opened",
    "prepared",
    "working",
    "checkpoint",
    "checkpoint.failed",
    "checkpoint.removed",
    "closing",
    "saved",
    "scored",
    "committed",
    "paused",
    "failed",
    "interrupted",
    "imported",
    "rescored",
    "hook.called",
    "hook.failed",
]
"""Types of a :class:`JournalLine`."""

CheckpointKind: TypeAlias = Literal["periodic", "pause", "boundary", "end"]
"""The occasion of a checkpoint: the interval, a pause, the save prompt, or the end
of a generation."""

Phase: TypeAlias = Literal["work", "save", "score"]
"""The phase in which an attempt starts: the work of the agents, the save prompt, or the score."""

PauseReason: TypeAlias = Literal[
    "limit", "auth", "disk", "secret", "checkpoint", "dollars", "wall", "request"
]
"""Reason for the pause of a chain."""

FailureCause: TypeAlias = Literal[
    "world", "agent", "start", "address", "setup", "secret", "plan", "defect", "node"
]
"""Cause of an attempt's failure."""

MAX_SECONDS: Final = 1e12

# An `\A` and a `\Z`, because msgspec searches for a pattern anywhere.
Name: TypeAlias = Annotated[str, Meta(pattern=NAME_PATTERN)]
"""Name of a chain, an attempt or an agent, and of its directory."""
FileName: TypeAlias = Annotated[str, Meta(pattern=r"\A(?!\.{1,2}\Z)[^/\x00]{1,255}\Z")]
"""Name of an archive; people may have named imported archives."""
Number: TypeAlias = Annotated[int, Meta(ge=1, le=999_999_999)]
"""Number of a generation, of a branch or of a revision, from 1."""
Seconds: TypeAlias = Annotated[float, Meta(ge=0.0, le=MAX_SECONDS)]

ENDINGS: Final[frozenset[str]] = frozenset({"committed", "paused", "failed", "interrupted"})
"""Types of the lines that end an attempt."""

WORK: Final[frozenset[str]] = frozenset({"working", "checkpoint", "imported"})
"""Types of the lines that show that a plan has had effects."""


@attrs.frozen
class About:
    """The part of an experiment that a line concerns; by default the whole.

    Attributes:
        chain: Name of the chain; None for the experiment as a whole.
        generation: Number of the generation, from 1; None for the chain as a whole.
        attempt: The attempt, named like its run directory; None for the generation as a whole.
    """

    chain: str | None = None
    generation: int | None = None
    attempt: str | None = None


EXPERIMENT: Final = About()
"""The whole experiment."""


@attrs.frozen(kw_only=True)
class JournalLine:
    """A line of the journal.

    Attributes:
        seq: Its number, from 1, without gaps.
        at: UTC time, ``2026-06-22T18:59:25.104Z``.
        type: Its type.
        chain: Name of the chain; None for the experiment as a whole.
        generation: Number of the generation, from 1; None for the chain as a whole.
        attempt: The attempt, named like its run directory; None for the generation as a whole.
        data: Further facts, JSON values by name. Paths are relative to the chain's directory.
    """

    seq: int
    at: str
    type: LineType
    chain: str | None = None
    generation: int | None = None
    attempt: str | None = None
    data: Mapping[str, Any] = attrs.field(factory=dict)


_decoder: Final = msgspec.json.Decoder(JournalLine)
_to_usage: Final = converter(tuple[Usage, ...])


def encode(line: JournalLine) -> bytes:
    """Return the encoded line with its newline."""
    members = attrs.asdict(line, recurse=False)
    return encode_line({name: value for name, value in members.items() if value is not None})


def decode(text: bytes, number: int) -> JournalLine:
    """Decode a line of the file.

    Args:
        text: The line.
        number: Its number in the file, from 1.

    Raises:
        ValueError: The line is not valid, or has another number.
    """
    try:
        line = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if line.seq != number:
        raise ValueError(f"it has the number {line.seq}")
    return line


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause cyclic garbage collection, which would traverse all lines repeatedly."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def usage_data(usage: Sequence[Usage]) -> list[dict[str, Any]]:
    """Return the usage of agents as plain values, in their order."""
    return [attrs.asdict(agent) for agent in usage]


def read_usage(data: object) -> tuple[Usage, ...]:
    """Return the recorded usage of each agent; empty if none is recorded."""
    return _to_usage(data) if data else ()
