"""Recordings as text for people: a line for each record, and the state at a moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import attrs

from clawblox.differences import ValueDifference, find_differences
from clawblox.foreign_values import clean_text
from clawblox.printable import printable, printable_name
from clawblox.recording.blocks import Track
from clawblox.recording.reader import Record, RecordingReader
from clawblox.views.formatting import count_words
from clawblox.views.observations import format_difference, format_inline, format_value

_MAX_NAME_CHARS: Final = 100
_MAX_CHARS: Final = 160
_MAX_CHANGES: Final = 2
_EVENTS: Final = 5
"""Number of events to show before and after a moment."""
_MAX_EARLIER: Final = 200
"""Maximum number of observations to search for the previous observation of each agent."""
_ID_CHARS: Final = 8
_OWN_TIME: Final = ("tick", "time")
"""Members of an observation that differ in every tick."""


class RecordingRoster:
    """The agents in the part of a recording that was read.

    Attributes:
        present: Simulation time in seconds at which each present agent joined, by agent id.
        names: The name of each agent, by agent id, in the order of arrival.
    """

    def __init__(self, start: Mapping[str, Any]) -> None:
        self.present: dict[str, float] = {}
        self.names: dict[str, str] = {}
        snapshot = start.get("snapshot")
        sessions = snapshot.get("sessions") if isinstance(snapshot, dict) else None
        for session in sessions if isinstance(sessions, list) else ():
            if isinstance(session, dict):
                self._add(session, float("-inf"))

    def note(self, record: Record) -> None:
        """Update the roster with a record of the track of inputs."""
        event = record.fields.get("event")
        if event == "join":
            self._add(record.fields, record.moment.time)
        elif event in ("leave", "removed"):
            self.present.pop(_text(record.fields.get("agent_id")), None)

    def _add(self, fields: Mapping[str, Any], time: float) -> None:
        agent_id = _text(fields.get("agent_id"))
        self.present[agent_id] = time
        self.names[agent_id] = _text(fields.get("name"))

    def name(self, agent_id: object) -> str:
        """Return the name of an agent for people, or else the start of its id."""
        ident = _text(agent_id)
        return printable_name(self.names.get(ident) or ident[:_ID_CHARS])


def _text(value: object) -> str:
    return clean_text(value, max_chars=_MAX_NAME_CHARS) if isinstance(value, str) else ""


def read_roster(recording: RecordingReader, until: float) -> RecordingRoster:
    """Return the agents of a recording at a moment, in seconds of simulation time. Blocks.

    Raises:
        OSError: The file cannot be read.
        RecordingError: A block is damaged, or the first record is not a start.
    """
    roster = RecordingRoster(recording.start())
    for record in recording.read_track(Track.INPUTS):
        if record.moment.time > until:
            break
        roster.note(record)
    return roster


class Timeline:
    """Describes consecutive records, each on a line.

    Args:
        roster: The agents before the first record.
    """

    def __init__(self, roster: RecordingRoster) -> None:
        self.roster = roster
        self._seen: dict[str, Any] = {}

    def describe(self, record: Record) -> str:
        """Return a record as a line: time, tick, agent and event."""
        if record.track is Track.INPUTS:
            self.roster.note(record)
        who = self.roster.name(record.fields.get("agent_id"))
        what = {
            Track.INPUTS: describe_event,
            Track.OBSERVATIONS: self._describe_observation,
            Track.FRAMES: _describe_frame,
        }[record.track](record.fields)
        moment = record.moment
        return f"{moment.time:10.3f}s {moment.tick:8}  {who:12}  {what}".rstrip()

    def _describe_observation(self, fields: Mapping[str, Any]) -> str:
        agent_id, seen = _text(fields.get("agent_id")), fields.get("observation")
        before = self._seen.get(agent_id)
        self._seen[agent_id] = seen
        if before is None:
            return f"sees {format_inline(seen, max_chars=_MAX_CHARS)}"
        changes = [one for one in find_differences(before, seen) if one.path not in _OWN_TIME]
        return f"sees {_describe_changes(changes)}"


def _describe_changes(changes: Sequence[ValueDifference]) -> str:
    if not changes:
        return "no change"
    shown = [printable(format_difference(change)) for change in changes[:_MAX_CHANGES]]
    rest = len(changes) - len(shown)
    return ", ".join([*shown, *([f"{rest} more"] if rest else [])])


def _describe_frame(fields: Mapping[str, Any]) -> str:
    frame, prints = fields.get("frame"), fields.get("fingerprints")
    parts = [
        f"state {_text(fields['state'])[:_ID_CHARS]}" if "state" in fields else "",
        count_words(len(prints), "fingerprint") if isinstance(prints, list) else "",
        "" if frame is None else f"frame {format_inline(frame, max_chars=_MAX_CHARS)}",
    ]
    return printable_name(", ".join(filter(None, parts)))


def describe_event(fields: Mapping[str, Any]) -> str:
    """Describe a record of the track of inputs, without its time and its agent."""
    event, data = _text(fields.get("event")), fields.get("data")
    action = [_text(fields.get("action")), *([] if data is None else [_short(data)])]
    texts = {
        "start": "the recording starts" + (", from a snapshot" if fields.get("resumed") else ""),
        "join": "is in the world already" if fields.get("rejoined") else "joins",
        "leave": "leaves",
        "removed": "is removed",
        "input": printable_name(" ".join(filter(None, action))) + _describe_outcome(fields),
        "chat": f"says {_short(fields.get('content'))}" + _describe_outcome(fields),
        "halted": f"the world halted: {_short(fields.get('error'))}",
        "end": _describe_exit(fields),
    }
    return texts.get(event, printable_name(event))


def _describe_outcome(fields: Mapping[str, Any]) -> str:
    """Return the world's answer to an input or a message that it did not accept, else empty."""
    if fields.get("refusal") is not None:
        return f"  refused: {_short(fields['refusal'])}"
    return "  without an answer" if fields.get("status", 0) is None else ""


def _describe_exit(fields: Mapping[str, Any]) -> str:
    if "exit" not in fields:
        return "the world ended"
    exit_ = _text(fields["exit"])
    return f"the world ended: {printable_name(exit_)}" if exit_ else "the recording ends"


def _short(value: object) -> str:
    return format_inline(value, max_chars=_MAX_CHARS)


@attrs.frozen
class WorldAt:
    """The state of a world at a moment of its recording.

    Attributes:
        time: The moment, in seconds of simulation time.
        roster: The agents at that moment.
        frame: The last record with a frame up to the moment; None if there is none.
        observations: The last observation of each agent in the world up to the moment.
        before: The last events up to the moment, oldest first.
        after: The next events.
        earlier: The previous observation by agent id, if it is close before the last one.
    """

    time: float
    roster: RecordingRoster
    frame: Record | None
    observations: Sequence[Record]
    before: Sequence[Record]
    after: Sequence[Record]
    earlier: Mapping[str, Record] = attrs.field(factory=dict)


def read_world_at(
    recording: RecordingReader, time: float, roster: RecordingRoster | None = None
) -> WorldAt:
    """Return the state of a world at a moment of its recording. Blocks.

    Args:
        recording: The recording.
        time: The moment, in seconds of simulation time.
        roster: The agents at that moment; None reads all inputs up to the moment to find them.

    Raises:
        OSError: The file cannot be read.
        RecordingError: A block is damaged, or the first record is not a start.
    """
    roster = roster or read_roster(recording, time)
    before = tuple(islice(recording.read_back(Track.INPUTS, time), _EVENTS))[::-1]
    later = (r for r in recording.read_track(Track.INPUTS, time) if r.moment.time > time)
    frames = recording.read_back(Track.FRAMES, time)
    frame = next((record for record in frames if "frame" in record.fields), None)
    after = tuple(islice(later, _EVENTS))
    observations, earlier = _last_observations(recording, roster, time)
    return WorldAt(time, roster, frame, observations, before, after, earlier)


def _last_observations(
    recording: RecordingReader, roster: RecordingRoster, time: float
) -> tuple[list[Record], dict[str, Record]]:
    """Return the last observation of each agent, and the previous one if it is close."""
    missing = dict(roster.present)
    found: list[Record] = []
    earlier: dict[str, Record] = {}
    left = _MAX_EARLIER
    for record in recording.read_back(Track.OBSERVATIONS, time):
        ident = _text(record.fields.get("agent_id"))
        if not missing:
            left -= 1
        elif record.moment.time < min(missing.values()):
            break
        if not left or len(earlier) == len(roster.present):
            break
        if missing.pop(ident, None) is not None:
            found.append(record)
        elif ident in roster.present and record.moment.time >= roster.present[ident]:
            earlier.setdefault(ident, record)
    return found[::-1], earlier


def format_world_at(world: WorldAt, width: int) -> Iterator[str]:
    """Return the state of a world as lines.

    Args:
        world: The state.
        width: Columns of a line; a long string or number may be longer.
    """
    timeline = Timeline(world.roster)
    yield f"At {world.time:.3f}s"
    agents = ", ".join(map(world.roster.name, world.roster.present))
    yield f"Agents: {agents or 'none'}"
    if world.frame is not None:
        yield from ("", f"Frame of {world.frame.moment.time:.3f}s:")
        yield from _indented(world.frame.fields.get("frame"), width)
    for record in world.observations:
        name = world.roster.name(record.fields.get("agent_id"))
        yield from ("", f"{name} saw at {record.moment.time:.3f}s:")
        yield from _indented(record.fields.get("observation"), width)
    for title, records in (("Before:", world.before), ("After:", world.after)):
        if records:
            yield from ("", title, *map(timeline.describe, records))


def _indented(value: Any, width: int) -> Iterator[str]:  # noqa: ANN401 - JSON
    for line in format_value(value, width=max(width - 2, 20)):
        yield f"  {line}"


def world_at_document(world: WorldAt) -> dict[str, Any]:
    """Return the state of a world as values for ``--json``."""
    names = {ident: world.roster.names[ident] for ident in world.roster.present}
    return {
        "time": world.time,
        "agents": [{"agent_id": ident, "name": name} for ident, name in names.items()],
        "frame": None if world.frame is None else world.frame.fields,
        "observations": [record.fields for record in world.observations],
        "before": [record.fields for record in world.before],
        "after": [record.fields for record in world.after],
    }
