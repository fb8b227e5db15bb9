"""The lives of an instance, and which of its saves belong to each.

A save belongs to the life that its time of day falls into. Times of day are whole seconds, so a
save of the very second of a restart belongs to the later life if the manifest lists it after the
snapshot that the restart took; without that, if its simulation time is below that of the save
before it. The same decides where a time of day is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.rundir.saves import LineageSave
from clawblox.rundir.status import GOOD_EXITS
from clawblox.system.clock import parse_utc

_GOOD_EXITS: Final = frozenset(map(str, GOOD_EXITS))
"""In the words of manifests."""

LifeBeginning: TypeAlias = Literal["start", "policy", "request", "resume"]
"""What began a life: a start or fork, the restart policy, a restart on request, or a resume."""

LifeEnding: TypeAlias = Literal["restart", "resume", "another_run", "exit"]
"""What followed a life: a restart, a resume, another run under the same name, or nothing."""


@attrs.frozen
class Origin:
    """The snapshot that a life began from.

    Attributes:
        path: The file, absolute.
        sha256: Its digest; None when the manifest does not have it.
        instance: The instance of this run directory that saved it; None for another's.
        time: Its simulation time; None when no manifest has it.
    """

    path: Path
    sha256: str | None = None
    instance: str | None = None
    time: float | None = None


@attrs.frozen
class Life:
    """A life of an instance: from a start to the end of its process.

    Attributes:
        run_id: Id of its run; empty if not known.
        begun_by: What began it.
        origin: The snapshot that it began from; None if it began fresh, or if that is not known
            any more.
        begun_at: UTC time at which it began; after a restart, at which it was ready again.
        time: Simulation time at which it began: 0 for a fresh one; None if not known.
        saves: Its saves, in the order of the manifest.
        ended_by: What followed it; None while it lasts.
        ended_at: UTC time of its end, or at which what followed it had begun.
        exit: How its process ended, in words.
        has_died: Whether it ended badly: it died, failed, halted or was interrupted.
    """

    run_id: str
    begun_by: LifeBeginning
    origin: Origin | None
    begun_at: str | None
    time: float | None
    saves: tuple[LineageSave, ...] = ()
    ended_by: LifeEnding | None = None
    ended_at: str | None = None
    exit: str | None = None
    has_died: bool = False


def join_lives(first: Life, restarts: Sequence[Life], saves: Sequence[LineageSave]) -> list[Life]:
    """Return the lives of one run, each with its saves and its end.

    Args:
        first: The life that its start began.
        restarts: The lives that its restarts began, oldest first; the ``exit`` of each is that of
            the life before it.
        saves: The saves of the run, oldest first.

    Returns:
        The lives; the last has no end.
    """
    parts = _split(saves, restarts)
    lives = [
        attrs.evolve(
            life,
            saves=tuple(part),
            ended_by="resume" if after.begun_by == "resume" else "restart",
            ended_at=after.begun_at,
            exit=after.exit,
            has_died=after.begun_by == "policy"
            or (after.begun_by == "resume" and after.exit not in _GOOD_EXITS),
        )
        for (life, after), part in zip(pairwise((first, *restarts)), parts, strict=False)
    ]
    last = (first, *restarts)[-1]
    return [*lives, attrs.evolve(last, saves=tuple(parts[-1]), exit=None)]


def _split(saves: Sequence[LineageSave], restarts: Sequence[Life]) -> list[list[LineageSave]]:
    """Sort the saves of a run by the life that they belong to; see the module."""
    parts: list[list[LineageSave]] = [[] for _ in (None, *restarts)]
    places = {save.path: place for place, save in enumerate(saves)}
    life = 0
    for place, save in enumerate(saves):
        before = parts[life][-1] if parts[life] else None
        while life < len(restarts) and _is_after(save, place, before, restarts[life], places):
            life, before = life + 1, None
        parts[life].append(save)
    return parts


def _is_after(
    save: LineageSave,
    place: int,
    before: LineageSave | None,
    restart: Life,
    places: Mapping[Path, int],
) -> bool:
    at, restarted_at = parse_utc(save.created_at), parse_utc(restart.begun_at)
    if at is not None and restarted_at is not None and at != restarted_at:
        return at > restarted_at
    if restart.origin is not None and restart.origin.path in places:
        return place > places[restart.origin.path]
    if before is None or before.time is None or save.time is None:
        return False
    return save.time < before.time
