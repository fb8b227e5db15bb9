"""Agent: AsyncAgent without ``await``.

Each method runs the method of AsyncAgent through the portal, and has its signature, docstring and
types. Agent works without a ``with`` block, inside a running event loop (a notebook cell), and with
Ctrl-C. Agents left open are stopped when the interpreter ends.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from clawblox.agents.access.grant import Grant
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.usage import Budget
from clawblox.agents.values import AgentState, SandboxLevel, Usage
from clawblox.concurrency.synchronous import (
    OpenTwin,
    constructing,
    converting,
    immediate,
    streaming,
    synchronous,
)


class Agent(OpenTwin[AsyncAgent]):
    """An agent: a program for language models, supervised in a directory of its own.

    Leaving the optional ``with`` block, or the end of the interpreter, stops the agent. The
    constructor touches neither the disk nor tmux.

    Args:
        agent: Driver of the program: ``claude``, ``codex``, ``kimi``, ``opencode``, ``acp`` or
            ``command``.
        name: Full name of the agent.
        dir: Directory of the agent. Files already in its ``workspace`` are kept.
        model: Model to use; None leaves the choice to the program.
        binary: The program: a path, or a name to look up in PATH; None means the usual name.
        permission_mode: The program's own name for what it may do without asking; None means
            everything.
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

    __init__ = constructing(AsyncAgent)

    @property
    def name(self) -> str:
        """See :attr:`AsyncAgent.name`."""
        return self._async.name

    @property
    def dir(self) -> Path:
        """See :attr:`AsyncAgent.dir`."""
        return self._async.dir

    @property
    def driver(self) -> str:
        """See :attr:`AsyncAgent.driver`."""
        return self._async.driver

    @property
    def sandbox(self) -> SandboxLevel:
        """See :attr:`AsyncAgent.sandbox`."""
        return self._async.sandbox

    @property
    def visible_workspace_dir(self) -> Path:
        """See :attr:`AsyncAgent.visible_workspace_dir`."""
        return self._async.visible_workspace_dir

    @property
    def state(self) -> AgentState:
        """See :attr:`AsyncAgent.state`."""
        return self._async.state

    @property
    def session_id(self) -> str | None:
        """See :attr:`AsyncAgent.session_id`."""
        return self._async.session_id

    @property
    def usage(self) -> Usage:
        """See :attr:`AsyncAgent.usage`."""
        return self._async.usage

    @property
    def failure(self) -> Exception | None:
        """See :attr:`AsyncAgent.failure`."""
        return self._async.failure

    @property
    def budget(self) -> Budget | None:
        """See :attr:`AsyncAgent.budget`."""
        return self._async.budget

    @property
    def is_between_turns(self) -> bool:
        """See :attr:`AsyncAgent.is_between_turns`."""
        return self._async.is_between_turns

    @property
    def is_waiting_for_provider(self) -> bool:
        """See :attr:`AsyncAgent.is_waiting_for_provider`."""
        return self._async.is_waiting_for_provider

    @property
    def provider_wait_s(self) -> float:
        """See :attr:`AsyncAgent.provider_wait_s`."""
        return self._async.provider_wait_s

    def hold_turns(self) -> AbstractContextManager[None]:
        """See :meth:`AsyncAgent.hold_turns`."""
        return self._async.hold_turns()

    def grant_access(self, grant: Grant) -> str:
        """See :meth:`AsyncAgent.grant_access`."""
        return self._ready().grant_access(grant)

    check = synchronous(AsyncAgent.check)
    start = synchronous(AsyncAgent.start)
    send = synchronous(AsyncAgent.send)
    fork = converting(AsyncAgent.fork, lambda branch: _twin(branch), returns="Agent")
    stop = synchronous(AsyncAgent.stop)
    kill_now = immediate(AsyncAgent.kill_now)
    set_budget = immediate(AsyncAgent.set_budget)
    wait = synchronous(AsyncAgent.wait)
    events = streaming(AsyncAgent.events, returns="Stream[AgentEvent]")


def _twin(branch: AsyncAgent) -> Agent:
    twin: Agent = Agent.__new__(Agent)
    OpenTwin.__init__(twin, branch)
    return twin
