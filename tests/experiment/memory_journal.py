"""A journal in memory that kills its orchestrator or runs out of space at a chosen line."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, Final

from clawblox.experiment.history.lines import (
    EXPERIMENT,
    About,
    JournalLine,
    LineType,
    decode,
    encode,
)
from clawblox.system.clock import format_utc_ms
from tests.support.simulated_clock import SimulatedClock


class Killed(BaseException):
    """Raised to kill the orchestrator."""


class MemoryJournal:
    """A journal without a file; it survives the orchestrator.

    Attributes:
        kill_at: Number of the line at which the orchestrator is killed; None for never.
        is_written: Whether that line is still written.
        fails_at: Number of the line from which the disk is full; None for never.
        is_dead: Whether the orchestrator was killed; further lines are then refused.
        facts: Machine and lease of the orchestrator.
    """

    facts: Final[Mapping[str, Any]] = {}

    def __init__(self, clock: SimulatedClock) -> None:
        self.lines: list[JournalLine] = []
        self.kill_at: int | None = None
        self.is_written = False
        self.fails_at: int | None = None
        self.is_dead = False
        self._clock = clock

    def append(
        self,
        type: LineType,  # noqa: A002 - the name of the member
        data: Mapping[str, Any] | None = None,
        about: About = EXPERIMENT,
    ) -> JournalLine:
        seq = len(self.lines) + 1
        if self.is_dead:
            raise Killed
        if self.fails_at is not None and seq >= self.fails_at:
            raise OSError(errno.ENOSPC, "no space")
        at = format_utc_ms(int(self._clock.utc().timestamp() * 1000) * 1_000_000)
        line = JournalLine(
            seq=seq,
            at=at,
            type=type,
            chain=about.chain,
            generation=about.generation,
            attempt=about.attempt,
            data=dict(data or {}),
        )
        is_last = self.kill_at == seq
        if not is_last or self.is_written:
            self.lines.append(decode(encode(line), seq))
        if is_last:
            self.is_dead = True
            raise Killed
        return line
