"""A time axis for a line of descent: replay, steps, inputs, saves, events. Pure.

A position is a simulated time, in seconds. The index of a recording maps positions to host time; in
a life without a recording, the saves do. Without any recording, a position is host time since the
first start, with pauses folded. Lost parts also have positions, but are not on the line.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final, TypeAlias

import attrs

from clawblox.recording.reader import RecordingReader
from clawblox.rundir.listed_saves import LineageSave
from clawblox.system.clock import format_utc_ms
from clawblox.views.agent_words import to_seconds
from clawblox.views.descent import DescentLife
from clawblox.views.formatting import format_rough_seconds
from clawblox.views.svg import Knot, interpolate

FOLD_S: Final = 60.0
"""Seconds of host time without records after which the gap is folded."""
_INSTANT_S: Final = 1e-6
_RESTARTS: Final = {"policy": "restart", "request": "restart"}
_MOMENT: Final = 0
_POSITION: Final = 1

_Time: TypeAlias = tuple[str | None, float | None]
"""Host time in UTC, and simulated time."""


def format_position(position: float) -> str:
    """Return a position as text for addresses."""
    return f"{position:.3f}".rstrip("0").rstrip(".")


@attrs.frozen
class Sent:
    """An input or a message of an agent.

    Attributes:
        time: Simulation time at which it was applied, in seconds.
        name: Name of the agent.
        is_message: Whether it is a message.
        words: Its text, in the format of an agent's calls.
        utc: Host time at which it was applied.
        is_lost: Whether a restore has discarded it.
    """

    time: float
    name: str = ""
    is_message: bool = False
    words: str = ""
    utc: str = ""
    is_lost: bool = False


@attrs.frozen
class AxisPlace:
    """A place on the axis or in a lost part.

    Attributes:
        position: Its position.
        utc: Host time of the place, like ``2026-06-22T18:59:25.104Z``.
        life: Index of the life in the lives of the axis.
        is_lost: Whether a restore has discarded it.
        is_paused: Whether no world was running; the position is then the start of the next life.
    """

    position: float
    utc: str
    life: int
    is_lost: bool = False
    is_paused: bool = False


@attrs.frozen
class Piece:
    """A part of a life in which every moment of host time has a known position.

    Attributes:
        life: Index of the life in the lives of the axis.
        is_lost: Whether a restore has discarded it.
        knots: Host times in seconds since 1970, each with the position at that time.
    """

    life: int
    is_lost: bool
    knots: tuple[Knot, ...]

    @property
    def begin(self) -> float:
        """First position."""
        return self.knots[0][_POSITION]

    @property
    def end(self) -> float:
        """Last position."""
        return self.knots[-1][_POSITION]

    def place(self, knot: Knot) -> AxisPlace:
        """Return the place of a knot in this part."""
        return AxisPlace(
            knot[1], format_utc_ms(round(knot[0] * 1e6) * 1000), self.life, self.is_lost
        )


@attrs.frozen
class Point:
    """An event at a moment, or a pause: host time that takes no room on the axis.

    Attributes:
        kind: ``start``, ``save``, ``crash``, ``end``, ``restart``, ``resume``, ``fork``, ``pause``.
        label: Description of the event, or the length of the pause.
        place: Place of the event, or of the start of the pause.
    """

    kind: str
    label: str
    place: AxisPlace


@attrs.frozen
class Axis:
    """A time axis; :func:`make_axis` makes it.

    Attributes:
        lives: The lives of the line of descent.
        pieces: Parts of the lives, in the order of host time.
        points: Starts, saves and ends of lives, followed by pauses.
        is_simulated: Whether positions are simulated time. Otherwise they are host time, in seconds
            since the first start with pauses folded.
    """

    lives: tuple[DescentLife, ...]
    pieces: tuple[Piece, ...]
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
        """Note for the reader; empty if the axis shows both simulated and host time."""
        if not self.pieces:
            return "The times of this run are unknown."
        return "" if self.is_simulated else "No recording: this axis shows only host time."

    def place(self, utc: str) -> AxisPlace | None:
        """Return the place of a host time; None for a malformed time or an empty axis.

        Args:
            utc: ISO 8601. Earlier times give the first place, later times the last.
        """
        moment = to_seconds(utc)
        if moment is None or not self.pieces:
            return None
        number = bisect_right(self.pieces, moment, key=lambda piece: piece.knots[0][_MOMENT])
        piece = self.pieces[max(number - 1, 0)]
        is_paused = not piece.knots[0][_MOMENT] <= moment <= piece.knots[-1][_MOMENT]
        piece = self.pieces[min(number, len(self.pieces) - 1)] if is_paused else piece
        place = piece.place((moment, interpolate(piece.knots, moment, _MOMENT)))
        return attrs.evolve(place, is_paused=is_paused)

    def place_time(self, position: float, life: int | None = None) -> AxisPlace | None:
        """Return the place of the first moment at a position; None if there is no such part.

        Args:
            position: The position; outside the axis, the nearest position is used.
            life: Search only this life, including lost parts; None searches the line.
        """
        kept = [piece for piece in self.pieces if not piece.is_lost]
        wanted = kept if life is None else [one for one in self.pieces if one.life == life]
        if not wanted:
            return None
        piece = next((piece for piece in wanted if position <= piece.end), wanted[-1])
        position = min(max(position, piece.begin), piece.end)
        return piece.place((interpolate(piece.knots, position, _POSITION), position))

    def place_save(self, save: LineageSave, life: int) -> AxisPlace | None:
        """Return the place of a save of a life; None if the time of the save is unknown."""
        if self.is_simulated and save.time is not None:
            place = self.place_time(save.time, life)
            return place and attrs.evolve(place, utc=save.created_at or place.utc)
        return self.place(save.created_at or "")

    def is_lost(self, life: int, position: float) -> bool | None:
        """Return whether an input at a position of a life was lost; None if it is not on the axis.

        An input belongs to the time after it, so an input at the exact time of a save counts as
        later.
        """
        own = [one for one in self.pieces if one.life == life and one.begin <= position <= one.end]
        is_later = self.lives[life].is_forked and own and position == own[-1].end
        return own[-1].is_lost if own and not is_later else None

    def since(self, place: AxisPlace) -> Axis:
        """Return the part of the axis that starts at a place."""
        begin, pieces = (place.life, place.position), list[Piece]()
        for piece in self.pieces:
            knots = [knot for knot in piece.knots if (piece.life, knot[_POSITION]) > begin]
            if knots and piece.life == place.life and piece.begin <= place.position:
                at = interpolate(piece.knots, place.position, _POSITION)
                knots.insert(0, (at, place.position))
            pieces += [attrs.evolve(piece, knots=tuple(knots))] if knots else []
        points = (one for one in self.points if (one.place.life, one.place.position) >= begin)
        return attrs.evolve(self, pieces=tuple(pieces), points=tuple(points))


# -- making -------------------------------------------------------------------------------------


def make_axis(
    lives: Sequence[DescentLife], recorded: Mapping[int, Sequence[RecordingReader]]
) -> Axis:
    """Return the axis of a line of descent.

    Args:
        lives: The lives of the line.
        recorded: The recordings of each life, by the life's index. Only their time indexes are
            read.
    """
    known = {number: _order(_recorded_times(own)) for number, own in recorded.items()}
    is_simulated = any(known.values())
    if is_simulated:
        knots = [known.get(number) or _order(_list_times(one)) for number, one in enumerate(lives)]
    else:
        knots = _fold_host_time(lives)
    pieces = [
        piece
        for number, one in enumerate(lives)
        for piece in _cut(one, number, knots[number], is_simulated=is_simulated)
    ]
    pieces.sort(key=lambda piece: piece.knots[0])
    axis = Axis(tuple(lives), tuple(pieces), (), is_simulated)
    return attrs.evolve(axis, points=(*_find_points(axis), *_find_pauses(axis)))


def _recorded_times(recordings: Iterable[RecordingReader]) -> Iterator[_Time]:
    for head in (block.header for one in recordings for block in one.index):
        yield from ((head.first.utc, head.first.time), (head.last.utc, head.last.time))


def _list_times(one: DescentLife) -> Iterator[_Time]:
    """Yield the moments of a life from its manifests, with their simulated times."""
    yield one.life.begun_at, one.life.time
    yield from ((save.created_at, save.time) for save in _own_saves(one))
    # Other ends are recorded as the start of the next life, which may be much later.
    if one.life.ended_by == "exit" and not one.is_forked:
        yield one.life.ended_at, None


def _order(times: Iterable[_Time]) -> list[Knot]:
    """Return knots in the order of host time, with positions that never decrease."""
    known = ((to_seconds(utc), to) for utc, to in times)
    ordered = sorted((at, to) for at, to in known if at is not None and to is not None)
    highest = accumulate((position for _, position in ordered), max)
    return [*dict(zip((at for at, _ in ordered), highest, strict=True)).items()]


def _fold_host_time(lives: Sequence[DescentLife]) -> list[list[Knot]]:
    """Return the knots of lives whose positions are host time with pauses folded."""
    known = ((to_seconds(utc) for utc, _ in _list_times(one)) for one in lives)
    stamps = [{at for at in moments if at is not None} for moments in known]
    ordered = sorted(set().union(*stamps))
    steps = (min(after - before, FOLD_S) for before, after in pairwise(ordered))
    positions = dict(zip(ordered, accumulate(steps, initial=0.0), strict=False))
    return [[(at, positions[at]) for at in sorted(own)] for own in stamps]


def _own_saves(one: DescentLife) -> Sequence[LineageSave]:
    saves = one.life.saves
    return saves[: saves.index(one.until) + 1] if one.is_forked and one.until else saves


def _cut(
    one: DescentLife, number: int, knots: Sequence[Knot], *, is_simulated: bool
) -> Iterator[Piece]:
    """Yield the part of a life that is on the line, and the part that was lost after its save."""
    save, size = one.until, len(knots)
    saved_at = to_seconds(save.created_at) if save else None
    limit = save.time if save and is_simulated else saved_at
    if limit is not None:
        size = bisect_right(knots, limit, key=itemgetter(is_simulated))
        if one.is_forked and is_simulated:  # the parent's wait after the fork is not on the line
            size = min(size, bisect_left(knots, limit, key=itemgetter(_POSITION)) + 1)
    on, off = tuple(knots[:size]), tuple(knots[size:])
    if is_simulated and limit is not None and on and on[-1][_POSITION] < limit:
        # If no knots follow, the end of the recording is missing.
        at = interpolate((*on[-1:], *off), limit, _POSITION) if off else saved_at or 0.0
        on += ((max(at, on[-1][_MOMENT] + _INSTANT_S), limit),)
    if on:
        yield Piece(number, one.is_lost, on)
    if off and not one.is_forked:
        yield Piece(number, is_lost=True, knots=(*on[-1:], *off))


def _find_pauses(axis: Axis) -> Iterator[Point]:
    pieces = [(knot, piece) for piece in axis.pieces for knot in piece.knots]
    knots = sorted(pieces, key=itemgetter(0))
    for ((before, left), _), ((after, right), piece) in pairwise(knots):
        if after - before > FOLD_S:
            # A crash and its pause end at the position where the restored world continues.
            place = piece.place((before, right if axis.is_simulated else (left + right) / 2))
            yield Point("pause", format_rough_seconds(after - before), place)


def _find_points(axis: Axis) -> Iterator[Point]:
    for number, one in enumerate(axis.lives):
        life, pieces = one.life, [piece for piece in axis.pieces if piece.life == number]
        if not pieces:
            continue
        kind = words = _RESTARTS.get(life.begun_by, life.begun_by)
        if kind == "start" and life.origin is not None:
            kind, words = "fork", f"forked from {life.origin.path.name}"
        yield Point(kind, f"{one.name}: {words}", pieces[0].place(pieces[0].knots[0]))
        for save in _own_saves(one):
            if place := axis.place_save(save, number):
                yield Point("save", save.path.name, place)
        if life.ended_by and not one.is_forked:
            words = life.exit or "ended in an unknown way"
            end = pieces[-1].place(pieces[-1].knots[-1])
            yield Point("crash" if life.has_died else "end", f"{one.name}: {words}", end)
