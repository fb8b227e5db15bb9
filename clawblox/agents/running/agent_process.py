"""One process of an agent's program, from its spawn to its exit.

One task polls the log: it reads new output, sends the next message, and checks the deadlines.
Between polls it sleeps, briefly at first and then longer, until the program exits or a message
is due.
"""

from __future__ import annotations

import math
from contextlib import AsyncExitStack, ExitStack, suppress
from typing import Final, NamedTuple

import anyio
import attrs

from clawblox.agents.drivers.driver import AgentSetup, Invocation, Turn
from clawblox.agents.running.agenda import Agenda, Message
from clawblox.agents.running.bookkeeping import Bookkeeping
from clawblox.agents.running.conversation import Expected, find_proof
from clawblox.agents.running.dialogue import Dialogue, ProgramError
from clawblox.agents.running.preparation import build_environment, write_script
from clawblox.agents.running.program import (
    ErrorOutput,
    LogPoller,
    OutputReader,
    StdinFull,
    StdinWriter,
    exit_code,
    read_reports,
    spawn_program,
)
from clawblox.agents.running.start_request import StartRequest
from clawblox.agents.values import DriverReport
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import current_batcher, run_blocking
from clawblox.results import ProcessExit
from clawblox.supervision.tree import ProcessTree
from clawblox.system.process import Process
from clawblox.telemetry.log_segments import begin_segment
from clawblox.telemetry.logs import last_lines
from clawblox.telemetry.own_log import OwnLog
from clawblox.telemetry.tail import CHUNK_BYTES

_log = OwnLog(__name__)

_SEARCH_INTERVAL_S: Final = 0.5
"""Interval between searches for a proof of the conversation on disk."""

_LAST_LINES: Final = 12
"""Maximum number of lines of each output that an error shows."""

_DRAINED_BYTES: Final = 16 << 20
"""Maximum bytes drained after termination."""


class _Left(Exception):  # noqa: N818 - named after the condition
    """A finished process does not exit on its own; its owner ends it."""


class _Heard(NamedTuple):
    """Result of a poll: the bytes that it read, and whether the output is complete."""

    size: int
    is_all: bool


@attrs.define(eq=False, slots=False, kw_only=True)
class AgentProcess:
    """One process.

    Args:
        order: The order of the start.
        setup: The agent's setup for its driver.
        books: Records its events.
        agenda: The messages to the program.
        tree: The processes of the agent.
        message: The first message to the process.
        turn: The same message, for the driver.

    Attributes:
        dialogue: The dialogue with the process.
        process: The process; None before it runs and after its release.
        following: First message to the next process; None without a message.
        log_start: Offset of the process's first byte in the log.
        exit: Exit of the process; None while it runs.
    """

    _order: StartRequest
    _setup: AgentSetup
    _books: Bookkeeping
    _agenda: Agenda
    _tree: ProcessTree
    _message: Message
    _turn: Turn

    def __attrs_post_init__(self) -> None:
        self._conversation = self._order.driver.converse(self._setup, self._turn)
        self._opened = ExitStack()
        self._stdin: StdinWriter | None = None
        self._reader: OutputReader
        self._errors: ErrorOutput | None = None
        self._wake = anyio.Event()
        self._poller = LogPoller()
        self._confirm_by = math.inf
        self._leave_by = math.inf
        self._next_search = 0.0
        self._takes_more = False
        self._end_offset: int | None = None
        self._unheard: list[tuple[int, DriverReport]] = []
        self._turn_offset = 0
        self._fault: ProgramError | None = None
        timeout = self._order.options.stall_timeout
        self.dialogue = Dialogue(self._books, self._agenda, self._message, timeout)
        self.process: Process | None = None
        self.following: Message | None = None
        self._segment_start = self.log_start = 0
        self.exit: ProcessExit | None = None

    # -- the process ------------------------------------------------------------------------

    async def spawn(self, *, is_asked_for: bool) -> None:
        """Start the process.

        Args:
            is_asked_for: Whether a caller waits for the process; only then write the rerun script.

        Raises:
            CannotExecute: The program cannot be executed.
            OSError: The process cannot be started or enclosed.

        Cancellation: a spawned process remains in :attr:`process`.
        """
        invocation = self._order.driver.invocation(self._setup, self._turn)
        self._takes_more = invocation.has_stdin
        if invocation.has_stdin or invocation.input:
            self._stdin = StdinWriter()
            self._opened.callback(self._stdin.close)
            self._stdin.put(invocation.input)
            if not invocation.has_stdin:
                self._stdin.end()
        with anyio.CancelScope(shield=True):
            pid = await run_blocking(self._spawn, invocation, is_asked_for)
        self._books.begin_process(pid, self._turn.continued_id)
        facts = {"status": "running", "pid": pid, "command": list(invocation.argv)}
        facts["version"] = self._books.version
        self._books.emit("process.started", facts, raw_offset=self.log_start)
        now = anyio.current_time()
        self._confirm_by = now + self._order.limits.confirm_timeout
        self._next_search = now + _SEARCH_INTERVAL_S
        self.dialogue.begin(self._expected, now)

    def _spawn(self, invocation: Invocation, is_asked_for: bool) -> int:
        order, setup, directory = self._order, self._setup, self._order.directory
        env = build_environment(order, setup, self._tree.cookie, invocation.env)
        program, cwd = order.driver.program, directory.workspace
        is_resumed = self._turn.continued_id is not None
        self._expected = Expected(
            id=self._turn.start.conversation_id if is_resumed or program.takes_id else None,
            is_resumed=is_resumed,
            before=order.driver.progress(directory),
            id_pattern=program.id_pattern,
        )
        enclosed = order.hooks.enclosure.enclose(invocation.argv, env, setup.workspace)
        if is_asked_for:
            turn = attrs.evolve(self._turn, is_onlooker=True)  # its messages can be sent again
            opening = invocation.input or order.driver.converse(setup, turn).outgoing()
            write_script(order, enclosed, opening, cwd)
        segment = begin_segment(directory.log_file, order.limits.segment_bytes)
        begin_segment(directory.errors_file, order.limits.segment_bytes)
        self._segment_start = segment.start
        self.log_start = self._turn_offset = segment.end
        errors = ErrorOutput(directory.errors_file)
        self._opened.callback(errors.close)
        self._reader = OutputReader(directory.log_file, self.log_start, begins_at=segment.start)
        self._opened.callback(self._reader.close)
        process = spawn_program(enclosed, cwd=cwd, directory=directory, stdin=self._stdin)
        self._tree.add(process)
        self.process, self._errors = process, errors
        self._tree.watch()
        return process.pid

    async def run(self) -> None:
        """Serve the process until it has exited.

        Raises:
            ProgramError: The process or its program failed; it may still be running.
            BudgetUsedUp: The budget is used up; the process may still be running.

        Cancellation: the process continues; call :meth:`release` once it has ended.
        """
        async with Tasks() as tasks:
            tasks.start_soon(self._watch_exit)
            if self._stdin is not None:
                tasks.start_soon(self._stdin.write_on)
            tasks.start_soon(self._take_listeners)
            self._speak()
            with suppress(_Left):
                await self._poll_until_exit()

    async def _take_listeners(self) -> None:
        hooks = self._order.hooks
        try:
            hooks.access.hand_over(await hooks.enclosure.after_spawn())
        except OSError as error:
            self._fault = ProgramError("crash", f"its sandbox did not open: {error}")
            self._wake.set()

    async def _watch_exit(self) -> None:
        assert self.process is not None
        self.exit = await self.process.wait()
        self._wake.set()

    async def _poll_until_exit(self) -> None:
        while True:
            has_exited = self.exit is not None
            if stopped_s := self._poller.begin_poll(anyio.current_time()):
                self._forgive(stopped_s)
            heard = await self._listen(rest=has_exited)
            self._check(has_exited=has_exited)
            await self._books.flush()
            if self.dialogue.is_confirmed:
                self._message.is_settled.set()  # all that a start guarantees is on disk
            if has_exited and heard.is_all:
                await self._conclude()
                await self._books.flush()
                return
            if heard.size < CHUNK_BYTES:
                await self._rest(is_quiet=self._books.state == "idle" and not heard.size)

    async def _rest(self, *, is_quiet: bool) -> None:
        """Sleep until the next poll."""
        now = anyio.current_time()
        pause_s = self._poller.next_pause(now, is_quiet=is_quiet)
        due_in = math.inf if self._is_busy else self._agenda.due_in(now)
        if self.exit is None:
            with anyio.move_on_after(max(0.0, min(pause_s, due_in))):
                await self._wake.wait()
                self._poller.reset()
            if self.exit is None:
                self._wake = anyio.Event()

    def wake(self) -> None:
        """Poll now, because a message was queued."""
        self._wake.set()

    # -- listening --------------------------------------------------------------------------

    async def _listen(self, *, rest: bool) -> _Heard:
        """Process the output written since the last poll.

        Args:
            rest: Whether the process has ended, in which case the last line may lack its newline.
        """
        assert self._errors is not None
        has_errors = self._errors.has_grown()
        if not (rest or has_errors) and self._reader.log_size() <= self._reader.position:
            heard = _Heard(0, is_all=False)
        else:
            heard = await current_batcher().run(self._read, rest, has_errors)
        now = anyio.current_time()
        reports, self._unheard = self._unheard, []
        try:
            if heard.size or has_errors or reports:
                self.dialogue.hear_all(reports, now)
        finally:
            self._books.ledger.log_offset = self._reader.line_start
        if heard.size:
            self._speak()  # the protocol may need an answer to this output
        await self._search_proof(now, is_last=heard.is_all)
        if heard.is_all and self.dialogue.is_working:
            self.dialogue.is_usage_due = True  # no report will mark the end of this turn
        if self.dialogue.is_usage_due and self._books.conversation_id is not None:
            self.dialogue.is_usage_due = False
            await self._books.count_recorded(self._books.conversation_id)
        return heard

    def _read(self, rest: bool, has_errors: bool) -> _Heard:
        """Read the log from the last position, and parse it. Blocks."""
        reader = self._reader
        if has_errors:
            with suppress(OSError):
                reader.touch()
        if rest and self._end_offset is None:
            self._end_offset = reader.log_size()  # background processes may continue to write
        before = reader.position
        lines = reader.read()
        is_all = self._end_offset is not None and (
            reader.position >= self._end_offset
            or reader.position == before  # the log was truncated in the meantime
        )
        if is_all:
            lines += reader.finish(self.exit)
        # Kept here, so that a cancelled poll loses no reports.
        self._unheard += read_reports(self._conversation, lines, self._order.options.name)
        return _Heard(reader.position - before, is_all)

    async def _search_proof(self, now: float, *, is_last: bool) -> None:
        """Search the disk for a proof of the conversation, unless the output has already proven it.

        Raises:
            ProgramError: The program is in a different conversation than expected.
        """
        dialogue = self.dialogue
        is_over = is_last or not dialogue.is_working
        must_decide = is_over and dialogue.contradiction is not None
        if dialogue.is_confirmed or not (must_decide or now >= self._next_search):
            return
        self._next_search = now + _SEARCH_INTERVAL_S
        with suppress(OSError):  # the program may be rewriting it; the output is a proof too
            proof = await run_blocking(find_proof, self._order, self._expected)
            if proof is not None:
                dialogue.take_proof(proof)
        if must_decide and dialogue.contradiction is not None:
            raise dialogue.contradiction

    # -- speaking ---------------------------------------------------------------------------

    def _speak(self) -> None:
        """Write the pending output of the conversation to the program.

        Raises:
            ProgramError: The program does not read its standard input.
        """
        if self._stdin is None or not (outgoing := self._conversation.outgoing()):
            return
        self._poller.reset()  # an answer will come soon
        try:
            self._stdin.put(outgoing)
        except StdinFull:
            raise ProgramError("crash", "the program does not read its standard input") from None

    @property
    def _is_busy(self) -> bool:
        """True if the program cannot receive a message now."""
        dialogue = self.dialogue
        is_leaving = dialogue.turn_error is not None or self._leave_by < math.inf
        return is_leaving or dialogue.is_working or not dialogue.is_confirmed

    def _send_next(self, now: float) -> None:
        """Send the due message; a message that the program refuses waits for the next process.

        Raises:
            BudgetUsedUp: The budget allows no further message.
        """
        self._books.require_budget()
        if (message := self._agenda.take(now)) is None:
            if math.isinf(self._agenda.due_in(now)):
                self._books.move("idle", "the turn is over, and there is nothing more to do")
            return
        self._books.move("working")
        assert self._errors is not None
        segment_bytes = max(self._reader.log_size() - self._segment_start, self._errors.size)
        is_full = segment_bytes >= self._order.limits.segment_bytes  # then end the process
        if not is_full and self._conversation.say(message.text):
            self.dialogue.begin_turn(message, now)
            self._turn_offset = self._reader.position
            message.is_settled.set()
            self._speak()
        else:
            self.following = message
            self._see_off(now)

    @property
    def unanswered(self) -> Message | None:
        """Message that the next process must get; None if this process has started to answer it."""
        is_unread = self._conversation.has_unread_message
        return self.dialogue.message if is_unread else self.dialogue.unanswered

    @property
    def is_within_turn(self) -> bool:
        """True if the program runs and is within a turn, including a turn of its own."""
        return self.exit is None and self.dialogue.is_working

    @property
    def is_between_turns(self) -> bool:
        """True if the program runs, its last turn is over, and no other turn is about to start."""
        return self.exit is None and not self._is_busy

    # -- deadlines --------------------------------------------------------------------------

    def _check(self, *, has_exited: bool) -> None:
        """Check deadlines and limits, then send the due message.

        Raises:
            ProgramError: The program failed or exceeded a limit.
            BudgetUsedUp: The budget is used up.
        """
        now = anyio.current_time()
        dialogue, limits = self.dialogue, self._order.limits
        assert self._errors is not None
        if dialogue.is_confirmed and (dialogue.is_working or self._books.state == "starting"):
            self._books.move("working")
        if self._fault is not None:
            raise self._fault
        is_due, dialogue.is_budget_due = dialogue.is_budget_due, False
        if is_due or self._books.is_out_of_time:
            self._books.require_budget()
        written = self._reader.log_size() - self._turn_offset
        if max(written, self._errors.size - self._errors.start) >= limits.max_log_bytes:
            message = f"the program has written {limits.max_log_bytes} bytes in one turn"
            logs = self._order.directory.log_file.parent
            raise ProgramError("invalid", f"{message}: move {logs} away")
        if has_exited:
            return
        is_unread = self._conversation.has_unread_message
        if dialogue.is_absorbed(now, limits.pass_over_timeout) and not is_unread:
            dialogue.end_turn({"ok": True, "text": ""}, None, now)
        if not dialogue.is_confirmed and now >= self._confirm_by:
            limit_s = limits.confirm_timeout
            message = f"the program did not confirm its conversation within {limit_s:g} s"
            raise dialogue.contradiction or ProgramError("crash", message)
        if (silence_s := dialogue.silence(now)) is not None:
            self._books.emit("stalled", {"silence_s": round(silence_s, 3)})
            message = f"the program was silent for {silence_s:.0f} s within a turn"
            raise ProgramError("stall", message)
        if now >= self._leave_by:
            raise dialogue.turn_error or _Left
        if dialogue.turn_error is not None or not (self._is_busy or self._takes_more):
            self._see_off(now)  # it may still be writing the turn to its transcript
        elif not self._is_busy:
            self._send_next(now)

    def _forgive(self, seconds: float) -> None:
        """Extend the deadlines by the length of an interval in which this process was stopped."""
        self._confirm_by += seconds
        self._leave_by += seconds
        self.dialogue.forgive(seconds)

    def _see_off(self, now: float) -> None:
        """Close the program's input so that it exits, and set a deadline for its exit."""
        self._leave_by = min(self._leave_by, now + self._order.limits.leave_timeout)
        if self._stdin is not None:
            self._stdin.end()

    async def _conclude(self) -> None:
        """Conclude a process that has exited, after all its output is read.

        Raises:
            ProgramError: The process ended within a turn, or never proved its conversation.
        """
        dialogue = self.dialogue
        if dialogue.turn_error is not None:
            raise dialogue.turn_error
        if dialogue.is_confirmed and not dialogue.is_working:
            return
        now, is_unread = anyio.current_time(), self._conversation.has_unread_message
        has_failed = self.exit != ProcessExit(status=0) or dialogue.last_error is not None
        is_lost = is_unread or dialogue.is_passed_over
        if has_failed or is_lost or not dialogue.is_confirmed:
            words = await run_blocking(self.last_output)
            report = self._order.driver.explain(words)
            raise dialogue.last_error or dialogue.explain_end(report, words, str(self.exit))
        if dialogue.message is not None:  # else the program has ended a turn of its own
            dialogue.end_turn({"ok": True, "text": ""}, None, now)

    # -- afterwards -------------------------------------------------------------------------

    def last_output(self) -> tuple[str, ...]:
        """Return the last lines of its standard output and standard error, masked. Blocks."""
        log_file, secrets = self._order.directory.log_file, self._order.secrets
        start = self.log_start - self._segment_start
        output = last_lines(log_file, start=start, count=_LAST_LINES, secrets=secrets)
        if self._errors is None:
            return output
        return output + self._errors.last_lines(_LAST_LINES, secrets)

    @property
    def exit_code(self) -> int | None:
        """Exit status of the process, negative for a signal; None if unknown."""
        return None if self.exit is None else exit_code(self.exit)

    async def release(self) -> None:
        """Process the remaining output of a process that has ended, and release its resources.

        Cancellation: call it in a shielded scope.
        """
        async with AsyncExitStack() as releases:  # each runs even if another fails
            releases.push_async_callback(self._order.hooks.enclosure.release)
            releases.callback(self._opened.close)
            releases.callback(self._let_go)
            if self.process is not None and self.process.has_exited:
                self.exit = await self.process.wait()
            with _log.contain("rest of the output not read", agent=self._order.options.name):
                await self._drain()

    def _let_go(self) -> None:
        self._books.pid = self.process = None
        self._tree.release()

    async def _drain(self) -> None:
        if self.process is None:  # not spawned, or already released
            return
        total = 0
        with suppress(ProgramError, OSError), anyio.move_on_after(self._order.limits.drain_timeout):
            while total < _DRAINED_BYTES:
                heard = await self._listen(rest=True)
                total += heard.size
                if heard.is_all:
                    return
