"""The layout of the picture of a lineage: lanes, branches, forks, positions, words. Pure.

A lane is the current history of an instance: each life up to the save from which the next life
started. Lost parts and earlier runs are branches of the lane. A position is a simulation time, or
the seconds since the first start if no save has a simulation time. If only some saves have a
simulation time, the others are placed at the save before them.

No file records a world after its last save, so lanes end at their last save.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from clawblox.printable import printable
from clawblox.results import describe_end
from clawblox.rundir.lineage import InstanceLineage, Lineage
from clawblox.rundir.listed_saves import LineageSave
from clawblox.rundir.lives import Life
from clawblox.system.amounts import format_bytes
from clawblox.system.clock import parse_utc
from clawblox.views.formatting import count_words, describe_life, format_labels

Ending: TypeAlias = Literal["alive", "died", "ended", "unknown"]
"""End of a line: still running, a failure, a regular end, or an end that no file records."""


@attrs.frozen
class Ring:
    """A save on a line.

    Attributes:
        at: Its position.
        save: The save.
    """

    at: float
    save: LineageSave


@attrs.frozen
class LineTurn:
    """A restart or a resume, after which a line continues.

    Attributes:
        at: Its position.
        life: The life that started then.
    """

    at: float
    life: Life


@attrs.frozen
class LineageLine:
    """A lane or a branch.

    Attributes:
        begin: Position at which the line starts, possibly on another line.
        end: Position of its last save, or of its start without saves.
        rings: Its saves.
        ending: How the line ends.
    """

    begin: float
    end: float
    rings: tuple[Ring, ...]
    ending: Ending


@attrs.frozen
class LaneBranch(LineageLine):
    """A part of an instance that is not in its current history: a lost life, or an earlier run.

    Attributes:
        lives: Its life, or several lives that started at the same place and made no saves.
        base: Index of the branch from which this branch starts; None for the lane.
        is_apart: Whether the branch has no parent, because it started fresh or its origin is
            unknown.
    """

    lives: tuple[Life, ...]
    base: int | None
    is_apart: bool


@attrs.frozen
class LaneFork:
    """The place in another lane where a lane starts.

    Attributes:
        at: Its position.
        lane: The other lane, as an index.
        branch: The branch of that lane, as an index; None for the lane itself.
    """

    at: float
    lane: int
    branch: int | None


@attrs.frozen
class Lane(LineageLine):
    """The line of an instance: its current history.

    Attributes:
        instance: The instance.
        turns: Its restarts and resumes.
        branches: The parts that are not in its current history, oldest first.
        fork: The place in another lane where it starts; None if the instance is not a fork.
    """

    instance: InstanceLineage
    turns: tuple[LineTurn, ...]
    branches: tuple[LaneBranch, ...]
    fork: LaneFork | None


@attrs.frozen
class Layout:
    """The lanes of a run directory, each below its parent.

    Attributes:
        lanes: The lanes, in the order of the lineage.
        begin: The first position.
        end: The last position.
        is_simulated: Whether positions are simulation times instead of seconds since the first
            start.
    """

    lanes: tuple[Lane, ...]
    begin: float
    end: float
    is_simulated: bool

    def fraction(self, at: float) -> float:
        """Return the position on the axis as a fraction from 0 to 1."""
        # Quarters avoid an overflow, since a manifest may contain the largest and the smallest
        # float.
        begin, end = self.begin / 4, self.end / 4
        return (at / 4 - begin) / (end - begin) if end > begin else 0.0


def lay_out(lineage: Lineage) -> Layout:
    """Return the layout of the picture of a lineage."""
    lives = [life for instance in lineage.instances for life in instance.lives]
    saves = [save for life in lives for save in life.saves]
    is_simulated = any(save.time is not None for save in saves) or not saves
    stamps = [*(life.begun_at for life in lives), *(save.created_at for save in saves)]
    first = min((at for text in stamps if (at := parse_utc(text))), default=None)
    positions = _Positions(lineage, first, is_simulated=is_simulated)
    lanes: list[Lane] = []
    places: dict[Path, LaneFork] = {}
    ats: list[float] = []
    for number, instance in enumerate(lineage.instances):
        fork = places.get(instance.parent.path) if instance.parent else None
        lane = _make_lane(instance, fork, positions)
        lanes.append(lane)
        lines: dict[int | None, LineageLine] = {None: lane, **dict(enumerate(lane.branches))}
        for index, line in lines.items():
            ats += (line.begin, line.end)
            for ring in line.rings:
                places.setdefault(ring.save.path, LaneFork(ring.at, number, index))
    return Layout(tuple(lanes), min(ats, default=0.0), max(ats, default=0.0), is_simulated)


class _Positions:
    """The positions of the saves and of the starts of lives."""

    def __init__(self, lineage: Lineage, first: datetime | None, *, is_simulated: bool) -> None:
        self._first = first
        self._is_simulated = is_simulated
        self._saves: dict[Path, float] = {}
        # Parents come before their forks, and saves before the lives that started from them.
        for instance in lineage.instances:
            for life in instance.lives:
                before = self.begin(life)
                for save in life.saves:
                    at = self._position(save.time, save.created_at)
                    before = before if at is None else at
                    self._saves.setdefault(save.path, before)

    def _position(self, sim_time: float | None, utc: str | None) -> float | None:
        if self._is_simulated:
            return sim_time
        at = parse_utc(utc)
        return None if at is None or self._first is None else (at - self._first).total_seconds()

    def begin(self, life: Life) -> float:
        if life.origin is not None and life.origin.path in self._saves:
            return self._saves[life.origin.path]
        at = self._position(life.time, life.begun_at)
        if at is None and life.saves:
            at = self._position(life.saves[0].time, life.saves[0].created_at)
        return at or 0.0

    def rings(self, saves: Sequence[LineageSave]) -> tuple[Ring, ...]:
        return tuple(Ring(self._saves[save.path], save) for save in saves)


# -- one lane -------------------------------------------------------------------------------


def _make_lane(instance: InstanceLineage, fork: LaneFork | None, positions: _Positions) -> Lane:
    kept = find_history(instance.lives)
    history = [instance.lives[number] for number in sorted(kept)]
    rings = positions.rings(
        [save for number in sorted(kept) for save in instance.lives[number].saves[: kept[number]]]
    )
    begin = positions.begin(history[0]) if fork is None else fork.at
    turns = tuple(
        LineTurn(positions.begin(life), life) for life in history if life.begun_by != "start"
    )
    ats = [begin, *(ring.at for ring in rings), *(turn.at for turn in turns)]
    last = instance.lives[-1]
    return Lane(
        instance=instance,
        begin=min(ats) if fork is None else begin,
        end=max(ats),
        rings=rings,
        turns=turns,
        ending=_find_ending(last, instance),
        branches=tuple(_make_branches(instance, kept, positions)),
        fork=fork,
    )


def find_history(lives: Sequence[Life]) -> dict[int, int]:
    """Return the lives of the current history, each with the number of its saves in it."""
    kept = {len(lives) - 1: len(lives[-1].saves)}
    life = len(lives) - 1
    while (found := _find_base(lives, life)) is not None:
        life, save = found
        kept[life] = save + 1
    return kept


def _find_base(lives: Sequence[Life], life: int) -> tuple[int, int] | None:
    """Return the indices of the earlier life and of its save from which a life started."""
    origin = lives[life].origin
    if origin is None:
        return None
    for number in reversed(range(life)):
        for place, save in enumerate(lives[number].saves):
            if save.path == origin.path:
                return number, place
    return None


def _find_ending(life: Life, instance: InstanceLineage) -> Ending:
    if life.has_died:
        return "died"
    if life.ended_by is None:
        return "unknown" if instance.state is None else "alive"
    return "unknown" if life.ended_by == "another_run" else "ended"


def _make_branches(
    instance: InstanceLineage, kept: Mapping[int, int], positions: _Positions
) -> list[LaneBranch]:
    lives = instance.lives
    branches: list[LaneBranch] = []
    homes: dict[Path, int] = {}
    for number, life in enumerate(lives[:-1]):
        is_kept = number in kept
        lost = positions.rings(life.saves[kept.get(number, 0) :])
        if is_kept and not lost and not life.has_died:
            continue
        begin = positions.begin(life)
        if is_kept:
            begin = positions.rings(life.saves[: kept[number]])[-1].at
        end = max((begin, *(ring.at for ring in lost)))
        base = homes.get(life.origin.path) if life.origin and not is_kept else None
        branch = LaneBranch(
            begin=begin,
            end=end,
            rings=lost,
            ending=_find_ending(life, instance),
            lives=(life,),
            base=base,
            is_apart=not is_kept and life.origin is None,
        )
        same = next((at for at, other in enumerate(branches) if _is_same(other, branch)), None)
        if same is not None:
            branches[same] = attrs.evolve(branches[same], lives=(*branches[same].lives, life))
            continue
        homes.update((ring.save.path, len(branches)) for ring in lost)
        branches.append(branch)
    return branches


def _is_same(branch: LaneBranch, other: LaneBranch) -> bool:
    """Return whether two branches look the same in a picture."""
    if branch.rings or other.rings or branch.ending != "died":
        return False
    return attrs.evolve(branch, lives=()) == attrs.evolve(other, lives=())


_MAX_SAVES = 8
"""Maximum number of saves that the tooltip of a ring describes."""


def describe_lineage(lineage: Lineage) -> str:
    """Return the numbers of instances, saves and deaths."""
    saves = sum(len(instance.saves) for instance in lineage.instances)
    forks = sum(instance.depth > 0 for instance in lineage.instances)
    deaths = sum(len(instance.deaths) for instance in lineage.instances)
    counts = [count_words(len(lineage.instances), "instance"), count_words(saves, "save")]
    counts += [count_words(forks, "fork")] if forks else []
    counts += [count_words(deaths, "death")] if deaths else []
    return ", ".join(counts)


def describe_state(instance: InstanceLineage) -> str:
    """Return the state of an instance, its exit, its restarts and its labels."""
    words = describe_life(instance.state or "not known", instance.exit)
    if instance.restarts:
        words += f", {count_words(instance.restarts, 'restart')}"
    return printable("; ".join(filter(None, (words, format_labels(instance.labels)))))


def describe_saves(saves: Sequence[LineageSave]) -> list[str]:
    """Return lines about saves at the same place: file, times, size."""
    lines = [line for save in saves[:_MAX_SAVES] for line in _describe_save(save)]
    more = len(saves) - _MAX_SAVES
    return [*lines, f"and {count_words(more, 'save')} more"] if more > 0 else lines


def _describe_save(save: LineageSave) -> Iterator[str]:
    yield save.path.name
    time = None if save.time is None else f"sim time {save.time:g}"
    removed = save.removed_at and f"removed {save.removed_at}"
    size = format_bytes(save.size_bytes)
    if facts := ", ".join(filter(None, (time, save.created_at, size, removed))):
        yield facts


def describe_life_end(life: Life) -> str:
    """Return how a life ended, and when."""
    if life.ended_by == "another_run":
        return f"earlier run {life.run_id}".strip()
    what = life.exit or describe_end(None, None)
    return f"{what}; continued at {life.ended_at}" if life.ended_at else what


def describe_turn(turn: LineTurn) -> str:
    """Describe a restart or a resume with its time and its save."""
    words = {"policy": "restarted", "request": "restarted on request", "resume": "resumed"}
    life = turn.life
    at = f" at {life.begun_at}" if life.begun_at else ""
    source = f" from {life.origin.path.name}" if life.origin else " fresh"
    return f"{words[life.begun_by]}{at}{source}"
