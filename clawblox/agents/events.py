"""Events of agents: their stream, and the file ``events.jsonl`` that keeps the important events.

The file records processes, conversations and turns, one JSON object per line, with the usual keys
``operation``, ``status``, ``exit_code`` and ``error``. The agent's messages and tool calls are in
its log, at ``raw_offset``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from clawblox.agents.values import AgentEvent, EventType
from clawblox.foreign_values import clean_value, parse_json, whole_number
from clawblox.protocol import MASK
from clawblox.system.append_log import append_lines
from clawblox.system.regular_files import open_regular
from clawblox.telemetry.events import Hub, Subscription
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

AgentEventStream: TypeAlias = Subscription[AgentEvent]
"""Events of one agent."""

AgentEventHub: TypeAlias = Hub[AgentEvent]
"""Hands every event of one agent to the current streams."""

EVENTS_VERSION: Final = 1
"""Version of the format of ``events.jsonl``; each line contains it."""

NOT_KEPT: Final[frozenset[EventType]] = frozenset(
    {"message", "reasoning", "tool.called", "tool.returned"}
)
"""Types that are not written to the file."""

_LAST_STATUSES: Final = ("stopped", "failed")
"""Statuses of a ``process.exited`` after which the agent has ended."""

_TAIL_BYTES: Final = 256 * 1024


class LastEvent(NamedTuple):
    """State of an agent at the last event in the file.

    Attributes:
        seq: Number of that event; 0 without an event.
        raw_offset: Largest offset in the log of a line that produced an event in the file.
        is_end: Whether the agent had ended, so that no event can have followed.
        process_start: Offset in the log at which the output of the latest recorded process starts.
    """

    seq: int = 0
    raw_offset: int = 0
    is_end: bool = True
    process_start: int = 0


class EventFile:
    """Appends to ``events.jsonl``. Every method blocks; a full disk is logged, not raised.

    Args:
        path: The file, whose directory exists.
        secrets: Values that the file must not contain.
    """

    def __init__(self, path: Path, secrets: Sequence[str] = ()) -> None:
        self._path = path
        self._secrets = [json.dumps(secret)[1:-1] for secret in secrets]

    def read_last(self) -> LastEvent:
        """Return the facts of the last event in the file."""
        try:
            with os.fdopen(open_regular(self._path), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return LastEvent()
        positions = list(filter(None, map(_read_numbers, lines)))
        if not positions:
            return LastEvent()
        return positions[-1]._replace(
            raw_offset=max(position.raw_offset for position in positions),
            process_start=max(position.process_start for position in positions),
        )

    def append(self, events: Sequence[AgentEvent]) -> None:
        """Append events, after terminating a line that a killed writer left incomplete."""
        lines = [self._line(event) for event in events]
        if not lines:
            return
        try:
            append_lines(self._path, b"".join(lines))
        except OSError as error:
            _log.warning("events not written", path=str(self._path), error=str(error))

    def _line(self, event: AgentEvent) -> bytes:
        # Tools expect strict JSON for any report of a program.
        group = event.kind.partition(".")[0]
        data = {key: _plain(value) for key, value in event.data.items()}
        record = {
            "schema_version": EVENTS_VERSION,
            "time": event.time,
            "seq": event.seq,
            "agent": event.subject,
            "operation": f"agent.{group}",
            "type": event.kind,
            "session_id": event.session_id,
            "turn": event.turn,
            **({} if event.raw_offset is None else {"raw_offset": event.raw_offset}),
            **(data if group == "process" else {"data": data}),
        }
        text = json.dumps(clean_value(record, max_chars=4000), allow_nan=False)
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text.encode() + b"\n"


def _plain(value: Any) -> object:  # noqa: ANN401 - any value of a report
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    return attrs.asdict(value) if attrs.has(type(value)) else value


def _read_numbers(line: bytes) -> LastEvent | None:
    try:
        record = parse_json(line)
        seq = whole_number(record["seq"])
        if seq is None:
            return None
        offset = whole_number(record.get("raw_offset")) or 0
        return LastEvent(
            seq=seq,
            raw_offset=offset,
            process_start=offset if record["type"] == "process.started" else 0,
            is_end=record["type"] == "process.exited" and record["status"] in _LAST_STATUSES,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
