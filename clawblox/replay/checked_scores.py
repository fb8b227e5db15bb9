"""Scores that are computed again, as values. Pure.

This imports nothing of experiments, which takes longer than a short replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from clawblox.replay.progress import StateDigest


@attrs.frozen
class ExpectedEnd:
    """The checkpoint at the end of a committed generation.

    Attributes:
        chain: Its chain.
        generation: Its generation.
        attempt: Name of the attempt that made it.
        recorded: The scores that the journal has.
        state: The state of the world in it; None if it has none that can be compared.
        problem: Why not; empty if it has one.
    """

    chain: str
    generation: int
    attempt: str
    recorded: Mapping[str, float]
    state: StateDigest | None
    problem: str = ""


@attrs.frozen
class ReachedWorld:
    """The world of a replay that has reached the end of a generation.

    Attributes:
        place: Its directory, or its address in a GitHub repository.
        has_repository_files: Whether it starts only with the other files of its git repository.
    """

    place: str
    has_repository_files: bool = False


@attrs.frozen
class CheckedScore:
    """The scores of a generation, recorded and computed again.

    Attributes:
        chain: Its chain.
        generation: Its generation.
        attempt: Name of the attempt that made its last checkpoint.
        recorded: The scores that the journal has.
        computed: The scores of a world that was started from the replayed end.
        reason: Why some were not computed; empty if all were.
    """

    chain: str
    generation: int
    attempt: str
    recorded: Mapping[str, float]
    computed: Mapping[str, float] = attrs.field(factory=dict)
    reason: str = ""

    @property
    def differences(self) -> Sequence[str]:
        """The names of the scores that were computed and are others."""
        return [name for name, new in self.computed.items() if self.recorded.get(name) != new]
