"""One axis of time for a line of descent: replay, steps, inputs, saves, events. Pure.

A position is a simulated time, in seconds. The index of a recording ties it to the time of the
host; a life without a recording has its saves for that. Without any recording a position is host
time since the first start, with pauses folded. Lost parts have positions, too, but are not on the
line.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final, Literal, TypeAlias

import attrs

from clawblox.recording.reader import BlockEntry
from clawblox.rundir.lives import Life, LifeBeginning
from clawblox.rundir.saves import LineageSave
from clawblox.system.clock import format_utc_ms, parse_utc
from clawblox.views.formatting import format_rough_seconds
from clawblox.web.descent import DescentLife

FOLD_S: Final = 60.0
"""A longer time of the host in which nothing is recorded is folded, in seconds."""
_FOLD_SHARE: Final = 0.03
"""Length of a fold where positions are host time, as a share of the rest."""
_TOLERANCE: Final = 1e-3
"""Positions in seconds that need no knot of their own."""
_INSTANT_S: Final = 1e-6
_ADDRESS: Final = re.compile(r"#?t=(-?\d{1,15}(?:\.\d{1,9})?)(?:,life=(\d{1,6}))?")

Knot: TypeAlias = tuple[float, float]
"""A time of the host in seconds since 1970, and the position at that time."""
PointKind: TypeAlias = Literal["start", "save", "crash", "end", "restart", "resume", "fork"]


@attrs.frozen
class Place:
    """A place on the axis or beside it.

    Attributes:
        position: Its position.
        utc: When that was, like ``2026-06-22T18:59:25.104Z``.
        life: The life, as an index of the lives of the axis.
        is_lost: Whether it is beside the line.
        is_paused: Whether no life ran then; the position is the one at which the next began.
    """

    position: float
    utc: str
    life: int
    is_lost: bool = False
    is_paused: bool = False

    @property
    def address(self) -> str:
        """The address of the place within a page; see :meth:`Axis.find_address`."""
        position = f"{self.position:.9f}".rstrip("0").rstrip(".")
        return f"#t={position},life={self.life}" if self.is_lost else f"#t={position}"


@attrs.frozen
class LanePoint:
    """Something in the lane of an agent.

    Attributes:
        position: Where it is.
        is_lost: Whether it is beside the line.
        is_message: Whether it is a message, and not an input or a step.
    """

    position: float
    is_lost: bool = False
    is_message: bool = False


@attrs.frozen
class Piece:
    """A part of a life in which the position is known for every moment of the host.

    Attributes:
        life: The life, as an index of the lives of the axis.
        is_lost: Whether it is beside the line.
        knots: Moments in their order; between two of them time passes evenly.
    """

    life: int
    is_lost: bool
    knots: tuple[Knot, ...]

    @property
    def begin(self) -> float:
        """Its first position."""
        return self.knots[0][1]

    @property
    def end(self) -> float:
        """Its last position."""
        return self.knots[-1][1]

    def place(self, knot: Knot) -> Place:
        """Return a place in it."""
        return Place(knot[1], format_utc_ms(round(knot[0] * 1e6) * 1000), self.life, self.is_lost)


@attrs.frozen
class Fold:
    """A time of the host that takes no room, or little: no life ran, or nothing happened.

    Attributes:
        position: Where it is.
        begin: When it began, in seconds since 1970.
        end: When it ended.
    """

    position: float
    begin: float
    end: float

    @property
    def label(self) -> str:
        """How long it was."""
        return format_rough_seconds(self.end - self.begin)


@attrs.frozen
class Point:
    """Something that happened at a moment.

    Attributes:
        kind: What it is.
        label: What it is, in words.
        place: Where it is.
    """

    kind: PointKind
    label: str
    place: Place


@attrs.frozen
class Axis:
    """One axis of time; :func:`make_axis` makes it.

    Attributes:
        lives: The lives of the line of descent.
        pieces: Their parts, in the order of host time.
        folds: Pauses, in their order.
        points: Starts, saves and ends of lives.
        is_simulated: Whether positions are simulated time; host time otherwise, in seconds since
            the first start with pauses folded.
    """

    lives: tuple[DescentLife, ...]
    pieces: tuple[Piece, ...]
    folds: tuple[Fold, ...]
    points: tuple[Point, ...]
    is_simulated: bool

    @property
    def begin(self) -> float:
        """The first position."""
        return min((piece.begin for piece in self.pieces), default=0.0)

    @property
    def end(self) -> float:
        """The last position."""
        return max((piece.end for piece in self.pieces), default=0.0)

    @property
    def note(self) -> str:
        """What its reader must know; empty if it shows simulated and host time."""
        if not self.pieces:
            return "No time of this run is known."
        return "" if self.is_simulated else "No recording: this axis shows host time alone."

    def place(self, utc: str) -> Place | None:
        """Return where a moment of the host is; None for a malformed time or an empty axis.

        Args:
            utc: ISO 8601. Before the first moment it is the first place, after the last the last.
        """
        moment = _seconds(utc)
        if moment is None or not self.pieces:
            return None
        number = bisect_right(self.pieces, moment, key=lambda piece: piece.knots[0][0])
        if number and moment <= self.pieces[number - 1].knots[-1][0]:
            piece = self.pieces[number - 1]
            return piece.place((moment, _position_at(piece.knots, moment)))
        piece = self.pieces[min(number, len(self.pieces) - 1)]
        position = piece.begin if number < len(self.pieces) else piece.end
        return attrs.evolve(piece.place((moment, position)), is_paused=True)

    def place_time(self, position: float, life: int | None = None) -> Place | None:
        """Return the first moment at a position; None if there is no such part.

        Args:
            position: The position; outside of the axis, the nearest one counts.
            life: Only in this life, lost or not; None means on the line.
        """
        wanted = [
            piece
            for piece in self.pieces
            if (not piece.is_lost if life is None else piece.life == life)
        ]
        if not wanted:
            return None
        piece = next((piece for piece in wanted if position <= piece.end), wanted[-1])
        position = min(max(position, piece.begin), piece.end)
        return piece.place((_moment_at(piece.knots, position), position))

    def place_save(self, save: LineageSave, life: int) -> Place | None:
        """Return where a save of a life is; None if no time of it is known."""
        if self.is_simulated and save.time is not None:
            return self.place_time(save.time, life)
        return self.place(save.created_at or "")

    def find_address(self, fragment: str) -> Place | None:
        """Return the place that an address names; None if it names none.

        Args:
            fragment: ``#t=720`` for a position on the line, ``#t=720,life=2`` for one in a life.
        """
        match = _ADDRESS.fullmatch(fragment)
        return (
            self.place_time(float(match[1]), int(match[2]) if match[2] else None) if match else None
        )

    def is_lost(self, life: int, position: float) -> bool | None:
        """Return whether an input at a position of a life was lost; None if it is not on the axis.

        An input belongs to the time after it, so one at the very time of a save was sent later.
        """
        own = [piece for piece in self.pieces if piece.life == life]
        pieces = [piece for piece in own if piece.begin <= position <= piece.end]
        if not pieces or (self.lives[life].is_forked and position == own[-1].end):
            return None
        return pieces[-1].is_lost

    def since(self, place: Place) -> Axis:
        """Return the axis from a place on the line on."""
        pieces = [piece for piece in self.pieces if piece.life > place.life]
        for piece in (piece for piece in self.pieces if piece.life == place.life):
            knots = [knot for knot in piece.knots if knot[1] > place.position]
            if knots and piece.begin <= place.position:
                knots.insert(0, (_moment_at(piece.knots, place.position), place.position))
            if knots:
                pieces.append(attrs.evolve(piece, knots=tuple(knots)))
        pieces.sort(key=lambda piece: piece.knots[0][0])
        begin = pieces[0].knots[0][0] if pieces else math.inf
        return attrs.evolve(
            self,
            pieces=tuple(pieces),
            folds=tuple(fold for fold in self.folds if fold.end > begin),
            points=tuple(
                point
                for point in self.points
                if (point.place.life, point.place.position) >= (place.life, place.position)
            ),
        )


# -- making -------------------------------------------------------------------------------------

_BEGINNINGS: Final[Mapping[LifeBeginning, tuple[PointKind, str]]] = {
    "start": ("start", "started"),
    "policy": ("restart", "restarted"),
    "request": ("restart", "restarted on request"),
    "resume": ("resume", "resumed"),
}


def make_axis(
    lives: Sequence[DescentLife],
    recorded: Mapping[int, Iterable[BlockEntry]],
    moments: Iterable[str] = (),
) -> Axis:
    """Return the axis of a line of descent.

    Args:
        lives: The line.
        recorded: The blocks of the recordings of each life, by its index.
        moments: Further times at which something happened, such as those of steps. Without a
            recording they tell work from pauses.
    """
    known = {number: _recorded_knots(blocks) for number, blocks in recorded.items()}
    is_simulated = any(known.values())
    if is_simulated:
        knots = [_simulated_knots(one.life, known.get(n, [])) for n, one in enumerate(lives)]
    else:
        knots = _fold_host_time([_stamps(one) for one in lives], map(_seconds, moments))
    pieces = [
        piece
        for number, one in enumerate(lives)
        for piece in _cut(one, number, knots[number], is_simulated=is_simulated)
    ]
    pieces.sort(key=lambda piece: piece.knots[0][0])
    folds = tuple(_find_folds(pieces, is_simulated=is_simulated))
    thinned = (attrs.evolve(piece, knots=thin(piece.knots, _TOLERANCE)) for piece in pieces)
    axis = Axis(tuple(lives), tuple(thinned), folds, (), is_simulated)
    return attrs.evolve(axis, points=tuple(_find_points(axis)))


def _recorded_knots(blocks: Iterable[BlockEntry]) -> list[Knot]:
    heads = (moment for block in blocks for moment in (block.header.first, block.header.last))
    return [(at, head.time) for head in heads if (at := _seconds(head.utc)) is not None]


def _simulated_knots(life: Life, recorded: Iterable[Knot]) -> list[Knot]:
    known = _order(recorded)
    saves = [(save.created_at, save.time) for save in life.saves]
    saved = [(at, to) for utc, to in saves if to is not None and (at := _seconds(utc))]
    if not known:
        begun_at = _seconds(life.begun_at)
        begin = [(begun_at, life.time)] if begun_at and life.time is not None else []
        return _order([*begin, *saved])
    # A block can be quiet for long after the moment of a save, whose second is over one later.
    late = [
        (at + 1, to)
        for at, to in saved
        if known[0][0] < at + 1 < known[-1][0] and _position_at(known, at + 1) < to
    ]
    return _order([*known, *late])


def _order(knots: Iterable[Knot]) -> list[Knot]:
    """Return knots in the order of host time, in which the position never goes back."""
    ordered: dict[float, float] = {}
    last = -math.inf
    for at, position in sorted(knots):
        last = ordered[at] = max(last, position)
    return [*ordered.items()]


def _stamps(one: DescentLife) -> list[float]:
    """Return the moments that manifests have of a life."""
    texts = [one.life.begun_at, *(save.created_at for save in _own_saves(one))]
    # The end of another life is the beginning of the next: it may have ended long before.
    texts += [one.life.ended_at] if one.life.ended_by == "exit" and not one.is_forked else []
    return [at for text in texts if (at := _seconds(text)) is not None]


def _own_saves(one: DescentLife) -> Sequence[LineageSave]:
    saves = one.life.saves
    return saves[: saves.index(one.until) + 1] if one.is_forked and one.until else saves


def _fold_host_time(
    stamps: Sequence[list[float]], moments: Iterable[float | None]
) -> list[list[Knot]]:
    """Return the knots of lives whose positions are host time with pauses folded."""
    begins = sorted((min(ats), number) for number, ats in enumerate(stamps) if ats)
    for moment in filter(None, moments):
        if found := bisect_right(begins, (moment, len(stamps))):
            stamps[begins[found - 1][1]].append(moment)
    ordered = sorted({at for ats in stamps for at in ats})
    steps = [after - before for before, after in pairwise(ordered)]
    fold = max(_FOLD_SHARE * sum(step for step in steps if step <= FOLD_S), 1.0)
    ends = accumulate((step if step <= FOLD_S else fold for step in steps), initial=0.0)
    positions = dict(zip(ordered, ends, strict=False))
    return [[(at, positions[at]) for at in sorted(set(ats))] for ats in stamps]


def _cut(
    one: DescentLife, number: int, knots: Sequence[Knot], *, is_simulated: bool
) -> Iterator[Piece]:
    """Yield the part of a life on the line, and the part that was lost after its save."""
    save, size = one.until, len(knots)
    saved_at = _seconds(save.created_at) if save else None
    limit = save.time if save and is_simulated else saved_at
    if limit is not None and not one.is_lost:
        size = sum(knot[is_simulated] <= limit for knot in knots)
        if one.is_forked and is_simulated:  # what the parent waited afterwards is its own
            size = min(size, bisect_left(knots, limit, key=itemgetter(1)) + 1)
    on, off = tuple(knots[:size]), tuple(knots[size:])
    if is_simulated and limit is not None and on and on[-1][1] < limit:
        # Without more, the end of the recording is missing.
        at = _moment_at((*on[-1:], *off), limit) if off else saved_at or 0.0
        on += ((max(at, on[-1][0] + _INSTANT_S), limit),)
    if on:
        yield Piece(number, one.is_lost, on)
    if off and not one.is_forked:
        yield Piece(number, is_lost=True, knots=(*on[-1:], *off))


def _find_folds(pieces: Sequence[Piece], *, is_simulated: bool) -> Iterator[Fold]:
    knots = sorted(knot for piece in pieces for knot in piece.knots)
    for (before, left), (after, right) in pairwise(knots):
        if after - before > FOLD_S:
            # A crash and its pause end where the restored world goes on.
            yield Fold(right if is_simulated else (left + right) / 2, before, after)


def _find_points(axis: Axis) -> Iterator[Point]:
    for number, one in enumerate(axis.lives):
        life, pieces = one.life, [piece for piece in axis.pieces if piece.life == number]
        if not pieces:
            continue
        kind, words = _BEGINNINGS[life.begun_by]
        if kind == "start" and life.origin is not None:
            kind, words = "fork", f"forked from {life.origin.path.name}"
        yield Point(kind, f"{one.name}: {words}", pieces[0].place(pieces[0].knots[0]))
        for save in _own_saves(one):
            if place := axis.place_save(save, number):
                yield Point("save", save.path.name, place)
        if life.ended_by and not one.is_forked:
            kind, end = "crash" if life.has_died else "end", pieces[-1]
            words = life.exit or "ended in an unknown way"
            yield Point(kind, f"{one.name}: {words}", end.place(end.knots[-1]))


# -- arithmetic ---------------------------------------------------------------------------------


def thin(knots: Sequence[Knot], tolerance: float) -> tuple[Knot, ...]:
    """Return some of the knots, between which no other is further off than a tolerance.

    Args:
        knots: The knots, in the order of their moments; no moment twice.
        tolerance: The most that a position may change.
    """
    kept = [*knots[:1]]
    low, high, last = -math.inf, math.inf, None
    for knot in knots[1:]:
        slope = _slope(kept[-1], knot)
        if last is not None and not low <= slope <= high:
            kept.append(last)
            low, high, slope = -math.inf, math.inf, _slope(last, knot)
        run = knot[0] - kept[-1][0]
        low, high = max(low, slope - tolerance / run), min(high, slope + tolerance / run)
        last = knot
    return (*kept, last) if last is not None else tuple(kept)


def _slope(first: Knot, second: Knot) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])


def _position_at(knots: Sequence[Knot], moment: float) -> float:
    number = bisect_right(knots, moment, key=itemgetter(0))
    if number == len(knots):
        return knots[-1][1]
    before, after = knots[number - 1], knots[number]
    return min(before[1] + (moment - before[0]) * _slope(before, after), after[1])


def _moment_at(knots: Sequence[Knot], position: float) -> float:
    """Return the first moment at a position."""
    number = bisect_left(knots, position, key=itemgetter(1))
    if not number:
        return knots[0][0]
    (begin, left), (end, right) = knots[number - 1], knots[number]
    return min(begin + (end - begin) * ((position - left) / (right - left)), end)


def _seconds(utc: str | None) -> float | None:
    moment = parse_utc(utc)
    return None if moment is None else moment.timestamp()
