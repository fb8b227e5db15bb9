"""The task that owns an agent, from its start to the end of its last process.

A failure before the conversation is confirmed is raised to the caller. A later failure leads to
another process if the options allow one, and otherwise to the end of the agent. In the end the task
always ends every process of the agent, shielded. A defect of this package in the task counts as a
failure of that agent: it is reported, every step of the shutdown still runs, and every waiting call
returns.
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, Final

import anyio

from clawblox.agents.drivers.driver import AgentSetup, Begin, Continue, Fork, Requirement, Turn
from clawblox.agents.drivers.output import report_limit
from clawblox.agents.running.agenda import Agenda, Message
from clawblox.agents.running.agent_process import AgentProcess
from clawblox.agents.running.bookkeeping import Bookkeeping, BudgetUsedUp
from clawblox.agents.running.conversation import (
    find_branch,
    read_conversation_id,
    require_transcript,
)
from clawblox.agents.running.dialogue import BUSY_KINDS, FATAL_KINDS, ProgramError, retry_delay_s
from clawblox.agents.running.hooks import Service
from clawblox.agents.running.preparation import (
    adopt,
    build_environment,
    check_program,
    find_number,
    prepare,
    read_version,
)
from clawblox.agents.running.start_request import Start, StartRequest
from clawblox.agents.usage import UNLIMITED, Budget
from clawblox.agents.values import STOPPED, AgentResult, AgentState, EndCause, StartedAgent
from clawblox.concurrency.tasks import Tasks
from clawblox.concurrency.threads import run_blocking
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import (
    AgentError,
    AgentExitedError,
    AgentResumeError,
    AgentStallError,
    AgentStartError,
)
from clawblox.supervision.lifecycle import Lifecycle, RestartBudget
from clawblox.supervision.tree import Grace, ProcessTree, SharedStop
from clawblox.system.process import CannotExecute
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_EXPECTED: Final = (AgentError, ProgramError, OSError, CannotExecute)
"""Exceptions of a start or a process that are not defects of this package."""

_FAILED_GRACE_S: Final = 2.0
"""Seconds between TERM and KILL for a program that failed."""


class Owner:
    """Owns one agent. :meth:`run` is the task; the other methods send it requests.

    Args:
        order: The order of the start.
        lifecycle: The agent's state; set to ``starting``.
        books: State of the agent, and its observers.

    Attributes:
        books: State of the agent, and its observers.
        failure: The error that made the agent fail; None if it has not failed.
    """

    def __init__(
        self, order: StartRequest, lifecycle: Lifecycle[AgentState], books: Bookkeeping
    ) -> None:
        self._order = order
        self._lifecycle = lifecycle
        self.books = books
        self.failure: AgentError | None = None
        nudge = order.resume_text if order.options.auto_continue else None
        self._agenda = Agenda(nudge, order.hold)
        self._first, self._reason = Message(order.prompt), STOPPED
        self._restarts = RestartBudget(order.options.max_restarts, order.options.restart_window)
        self._tree = ProcessTree(books.cookie)
        self._doubts: list[Requirement] = []
        self._attempt: AgentProcess | None = None
        self._exit_code: int | None = None
        self._stopped_by: EndCause = "request"
        self._stop = SharedStop()
        lifecycle.move("starting")

    # -- requests ---------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True if the agent and all its processes have ended."""
        return self._stop.is_over.is_set()

    @property
    def is_ending(self) -> bool:
        """True if the agent is being stopped, or has ended."""
        return self._stop.grace is not None or self._stop.is_over.is_set()

    @property
    def is_between_turns(self) -> bool:
        """True if the agent is between turns; False while it starts."""
        attempt = self._attempt
        if self.is_over or attempt is None:
            return self.is_over
        is_at_rest = self._agenda.is_awaited or self.books.state == "idle"
        return attempt.is_between_turns or (is_at_rest and not attempt.is_within_turn)

    async def wait_started(self, message: Message | None = None) -> StartedAgent:
        """Wait until the program runs and its conversation is confirmed.

        Args:
            message: A message that must also be delivered; None means the first message.

        Raises:
            AgentError: The start failed; all processes of the agent have ended.

        Cancellation: the start continues; call :meth:`stop` to end it.
        """
        await (message or self._first).is_settled.wait()
        if self.is_ending:
            await self._stop.is_over.wait()
        if self.failure is not None:
            raise self.failure
        if not self.books.is_confirmed:
            raise self._error(
                AgentStartError, "it was stopped before its conversation was confirmed"
            )
        return self._facts()

    async def send(self, text: str) -> StartedAgent:
        """Send the agent a message; return when the program that will read it runs.

        Raises:
            AgentError: The program started for the message failed; all processes of the agent have
                ended.

        Cancellation: a message that was not sent yet is withdrawn; a program that was started for
        the message is ended.
        """
        if not self.books.is_confirmed:
            await self.wait_started()
        message = Message(text)
        was_idle = self.books.state == "idle"
        self._agenda.add(message)
        if self._attempt is not None:
            self._attempt.wake()
        if not was_idle:
            return self._facts()
        try:
            return await self.wait_started(message)
        except BaseException:
            if not self._agenda.withdraw(message) and not message.is_settled.is_set():
                with anyio.CancelScope(shield=True):
                    await self.stop(_FAILED_GRACE_S)
            raise

    async def stop(self, grace_seconds: float, reason: str = STOPPED) -> AgentResult:
        """End the agent and wait for its end; concurrent stops share one stop ladder.

        Args:
            grace_seconds: Seconds between TERM and KILL; a later stop may shorten this time.
            reason: The reason, in a few words.

        Cancellation: the agent is still stopped.
        """
        self._reason = reason if self._stopped_by == "request" else self._reason
        await self._stop.request(grace_seconds)
        return self.result

    def set_budget(self, budget: Budget | None) -> None:
        """Replace the budget; it is checked before the next turn, for an idle agent immediately."""
        self.books.budget = budget or UNLIMITED
        self._agenda.news.set()
        if self._attempt is not None:
            self._attempt.wake()

    def kill_now(self) -> None:
        """End the grace period of the current stop."""
        self._stop.kill_now()

    async def wait(self) -> AgentResult:
        """Wait until the agent pauses or ends.

        Cancellation: has no effect on the agent.
        """
        while not self.is_over and (
            self.books.state != "idle" or self._agenda.due_in(anyio.current_time()) == 0.0
        ):
            await self.books.changed.wait()
        return self.result

    @property
    def result(self) -> AgentResult:
        """Current or final result of the agent."""
        cause: EndCause = self._stopped_by if self.failure is None else "failure"
        return AgentResult(
            name=self._order.options.name,
            state=self.books.state,
            reason=self.books.reason,
            ended_by=cause if self.books.state in ("stopped", "failed") else None,
            exit_code=self._exit_code,
            usage=self.books.usage,
        )

    def _facts(self) -> StartedAgent:
        order, window = self._order, self._order.hooks.window
        assert self.books.conversation_id is not None
        return StartedAgent(
            name=order.options.name,
            agent_dir=order.options.dir,
            command_file=order.directory.command_file,
            log_file=order.directory.log_file,
            session_id=self.books.conversation_id,
            pid=self.books.pid,
            version=self.books.version,
            tmux_window=None if window is None else window.name,
            tmux_pane_id=None if window is None else window.pane_id,
            sandbox=order.hooks.enclosure.level,
        )

    # -- the task ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Start the agent and keep it running. Failures are raised by the other methods.

        Cancellation: ends every process of the agent, shielded, then propagates.
        """
        try:
            with self._stop.scope:
                async with Tasks() as services:
                    await self._work(services)
        except BudgetUsedUp as used_up:
            self._reason, self._stopped_by = str(used_up), "budget"
            with self._contained("limit not reported"):
                self.books.emit("limit", {"kind": "budget", "message": self._reason})
        except Exception as error:  # noqa: BLE001 - every failure goes to the waiting calls
            if not isinstance(error, _EXPECTED):
                _log.defect("agent ended by a defect", error, agent=self._order.options.name)
            self.failure = AgentExitedError(str(error), agent=self._order.options.name)
            with self._contained("failure not described"):
                self.failure = self._public(error)
                if self._attempt is not None and self.failure is not error:
                    self.failure.log_lines = await run_blocking(self._attempt.last_output)
        finally:
            try:
                with anyio.CancelScope(shield=True), self._contained("agent not put away"):
                    await self._tear_down(self._reason)
            finally:
                self._release_waiters(self._reason)

    def _contained(self, what: str) -> AbstractContextManager[None]:
        """Log a defect in the block instead of raising it, so that the next step still runs."""
        return _log.contain(what, agent=self._order.options.name)

    async def _work(self, services: Tasks) -> None:
        setup = await self._prepare()
        hooks = self._order.hooks
        await run_blocking(hooks.access.open)
        for service in hooks.services:
            services.start_soon(self._serve, service)
        if hooks.window is not None:
            await run_blocking(hooks.window.open)
        message = self._first
        while True:
            try:
                following = await self._attempt_once(setup, message)
            except ProgramError as error:
                following = await self._recover(error)
            message = following or await self._wait_for_message()

    async def _serve(self, service: Service) -> None:
        with self._contained("service of an agent failed"):
            await service()

    async def _prepare(self) -> AgentSetup:
        """Prepare the files of the program, and check that the program can work."""
        order = self._order
        if order.start is Start.CONTINUE:
            self.books.conversation_id = await run_blocking(read_conversation_id, order)
        elif isinstance(order.start, Fork):
            self.books.conversation_id = await run_blocking(find_branch, order, order.start)
        binary, setup = await run_blocking(prepare, order)
        await run_blocking(self.books.load)
        await self.books.catch_up()
        if order.hooks.enclosure.level != "none":
            self.books.emit("sandbox", order.hooks.enclosure.facts)
        await self.books.flush()  # record the cookie before a process carries it
        await run_blocking(self._tree.watch)
        turn = self._make_turn(self._first)
        own = order.driver.invocation(setup, turn).env
        env = build_environment(order, setup, self._tree.cookie, own)
        version = await read_version(order, binary, setup, self._tree, turn)
        self.books.version = find_number(version)
        self._doubts = await run_blocking(check_program, order, setup, env, version)
        if not isinstance(turn.start, Begin):
            await adopt(order, setup, turn.start)
        await run_blocking(order.driver.prepare, setup, env)
        if isinstance(order.start, Fork):
            self.books.conversation_id = await run_blocking(find_branch, order, order.start)
        for doubt in self._doubts:
            facts = {"problem": doubt.problem, "hint": doubt.hint}
            _log.warning("agent may not work", agent=order.options.name, **facts)
        return setup

    def _make_turn(self, message: Message) -> Turn:
        given, conversation_id = self._order.start, self.books.conversation_id
        new = given if isinstance(given, Fork) else Begin(str(uuid.uuid4()))
        start = new if conversation_id is None else Continue(conversation_id)
        return Turn(prompt=message.text, start=start)

    # -- processes --------------------------------------------------------------------------

    async def _attempt_once(self, setup: AgentSetup, message: Message) -> Message | None:
        """Run one process to its end.

        Returns:
            First message to the next process; None if no message is pending.

        Raises:
            ProgramError: The process failed.
        """
        turn = self._make_turn(message)
        await self.books.count_rest(turn.continued_id)
        source_id = turn.start.parent_id if isinstance(turn.start, Fork) else turn.continued_id
        if source_id is not None:
            await run_blocking(require_transcript, self._order, source_id)
        self._attempt = attempt = AgentProcess(
            order=self._order,
            setup=setup,
            books=self.books,
            agenda=self._agenda,
            tree=self._tree,
            message=message,
            turn=turn,
        )
        await attempt.spawn(is_asked_for=not message.is_nudge)
        await attempt.run()
        await self._end_attempt(Grace(_FAILED_GRACE_S), only_leader=attempt.exit is not None)
        self._note_exit("finished")
        return attempt.following

    def _note_exit(self, status: str, **error: str) -> None:
        facts = {"status": status, "exit_code": self._exit_code, **error}
        self.books.emit("process.exited", facts)

    async def _recover(self, error: ProgramError) -> Message | None:
        """Wait, then return the first message to the next process; None if all are answered.

        Raises:
            ProgramError: A retry would fail in the same way, or no restarts are left.
        """
        attempt = self._attempt
        assert attempt is not None
        await self._find_reset(error)
        is_hopeless = not self.books.is_confirmed or error.kind in FATAL_KINDS
        before = None if is_hopeless else self._restarts.take(anyio.current_time())
        if before is None:
            raise error
        with anyio.CancelScope(shield=True):
            await self._end_attempt(Grace(_FAILED_GRACE_S))
        self._note_exit("restarting", error=error.message)
        self.books.note_provider(is_awaited=error.kind in BUSY_KINDS)
        await self.books.flush()
        await anyio.sleep(retry_delay_s(error.kind, before))
        nudge = Message(self._order.resume_text, is_nudge=True)
        return attempt.unanswered or (attempt.dialogue.message and nudge)

    async def _find_reset(self, error: ProgramError) -> None:
        """Search the disk for the end of a usage limit that the program's output did not name."""
        conversation_id = self.books.conversation_id
        if error.kind != "limit" or error.retry_at is not None or conversation_id is None:
            return
        find = partial(self._order.driver.find_reset, self._order.directory, conversation_id)
        with suppress(OSError):
            error.retry_at = await run_blocking(find)
        if (resets_at := error.retry_at) is not None:
            self.books.emit("limit", report_limit("usage", error.message, resets_at).data)

    async def _wait_for_message(self) -> Message:
        """Wait, between two processes, until a message is due."""
        while True:
            self.books.require_budget()
            if (message := self._agenda.take(anyio.current_time())) is not None:
                self.books.move("working")
                return message
            if self._agenda.due_in(anyio.current_time()) == float("inf"):
                self.books.move("idle", "the turn is over, and there is nothing more to do")
            await self.books.flush()
            await self._agenda.wait()

    async def _end_attempt(self, grace: Grace, *, only_leader: bool = False) -> None:
        """End the agent's processes, and release the resources of the attempt.

        Args:
            grace: The time between TERM and KILL.
            only_leader: Whether to keep the background processes of a program that has exited,
                because the agent may need them in its next turn.
        """
        attempt = self._attempt
        if attempt is None:
            return
        try:
            if not only_leader:
                await self._end_tree(grace)
        finally:
            await attempt.release()
        if attempt.exit is not None:
            self._exit_code = attempt.exit_code

    async def _end_tree(self, grace: Grace) -> None:
        end = await self._tree.end(grace)
        if end.failure is not None:
            _log.error("stop failed", agent=self._order.options.name, reason=end.failure)

    # -- the end ----------------------------------------------------------------------------

    def _public(self, error: Exception) -> AgentError:
        """Return the public error for the failure that ended the agent."""
        if isinstance(error, AgentError):
            error.agent = error.agent or self._order.options.name
            error.agent_dir = error.agent_dir or self._order.options.dir
            return error
        is_confirmed = self.books.is_confirmed
        error_type: type[AgentError] = AgentExitedError if is_confirmed else AgentStartError
        if not isinstance(error, ProgramError):
            verb = "continue" if is_confirmed else "be started"
            failure = self._error(error_type, f"it could not {verb}: {error}")
            failure.__cause__ = error
            return failure
        facts: dict[str, Any] = {"kind": error.kind, "retry_at": error.retry_at}
        if error.kind == "resume":
            error_type = AgentResumeError
        elif is_confirmed and error.kind == "stall":
            error_type = AgentStallError
        elif not is_confirmed or error.kind == "auth":
            doubts = (f"{doubt.problem}: {doubt.hint}" for doubt in self._doubts)
            facts["hint"] = "; ".join(doubts) or None
        return self._error(error_type, error.message, **facts)

    def _error(self, error_type: type[AgentError], message: str, **facts: Any) -> AgentError:
        return error_type(
            message,
            agent=self._order.options.name,
            agent_dir=self._order.options.dir,
            log_file=self._order.directory.log_file,
            status=None if self._attempt is None else self._attempt.exit_code,
            **facts,
        )

    async def _tear_down(self, reason: str) -> None:
        hooks = self._order.hooks
        grace = self._stop.begin(DEFAULT_GRACE_S if self.failure is None else _FAILED_GRACE_S)
        with self._contained("processes not ended"):
            if self._attempt is None:
                await self._end_tree(grace)  # a version command may still run
            else:
                await self._end_attempt(grace)
        with self._contained("guard not informed"):
            if not self._tree.may_have_survivors:
                await run_blocking(self._tree.forget)
        with self._contained("end not reported"):
            if self.failure is None:
                self._note_exit("stopped")
                self.books.move("stopped", reason)
            else:
                self._note_exit("failed", error=self.failure.message)
                self.books.move("failed", self.failure.message)
        with self._contained("end not written"):
            await self.books.flush()  # before the window with the reason closes
        with self._contained("window not closed"):
            if hooks.window is not None:
                await run_blocking(hooks.window.close)
        with self._contained("access not at rest"):
            hooks.access.rest()

    def _release_waiters(self, reason: str) -> None:
        """Release all waiting calls, even if an earlier step failed."""
        if self._lifecycle.state not in ("stopped", "failed"):
            self._lifecycle.state = "stopped" if self.failure is None else "failed"
            self.books.reason = reason if self.failure is None else self.failure.message
        for event in (self._stop.is_over, self._first.is_settled, self.books.changed):
            event.set()
        with self._contained("messages not settled"):
            self._agenda.settle_all()
        with self._contained("process not killed"):  # present only after a defect
            self._tree.kill()
            self._tree.release()
