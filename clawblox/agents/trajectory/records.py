"""The records of an agent's ``events.jsonl``, and their offsets in its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import attrs
import msgspec

from clawblox.agents.drivers.output import parse_record
from clawblox.agents.events import EVENTS_VERSION
from clawblox.agents.values import EventType, Usage
from clawblox.errors import ClawbloxError
from clawblox.foreign_values import whole_number
from clawblox.system.clock import parse_utc
from clawblox.system.record_file import LaterVersionError
from clawblox.telemetry.log_segments import LogArrivals, LogSegment
from clawblox.telemetry.tail import FileLine, find_line_end, read_segment
from clawblox.typed_values import converter

_TYPES: Final = frozenset(get_args(EventType))
_BOUNDARIES: Final = ("process.started", "process.exited")

_to_usage: Final = converter(Usage)


@attrs.frozen(kw_only=True)
class EventRecord:
    """A line of ``events.jsonl``.

    Attributes:
        at: Offset in the log at which it happened; None if not determined.
    """

    type: EventType
    time: str | None
    turn: int
    conversation_id: str | None
    raw_offset: int | None
    data: Mapping[str, Any]
    at: int | None = None

    @property
    def is_boundary(self) -> bool:
        """True if it happened before or after all output of the process."""
        was_found_afterwards = self.type == "error" and self.raw_offset is None
        return self.type in _BOUNDARIES or was_found_afterwards


class Context(NamedTuple):
    """The context of the next line of the log, from the records so far.

    Attributes:
        time: UTC time of the latest record.
        turn: Number of the turn.
        conversation_id: The conversation; None if unknown.
        version: Version of the program; empty if unknown.
        model: The model; empty if unknown.
        process_start: Offset of the first line of the process.
        process_conversation: The conversation that the process continues; None for a new
            conversation.
    """

    time: str | None = None
    turn: int = 0
    conversation_id: str | None = None
    version: str = ""
    model: str = ""
    process_start: int = 0
    process_conversation: str | None = None

    def after(self, record: EventRecord) -> Context:
        """Return the context after another record."""
        told = {"time": record.time, "conversation_id": record.conversation_id}
        told |= {name: record.data.get(name) for name in ("version", "model")}
        known: dict[str, Any] = {
            key: text for key, text in told.items() if text and isinstance(text, str)
        }
        if record.type == "process.started":
            known["process_start"] = record.raw_offset or 0
            known["process_conversation"] = record.conversation_id
        return self._replace(turn=record.turn, **known)


class Placer:
    """Finds the offset in the log at which each record happened.

    A record without an offset happened at the offset of the previous record with one. The message
    of a turn follows the last line of the previous turn. The end of a process is at the start of
    the next process.

    Args:
        arrivals: The arrivals of the log, already read.

    Attributes:
        at: Offset of the latest record.
        held: Records whose place depends on later records.
    """

    def __init__(self, arrivals: LogArrivals) -> None:
        self._arrivals = arrivals
        self.at = 0
        self.held: list[EventRecord] = []

    def place(self, record: EventRecord) -> list[tuple[int, EventRecord]]:
        """Return the records with newly known places, and the places."""
        if record.raw_offset is not None:
            end = record.raw_offset
            if record.type == "turn.finished":
                end = find_line_end(self._arrivals.segments, record.raw_offset)
            self.at = max(self.at, end)
            placed = [(record.raw_offset, record)]
            return [*self.release(self.at), *placed] if record.is_boundary else placed
        if self.held or record.is_boundary:
            self.held.append(record)
            return []
        return [(self.at, record)]

    def release(self, at: int) -> list[tuple[int, EventRecord]]:
        """Return the held records, placed at an offset, and stop holding them."""
        released, self.held = [(at, record) for record in self.held], []
        return released


def read_records(path: Path, start: int = 0) -> Iterator[EventRecord]:
    """Yield the records of ``events.jsonl``; incomplete and foreign lines are skipped. Blocks.

    Args:
        path: The file; a missing file has no records.
        start: Offset of the first line.

    Raises:
        OSError: The file cannot be read.
        ClawbloxError: A later version of clawblox wrote it.
    """
    with suppress(FileNotFoundError):
        for line in read_segment(LogSegment(path, 0, path.stat().st_size, 1), start):
            if (record := to_record(line, path)) is not None:
                yield record


def to_record(line: FileLine, path: Path) -> EventRecord | None:
    """Return the record in a line of ``events.jsonl``; None without a record.

    Args:
        line: The line.
        path: The file.

    Raises:
        ClawbloxError: A later version of clawblox wrote it.
    """
    fields = parse_record(line.data or b"") or {}
    version = whole_number(fields.get("schema_version")) or 0
    if version > EVENTS_VERSION:
        later = LaterVersionError(version, EVENTS_VERSION)
        raise ClawbloxError(f"{path}: an event {later.problem}", hint=later.hint)
    if fields.get("type") not in _TYPES:
        return None
    # Process events have their members at the top level.
    data = fields["data"] if isinstance(fields.get("data"), dict) else fields
    if isinstance(data.get("usage"), dict):
        data = {**data, "usage": _read_usage(data["usage"])}
    if isinstance(data.get("files"), dict):
        data = {**data, "files": {k: _read_usage(v) for k, v in data["files"].items()}}
    time, conversation_id = fields.get("time"), fields.get("session_id")
    return EventRecord(
        type=fields["type"],
        time=time if isinstance(time, str) and parse_utc(time) is not None else None,
        turn=whole_number(fields.get("turn")) or 0,
        conversation_id=conversation_id if isinstance(conversation_id, str) else None,
        raw_offset=whole_number(fields.get("raw_offset")),
        data=data,
    )


def _read_usage(fields: object) -> Usage:
    with suppress(msgspec.ValidationError):
        return _to_usage(fields)
    return Usage()
