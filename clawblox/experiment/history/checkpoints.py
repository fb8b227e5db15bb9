"""Checkpoints of an experiment and their branches, as values."""

from __future__ import annotations

from typing import Annotated, Final

import attrs
from msgspec import Meta

from clawblox.agents.values import Usage
from clawblox.experiment.history.lines import (
    CheckpointKind,
    FileName,
    JournalLine,
    Name,
    Number,
    Seconds,
    read_usage,
)

_MAX_RESEED: Final = 1 << 65
"""Bound on recorded seeds: the first may be the largest seed, and branches add to it."""


@attrs.frozen(kw_only=True)
class CheckpointRef:
    """A checkpoint in the directory of an experiment.

    Attributes:
        chain: The chain that made it.
        generation: The generation that made it.
        attempt: The attempt that made it; the archive is in ``checkpoints`` of its run directory.
        file: Name of the archive.
        sha256: Digest of the archive.
    """

    chain: Name
    generation: Number
    attempt: Name
    file: FileName
    sha256: str


@attrs.frozen(kw_only=True)
class Branch:
    """The origin of a chain that continues a checkpoint of another chain.

    Attributes:
        source: The checkpoint.
        group: Number of the fork in the experiment, from 1; its branches share it.
        number: Number of the branch in the fork, from 1.
        prompt: First message to the agents; None continues without a message.
        label: Short name of the prompt, for tables.
        elapsed_s: Active seconds of its generation when the checkpoint was made.
        duration_s: Active seconds of the branch; None means the rest of its generation.
        generations: Number of generations of the branch, including the one that the source started.
        reseed: New seed of the world's random state; None keeps the random state.
    """

    source: CheckpointRef
    group: Number
    number: Number
    prompt: str | None = None
    label: str = ""
    elapsed_s: Seconds = 0.0
    duration_s: Seconds | None = None
    generations: Number = 1
    reseed: Annotated[int, Meta(ge=0)] | None = None

    def __attrs_post_init__(self) -> None:
        if self.reseed is not None and self.reseed > _MAX_RESEED:
            raise ValueError(f"reseed: must be at most {_MAX_RESEED}")


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A checkpoint with the facts of its line.

    Attributes:
        ref: The checkpoint.
        seq: Number of the line.
        at: UTC time of the line.
        kind: Why it was made.
        active_s: Active seconds of its generation.
        idle_s: Seconds of the generation in which all agents were waiting for their providers.
        world_time: Simulation time; None if the world has none.
        usage: Usage of each agent in the committed history of the generation so far.
        mid_turn: Names of agents that were interrupted in the middle of a turn.
        close_reason: Why the generation closes; empty for checkpoints before its end.
    """

    ref: CheckpointRef
    seq: int
    at: str
    kind: CheckpointKind
    active_s: float
    idle_s: float = 0.0
    world_time: float | None = None
    usage: tuple[Usage, ...] = ()
    mid_turn: tuple[str, ...] = ()
    close_reason: str = ""

    @property
    def second(self) -> int:
        """Whole active seconds of its generation, as in the name of its archive."""
        return int(self.active_s)


def read_checkpoint(line: JournalLine) -> Checkpoint:
    """Return the checkpoint recorded in a line."""
    data = line.data
    return Checkpoint(
        ref=CheckpointRef(
            chain=str(line.chain),
            generation=int(line.generation or 0),
            attempt=str(line.attempt),
            file=data["file"],
            sha256=data["sha256"],
        ),
        seq=line.seq,
        at=line.at,
        kind=data["kind"],
        active_s=data["elapsed_s"],
        idle_s=data.get("idle_s", 0.0),
        world_time=data.get("world_time"),
        usage=read_usage(data.get("usage")),
        mid_turn=tuple(data.get("mid_turn", ())),
        close_reason=data.get("reason", ""),
    )
