"""The lives of an instance, from each start to its end, with the saves of each.

A save belongs to the life in which it was made, according to its UTC time. Times are whole seconds,
so a save in the same second as a restart belongs to the later life if the manifest lists it after
the snapshot that the restart took; without such a snapshot, if its simulation time is below that of
the save before it. The same rule applies if a time is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.status import GOOD_EXITS
from clawblox.system.clock import parse_utc

_GOOD_EXITS: Final = frozenset(map(str, GOOD_EXITS))
"""The good exits in the words of manifests."""

LifeBeginning: TypeAlias = Literal["start", "policy", "request", "resume"]
"""Cause of a life: a start or fork, the restart policy, a restart on request, or a resume."""

LifeEnding: TypeAlias = Literal["restart", "resume", "another_run", "exit"]
"""Event at the end of a life: a restart, a resume, another run with the name, or an exit."""


@attrs.frozen
class Origin:
    """The snapshot that a life started from.

    Attributes:
        path: The file, absolute.
        sha256: Digest of the file; None if the manifest does not contain it.
        instance: The instance of this run directory that saved the snapshot; None if the snapshot
            came from elsewhere.
        time: Simulation time of the snapshot; None if unknown.
    """

    path: Path
    sha256: str | None = None
    instance: str | None = None
    time: float | None = None


@attrs.frozen
class Life:
    """A life of an instance: the time from a start to the end of its process.

    Attributes:
        run_id: Id of the run; empty if unknown.
        begun_by: Cause of the start.
        origin: The snapshot that the life started from; None for a fresh start or if unknown.
        begun_at: UTC time of the start; after a restart, the time of readiness.
        time: Simulation time at the start: 0 for a fresh start; None if unknown.
        saves: The saves of this life, in the order of the manifest.
        ended_by: Event that ended the life; None while it lasts.
        ended_at: UTC time of the end, or of the start of the next life.
        exit: Exit of the process, in words.
        has_died: Whether the instance died, failed, halted or was interrupted.
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
        first: The life that the run started with.
        restarts: The lives that restarts started, oldest first; the ``exit`` of each belongs to the
            previous life.
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
    """Split the saves of a run by life; see the module docstring."""
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
