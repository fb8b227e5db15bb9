"""AsyncAgent: an agent in its directory, and the program that this process runs for it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import anyio
import attrs

from clawblox.agents.access.agent_access import AgentAccess
from clawblox.agents.access.grant import Grant
from clawblox.agents.access.proxy import ProxyLimits
from clawblox.agents.control import open_control
from clawblox.agents.drivers import find_driver
from clawblox.agents.drivers.driver import Fork
from clawblox.agents.events import AgentEventHub, AgentEventStream
from clawblox.agents.layout import AgentDir
from clawblox.agents.options import (
    DEFAULT_MAX_RESTARTS,
    DEFAULT_REQUEST_RATE,
    DEFAULT_RESTART_WINDOW_S,
    DEFAULT_STALL_TIMEOUT_S,
    AgentOptions,
    SandboxChoice,
)
from clawblox.agents.programs import SANDBOX_WORKSPACE
from clawblox.agents.prompts import (
    AUTO_CONTINUE,
    check_prompt,
    check_text,
    default_system_prompt,
)
from clawblox.agents.running.agenda import Hold
from clawblox.agents.running.bookkeeping import Bookkeeping
from clawblox.agents.running.branching import make_branch, require_branching, require_connection
from clawblox.agents.running.hooks import Hooks
from clawblox.agents.running.owner import Owner
from clawblox.agents.running.preparation import (
    check_agent_env,
    check_setup,
    require_arguments,
)
from clawblox.agents.running.start_request import ProgramLimits, Start, StartRequest
from clawblox.agents.sandbox import choose_sandbox
from clawblox.agents.status import AgentRecord, StatusWriter, find_left_cookie
from clawblox.agents.usage import Budget
from clawblox.agents.values import (
    MOVES,
    STOPPED,
    AgentResult,
    AgentState,
    SandboxLevel,
    StartedAgent,
    Usage,
)
from clawblox.agents.window import AgentWindow
from clawblox.concurrency.tasks import Residence, Tasks, in_own_task
from clawblox.concurrency.threads import run_blocking
from clawblox.config.arguments import check_env, check_grace, check_path
from clawblox.config.options import DEFAULT_GRACE_S
from clawblox.errors import AgentStartError, UsageError
from clawblox.protocol import SECRET_NAME
from clawblox.rundir.control_server import ControlServer
from clawblox.supervision.lifecycle import Lifecycle
from clawblox.supervision.orphans import end_orphans
from clawblox.telemetry.events import Hub
from clawblox.telemetry.own_log import OwnLog

_log = OwnLog(__name__)

_LEAST_SECRET_CHARS: Final = 6


class AsyncAgent:
    """An agent: a program for language models, supervised in a directory of its own.

    Use it as an async context manager: leaving the block stops the agent. The constructor touches
    neither the disk nor tmux.

    Args:
        agent: Driver of the program: ``claude``, ``codex``, ``kimi``, ``opencode``, ``acp`` or
            ``command``.
        name: Full name of the agent.
        dir: Directory of the agent. Files already in its ``workspace`` are kept.
        model: Model to use; None leaves the choice to the program.
        binary: The program: a path, or a name to look up in PATH; None means the usual name.
        permission_mode: The program's own name for a permission mode; None lets it do everything
            without asking.
        tmux: tmux session for a window that shows the agent, created if needed; None opens no
            window.
        sandbox: Whether the program runs in a sandbox; ``"strict"`` refuses a sandbox in which it
            is user 0 of this machine, or whose system calls are not filtered.
        claude_native_sandbox: Whether Claude Code also runs its commands in its own sandbox.
        bare: Whether Claude Code skips hooks and the files that it would read by itself.
        auto_continue: Whether the agent is asked to continue after each turn, until it is stopped.
        budget: Limits of usage over all starts, after which the agent is stopped; None sets no
            limit.
        max_restarts: Number of restarts allowed within ``restart_window``; the agent fails when
            more are needed.
        restart_window: Length of that window in seconds.
        stall_timeout: Seconds of silence within a turn after which the program is restarted; None
            waits forever.
        request_rate: Requests per second to the world, after a burst; None sets no limit.
        command: What to run for the drivers ``command`` (a table) and ``acp`` (a list of words);
            None for the others.

    Raises:
        ConfigError: An argument is wrong.
    """

    def __init__(
        self,
        *,
        agent: str,
        name: str,
        dir: str | Path,  # noqa: A002 - the documented name
        model: str | None = None,
        binary: str | Path | None = None,
        permission_mode: str | None = None,
        tmux: str | None = None,
        sandbox: SandboxChoice = False,
        claude_native_sandbox: bool = False,
        bare: bool = False,
        auto_continue: bool = True,
        budget: Budget | None = None,
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        restart_window: float = DEFAULT_RESTART_WINDOW_S,
        stall_timeout: float | None = DEFAULT_STALL_TIMEOUT_S,
        request_rate: float | None = DEFAULT_REQUEST_RATE,
        command: Mapping[str, Any] | Sequence[str] | None = None,
    ) -> None:
        self._driver = find_driver(agent)
        self._options = AgentOptions(
            agent=agent,
            name=name,
            dir=dir,
            model=model,
            binary=binary,
            permission_mode=permission_mode,
            tmux=tmux,
            sandbox=sandbox,
            claude_native_sandbox=claude_native_sandbox,
            bare=bare,
            auto_continue=auto_continue,
            budget=budget,
            max_restarts=max_restarts,
            restart_window=restart_window,
            stall_timeout=stall_timeout,
            request_rate=request_rate,
            command=command,
        )
        path = self._options.binary
        self._program = self._driver.name_binary(None if path is None else str(path), command)
        self._directory = directory = AgentDir(self.dir)
        limits = ProxyLimits(requests_per_s=request_rate)
        self._access = AgentAccess(name, directory, is_sandboxed=bool(sandbox), limits=limits)
        enclosure, services = choose_sandbox(self._options, self._driver.program, self._access)
        self._hooks = Hooks(
            enclosure=enclosure,
            services=services,
            access=self._access,
            window=None if tmux is None else AgentWindow(tmux, directory, agent),
            status=StatusWriter(directory),
        )
        self._limits = ProgramLimits()
        self._hub: AgentEventHub = Hub()
        self._lifecycle = Lifecycle[AgentState](MOVES, "new")
        self._hold = Hold()
        self._control: ControlServer | None = None
        self._first_started_at: float | None = None
        self._branch: Fork | None = None
        self._opening = AUTO_CONTINUE
        self._owner: Owner | None = None
        self._tasks: Tasks | None = None
        self._residence: Residence[Tasks]
        self._beginning: anyio.Lock

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self._options.agent}, {self.state})"

    # -- facts ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Full name of the agent."""
        return self._options.name

    @property
    def dir(self) -> Path:
        """The agent's directory, absolute."""
        return self._options.dir

    @property
    def options(self) -> AgentOptions:
        """Arguments of the constructor, with the current budget; frozen."""
        return self._options

    @property
    def is_open(self) -> bool:
        """True while its ``async with`` block runs."""
        return self._tasks is not None

    @property
    def driver(self) -> str:
        """Name of the driver of the agent's program."""
        return self._options.agent

    @property
    def sandbox(self) -> SandboxLevel:
        """Level of the sandbox around the agent's program."""
        return self._hooks.enclosure.level

    @property
    def visible_workspace_dir(self) -> Path:
        """Working directory of the agent, as its program sees it."""
        return SANDBOX_WORKSPACE if self._options.sandbox else self._directory.workspace

    @property
    def state(self) -> AgentState:
        """State of the agent."""
        return self._lifecycle.state

    @property
    def session_id(self) -> str | None:
        """Id of the conversation; None before it is known."""
        return None if self._owner is None else self._owner.books.conversation_id

    @property
    def usage(self) -> Usage:
        """Usage over all starts of the agent; empty before its first start in this process."""
        return Usage() if self._owner is None else self._owner.books.usage

    @property
    def failure(self) -> Exception | None:
        """Error that made the agent fail; None if it has not failed."""
        return None if self._owner is None else self._owner.failure

    @property
    def budget(self) -> Budget | None:
        """Limits of usage over all starts, after which the agent is stopped; None sets no limit."""
        return self._options.budget

    @property
    def is_between_turns(self) -> bool:
        """True if the agent is between turns; the next may be about to start."""
        return self._owner is None or self._owner.is_between_turns

    @property
    def is_waiting_for_provider(self) -> bool:
        """True if the agent waits only for its model's provider.

        True from a ``retry`` or ``limit`` event, or a failure of a busy model, until the model
        answers or the agent ends.
        """
        return self._owner is not None and self._owner.books.provider_wait_s is not None

    @property
    def provider_wait_s(self) -> float:
        """Seconds of the current, unbroken wait for its model's provider; 0.0 without a wait."""
        return 0.0 if self._owner is None else self._owner.books.provider_wait_s or 0.0

    def hold_turns(self) -> AbstractContextManager[None]:
        """Suppress automatic continuation while the block runs; messages are still delivered."""
        return self._hold.held()

    def grant_access(self, grant: Grant) -> str:
        """Give the agent access to a world; called by ``connect``. Blocks.

        The address answers until the agent is closed.

        Args:
            grant: The grant of the world.

        Returns:
            The address under which the agent knows the world.

        Raises:
            UsageError: The agent is not open, so its address would not answer.
            AgentResumeError: The agent knows its world under an address that is no longer
                available.
            AgentSetupError: No address is available, or the address cannot be recorded.
        """
        self._open_tasks()
        with self._options.naming_errors():
            return self._access.grant(grant)

    # -- the block --------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise UsageError("this agent is already open", hint="use another AsyncAgent object")
        self._beginning = anyio.Lock()
        self._residence = Residence(self._opened())
        self._tasks = await self._residence.__aenter__()
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        try:
            await self._residence.__aexit__(*exc_info)
        finally:
            self._tasks = None

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Tasks]:
        self._access.begin()
        try:
            async with Tasks(on_error=partial(_log.defect, "task of an agent failed")) as tasks:
                tasks.start_soon(self._access.serve)
                yield tasks
        finally:
            self._hub.close()
            with anyio.CancelScope(shield=True):
                await run_blocking(self._access.close)

    def _open_tasks(self) -> Tasks:
        if self._tasks is None:
            hint = "async with AsyncAgent(…) as agent: …"
            raise UsageError("this agent is not open", hint=hint)
        return self._tasks

    def set_budget(self, budget: Budget | None) -> None:
        """Replace the budget; an agent that works is stopped between turns if it is used up.

        Args:
            budget: Limits of usage over all starts; None sets no limit.

        Raises:
            ConfigError: The argument is not a budget.
        """
        self._options = attrs.evolve(self._options, budget=budget)
        if self._owner is not None:
            self._owner.set_budget(budget)

    def kill_now(self) -> None:
        """End the grace period of the current stop: kill all remaining processes now."""
        if self._owner is not None:
            self._owner.kill_now()

    # -- start, send, stop ------------------------------------------------------------------

    async def start(
        self,
        initial_prompt: str,
        *,
        system_prompt: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> StartedAgent:
        """Start the agent in a new conversation; return once the program has confirmed it.

        Args:
            initial_prompt: First message to the agent.
            system_prompt: Its system prompt; None means :func:`clawblox.default_system_prompt`.
            env: Variables for its program, including after a restart; kept only in memory.

        Returns:
            The facts of the agent.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: The agent is already running, is not open, or is a branch.
            AgentSetupError: Its program is missing, too old, not logged in, or cannot be isolated.
            AgentStartError: Its program did not start, or did not confirm its conversation in time.
                Its processes have ended; ``events.jsonl`` has the reason.

        Cancellation: the program and all its processes are ended.
        """
        if self._branch is not None:
            hint = "send(prompt=…) begins its conversation"
            raise UsageError(f"the agent {self.name!r} is a branch of another", hint=hint)
        prompt = check_prompt(initial_prompt, "initial_prompt")
        system = default_system_prompt() if system_prompt is None else system_prompt
        order = self._order(prompt, env, system_prompt=check_text(system, "system_prompt"))
        return await self._own_begin(order)

    async def check(
        self, *, env: Mapping[str, str] | None = None, prompt: str = "check"
    ) -> str | None:
        """Run the checks of a start without starting the agent; write no files.

        Args:
            env: As for :meth:`start`.
            prompt: The longest message that the agent will get.

        Returns:
            Version of the program; None if it is not known.

        Raises:
            ConfigError: An argument is wrong, or the message is too long for this program.
            AgentSetupError: The program is missing, too old, or not logged in.

        Cancellation: ends the processes of the check and removes its files.
        """
        order = self._order(prompt, env)
        with self._options.naming_errors():
            return await in_own_task(partial(check_setup, order))

    async def send(
        self, prompt: str | None = None, *, env: Mapping[str, str] | None = None
    ) -> StartedAgent:
        """Send the agent a message; an agent that works gets it after the current turn.

        An agent whose program does not run is started in its recorded conversation, even if another
        process started that conversation or it comes from an archive. The first message to a branch
        begins its conversation; see :meth:`fork`.

        Args:
            prompt: The message; None means the branch's prompt from :meth:`fork` if it has not been
                sent yet, and otherwise :data:`clawblox.AUTO_CONTINUE`.
            env: As for :meth:`start`; ignored if the program already runs.

        Returns:
            The facts of the agent.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: The agent is not open; or it is a branch outside the sandbox that must be
                connected first, because its conversation names the address of a world.
            AgentResumeError: The recorded conversation cannot be continued exactly. It is never
                replaced by a new conversation.
            AgentError: As for :meth:`start`.

        Cancellation: a program started for the message is ended; a queued message is withdrawn.
        """
        prompt = self._opening if prompt is None else check_prompt(prompt, "prompt")
        start = self._branch or Start.CONTINUE
        order = self._order(prompt, env, start=start, system_prompt=None)
        if self._branch is not None:
            with self._options.naming_errors():
                await run_blocking(require_connection, order)
        started = await self._own_begin(order)
        self._branch, self._opening = None, AUTO_CONTINUE
        return started

    async def fork(
        self,
        dir: str | Path,  # noqa: A002 - as in the constructor
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        prompt: str | None = None,
        origin: str | Path | None = None,
    ) -> AsyncAgent:
        """Make a branch: a new agent with a copy of this agent's workspace, home and conversation.

        The branch is not started: connect it to its world, then :meth:`send` it a message. The
        message begins a conversation with a new id and the whole history of this agent, which may
        continue to work. Without a sandbox, a branch of an agent that was connected to a world gets
        the same address, so it can run only while this agent and its other branches are stopped.
        Nothing in this agent's directory is opened for writing. Links in the workspace are copied
        as links. The usage of the branch starts at zero.

        Args:
            dir: Directory of the branch, new or empty, and outside this agent's directory.
            name: Full name of the branch; None means the name of this agent.
            system_prompt: System prompt of the branch; None keeps the recorded one.
            prompt: Message for the first :meth:`send` without a prompt; None means
                :data:`clawblox.AUTO_CONTINUE`.
            origin: Directory of the agent before it was archived and loaded here, since its
                conversation contains paths there; None means the directory of this agent.

        Returns:
            The branch, with the options of this agent; it is not open.

        Raises:
            ConfigError: An argument is wrong.
            UsageError: The agent is in a turn, or run by another process; it runs without a
                sandbox and has been connected to a world; its driver cannot branch conversations;
                or the directory is in use.
            AgentResumeError: The recorded conversation cannot be continued exactly.
            AgentError: The usage of this agent cannot be read, or a file cannot be copied.

        Cancellation: no directory remains.
        """
        require_branching(
            self._driver, self.name, system_prompt, is_unborn=self._branch is not None
        )
        options = attrs.evolve(self._options, dir=dir, name=name or self.name)
        branch = AsyncAgent(**attrs.asdict(options, recurse=False))
        if prompt is not None:
            branch._opening = check_prompt(prompt, "prompt")
        order = self._order("fork", None, start=Start.CONTINUE, system_prompt=None)
        with self.hold_turns(), self._options.naming_errors():
            self._require_between_turns()
            books = None if self._owner is None else self._owner.books
            check = self._require_between_turns
            is_running = self._owner is not None and not self._owner.is_over
            make = partial(make_branch, order, books, branch.dir, system_prompt, check)
            made = await in_own_task(partial(make, is_running=is_running))
        former = made.origin if origin is None else check_path(origin, "origin").absolute()
        branch._branch = attrs.evolve(made, origin=former)
        return branch

    def _require_between_turns(self) -> None:
        if not self.is_between_turns:
            hint = "wait until it is between turns, or stop it"
            raise UsageError(f"the agent {self.name!r} is in a turn", hint=hint)

    async def stop(
        self, *, grace_seconds: float = DEFAULT_GRACE_S, reason: str = STOPPED
    ) -> AgentResult:
        """Stop the agent and all processes it has started. Idempotent.

        Args:
            grace_seconds: Seconds between TERM and KILL; 0 kills immediately.
            reason: The reason, in a few words, for its result and its status.

        Returns:
            The final result; its state is ``new`` if the agent was never started.

        Raises:
            ConfigError: The grace is not a number of seconds, 0 or more.

        Cancellation: the agent is still stopped.
        """
        check_grace(grace_seconds)
        await self._stop(grace_seconds, reason)
        await self._close_control()
        if self._owner is None:  # as the owner does at its end
            self._access.rest()
        return self._result()

    async def wait(self) -> AgentResult:
        """Wait until the agent pauses or ends; returns immediately if it was never started.

        Returns:
            The agent's state (``idle``, ``stopped`` or ``failed``) with its reason; ``new`` if it
            was never started.

        Cancellation: has no effect on the agent.
        """
        if self._owner is not None:
            await self._owner.wait()
            await self._close_control()
        return self._result()

    def events(self) -> AgentEventStream:
        """Return a stream of the agent's future events; it may be opened before the start.

        The stream ends when the ``async with`` block of the agent is left.
        """
        return self._hub.subscribe()

    def _order(
        self,
        prompt: str,
        env: Mapping[str, str] | None,
        *,
        start: Start | Fork = Start.BEGIN,
        system_prompt: str | None = "",
    ) -> StartRequest:
        given = {} if env is None else dict(check_env(env))
        if given:
            check_agent_env(given, self._driver.program)
        variables = {**os.environ, **given}
        secrets = {
            value
            for name, value in variables.items()
            if SECRET_NAME.search(name) and len(value) >= _LEAST_SECRET_CHARS
        }
        order = StartRequest(
            options=self._options,
            directory=self._directory,
            driver=self._driver,
            program=self._program,
            prompt=prompt,
            start=start,
            system_prompt=system_prompt,
            env=given,
            inherited=dict(os.environ),
            secrets=tuple(sorted(secrets, key=len, reverse=True)),
            hooks=self._hooks,
            limits=self._limits,
            resume_text=AUTO_CONTINUE,
            hold=self._hold,
        )
        require_arguments(order)
        return order

    async def _own_begin(self, order: StartRequest) -> StartedAgent:
        """Start the agent or queue a message, in a separate task so that cancellation undoes it."""
        tasks = self._open_tasks()
        begun: list[Owner] = []

        async def begin() -> StartedAgent:
            async with self._beginning:
                owner = self._owner
                if owner is None or owner.is_ending:
                    owner = await self._make_owner(order, tasks)
                    begun.append(owner)
            if begun:
                try:
                    return await owner.wait_started()
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await self._end(owner)
                    raise
            if order.start is Start.BEGIN:
                hint = "send(prompt=…) talks to it; stop() ends it"
                raise UsageError(f"the agent {self.name!r} is already running", hint=hint)
            return await owner.send(order.prompt)

        async def undo(_started: StartedAgent) -> None:
            for owner in begun:
                await self._end(owner)

        return await tasks.own(begin, undo=undo)

    async def _make_owner(self, order: StartRequest, tasks: Tasks) -> Owner:
        """Create a new owner after the previous owner has ended, and serve other processes.

        Raises:
            AgentStartError: Another orchestrator runs the agent.
        """
        name, directory = self._options.name, self._directory
        if self._owner is not None:
            await self._owner.stop(DEFAULT_GRACE_S)
            await self._close_control()
        if (left := await run_blocking(find_left_cookie, directory.path)) is not None:
            for reason in (await end_orphans([left])).values():
                raise AgentStartError(f"of its previous run, {reason}", agent_dir=directory.path)
        calls = self._record, self.send, self._stop
        self._control = await open_control(name, directory, *calls)
        if self._control is not None:
            tasks.start_soon(self._control.run)
        if self._first_started_at is None:
            self._first_started_at = anyio.current_time()
        order = attrs.evolve(order, options=self._options)  # the budget may be newer
        books = Bookkeeping(order, self._lifecycle, self._hub, self._first_started_at)
        owner = self._owner = Owner(order, self._lifecycle, books)
        tasks.start_soon(self._run, owner, self._control)
        return owner

    async def _end(self, owner: Owner) -> None:
        await owner.stop(0.0)
        await self._close_control()

    async def _stop(self, grace_seconds: float, reason: str = STOPPED) -> None:
        """Stop the agent but keep its control socket open, as for requests of other processes."""
        if self._owner is not None and not self._owner.is_over:
            await self._owner.stop(grace_seconds, reason)

    async def _close_control(self) -> None:
        """Close the control socket if the agent has ended: another orchestrator may run it."""
        if self._control is not None and self._owner is not None and self._owner.is_over:
            await self._control.aclose()

    async def _run(self, owner: Owner, control: ControlServer | None) -> None:
        try:
            await owner.run()
        finally:
            if control is not None:
                with anyio.CancelScope(shield=True):
                    await control.aclose()

    def _record(self) -> AgentRecord:
        if self._owner is None:
            raise UsageError(f"the agent {self.name!r} has not been started yet")
        return self._owner.books.record()

    def _result(self) -> AgentResult:
        if self._owner is not None:
            return self._owner.result
        return AgentResult(
            name=self.name,
            state="new",
            reason="never started",
            ended_by=None,
            exit_code=None,
            usage=Usage(),
        )
