"""The history of an agent, in order: its log, parsed by its driver, and ``events.jsonl``.

The log contains the agent's messages and tool calls. The events contain the times, the messages
sent to the agent, and the offsets in the log at which processes started. If the log is lost, the
program's own transcript is read instead, if the driver can parse it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from clawblox.agents.drivers.driver import Conversation, Driver, RecordedUsage
from clawblox.agents.drivers.output import parse_record
from clawblox.agents.layout import AgentDir
from clawblox.agents.running.program import read_reports
from clawblox.agents.trajectory.records import Context, EventRecord, read_records
from clawblox.agents.values import DriverReport
from clawblox.system.clock import parse_utc
from clawblox.telemetry.log_segments import LogArrivals, log_end
from clawblox.telemetry.tail import FileLine, read_lines


@attrs.frozen(kw_only=True)
class HistoryEntry:
    """An entry of an agent's history.

    Attributes:
        report: The report.
        time: UTC time: from its line, otherwise the arrival of the line, otherwise the time of the
            preceding event.
        turn: Number of the turn; 0 if unknown.
        conversation_id: The conversation; None if unknown.
        offset: Offset of its line in the log; None if it is not from the log.
        is_copied: Whether it is older than the agent's copy in this directory.
    """

    report: DriverReport
    time: str | None
    turn: int
    conversation_id: str | None
    offset: int | None = None
    is_copied: bool = False


def read_history(
    directory: AgentDir, driver: Driver, conversation_id: str | None
) -> Iterator[HistoryEntry]:
    """Yield the history of an agent, the oldest entry first. Blocks.

    Args:
        directory: The agent's directory.
        driver: Its driver.
        conversation_id: Its conversation, whose transcript is read if the log is lost; None if
            unknown.

    Raises:
        OSError: A file cannot be read.
        ClawbloxError: A later version of clawblox wrote ``events.jsonl``.
    """
    records = list(read_records(directory.events_file))
    arrivals = LogArrivals(directory.log_file)
    arrivals.read_on()
    starts = (record.raw_offset for record in records if record.type == "process.started")
    history = History(directory, driver, records, arrivals, next(starts, None) or 0)
    transcript = None
    if not log_end(directory.log_file):
        transcript = (driver.transcripts(directory) or {}).get(conversation_id or "")
    if transcript is None:
        yield from history.follow(read_lines(directory.log_file))
    else:
        yield from history.follow_transcript(read_lines(transcript))
    # Usage that a killed orchestrator did not read, or that an orchestrator elsewhere read.
    if conversation_id is not None:
        recorded = driver.read_usage(directory, conversation_id, RecordedUsage())
        if recorded is not None:
            yield history.add(recorded, conversation_id)


@attrs.define(eq=False)
class History:
    """Merges the log of an agent with its records.

    Args:
        directory: The agent's directory.
        driver: Its driver.
        records: The records.
        arrivals: When the lines of the log arrived.
        first_start: Offset at which the output of the first process in this directory starts.
    """

    _directory: AgentDir
    _driver: Driver
    _records: Sequence[EventRecord]
    _arrivals: LogArrivals
    _first_start: int
    _times: Mapping[int | None, str | None] = attrs.field(init=False)
    _conversation: Conversation = attrs.field(init=False)
    _has_turn: bool = attrs.field(default=False, init=False)
    _time: str | None = attrs.field(default=None, init=False)
    _turn: int = attrs.field(default=0, init=False)
    _conversation_id: str | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._times = {record.raw_offset: record.time for record in self._records}
        self._conversation = self._driver.read_along(self._directory)

    def join(self, context: Context, lines: Sequence[FileLine]) -> None:
        """Start in the middle of the log.

        Args:
            context: The context from the earlier records.
            lines: The preceding lines, which may contain the start of a message that ends in a
                later line.
        """
        self._time, self._turn = context.time, context.turn
        self._conversation_id = context.conversation_id
        self._has_turn = True
        is_whole = bool(lines) and lines[0].offset == context.process_start
        self._conversation = self._driver.read_along(
            self._directory,
            context.process_conversation if is_whole else context.conversation_id,
            joined_version=None if is_whole else context.version,
        )
        read_reports(self._conversation, lines, self._directory.path.name)
        self._conversation.outgoing()

    def follow(self, lines: Iterable[FileLine]) -> Iterator[HistoryEntry]:
        """Yield the entries of log and records, merged by their offsets."""
        left = iter(lines)
        pending = next(left, None)
        read: set[int] = set()
        for place, record in enumerate(self._records):
            is_boundary = record.is_boundary
            end = self._last_offset(place)
            if not is_boundary and record.raw_offset is not None:
                self._turn, self._conversation_id = record.turn, record.conversation_id
            while pending is not None and pending.offset <= end:
                for moment in self.read(pending):
                    read.add(pending.offset)
                    yield moment
                pending = next(left, None)
            yield from self._take(record, is_read=record.raw_offset in read and not is_boundary)
        while pending is not None:
            yield from self.read(pending)
            pending = next(left, None)

    def _last_offset(self, place: int) -> float:
        """Return the maximum offset of the lines that precede a record."""
        record = self._records[place]
        if not record.is_boundary:
            return -1 if record.raw_offset is None else record.raw_offset
        # The output of a process ends where the next process starts.
        left = self._records[place:]
        starts = (one.raw_offset or 0 for one in left if one.type == "process.started")
        return next(starts, math.inf) - 1

    def follow_transcript(self, lines: Iterable[FileLine]) -> Iterator[HistoryEntry]:
        """Yield the entries of a transcript, and the usage from the records."""
        for line in lines:
            for moment in self.read(line):
                yield attrs.evolve(moment, offset=None, is_copied=False)
        for record in self._records:
            if record.type == "usage":
                yield from self._take(record, is_read=False)

    def add(self, report: DriverReport, conversation_id: str | None) -> HistoryEntry:
        """Return the entry for a report that is not from a line, after all other entries."""
        return HistoryEntry(
            report=report, time=self._time, turn=self._turn, conversation_id=conversation_id
        )

    def read(self, line: FileLine) -> Iterator[HistoryEntry]:
        """Yield the entries in the next line."""
        is_copied = line.offset < self._first_start
        if not is_copied:
            arrived_at = self._arrivals.arrival(line.offset)
            self._time = arrived_at or self._times.get(line.offset) or self._time
        reports = read_reports(self._conversation, [line], self._directory.path.name)
        self._conversation.outgoing()
        own = _own_time(line.data) if reports else None
        time = own or (None if is_copied else self._time)
        for _, report in reports:
            if report.type == "session.confirmed":  # copied history has no event for this
                self._conversation_id = report.data["session_id"]
            yield HistoryEntry(
                report=report,
                time=time,
                turn=self._turn,
                conversation_id=self._conversation_id,
                offset=line.offset,
                is_copied=is_copied,
            )

    def _hear_prompt(self, prompt: object) -> None:
        """Pass a message to the conversation, because protocols number their requests."""
        if isinstance(prompt, str):
            if self._has_turn:  # the first message began the conversation
                self._conversation.say(prompt)
                self._conversation.outgoing()
            self._has_turn = True

    def _take(self, record: EventRecord, *, is_read: bool) -> Iterator[HistoryEntry]:
        self._time = record.time or self._time
        self._turn = record.turn
        self._conversation_id = record.conversation_id or self._conversation_id
        if record.type == "process.started":
            self._conversation = self._driver.read_along(self._directory, record.conversation_id)
            self._has_turn = False
        if record.type == "turn.started":
            self._hear_prompt(record.data.get("prompt"))
        if not is_read:
            yield HistoryEntry(
                report=DriverReport(record.type, record.data),
                time=record.time,
                turn=record.turn,
                conversation_id=self._conversation_id,
                offset=record.raw_offset if record.at is None else record.at,
            )


def _own_time(line: bytes | None) -> str | None:
    """Return the time in a line of output; None if it contains no time."""
    time = (parse_record(line or b"") or {}).get("timestamp")
    return time if isinstance(time, str) and parse_utc(time) is not None else None
