"""A line of descent: the lives from the first start to the last moment of an instance. Pure.

It leads back through restarts of an instance, and through forks to the instances that it came
from, in the same run directory or in others. Of each life it keeps the part up to the save that
the next life began from. What an instance lost after such a save belongs to the line as well, but
lies beside it; what a parent did after a fork does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from clawblox.recording.blocks import Moment
from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.lives import Life, Origin
from clawblox.rundir.saves import LineageSave
from clawblox.system.clock import parse_utc
from clawblox.views.lineage_layout import find_history


@attrs.frozen
class DescentLife:
    """A life of a line of descent.

    Attributes:
        run_dir: Its run directory.
        instance: Its instance.
        number: Its place among the lives of the instance, from 0.
        is_lost: Whether no part of it is on the line.
        until: The save with which it leaves the line; None if it does not.
        is_forked: Whether the line goes on in another instance from that save.
    """

    run_dir: Path
    instance: InstanceLineage = attrs.field(repr=lambda instance: instance.name)
    number: int
    is_lost: bool = False
    until: LineageSave | None = None
    is_forked: bool = False

    @property
    def life(self) -> Life:
        """The life itself."""
        return self.instance.lives[self.number]

    @property
    def name(self) -> str:
        """Name of its instance, and which of its lives it is where there are several."""
        several = len(self.instance.lives) > 1
        return f"{self.instance.name}, life {self.number + 1}" if several else self.instance.name


def find_descent(
    lineages: Sequence[Lineage], run_dir: Path, instance: str
) -> tuple[DescentLife, ...]:
    """Return the line of descent of an instance, oldest life first.

    Args:
        lineages: The run directories to search for the origins of lives.
        run_dir: The run directory of the instance, one of them.
        instance: Its name; an unknown one has no lives.
    """
    lives: list[DescentLife] = []
    found = _find_instance(lineages, run_dir, instance)
    seen: set[tuple[Path, str]] = set()
    end: tuple[int, LineageSave] | None = None  # the last life of the instance, and its last save
    while found is not None and (found[0], found[1].name) not in seen:
        seen.add((found[0], found[1].name))
        own = [*_own_lives(*found, end)]
        lives[:0] = own
        origin = next((one.life.origin for one in own if not one.is_lost), None)
        found, end = _find_parent(lineages, origin, found[0]) if origin else (None, None)
    return tuple(lives)


def _find_instance(
    lineages: Sequence[Lineage], run_dir: Path, name: str
) -> tuple[Path, InstanceLineage] | None:
    for lineage in lineages:
        for one in lineage.instances:
            if (lineage.run_dir, one.name) == (run_dir, name):
                return run_dir, one
    return None


def _find_parent(
    lineages: Sequence[Lineage], origin: Origin, run_dir: Path
) -> tuple[tuple[Path, InstanceLineage] | None, tuple[int, LineageSave] | None]:
    """Return the instance that made a save, with the life and the save; by path, or by digest."""
    same: list[tuple[tuple[Path, InstanceLineage], tuple[int, LineageSave]]] = []
    for lineage in sorted(lineages, key=lambda one: one.run_dir != run_dir):
        for instance in lineage.instances:
            for number, life in enumerate(instance.lives):
                for save in life.saves:
                    place = (lineage.run_dir, instance), (number, save)
                    if save.path == origin.path:
                        return place
                    if save.sha256 and save.sha256 == origin.sha256:
                        same.append(place)
    return same[0] if same else (None, None)


def _own_lives(
    run_dir: Path, instance: InstanceLineage, end: tuple[int, LineageSave] | None
) -> Iterator[DescentLife]:
    """Yield the lives of an instance, up to the one that a fork began from."""
    last = len(instance.lives) - 1 if end is None else end[0]
    kept = find_history(instance.lives[: last + 1])
    for number, life in enumerate(instance.lives[: last + 1]):
        until = None if end is None else end[1]
        if number < last:
            until = life.saves[kept[number] - 1] if number in kept else None
        is_forked = end is not None and number == last
        yield DescentLife(run_dir, instance, number, number not in kept, until, is_forked)


def find_life(
    lives: Sequence[DescentLife], run_dir: Path, instance: str, first: Moment
) -> int | None:
    """Return the life that made a recording, as an index; None if it is none of these.

    Of the lives of the instance that began at the same simulated time, it is the one that began
    next to the recording.

    Args:
        lives: A line of descent.
        run_dir: The run directory of the recording.
        instance: Name of its instance; empty for the only one.
        first: When it begins.
    """
    own = [
        number
        for number, one in enumerate(lives)
        if one.run_dir == run_dir and instance in ("", one.instance.name)
    ]
    if not own:
        return None
    begun = [
        (_seconds_between(life, first), number)
        for number, life in enumerate(lives[own[0]].instance.lives)
        if life.time is None or math.isclose(life.time, first.time, abs_tol=1e-6)
    ]
    number = min(begun)[1] if begun else None
    return next((place for place in own if lives[place].number == number), None)


def _seconds_between(life: Life, first: Moment) -> float:
    begun_at = parse_utc(life.begun_at or (life.saves[0].created_at if life.saves else None))
    recorded_at = parse_utc(first.utc)
    if begun_at is None or recorded_at is None:
        return math.inf
    return abs((begun_at - recorded_at).total_seconds())
