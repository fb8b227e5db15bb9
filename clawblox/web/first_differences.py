"""Two runs or branches from their fork on: where they first act otherwise and see something else.

The recordings of both say it. The n-th action of an agent is compared with its n-th action in the
other branch, and so are observations. Agents are the same by name, the others by the order in which
they came; their ids, addresses, sessions and times of the host differ by design.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.differences import ABSENT, find_differences
from clawblox.foreign_values import clean_value
from clawblox.recording.blocks import Moment, Track
from clawblox.recording.reader import Record
from clawblox.rundir.saves import LineageSave
from clawblox.web.axis import Axis, Piece
from clawblox.web.descent import OpenRecording, RecordedLives

ADDRESS: Final = re.compile(r"(https?://)?(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}\b")
UTC_TIME: Final = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_OWN: Final = frozenset(("tick", "time", "session", "session_id"))
"""Members of an observation that differ by design."""

Kind: TypeAlias = Literal["action", "observation"]
_TRACKS: Final[Mapping[Kind, Track]] = {
    "action": Track.INPUTS,
    "observation": Track.OBSERVATIONS,
}
_Item: TypeAlias = tuple[str, Record]


@attrs.frozen
class Alignment:
    """Two axes from their fork on.

    Attributes:
        first: The axis of the first from there on.
        second: The axis of the second.
        save: The save at which the lines part; None if they have no life in common, or none of
            them leaves the other.
        spans: The positions at both ends of either strip, from the fork or the beginning on; both
            have the same scale.
    """

    first: Axis
    second: Axis
    save: LineageSave | None
    spans: Sequence[tuple[float, float]]


@attrs.frozen
class FirstDifference:
    """The first action or observation in which two branches differ.

    Attributes:
        kind: Which of the two.
        agent: Name of the agent.
        path: Where in it; empty for all of it.
        first: The value there in the first branch, as JSON; None where there is none.
        second: The value in the second.
        first_at: When that was in the first branch.
        second_at: When that was in the second.
    """

    kind: Kind
    agent: str
    path: str
    first: Any
    second: Any
    first_at: Moment
    second_at: Moment


def align(first: Axis, second: Axis) -> Alignment:
    """Return two axes from their fork on, or whole where they have no life in common."""
    axes = [first, second]
    common, save = _find_fork(axes)
    begins = [axis.begin for axis in axes]
    for side, life in enumerate(common):
        place = axes[side].place_save(save, life) if save else None
        if place is not None:
            begins[side] = place.position
            axes[side] = axes[side].since(attrs.evolve(place, life=life))
    length = max(0.0, *(axis.end - begin for axis, begin in zip(axes, begins, strict=True)))
    return Alignment(axes[0], axes[1], save, [(begin, begin + length) for begin in begins])


def _find_fork(axes: Sequence[Axis]) -> tuple[Sequence[int], LineageSave | None]:
    """Return the place of the last life that both have, and the save with which one leaves it."""
    first, second = (
        {(one.run_dir, one.instance.name, one.number): place
         for place, one in enumerate(axis.lives) if not one.is_lost}
        for axis in axes
    )  # fmt: skip
    common = [(place, second[key]) for key, place in first.items() if key in second][-1:]
    lives = [axis.lives[n] for places in common for axis, n in zip(axes, places, strict=True)]
    saves = [life.until for life in lives if life.until is not None]
    save = min(saves, key=lambda save: (save.created_at or "", save.time or 0.0), default=None)
    return next(iter(common), ()), save


def find_first_differences(
    aligned: Alignment, first: RecordedLives, second: RecordedLives
) -> list[FirstDifference]:
    """Return the first action and the first observation that differ, as far as any does. Blocks.

    Args:
        aligned: Both axes; without recordings of both there is nothing to compare.
        first: The recordings of the first.
        second: The recordings of the second.

    Raises:
        OSError: A file cannot be read.
        RecordingError: A block is damaged.
    """
    if not (aligned.first.is_simulated and aligned.second.is_simulated):
        return []
    sides = ((aligned.first, first), (aligned.second, second))
    names = _pair_agents(*(_read_names(*side) for side in sides))
    found = []
    for kind, track in _TRACKS.items():
        items = [_read(*side, track, of) for side, of in zip(sides, names, strict=True)]
        found.append(_find_first(kind, items, names))
    return [difference for difference in found if difference is not None]


def _kept(axis: Axis, recorded: RecordedLives) -> Iterator[tuple[Piece, OpenRecording]]:
    for piece in axis.pieces:
        if not piece.is_lost:
            yield from ((piece, one) for one in recorded.recordings.get(piece.life, ()))


def _read_names(axis: Axis, recorded: RecordedLives) -> dict[str, str]:
    """Return the names of the agents by their ids, in the order in which they came."""
    rosters = (recording.roster() for _, recording in _kept(axis, recorded))
    return {ident: name for roster in rosters for ident, name in roster.names.items()}


def _read(
    axis: Axis, recorded: RecordedLives, track: Track, names: Mapping[str, str]
) -> Iterator[_Item]:
    """Yield what agents did or saw on the line, each with its name."""
    for piece, recording in _kept(axis, recorded):
        for record in recording.reader.read_track(track, piece.begin):
            agent, time = names.get(str(record.fields.get("agent_id"))), record.moment.time
            if time > piece.end:
                break
            if track is Track.INPUTS:
                is_sent = record.fields.get("event") in ("input", "chat")
                is_wanted = is_sent and axis.is_lost(piece.life, time) is False
            else:  # who looks again at the state of a save sees nothing new
                is_wanted = time > piece.begin
            if agent and is_wanted:
                yield agent, record


def _pair_agents(
    first: Mapping[str, str], second: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of the agents that both have, by their ids: those of the first branch.

    The second has them by its own names, too, for texts in which agents are named.
    """
    ids = {name: ident for ident, name in second.items()}
    pairs = [(ident, ids[name]) for ident, name in first.items() if name in ids]
    paired = {ident for pair in pairs for ident in pair}
    rest = ([ident for ident in side if ident not in paired] for side in (first, second))
    pairs += zip(*rest, strict=False)
    left = {ident: first[ident] or ident for ident, _ in pairs}
    right = {key: left[ident] for ident, other in pairs for key in (second[other], other) if key}
    return left, right


def _find_first(
    kind: Kind, sides: Sequence[Iterator[_Item]], names: Sequence[Mapping[str, str]]
) -> FirstDifference | None:
    """Return the earliest difference; nothing is read further than it takes to know that."""
    waiting: dict[str, tuple[deque[Record], deque[Record]]] = {}
    first: FirstDifference | None = None
    for items in zip_longest(*sides):
        for side, (agent, record) in ((n, item) for n, item in enumerate(items) if item):
            queues = waiting.setdefault(agent, (deque(), deque()))
            queues[side].append(record)
            if all(queues):
                difference = _compare(kind, agent, [queue.popleft() for queue in queues], names)
                if difference and (first is None or difference.first_at.time < first.first_at.time):
                    first = difference
        times = [item[1].moment.time for item in items if item]
        if first and min(times) > max(first.first_at.time, first.second_at.time):
            break
    return first


def _compare(
    kind: Kind, agent: str, pair: Sequence[Record], names: Sequence[Mapping[str, str]]
) -> FirstDifference | None:
    values = [_plain(_content(record), own) for record, own in zip(pair, names, strict=True)]
    differences = find_differences(*values)
    if not differences:
        return None
    sides = (differences[0].before, differences[0].after)
    first, second = (None if side is ABSENT else clean_value(side) for side in sides)
    moments = [record.moment for record in pair]
    return FirstDifference(kind, agent, differences[0].path, first, second, *moments)


def _content(record: Record) -> Any:  # noqa: ANN401 - JSON
    fields = record.fields
    if record.track is Track.INPUTS:
        wanted = ("content",) if fields.get("event") == "chat" else ("action", "data")
        return {key: fields.get(key) for key in wanted}
    seen = fields.get("observation")
    if not isinstance(seen, dict):
        return seen
    return {key: value for key, value in seen.items() if key not in _OWN}


def _plain(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Return a value without what differs by design; the depth of records is bounded."""
    if isinstance(value, str):
        return names.get(value) or UTC_TIME.sub("a time", ADDRESS.sub("an address", value))
    if isinstance(value, dict):
        return {names.get(key, key): _plain(item, names) for key, item in value.items()}
    return [_plain(item, names) for item in value] if isinstance(value, list) else value
