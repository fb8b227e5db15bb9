"""Agent: AsyncAgent without ``await``.

Each method runs the method of AsyncAgent through the portal, and has the same signature, docstring
and types. Agent works without a ``with`` block, inside a running event loop (a notebook cell), and
with Ctrl-C. Open agents are stopped when the interpreter exits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from clawblox.agents.access.grant import Grant
from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.options import AgentOptions
from clawblox.agents.usage import Budget
from clawblox.agents.values import AgentState, SandboxLevel, Usage
from clawblox.concurrency.synchronous import (
    Mirrored,
    OpenTwin,
    constructing,
    converting,
    immediate,
    make_twin,
    mirrored,
    streaming,
    synchronous,
)


class Agent(OpenTwin[AsyncAgent]):
    """An agent: a program for language models, supervised in a directory of its own.

    The agent is stopped at the end of the optional ``with`` block or when the interpreter exits.
    The constructor touches neither the disk nor tmux.

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

    @constructing(AsyncAgent)
    def __init__(self) -> None: ...

    name: Mirrored[str] = mirrored(AsyncAgent.name)
    dir: Mirrored[Path] = mirrored(AsyncAgent.dir)
    options: Mirrored[AgentOptions] = mirrored(AsyncAgent.options)
    is_open: Mirrored[bool] = mirrored(AsyncAgent.is_open)
    driver: Mirrored[str] = mirrored(AsyncAgent.driver)
    sandbox: Mirrored[SandboxLevel] = mirrored(AsyncAgent.sandbox)
    visible_workspace_dir: Mirrored[Path] = mirrored(AsyncAgent.visible_workspace_dir)
    state: Mirrored[AgentState] = mirrored(AsyncAgent.state)
    session_id: Mirrored[str | None] = mirrored(AsyncAgent.session_id)
    usage: Mirrored[Usage] = mirrored(AsyncAgent.usage)
    failure: Mirrored[Exception | None] = mirrored(AsyncAgent.failure)
    budget: Mirrored[Budget | None] = mirrored(AsyncAgent.budget)
    is_between_turns: Mirrored[bool] = mirrored(AsyncAgent.is_between_turns)
    is_waiting_for_provider: Mirrored[bool] = mirrored(AsyncAgent.is_waiting_for_provider)
    provider_wait_s: Mirrored[float] = mirrored(AsyncAgent.provider_wait_s)

    def hold_turns(self) -> AbstractContextManager[None]:
        """See :meth:`AsyncAgent.hold_turns`."""
        return self._async.hold_turns()

    def grant_access(self, grant: Grant) -> str:
        """See :meth:`AsyncAgent.grant_access`."""
        return self._ready().grant_access(grant)

    check = synchronous(AsyncAgent.check)
    start = synchronous(AsyncAgent.start)
    send = synchronous(AsyncAgent.send)
    fork = converting(AsyncAgent.fork, lambda branch: make_twin(Agent, branch), returns="Agent")
    stop = synchronous(AsyncAgent.stop)
    kill_now = immediate(AsyncAgent.kill_now)
    set_budget = immediate(AsyncAgent.set_budget)
    wait = synchronous(AsyncAgent.wait)
    events = streaming(AsyncAgent.events, returns="Stream[AgentEvent]")
