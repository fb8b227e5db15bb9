"""Finds the first actions and observations that differ between two runs or branches.

The comparison uses the recordings of both, or else the logs of their agents. The n-th action of an
agent is compared with its n-th action in the other branch; observations likewise. In recordings,
agents are matched by name, and the remaining agents by the order of arrival. Names and directories
of agents, ids, addresses, sessions and host times differ by design and are ignored.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs

from clawblox.agents.trajectory import TurnIndex, read_window
from clawblox.differences import ABSENT, find_differences
from clawblox.foreign_values import clean_value
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record
from clawblox.rundir.listed_saves import LineageSave
from clawblox.views.agent_words import to_seconds
from clawblox.views.axis import Axis, Piece
from clawblox.web.recordings import OpenRecording, RecordedLives

_BY_DESIGN: Final = (
    (re.compile(r"(https?://)?(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}\b"), "an address"),
    (re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "a time"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "an id"),
)
"""Parts of texts that differ by design, and their replacements."""
_OWN: Final = frozenset(("tick", "time", "session", "session_id"))
"""Members of an observation that differ by design."""
_BORDERS: Final = " \t\n\"'`=(:,"
"""Characters before a path."""
_MAX_BYTES: Final = 16 << 20
"""Maximum number of bytes to read of each log."""

_Rename: TypeAlias = Callable[[str], str]
Kind: TypeAlias = Literal["action", "observation"]
KINDS: Final[Mapping[Kind, Track]] = {
    "action": Track.INPUTS,
    "observation": Track.OBSERVATIONS,
}


@attrs.frozen
class Side:
    """One of two compared lines of descent.

    Attributes:
        axis: Its axis; after alignment, the part from the fork on.
        recorded: Its recordings.
        span: The positions at both ends of its strip, after alignment.
    """

    axis: Axis
    recorded: RecordedLives
    span: tuple[float, float] = (0.0, 0.0)

    def kept(self) -> Iterator[tuple[Piece, OpenRecording]]:
        """Yield the recordings, each with its part of the line."""
        for piece in self.axis.pieces:
            if not piece.is_lost:
                yield from ((piece, one) for one in self.recorded.get(piece.life, ()))


@attrs.frozen
class BranchEvent:
    """An action or observation of an agent.

    Attributes:
        agent: Name of the agent in the first branch.
        value: The action or the observation.
        at: Simulation time in seconds; for a call, seconds since 1970.
        utc: Host time; empty if unknown.
        log: The directory of the agent whose log contains the call; None for a recording.
        offset: Offset of the call in the log.
    """

    agent: str
    value: Any
    at: float
    utc: str
    log: Path | None = None
    offset: int = 0


@attrs.frozen
class FirstDifference:
    """The first action or observation in which two branches differ.

    Attributes:
        kind: Whether it is an action or an observation.
        path: Path of the difference; empty for the whole value.
        values: The value at the path in each branch, as JSON; None if there is none.
        events: The whole action or observation in each branch.
    """

    kind: Kind
    path: str
    values: Sequence[Any]
    events: Sequence[BranchEvent]


def align(sides: Sequence[Side]) -> tuple[LineageSave | None, Sequence[Side]]:
    """Return both sides from their fork on, or unchanged if they have no common life.

    Returns:
        The save at which the lines part, or None if they have no common life or never part; and
        both sides, with spans of the same scale.
    """
    common, save = _find_fork([side.axis for side in sides])
    cut, begins = [side.axis for side in sides], [side.axis.begin for side in sides]
    for number, life in enumerate(common):
        place = cut[number].place_save(save, life) if save else None
        if place is not None:
            begins[number] = place.position
            cut[number] = cut[number].since(attrs.evolve(place, life=life))
    length = max(0.0, *(axis.end - begin for axis, begin in zip(cut, begins, strict=True)))
    spans = [(begin, begin + length) for begin in begins]
    recorded = (side.recorded for side in sides)
    return save, [*map(Side, cut, recorded, spans)]


def _find_fork(axes: Sequence[Axis]) -> tuple[Sequence[int], LineageSave | None]:
    """Return the indices of the last common life, and the save at which a line leaves it."""
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


def _find_each(read: Callable[[Kind], Sequence[Iterable[BranchEvent]]]) -> list[FirstDifference]:
    """Return the earliest difference of each kind, if any."""
    found = (_find_first(kind, read(kind)) for kind in KINDS)
    return [difference for difference in found if difference is not None]


def _find_first(kind: Kind, sides: Sequence[Iterable[BranchEvent]]) -> FirstDifference | None:
    """Return the earliest difference, reading no further than necessary."""
    waiting = defaultdict[str, tuple[deque[BranchEvent], deque[BranchEvent]]](
        lambda: (deque(), deque())
    )
    first: FirstDifference | None = None
    for both in zip_longest(*sides):
        events = [(side, event) for side, event in enumerate(both) if event]
        for side, event in events:
            queues = waiting[event.agent]
            queues[side].append(event)
            if all(queues):
                pair = [queue.popleft() for queue in queues]
                if first is None or pair[0].at < first.events[0].at:
                    first = _compare(kind, pair) or first
        if first and min(event.at for _, event in events) > max(one.at for one in first.events):
            break
    return first


def _compare(kind: Kind, pair: Sequence[BranchEvent]) -> FirstDifference | None:
    for one in find_differences(*(event.value for event in pair)):
        sides = (one.before, one.after)
        values = [None if side is ABSENT else clean_value(side) for side in sides]
        return FirstDifference(kind, one.path, values, pair)
    return None


def _plain(value: Any, rename: _Rename, keys: Mapping[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Return a value without the parts that differ by design. The depth of records is bounded."""
    if isinstance(value, str):
        value = rename(value)
        for pattern, words in _BY_DESIGN:
            value = pattern.sub(words, value)
    if isinstance(value, dict):
        return {keys.get(key, key): _plain(item, rename, keys) for key, item in value.items()}
    return [_plain(item, rename, keys) for item in value] if isinstance(value, list) else value


# -- recordings ------------------------------------------------------------------------------------


def find_first_differences(sides: Sequence[Side]) -> list[FirstDifference]:
    """Return the first action and the first observation that differ, if any. Blocks.

    Args:
        sides: Both sides, aligned, with recordings.

    Raises:
        OSError: A file cannot be read.
        RecordingError: A block is damaged.
    """
    names = _pair_agents(*map(_read_names, sides))
    return _find_each(lambda kind: [*map(partial(_read, kind), sides, names)])


def _read_names(side: Side) -> dict[str, str]:
    """Return the names of the agents by their ids, in the order of arrival."""
    rosters = (recording.roster() for _, recording in side.kept())
    return {ident: name for roster in rosters for ident, name in roster.names.items()}


def _read(kind: Kind, side: Side, names: Mapping[str, str]) -> Iterator[BranchEvent]:
    """Yield the actions or observations of agents on the line."""
    for piece, recording in side.kept():
        for record in recording.reader.read_track(KINDS[kind], piece.begin):
            agent, time = names.get(str(record.fields.get("agent_id"))), record.moment.time
            if time > piece.end:
                break
            if kind == "action":
                is_sent = record.fields.get("event") in ("input", "chat")
                is_wanted = is_sent and side.axis.is_lost(piece.life, time) is False
            else:  # an observation of the unchanged state of a save is not new
                is_wanted = time > piece.begin
            if agent and is_wanted:
                value = _plain(_content(record), lambda text: names.get(text, text), names)
                yield BranchEvent(agent, value, time, record.moment.utc)


def _pair_agents(
    first: Mapping[str, str], second: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the first branch's names of the agents in both branches, by agent id.

    The mapping of the second branch also has its own names as keys, for texts that name agents.
    """
    ids = {name: ident for ident, name in second.items()}
    pairs = [(ident, ids[name]) for ident, name in first.items() if name in ids]
    paired = {ident for pair in pairs for ident in pair}
    rest = ([ident for ident in side if ident not in paired] for side in (first, second))
    pairs += zip(*rest, strict=False)
    left = {ident: first[ident] or ident for ident, _ in pairs}
    right = {key: left[ident] for ident, other in pairs for key in (second[other], other) if key}
    return left, right


def _content(record: Record) -> Any:  # noqa: ANN401 - JSON
    if record.track is Track.INPUTS:
        wanted = ("content",) if record.fields.get("event") == "chat" else ("action", "data")
        return {key: record.fields.get(key) for key in wanted}
    seen = record.fields.get("observation")
    if not isinstance(seen, dict):
        return seen
    return {key: value for key, value in seen.items() if key not in _OWN}


# -- the calls of agents ---------------------------------------------------------------------------


def find_call_differences(
    agents: Sequence[Path], since: Sequence[str | None], names: Sequence[str]
) -> list[FirstDifference]:
    """Return the first call and the first result that differ, if any. Blocks.

    Args:
        agents: Directories of both agents.
        since: For each agent, the UTC time of the fork if the agent continued after it, or None if
            the agent started there. Times of saves are whole seconds.
        names: Names of both agents and their runs; the first is the name of the first agent.

    Raises:
        OSError: A file of an agent cannot be read.
        ClawbloxError: No agent has run there, or a later version of clawblox wrote its files.
    """
    rename = partial(_rename, sorted(filter(None, names), key=len, reverse=True))
    read = partial(_read_calls, rename=rename, name=names[0])
    sides = [[*read(path, at)] for path, at in zip(agents, since, strict=True)]
    return _find_each(lambda kind: [[one for own, one in side if own == kind] for side in sides])


def _read_calls(
    directory: Path, since: str | None, *, rename: _Rename, name: str
) -> Iterator[tuple[Kind, BranchEvent]]:
    """Yield the calls and results of an agent, except those that it was loaded with."""
    turns = TurnIndex(directory)
    turns.read_on()
    start = turns.first_start or 0 if since is None else turns.find_time(f"{since[:19]}.000Z")
    if start is None:  # the agent has done nothing since
        return
    for step in read_window(turns, start, max_bytes=_MAX_BYTES).steps:
        utc, offset = step.get("timestamp") or "", step.get("extra", {}).get("raw_offset", 0)
        at = to_seconds(utc) or 0.0
        for call in step.get("tool_calls", ()):
            value = {key: call.get(key) for key in ("function_name", "arguments")}
            yield "action", BranchEvent(name, _plain(value, rename, {}), at, utc, directory, offset)
        for result in step.get("observation", {}).get("results", ()):
            value = _plain(result.get("content"), rename, {})
            yield "observation", BranchEvent(name, value, at, utc, directory, offset)


def _rename(names: Sequence[str], text: str) -> str:
    """Replace names, given longest first, and paths to them with ``NAME`` in a text."""
    for name in names:
        *parts, last = text.split(name)
        text = "".join(f"{_without_path(part)}NAME" for part in parts) + last
    return text


def _without_path(text: str) -> str:
    """Return a text without the path at its end, which belongs to the following name."""
    start = max(map(text.rfind, _BORDERS)) + 1
    slash = text.find("/", start)
    return text if slash < 0 else text[:slash]
