"""State of the dialogue with a process: its conversation, its turn, its errors and their retries.

It takes reports and offers facts; it touches no process and no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from clawblox.agents.running.agenda import Agenda, Message
from clawblox.agents.running.bookkeeping import Bookkeeping
from clawblox.agents.running.conversation import Expected
from clawblox.agents.values import DriverReport
from clawblox.errors.agent import ErrorKind
from clawblox.foreign_values import clean_text, finite_number
from clawblox.supervision.lifecycle import exponential_delay
from clawblox.system.clock import parse_utc
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)


_LONGEST_RETRY_S: Final = 24 * 3600.0
"""Maximum announced retry delay that excuses a program's silence."""

FATAL_KINDS: Final[frozenset[ErrorKind]] = frozenset({"auth", "invalid", "resume", "limit"})
"""Kinds of failures after which a retry would fail in the same way."""

BUSY_KINDS: Final[frozenset[ErrorKind]] = frozenset({"rate_limit", "overloaded"})
"""Kinds of failures after which the provider will serve the agent later."""

_FIRST_DELAY_S: Final = 1.0
_FIRST_BUSY_DELAY_S: Final = 15.0
_LAST_DELAY_S: Final = 120.0

_WORK: Final = frozenset({"message", "reasoning", "tool.called", "tool.returned"})


class ProgramError(Exception):
    """A failure of a process; the agent's owner decides about a retry.

    Args:
        kind: Kind of the failure.
        message: The failure in a sentence.
        retry_at: UTC time at which a usage limit ends; None if unknown.
    """

    def __init__(self, kind: ErrorKind, message: str, retry_at: datetime | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_at = retry_at


def retry_delay_s(kind: ErrorKind, before: int) -> float:
    """Return the seconds to wait before a retry.

    Args:
        kind: Kind of the failure. A busy model gets a longer delay than a crashed program.
        before: Number of earlier retries in the restart window.
    """
    first = _FIRST_BUSY_DELAY_S if kind in BUSY_KINDS else _FIRST_DELAY_S
    return exponential_delay(before, first, _LAST_DELAY_S)


@attrs.define(eq=False)
class Dialogue:
    """The dialogue with one process.

    Args:
        books: Records the dialogue.
        agenda: Notes the ends of turns.
        message: The first message to the process.
        stall_timeout: Seconds of silence allowed within a turn; None sets no limit.

    Attributes:
        is_confirmed: Whether the process has proven its conversation.
        is_working: Whether the process is within a turn, or has an unanswered message.
        is_budget_due: Whether the budget must be checked although no message was answered.
        is_usage_due: Whether a turn has ended since the program's own usage record was read.
        turn_error: Why the latest turn failed; None if it did not fail.
    """

    _books: Bookkeeping
    _agenda: Agenda
    _message: Message | None
    _stall_timeout: float | None
    _expected: Expected = attrs.field(init=False)
    _conversation_id: str | None = attrs.field(default=None, init=False)
    _is_named: bool = attrs.field(default=False, init=False)
    _other_id: str | None = attrs.field(default=None, init=False)
    _passed_over_at: float | None = attrs.field(default=None, init=False)
    _may_be_absorbed: bool = attrs.field(default=False, init=False)
    _turn_began_at: float = attrs.field(default=0.0, init=False)
    _silent_since: float = attrs.field(default=0.0, init=False)
    _excused_until: float = attrs.field(default=0.0, init=False)
    _has_worked: bool = attrs.field(default=False, init=False)
    _error: ProgramError | None = attrs.field(default=None, init=False)
    _limit: ProgramError | None = attrs.field(default=None, init=False)
    is_confirmed: bool = attrs.field(default=False, init=False)
    is_working: bool = attrs.field(default=False, init=False)
    is_budget_due: bool = attrs.field(default=False, init=False)
    is_usage_due: bool = attrs.field(default=False, init=False)
    turn_error: ProgramError | None = attrs.field(default=None, init=False)

    # -- messages to the program ------------------------------------------------------------

    def begin(self, expected: Expected, now: float) -> None:
        """Note that the process runs and receives its first message.

        Args:
            expected: The conversation that the process should be in.
            now: Monotonic time in seconds.
        """
        assert self._message is not None
        self._expected, self._conversation_id = expected, expected.id
        self.begin_turn(self._message, now)

    def begin_turn(self, message: Message | None, now: float) -> None:
        """Note that a message was sent to the program, or that the program starts a turn by itself.

        Args:
            message: The message; None for a turn that the program starts by itself.
            now: Monotonic time in seconds.
        """
        if message is not None:
            self._message = message
        self.is_working, self._has_worked, self._passed_over_at = True, False, None
        self._error = self._limit = None
        self._turn_began_at = self._silent_since = now
        self._books.begin_turn(None if message is None else message.text)

    @property
    def message(self) -> Message | None:
        """The message that the program has not answered yet; None if all are answered."""
        return self._message

    @property
    def unanswered(self) -> Message | None:
        """The message of a turn without output so far; None once the turn has output."""
        return None if self._has_worked else self._message

    @property
    def is_passed_over(self) -> bool:
        """True if a turn of another origin has ended, and no output has followed."""
        return self._passed_over_at is not None

    def is_absorbed(self, now: float, least_s: float) -> bool:
        """Return whether the message has evidently become part of a turn of another origin.

        Args:
            now: Monotonic time in seconds.
            least_s: Minimum seconds without output after that turn.
        """
        ended_at = self._passed_over_at
        return self._may_be_absorbed and ended_at is not None and now - ended_at >= least_s

    # -- reports of the program -------------------------------------------------------------

    def forgive(self, seconds: float) -> None:
        """Exclude an interval, in seconds, from the silence timeout."""
        self._silent_since += seconds
        self._excused_until += seconds

    def hear_all(self, reports: Iterable[tuple[int, DriverReport]], now: float) -> None:
        """Note that the program has written output, and process all its reports.

        Args:
            reports: The reports with the offsets of their lines; all are processed, even if one of
                them raises.
            now: Monotonic time in seconds.

        Raises:
            ProgramError: As for :meth:`hear`; the first error.
        """
        self._silent_since = now
        first: ProgramError | None = None
        for offset, report in reports:
            try:
                self.hear(report, offset, now)
            except ProgramError as error:
                first = first or error
        if first is not None:
            raise first

    def hear(self, report: DriverReport, offset: int | None, now: float) -> None:
        """Process one report of the program.

        Raises:
            ProgramError: The program is in a different conversation than expected.
        """
        data = report.data
        match report.type:
            case "session.confirmed":
                self.take_name(data["session_id"], data, offset)
            case "turn.started":
                self._passed_over_at = None
                if not self.is_working:
                    self.begin_turn(None, now)
            case "turn.finished" if "origin" in data:
                self._end_own_turn(data, offset, now)
            case "turn.finished":
                if self.is_working:
                    self.end_turn(data, offset, now)
            case "usage":
                self._books.count(data, offset)
            case _:
                self._note(report, now)
                self._books.emit(report.type, data, raw_offset=offset)

    def _note(self, report: DriverReport, now: float) -> None:
        data = report.data
        if report.type in ("retry", "limit"):
            self._books.note_provider(is_awaited=True)
        if report.type in _WORK and data.get("role") != "user":
            self._has_worked, self._passed_over_at = True, None
            self._books.note_provider(is_awaited=False)
        elif report.type == "retry":
            delay_s = finite_number(data.get("delay_s"), high=_LONGEST_RETRY_S)
            self._excused_until = now + (delay_s or 0.0)
        elif report.type == "error":
            self._error = ProgramError(data["kind"], data["message"])
        elif report.type == "limit":
            self._limit = ProgramError("limit", data["message"], parse_utc(data.get("resets_at")))

    # -- identity of the conversation -------------------------------------------------------

    def take_name(self, conversation_id: str, facts: Mapping[str, Any], offset: int | None) -> None:
        """Process the conversation id that the program reports.

        If the program keeps transcripts, a different id alone is no proof: some versions start with
        a temporary id, and others repeat output of programs that the agent runs.

        Raises:
            ProgramError: The id is not the expected id, or not a valid id of the program.
        """
        if self._conversation_id is None:
            if not self._expected.id_pattern.fullmatch(conversation_id):
                message = (
                    f"the program reported an invalid conversation id: {conversation_id!a:.100}"
                )
                raise ProgramError("invalid", message)
            self._conversation_id = conversation_id
        if conversation_id == self._conversation_id:
            self._is_named = True
            self._confirm(facts, offset)
            return
        if self._is_named or self._expected.before is None:
            raise self._contradict(conversation_id)
        self._other_id = clean_text(conversation_id, max_chars=200)

    def take_proof(self, conversation_id: str) -> None:
        """Process the id of the conversation whose transcript has grown.

        Raises:
            ProgramError: This is not the expected conversation.
        """
        if self._conversation_id not in (None, conversation_id):
            # A program may create a second conversation when it starts.
            if self._expected.is_resumed or self._other_id is not None:
                raise self._contradict(conversation_id)
            return
        self._conversation_id = conversation_id
        facts = {"session_id": conversation_id, "by": "transcript"}
        if self._other_id is not None:
            version = self._books.version
            _log.warning(
                "program names another conversation than it is in",
                named=self._other_id,
                version=version,
            )
            facts["named"] = self._other_id
        self._confirm(facts, None)

    def _confirm(self, facts: Mapping[str, Any], offset: int | None) -> None:
        if not self.is_confirmed:
            assert self._conversation_id is not None
            self.is_confirmed = True
            self._books.confirm(self._conversation_id, facts, offset)

    @property
    def contradiction(self) -> ProgramError | None:
        """Error if the program reported another conversation and the expected one is not proven."""
        if self.is_confirmed or self._other_id is None:
            return None
        return self._contradict(self._other_id)

    def _contradict(self, named: str) -> ProgramError:
        message = f"the program is in conversation {named!a:.100}, not in {self._conversation_id}"
        is_late = self.is_confirmed or self._expected.is_resumed
        return ProgramError("resume" if is_late else "invalid", message)

    # -- ends of turns ----------------------------------------------------------------------

    def _end_own_turn(self, data: Mapping[str, Any], offset: int | None, now: float) -> None:
        """Process the end of a turn that the program started by itself; it answers no message."""
        self.is_working, self.is_usage_due = self._message is not None, True
        self.is_budget_due = True
        may_answer = bool(data.get("may_answer"))
        if may_answer:
            self._has_worked = False  # its output belongs to no message
        self._error = self._limit = None
        if self._message is not None:
            self._may_be_absorbed = may_answer or (self.is_passed_over and self._may_be_absorbed)
            self._passed_over_at = now
        self._books.end_own_turn(data, offset, is_within_turn=self.is_working)
        if data.get("ok"):
            self._books.note_provider(is_awaited=False)

    def end_turn(self, data: Any, offset: int | None, now: float) -> None:  # noqa: ANN401
        """Process the end of the turn."""
        self.is_working, self.is_usage_due = False, True
        self._passed_over_at = None
        self._books.end_turn(data, offset)
        self._agenda.end_turn(now - self._turn_began_at, now)
        if data.get("ok"):
            self._message = None
            self._books.note_provider(is_awaited=False)
        else:
            text = str(data.get("text") or "the turn failed")
            self.turn_error = self.last_error or ProgramError("model", text)

    # -- interpretation ---------------------------------------------------------------------

    @property
    def last_error(self) -> ProgramError | None:
        """The error that the program reported in this turn; a usage limit takes precedence."""
        return self._limit or self._error

    def explain_end(
        self, report: DriverReport | None, words: Sequence[str], exit_: str
    ) -> ProgramError:
        """Return the error for a process that ended too early.

        Args:
            report: Report that the driver read from the last lines; None without a report.
            words: The last lines of output.
            exit_: How it ended.
        """
        if report is not None:
            self._books.emit(report.type, report.data)
            kind = report.data["kind"]
            # A program that has started to work was started correctly.
            is_crash = kind == "invalid" and self.is_confirmed
            return ProgramError("crash" if is_crash else kind, report.data["message"])
        when = "within a turn" if self.is_confirmed else "before it confirmed its conversation"
        last = f", after {words[-1]:.300}" if words else ""
        return ProgramError("crash", f"the program ended {when}: {exit_}{last}")

    def silence(self, now: float) -> float | None:
        """Return the seconds of a silence that is too long, or None."""
        if self._stall_timeout is None or not self.is_working:
            return None
        silence_s = now - max(self._silent_since, self._excused_until)
        return silence_s if silence_s >= self._stall_timeout else None
