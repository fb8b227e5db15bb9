"""State of a started agent, and its observers: listeners, files, other processes.

Events reach listeners immediately. :meth:`Bookkeeping.flush` writes all pending state to disk
in one hop into a thread.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio
import attrs

from clawblox.agents.drivers.driver import RecordedUsage
from clawblox.agents.events import NOT_KEPT, AgentEventHub, EventFile
from clawblox.agents.running.conversation import read_conversation_id
from clawblox.agents.running.program import read_reports
from clawblox.agents.running.start_request import StartRequest
from clawblox.agents.status import AgentRecord
from clawblox.agents.usage import UNLIMITED, Ledger
from clawblox.agents.values import AgentEvent, AgentState, DriverReport, EventType, Usage
from clawblox.concurrency.threads import (
    Interruption,
    current_batcher,
    run_blocking,
    run_interruptible,
)
from clawblox.errors import AgentResumeError
from clawblox.supervision.lifecycle import Lifecycle
from clawblox.system.clock import format_utc_ms, utc_now_ns
from clawblox.system.files import publish_bytes
from clawblox.telemetry.log_segments import log_end
from clawblox.telemetry.own_log import OwnLog
from clawblox.telemetry.tail import read_lines

_log = OwnLog(__name__)

_MAX_QUEUED_EVENTS: Final = 100
"""Upper bound on queued events."""

_MAX_BYTES: Final = 1 << 30
"""Maximum bytes read from a log; earlier output is not counted."""

_COUNTED: Final = ("session.confirmed", "usage", "turn.finished")


class BudgetUsedUp(Exception):  # noqa: N818 - named after the condition
    """A limit of the agent's budget is used up; the message names it, and the agent is stopped."""


@attrs.define(eq=False, slots=False)
class Bookkeeping:
    """The facts of one agent during one start.

    Args:
        order: The order of the start.
        lifecycle: The agent's state.
        hub: Receives its events.
        first_started_at: Monotonic time of its first start in this process.

    Attributes:
        budget: Limits of its usage.
        ledger: Counts its usage; ``log_offset`` is the end of the output processed so far.
        conversation_id: Its conversation; None while unknown.
        is_confirmed: Whether a process of this start has confirmed that conversation.
        version: Version of its program; None if unknown.
        pid: Process of its program; None without a process.
        cookie: Marks its processes.
        reason: Reason for its end or its pause.
        changed: Set and replaced when its state changes.
    """

    _order: StartRequest
    _lifecycle: Lifecycle[AgentState]
    _hub: AgentEventHub
    _first_started_at: float

    def __attrs_post_init__(self) -> None:
        self.budget = self._order.options.budget or UNLIMITED
        self._file = EventFile(self._order.directory.events_file, self._order.secrets)
        self.ledger = Ledger.empty()
        self._seq = 0
        self._pending: list[AgentEvent] = []
        self._written: AgentRecord | None = None
        self._time_ns = utc_now_ns()
        self._is_ledger_saved = True
        self._process_start = 0
        self._recorded = RecordedUsage()
        self._recorded_id: str | None = None
        self._former_id: str | None = None
        self.conversation_id: str | None = None
        self.is_confirmed = False
        self.version: str | None = None
        self.pid: int | None = None
        self.cookie = secrets.token_hex(16)
        self._is_within_turn = False
        self._provider_wait_since: float | None = None
        self.reason = ""
        self.changed = anyio.Event()

    def load(self) -> None:
        """Load the counters of earlier starts. Blocks.

        Raises:
            AgentError: The agent's usage record cannot be read.
        """
        written = log_end(self._order.directory.log_file)
        self.ledger = Ledger.load(self._order.directory.usage_file)
        counted = self.ledger.log_offset
        self.ledger.log_offset = written if counted is None else min(counted, written)
        last = self._file.read_last()
        self._process_start = last.process_start
        self._seq = last.seq
        if not last.is_end:
            # The orchestrator was killed. Each event that did not reach the file took at least a
            # byte of the log, unless it was still queued. Skip as many numbers, so that none is
            # used twice.
            self._seq += _MAX_QUEUED_EVENTS + max(0, written - last.raw_offset)
        order = self._order
        if os.path.lexists(order.directory.path / order.driver.program.id_file):
            with suppress(AgentResumeError):
                self._former_id = read_conversation_id(order)

    # -- uncounted reports ---------------------------------------------------------------------

    async def catch_up(self) -> None:
        """Count unread reports in the log and in the program's files.

        An orchestrator may be killed, or stop reading a program that it ends. Reports from that
        time also count against the budget.

        Cancellation: the rest is read next time.
        """
        conversation_id = self.conversation_id or self._former_id
        await self.count_rest(conversation_id)
        if conversation_id is not None:
            await self.count_recorded(conversation_id)
        if self.ledger.inherited is None:  # the agent was just loaded
            self.ledger.inherited = self.usage
            self._is_ledger_saved = False

    async def count_rest(self, conversation_id: str | None) -> None:
        """Count unread reports in the log before another process writes to it.

        Args:
            conversation_id: The conversation of the previous process; None if unknown.

        Cancellation: the rest is read next time.
        """
        log_file = self._order.directory.log_file
        if await run_blocking(log_end, log_file) <= (self.ledger.log_offset or 0):
            return
        interruption = Interruption()
        read = partial(self._read_rest, conversation_id, interruption)
        try:
            reports, end = await run_interruptible(read, interruption.set)
        except OSError as error:
            _log.warning("usage not read", agent=self._order.options.name, error=str(error))
            return
        for offset, report in reports:
            if (self.ledger.log_offset or 0) <= self._process_start <= offset:
                self.ledger.begin_process()
                self._process_start = -1
            match report.type:
                case "session.confirmed":
                    conversation_id = report.data["session_id"]
                case "usage":
                    self.count(report.data, offset, conversation_id=conversation_id)
                case "turn.finished" if "origin" not in report.data:
                    self.ledger.end_turn()
        self.ledger.log_offset = end
        self._is_ledger_saved = False

    def _read_rest(
        self, conversation_id: str | None, interruption: Interruption
    ) -> tuple[list[tuple[int, DriverReport]], int]:
        """Return the reports in the rest of the log, and the offset after its last line. Blocks.

        Raises:
            OSError: The log cannot be read.
        """
        order, name = self._order, self._order.options.name
        log = order.directory.log_file
        start, end = self.ledger.log_offset or 0, log_end(log)
        if end - start > _MAX_BYTES:
            _log.warning("usage not read: too much output", agent=name, offset=start)
            start = end - _MAX_BYTES
        version = self.ledger.find_version(conversation_id)
        conversation = order.driver.read_along(
            order.directory, conversation_id, joined_version=version
        )
        reports: list[tuple[int, DriverReport]] = []
        for line in read_lines(log, start):
            if interruption.is_set:
                break
            entries = read_reports(conversation, [line], name)
            reports += [entry for entry in entries if entry[1].type in _COUNTED]
            start = min(end, line.offset + line.size + 1)
        return reports, start

    async def count_recorded(self, conversation_id: str) -> None:
        """Count the usage in the program's own records, if the driver can read them.

        Cancellation: the rest is read the next time.
        """
        order, recorded = self._order, self._recorded
        if not order.driver.records_usage:
            return
        recorded.interruption = Interruption()
        read = partial(order.driver.read_usage, order.directory, conversation_id, recorded)
        try:
            report = await run_interruptible(read, recorded.interruption.set)
        except OSError as error:
            _log.warning("usage not read", agent=order.options.name, error=str(error))
            return
        if report is not None:
            self.count(report.data, None, conversation_id=conversation_id)

    # -- state ------------------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """The agent's state."""
        return self._lifecycle.state

    @property
    def usage(self) -> Usage:
        """Usage of the agent so far."""
        return self.ledger.usage

    @property
    def turn(self) -> int:
        """Number of the current turn, or of the latest finished turn; 0 before the first turn.

        An interrupted turn and the next turn have the same number.
        """
        return self.ledger.usage.turns + self._is_within_turn

    def move(self, to: AgentState, reason: str = "") -> None:
        """Change the agent's state; do nothing if it is the current state.

        Args:
            to: The new state.
            reason: Reason for the change.
        """
        if to == self._lifecycle.state:
            return
        self._lifecycle.move(to)
        if to != "working":
            self.note_provider(is_awaited=False)
        if to in ("stopped", "failed"):
            self._is_within_turn = False
        self.reason = reason
        self.changed.set()
        self.changed = anyio.Event()

    def note_provider(self, *, is_awaited: bool) -> None:
        """Note whether the agent waits only for its model's provider."""
        if not is_awaited:
            self._provider_wait_since = None
        elif self._provider_wait_since is None:
            self._provider_wait_since = time.monotonic()

    @property
    def provider_wait_s(self) -> float | None:
        """Seconds of the current wait for its model's provider; None without a wait."""
        since = self._provider_wait_since
        return None if since is None else time.monotonic() - since

    def require_budget(self) -> None:
        """Check that no limit of the budget is used up.

        Raises:
            BudgetUsedUp: A limit is used up.
        """
        if (used_up := self.budget.exceeded(self.ledger.usage, self._minutes)) is not None:
            raise BudgetUsedUp(used_up)

    @property
    def is_out_of_time(self) -> bool:
        """True if the minutes of the budget are used up; unlike other limits, this ends a turn."""
        limit = self.budget.minutes
        return limit is not None and self._minutes >= limit

    @property
    def _minutes(self) -> float:
        return (anyio.current_time() - self._first_started_at) / 60

    # -- events -----------------------------------------------------------------------------

    def emit(
        self,
        kind: EventType,
        data: Mapping[str, Any] | None = None,
        *,
        raw_offset: int | None = None,
        conversation_id: str | None = None,
    ) -> None:
        """Pass an event to listeners, and queue it for the file.

        Args:
            kind: Type of the event.
            data: Its members.
            raw_offset: Offset of the line in the log that reported the event.
            conversation_id: The conversation of the event; None means the current one.
        """
        self._seq += 1
        self._time_ns = utc_now_ns()
        is_kept = kind not in NOT_KEPT
        if not is_kept and not self._hub.has_listeners:
            return
        event = AgentEvent(
            seq=self._seq,
            time=format_utc_ms(self._time_ns),
            subject=self._order.options.name,
            session_id=conversation_id or self.conversation_id,
            turn=self.turn,
            kind=kind,
            data=data or {},
            raw_offset=raw_offset,
        )
        self._hub.publish(event)
        if is_kept:
            self._pending.append(event)

    def begin_process(self, pid: int, continued_id: str | None = None) -> None:
        """Note that a process of the program runs.

        Args:
            pid: The process.
            continued_id: The conversation that it continues; None for a new conversation.
        """
        self.pid = pid
        self.ledger.begin_process(continued_id)
        self._is_ledger_saved = False

    def confirm(
        self, conversation_id: str, facts: Mapping[str, Any], raw_offset: int | None
    ) -> None:
        """Note that the program has proven its conversation."""
        self.conversation_id, self.is_confirmed = conversation_id, True
        self.version = facts.get("version") or self.version
        self.emit("session.confirmed", facts, raw_offset=raw_offset)

    def begin_turn(self, prompt: str | None) -> None:
        """Note the start of a turn.

        Args:
            prompt: Its message; None if the program started the turn by itself.
        """
        self._is_within_turn = True
        self.emit("turn.started", {} if prompt is None else {"prompt": prompt})

    def end_turn(self, data: Mapping[str, Any], raw_offset: int | None) -> None:
        """Note the end of the turn."""
        self.ledger.end_turn()
        self._is_within_turn = self._is_ledger_saved = False
        self.emit("turn.finished", data, raw_offset=raw_offset)

    def end_own_turn(
        self, data: Mapping[str, Any], raw_offset: int | None, *, is_within_turn: bool
    ) -> None:
        """Note the end of a turn that the program started by itself; it is not counted.

        Args:
            data: The members of the report.
            raw_offset: Offset of the report's line in the log.
            is_within_turn: Whether a message is still unanswered.
        """
        self.emit("turn.finished", data, raw_offset=raw_offset)
        self._is_within_turn = is_within_turn

    def count(
        self, data: Mapping[str, Any], raw_offset: int | None, *, conversation_id: str | None = None
    ) -> None:
        """Count a reading of usage.

        Args:
            data: The members of the report.
            raw_offset: Offset of the report's line in the log.
            conversation_id: The conversation of the reading; None means the current one.
        """
        conversation = conversation_id or self.conversation_id or ""
        past_version = self.ledger.find_version(conversation)
        self.ledger.count(
            data["usage"],
            conversation_id=conversation,
            version=self.version,
            past_cost_scope=self._order.driver.cost_scope(past_version),
            scope=data["scope"],
            cost_scope=data.get("cost_scope"),
            files=data.get("files"),
        )
        self._is_ledger_saved = False
        self.emit("usage", data, raw_offset=raw_offset, conversation_id=conversation_id)

    # -- files ------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write pending events and state to disk; failures are logged.

        Cancellation: waits until everything is written.
        """
        record = self.record()
        if self._pending or record != self._written or not self._is_ledger_saved:
            await current_batcher().run(self._write, record)

    def _write(self, record: AgentRecord) -> None:
        events, self._pending = self._pending, []
        # A failure is logged, so that the next write still runs.
        contained = partial(
            _log.contain, "not written", expected=(OSError,), agent=self._order.options.name
        )
        # The id comes first: a reader that sees the conversation in an event must find its record.
        if self.is_confirmed and self.conversation_id != self._recorded_id:
            with contained(what="conversation id"):
                path = self._order.directory.path / self._order.driver.program.id_file
                publish_bytes(path, f"{self.conversation_id}\n".encode())
                self._recorded_id = self.conversation_id
        with contained(what="events"):
            self._file.append(events)
        if not self._is_ledger_saved:
            self._is_ledger_saved = True
            with contained(what="usage"):
                self.ledger.write(self._order.directory.usage_file)
        self._written = record
        if self._order.directory.runtime.is_dir():  # missing if the start failed early
            with contained(what="status"):
                self._order.hooks.status.write(record)

    def record(self) -> AgentRecord:
        """Return the public record of the agent."""
        hooks, usage = self._order.hooks, self.ledger.usage
        return AgentRecord(
            name=self._order.options.name,
            driver=self._order.options.agent,
            state=self.state,
            cookie=self.cookie,
            dir=str(self._order.options.dir),
            session_id=self.conversation_id,
            turn=self.turn,
            usage=usage,
            inherited=usage if self.ledger.inherited is None else self.ledger.inherited,
            reason=self.reason,
            pid=self.pid,
            window=None if hooks.window is None else hooks.window.name,
            sandbox=hooks.enclosure.level,
            time=format_utc_ms(self._time_ns),
        )
