"""A line of descent: the lives from the first start to the last moment of an instance. Pure.

The line leads back through restarts of an instance, and through forks to its ancestors, in the same
run directory or in others. It contains each life up to the save from which the next life started.
The part that an instance lost after such a save is recorded next to the line; what a parent did
after a fork is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from clawblox.recording.blocks import Moment
from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.lives import Life, Origin
from clawblox.views.agent_words import to_seconds
from clawblox.views.lineage_layout import find_history


@attrs.frozen
class DescentLife:
    """A life in a line of descent.

    Attributes:
        run_dir: Its run directory.
        instance: Its instance.
        number: Index among the lives of the instance, from 0.
        is_lost: Whether no part of the life is on the line.
        until: The save at which the life leaves the line; None if it does not leave.
        is_forked: Whether the line continues in another instance from that save.
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
        """Name of the instance, followed by the number of the life if there are several."""
        several = len(self.instance.lives) > 1
        return f"{self.instance.name}, life {self.number + 1}" if several else self.instance.name


def find_descent(
    lineages: Sequence[Lineage], run_dir: Path, instance: str
) -> tuple[DescentLife, ...]:
    """Return the line of descent of an instance, oldest life first.

    Args:
        lineages: The lineages of the run directories to search for the origins of lives.
        run_dir: The run directory of the instance, one of the above.
        instance: Name of the instance; for an unknown name the result is empty.
    """
    lives: list[DescentLife] = []
    seen: set[tuple[Path, str]] = set()
    all_own = (lineage.instances for lineage in lineages if lineage.run_dir == run_dir)
    named = (one for own in all_own for one in own if one.name == instance)
    last = next((DescentLife(run_dir, one, len(one.lives) - 1) for one in named), None)
    while last is not None and (last.run_dir, last.instance.name) not in seen:
        seen.add((last.run_dir, last.instance.name))
        lives[:0] = before = [*_list_lives(last)]
        origin = next(one.life.origin for one in before if not one.is_lost)
        last = _find_parent(lineages, origin, last.run_dir) if origin else None
    return tuple(lives)


def _find_parent(lineages: Sequence[Lineage], origin: Origin, run_dir: Path) -> DescentLife | None:
    """Return the life that made a save, found by the path of the save or else by its digest."""
    makers = [
        (save.path != origin.path, lineage.run_dir != run_dir, number, instance, lineage, save)
        for lineage in lineages
        for instance in lineage.instances
        for number, life in enumerate(instance.lives)
        for save in life.saves
        if save.path == origin.path or (save.sha256 and save.sha256 == origin.sha256)
    ]
    if not makers:
        return None
    _, _, number, instance, lineage, save = min(makers, key=lambda maker: maker[:2])
    return DescentLife(lineage.run_dir, instance, number, until=save, is_forked=True)


def _list_lives(last: DescentLife) -> Iterator[DescentLife]:
    """Yield the lives of an instance up to its last one on the line."""
    lives = last.instance.lives[: last.number + 1]
    kept = find_history(lives)
    for number, life in enumerate(lives[:-1]):
        until = life.saves[kept[number] - 1] if number in kept else None
        yield DescentLife(last.run_dir, last.instance, number, number not in kept, until)
    yield last


def find_life(
    lives: Sequence[DescentLife], run_dir: Path, instance: str, first: Moment
) -> int | None:
    """Return the index of the life that made a recording; None if it is not in the line.

    Among the lives of the instance with the same simulated start time, the life whose start is
    closest to the start of the recording is chosen.

    Args:
        lives: A line of descent.
        run_dir: The run directory of the recording.
        instance: Name of its instance; empty for the only instance.
        first: The first moment of the recording.
    """
    own = [one for one in lives if one.run_dir == run_dir and instance in ("", one.instance.name)]
    recorded_at = to_seconds(first.utc) or 0.0
    begun = [
        (abs((to_seconds(life.begun_at) or math.inf) - recorded_at), number)
        for number, life in enumerate(own[0].instance.lives if own else ())
        if life.time is None or math.isclose(life.time, first.time, abs_tol=1e-6)
    ]
    numbers = {one.number: lives.index(one) for one in own}
    return numbers.get(min(begun)[1]) if begun else None
