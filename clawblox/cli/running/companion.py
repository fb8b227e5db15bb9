"""The agent that acts in the world of ``clawblox run``, from its check to its end."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anyio

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.events import AgentEventStream
from clawblox.agents.layout import AgentDir
from clawblox.agents.narration import narrate
from clawblox.agents.prompts import AUTO_CONTINUE
from clawblox.agents.usage import Budget
from clawblox.agents.values import AgentResult, StartedAgent
from clawblox.cli.options import AgentRunOptions
from clawblox.cli.tables.formatting import (
    count_words,
    format_count,
    format_seconds,
    printable,
    shorten_path,
)
from clawblox.cli.terminal.output import note
from clawblox.concurrency.tasks import Tasks
from clawblox.errors import (
    AgentExitedError,
    ClawbloxError,
    ConfigError,
    UsageError,
    WorldExitedError,
)
from clawblox.experiment import Checkpointer, SavedCheckpoint
from clawblox.results import StartedWorld
from clawblox.world.async_world import AsyncWorld

__all__ = ["Companion"]

_AGENTS_DIR: Final = "agents"
_CHECKPOINTS_DIR: Final = "checkpoints"
_OPTIONS: Final = {
    "agent": "--agent",
    "binary": "--agent-command",
    "command": "--agent-command",
    "name": "--agent-name",
}
_HINTS: Final = {
    "binary": "--agent-command 'gemini --acp', or another program that speaks the protocol",
    "command": """--agent-command '{"start": ["my-agent", "--prompt", "{prompt}"], …}'""",
}
_OPENING: Final = (
    "You act in a world through its HTTP API. Its documentation is at {api}: read it first, "
    "for example with curl."
)


class Companion:
    """One agent in one world, and the checkpoints of both.

    Use it as an async context manager within that of the world; leaving it stops the agent.

    Args:
        world: The world.
        run_dir: The run directory.
        options: What the agent is.
        tmux: tmux session for its window; None opens no window.

    Raises:
        ConfigError: An option is wrong, or a file cannot be read.
    """

    def __init__(
        self, world: AsyncWorld, run_dir: Path, options: AgentRunOptions, tmux: str | None
    ) -> None:
        self._world = world
        self._options = options
        self._directory = run_dir / _AGENTS_DIR / options.agent_name
        self._prompt = _read_prompt(options.prompt)
        self._system_prompt = _read_file(options.system_prompt, "system_prompt")
        try:
            self._agent = AsyncAgent(
                agent=str(options.agent),
                name=options.agent_name,
                dir=self._directory,
                model=options.model,
                tmux=tmux,
                sandbox="strict" if options.strict_sandbox else options.sandbox,
                budget=_make_budget(options),
                command=_parse_command(options.agent_command),
            )
        except ConfigError as error:
            raise _in_words_of_options(error) from error
        self._stack = AsyncExitStack()
        self._saving: anyio.CancelScope
        self._checkpointer: Checkpointer | None = None
        self._begun = anyio.Event()
        self._headings: list[str] = []
        self._events: AgentEventStream
        self._tasks: Tasks
        self._result: AgentResult | None = None

    async def __aenter__(self) -> Self:
        self._saving = anyio.CancelScope()
        await self._stack.enter_async_context(self._agent)
        self._events = await self._stack.enter_async_context(self._agent.events())
        self._tasks = await self._stack.enter_async_context(Tasks())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def check(self) -> None:
        """Check that the agent's program can work, before anything is started.

        Raises:
            AgentSetupError: Something is missing.

        Cancellation: changes nothing.
        """
        await self._agent.check()

    async def begin(self, started: StartedWorld) -> None:
        """Connect the agent to its world, and start it; one from an archive goes on.

        Raises:
            ClawbloxError: It could not be connected or started.

        Cancellation: nothing of the agent is left running.
        """
        access = await self._world.connect(self._agent, instance=started.name)
        if self._options.agent_name in (started.loaded or {}).get("agents", {}):
            agent = await self._agent.send(prompt=AUTO_CONTINUE)
        else:
            opening = _OPENING.format(api=self._world.api_path(access=access))
            agent = await self._agent.start(
                initial_prompt=f"{opening}\n\n{self._prompt}", system_prompt=self._system_prompt
            )
        if self._options.checkpoint_every:
            checkpointer = Checkpointer(
                self._world,
                [self._agent],
                dir=started.run_dir / _CHECKPOINTS_DIR,
                every=self._options.checkpoint_every,
                instance=started.name,
                on_outcome=_tell_of_checkpoint,
            )
            self._checkpointer = checkpointer
            self._tasks.start_soon(self._make_checkpoints, checkpointer)
        self._headings = [*_describe(agent, self._options, started.run_dir)]
        self._begun.set()

    async def _make_checkpoints(self, checkpointer: Checkpointer) -> None:
        with self._saving, contextlib.suppress(UsageError):  # the world was closed meanwhile
            await checkpointer.run()

    async def show(self, write_line: Callable[[str], Awaitable[None]]) -> None:
        """Print what the agent does, until it is closed.

        Args:
            write_line: Prints a line.

        Cancellation: a line may be printed in part.
        """
        await self._begun.wait()
        for heading in self._headings:
            await write_line(heading)
        async for line in self._lines():
            await write_line(line)

    async def _lines(self) -> AsyncIterator[str]:
        async for event in self._events:
            for line in narrate(event.type, event.data):
                yield line.text

    async def wait(self) -> None:
        """Wait until the agent has ended for good.

        Cancellation: the agent goes on.
        """
        await self._begun.wait()
        self._result = await self._agent.wait()  # it is told to go on, and so never pauses

    async def stop(self, grace: float) -> None:
        """Stop the agent; does nothing if it has ended.

        Args:
            grace: Seconds between TERM and KILL.

        Cancellation: it is stopped all the same.
        """
        self._saving.cancel()
        result = await self._agent.stop(grace_seconds=grace)
        if result.state != "new":
            note(_describe_end(result))
        if self._checkpointer is not None and grace:
            await self._save_end(self._checkpointer)

    async def _save_end(self, checkpointer: Checkpointer) -> None:
        """Make a checkpoint of how it ended, unless the world has ended before."""
        try:
            _tell_of_checkpoint(await checkpointer.save())
        except WorldExitedError:
            return
        except ClawbloxError as error:
            _tell_of_checkpoint(error)

    def suggest_resume(self) -> str | None:
        """Return the line that says how to go on; None without a checkpoint."""
        if self._checkpointer is None or self._checkpointer.latest is None:
            return None
        latest, options = self._checkpointer.latest.path, self._options
        words = ["clawblox", "run", shorten_path(self._world.dir)]
        words += ["--resume", shorten_path(latest), "--run-dir", "NEW"]
        words += ["--agent", str(options.agent), "--agent-name", options.agent_name]
        return f"with its agent:  {shlex.join(words)}"

    def kill_now(self) -> None:
        """End the grace of a stop that is under way."""
        self._agent._kill_now()

    def require_success(self) -> None:
        """Refuse the end of an agent that has failed.

        Raises:
            AgentError: Why it has failed.
        """
        if self._result is None or self._result.state != "failed":
            return
        if self._agent.failure is not None:
            raise self._agent.failure
        raise AgentExitedError(self._result.reason, agent=self._result.name)


def _make_budget(options: AgentRunOptions) -> Budget | None:
    limits: dict[str, Any] = {
        "turns": options.max_turns,
        "tokens": options.max_tokens,
        "usd": options.max_usd,
        "minutes": options.max_minutes,
    }
    given = {name: limit for name, limit in limits.items() if limit is not None}
    return Budget(**given) if given else None


def _parse_command(text: str | None) -> Mapping[str, Any] | Sequence[str] | None:
    """Return a command line as its words, a JSON object as the table that it is."""
    if text is None:
        return None
    try:
        return dict(json.loads(text)) if text.lstrip().startswith("{") else shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"it cannot be read: {error}", key="command", value=text) from error


def _in_words_of_options(error: ConfigError) -> ConfigError:
    """Return an error of the agent's arguments as one of the command line's options."""
    argument, *members = (error.key or "").split(".")
    if argument not in _OPTIONS:
        return error
    key = ".".join((_OPTIONS[argument], *members))
    hint = error.hint or _HINTS.get(argument)
    return ConfigError(error.message, key=key, value=error.value, hint=hint)


def _read_prompt(text: str) -> str:
    if not text.startswith("@"):
        return text
    return _read_file(text[1:], "prompt") or ""


def _read_file(name: str | None, key: str) -> str | None:
    if name is None:
        return None
    try:
        return Path(name).read_text()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        message = f"the file cannot be read: {reason}"
        raise ConfigError(message, key=key, value=name) from error


def _describe(agent: StartedAgent, options: AgentRunOptions, run_dir: Path) -> Iterator[str]:
    directory = AgentDir(agent.agent_dir)
    place = shlex.quote(shorten_path(agent.agent_dir))
    version = f" {printable(agent.version)}" if agent.version else ""
    yield f"Agent {agent.name} ({options.agent}{version}) is at work"
    yield f"  directory:    {shorten_path(agent.agent_dir)}"
    yield f"  log:          {shorten_path(directory.log_file)}"
    yield f"  events:       {shorten_path(directory.events_file)}"
    if options.checkpoint_every:
        every = format_seconds(options.checkpoint_every)
        yield f"  checkpoints:  {shorten_path(run_dir / _CHECKPOINTS_DIR)}, every {every}"
    yield f"  to tell it:   clawblox agent send {place} TEXT"
    yield f"  to stop it:   clawblox agent stop {place}"
    yield ""


def _describe_end(result: AgentResult) -> str:
    turns = count_words(result.usage.turns, "turn")
    used = f"{turns}, {format_count(result.usage.tokens) or '0'} tokens"
    return f"Agent {result.name}: {printable(result.reason)} ({used})"


def _tell_of_checkpoint(outcome: SavedCheckpoint | Exception) -> None:
    if isinstance(outcome, Exception):
        note(f"No checkpoint: {printable(str(outcome))}")
    else:
        cut = ", in the middle of a turn" if outcome.mid_turn else ""
        note(f"Checkpoint: {shorten_path(outcome.path)}{cut}")
