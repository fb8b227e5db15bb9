"""The turns of an agent, from ``events.jsonl``, which is read on as it grows. Blocks.

The events are kept, so that a window of the log can be read (``window``) without its beginning.
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
        number: Its number; a turn that was cut off has the number of the next one.
        start: Offset in the log of its first line.
        started_at: UTC time; None if unknown.
        prompt: The start of the message to the agent; None if the program began the turn itself.
        end: Offset behind its last line; None while that is not known.
        ended_at: UTC time; None while it lasts, or if unknown.
        is_cut_off: Whether its process ended within it.
        usage: What it used.
        retries: How often the program tried again by itself.
        limits: How often it met a limit.
        errors: How many errors were reported.
        last_limit: The last message of a limit; empty for none.
        last_error: The last message of an error, in the words of the program; empty for none.
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
    """The turns of an agent, as far as :meth:`read_on` has read.

    Args:
        directory: The agent's directory.

    Raises:
        UsageError: No agent has run there.
        ClawbloxError: A later version of clawblox wrote a file of the agent.

    Attributes:
        directory: The same, absolute.
        driver: The driver of the agent's program.
        turns: The turns, the oldest first.
        first_start: Offset in the log at which the first process in this directory began to write;
            what stands before was copied.
        arrivals: When the bytes of the log arrived.
        context: What the events say in the end.
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
        """The last turn; None if there is none."""
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
            self.arrivals.read_on()  # now the log has every line of which those events tell
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
        """Return the turn to which a byte of the log belongs; None if it is before the first."""
        found = bisect_right(self.turns, offset, key=lambda turn: turn.start) - 1
        return self.turns[found] if found >= 0 else None

    def find_time(self, time: str) -> int | None:
        """Return the offset of the first byte that arrived at a time or later, as far as known.

        Args:
            time: UTC time with milliseconds.

        Returns:
            The offset; where the log has no index, the start of the turn at that time. None if
            nothing arrived since.
        """
        later = (one.start for one in self.turns if one.ended_at is None or one.ended_at >= time)
        offset = self.arrivals.find_since(time)
        return next(later, None) if offset is None else offset

    def list_events(
        self, first: int, last: int, *, is_end: bool
    ) -> tuple[Context, list[EventRecord]]:
        """Return the context of a line of the log, and the events from there on.

        Args:
            first: Offset of the line.
            last: Offset behind the last line whose events are returned.
            is_end: Whether that is the end of the log, so that later events are returned, too.
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
        """Return the context before a line of the log; None means its end."""
        known = (one for at, _, one in reversed(self._placed) if offset is None or at < offset)
        return next(known, Context(conversation_id=self._conversation_id))


def _add(turn: AgentTurn, record: EventRecord, added: Usage | None, end: int) -> None:
    """Note in a turn an event within it or after it."""
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
