"""The turns of an agent, from ``events.jsonl``, which may grow. Blocks.

The events stay in memory, so that ``window`` can read a part of the log without its start.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.drivers import find_driver
from clawblox.agents.layout import AgentDir
from clawblox.agents.trajectory.document import find_conversation
from clawblox.agents.trajectory.records import Context, EventRecord, Placer, to_record
from clawblox.agents.trajectory.steps import UsageCount
from clawblox.agents.values import Usage
from clawblox.telemetry.log_segments import LogArrivals
from clawblox.telemetry.tail import Tail

_TEXT_CHARS: Final = 500


@attrs.define(eq=False)
class AgentTurn:
    """A turn.

    Attributes:
        number: Its number; an interrupted turn has the number of the next turn.
        start: Offset in the log of its first line.
        started_at: UTC time; None if unknown.
        prompt: The start of the message to the agent; None if the program started the turn by
            itself.
        end: Offset after its last line; None if unknown.
        ended_at: UTC time; None during the turn, or if unknown.
        is_cut_off: Whether its process ended during the turn.
        usage: The usage of the turn.
        retries: Number of retries by the program itself.
        limits: Number of reported limits.
        errors: Number of reported errors.
        last_limit: The last message of a limit; empty without a limit.
        last_error: The last error message of the program; empty without an error.
    """

    number: int
    start: int
    started_at: str | None
    prompt: str | None
    end: int | None = None
    ended_at: str | None = None
    is_cut_off: bool = False
    usage: Usage = attrs.field(factory=Usage)
    retries: int = 0
    limits: int = 0
    errors: int = 0
    last_limit: str = ""
    last_error: str = ""


class TurnIndex:
    """The turns of an agent that :meth:`read_on` has read so far.

    Args:
        directory: The agent's directory.

    Raises:
        UsageError: No agent has run there.
        ClawbloxError: A later version of clawblox wrote a file of the agent.

    Attributes:
        directory: The agent's directory, absolute.
        driver: The driver of the agent's program.
        turns: The turns, the oldest first.
        first_start: Offset in the log at which the output of the first process in this directory
            starts; the part before was copied.
        arrivals: The arrivals of the log.
        context: The context after the last event.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = AgentDir(directory.absolute())
        name, self._conversation_id = find_conversation(self.directory)
        self.driver = find_driver(name)
        self.arrivals = LogArrivals(self.directory.log_file)
        self._events = Tail(self.directory.events_file)
        self._forget()

    def _forget(self) -> None:
        self.turns: list[AgentTurn] = []
        self.first_start: int | None = None
        self._count = UsageCount(self.driver.cost_scope)
        self._placer = Placer(self.arrivals)
        self.context = Context(conversation_id=self._conversation_id)
        self._placed: list[tuple[int, EventRecord, Context]] = []

    @property
    def last(self) -> AgentTurn | None:
        """The last turn; None without a turn."""
        return self.turns[-1] if self.turns else None

    def read_on(self) -> None:
        """Read the lines added to the agent's files.

        Raises:
            OSError: A file cannot be read.
            ClawbloxError: A later version of clawblox wrote ``events.jsonl``.
        """
        with closing(self._events):
            with suppress(FileNotFoundError):
                if self._events.follow():
                    self._forget()
                self._events.end = self._events.log_size()
            self.arrivals.read_on()  # now the log contains every line named in those events
            with suppress(FileNotFoundError):
                for line in self._events.read_on():
                    if record := to_record(line, self._events.path):
                        self._take(record)

    def _take(self, record: EventRecord) -> None:
        for at, placed in self._placer.place(record):
            self._placed.append((at, placed, self._context_at(None).after(placed)))
        self.context = self.context.after(record)
        added = self._count.take(record.type, record.data, self.context.conversation_id)
        turn = self.last
        match record.type:
            case "process.started":
                start = record.raw_offset or 0
                self.first_start = start if self.first_start is None else self.first_start
                if turn is not None and turn.end is None:
                    turn.end, turn.is_cut_off = start, turn.ended_at is None or turn.is_cut_off
            case "turn.started":
                prompt = record.data.get("prompt")
                text = prompt[:_TEXT_CHARS] if isinstance(prompt, str) else None
                self.turns.append(AgentTurn(record.turn, self._placer.at, record.time, text))
            case _ if turn is not None:
                _add(turn, record, added, self._placer.at)

    def find_turn(self, offset: int) -> AgentTurn | None:
        """Return the turn that contains an offset in the log; None before the first turn."""
        found = bisect_right(self.turns, offset, key=lambda turn: turn.start) - 1
        return self.turns[found] if found >= 0 else None

    def find_time(self, time: str) -> int | None:
        """Return the offset of the first byte that arrived at or after a time.

        Args:
            time: UTC time with milliseconds.

        Returns:
            The offset; without an index of the log, the start of the turn at that time. None if no
            byte has arrived since.
        """
        later = (one.start for one in self.turns if one.ended_at is None or one.ended_at >= time)
        offset = self.arrivals.find_since(time)
        return next(later, None) if offset is None else offset

    def list_events(
        self, first: int, last: int, *, is_end: bool
    ) -> tuple[Context, list[EventRecord]]:
        """Return the context of a line of the log, and the events from that line on.

        Args:
            first: Offset of the line.
            last: Offset after the last line whose events are returned.
            is_end: Whether that is the end of the log, so that later events are also returned.
        """
        held = ((last, record) for record in self._placer.held)
        placed = chain(((at, record) for at, record, _ in self._placed), held)
        wanted = [
            attrs.evolve(record, at=at)
            for at, record in placed
            if at >= first and (at < last or is_end)
        ]
        return self._context_at(first), wanted

    def _context_at(self, offset: int | None) -> Context:
        """Return the context before a line of the log; None means the end of the log."""
        known = (one for at, _, one in reversed(self._placed) if offset is None or at < offset)
        return next(known, Context(conversation_id=self._conversation_id))


def _add(turn: AgentTurn, record: EventRecord, added: Usage | None, end: int) -> None:
    """Add an event during or after a turn to the turn."""
    if added is not None:
        turn.usage = turn.usage.plus(added)
    match record.type:
        case "turn.finished":
            turn.end, turn.ended_at = end, record.time
        case "process.exited" if turn.ended_at is None:
            turn.is_cut_off, turn.ended_at = True, record.time
        case "retry":
            turn.retries += 1
        case "limit":
            turn.limits, turn.last_limit = turn.limits + 1, _read_message(record)
        case "error":
            turn.errors, turn.last_error = turn.errors + 1, _read_message(record)


def _read_message(record: EventRecord) -> str:
    return str(record.data.get("message") or "")[:_TEXT_CHARS]
