"""The agent that acts in the world of ``clawblox run``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import anyio
import attrs

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.drivers import find_driver
from clawblox.agents.events import AgentEventStream
from clawblox.agents.layout import AgentDir
from clawblox.agents.narration import narrate
from clawblox.agents.usage import Budget, read_usage
from clawblox.agents.values import AgentResult, StartedAgent
from clawblox.cli.running.resume_sources import find_checkpoint
from clawblox.cli.terminal.output import note
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentExitedError, ClawbloxError, ConfigError
from clawblox.printable import printable, quote_words
from clawblox.results import SavedCheckpoint, StartedWorld
from clawblox.rundir.paths import SESSION_FILE
from clawblox.team.crew import Crew
from clawblox.team.pointer import CHECKPOINTS_DIR
from clawblox.team.record import AgentRunOptions, RunAgent
from clawblox.views.formatting import (
    count_words,
    format_count,
    format_seconds,
    path_word,
    shorten_path,
)
from clawblox.world.async_world import AsyncWorld

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


class Companion:
    """An agent in a world, with checkpoints of both.

    An async context manager for use inside the block of the world; leaving it stops the agent.

    Args:
        world: The world.
        run_dir: The run directory.
        agent: The agent.
        is_fresh: Whether the world starts over; then the agent must be new as well.

    Attributes:
        crew: The agent in the world while both run.
        resume_words: The command line that continues world and agent, without ``--resume``.

    Raises:
        ConfigError: An option is wrong, or a file cannot be read.
        ClawbloxError: The world starts over, but the agent has joined a world before.
    """

    def __init__(
        self, world: AsyncWorld, run_dir: Path, agent: RunAgent, *, is_fresh: bool
    ) -> None:
        self._run_agent = agent
        try:
            self._record = agent.record(run_dir)
            (options,) = self._record.agents
            self._directory = AgentDir(options.dir)
            if is_fresh:
                _require_new(run_dir, self._directory, options.name)
            self._texts = self._record.read_texts()
            self._agent = AsyncAgent(**attrs.asdict(options, recurse=False))
        except ConfigError as error:
            raise _in_words_of_options(error) from error
        self.crew = Crew(world=world, agents=[self._agent], on_checkpoint=_report_checkpoint)
        self.resume_words: Sequence[str] = ()
        self._turn_words: tuple[str, ...] = ()
        self._stack: AsyncExitStack
        self._has_begun = anyio.Event()
        self._headings: list[str] = []
        self._events: AgentEventStream
        self._result: AgentResult | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.crew)
            self._events = await stack.enter_async_context(self._agent.events())
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def begin(self, started: StartedWorld) -> None:
        """Connect the agent to its world and start or resume the agent.

        Raises:
            ClawbloxError: The agent could not be connected or started.

        Cancellation: no process of the agent is left.
        """
        limited = await run_blocking(self._limit_turns)
        record = attrs.evolve(self._record, command_line=limited)
        (agent,) = await self.crew.start(started, record, self._texts)
        self._headings = [*_describe(agent, limited.options, started.run_dir)]
        self._has_begun.set()

    def _limit_turns(self) -> RunAgent:
        """Apply the new limit of turns, or the limit of the earlier run. Blocks."""
        before = read_usage(self._directory.path).turns
        more = self._run_agent.options.max_turns
        limit = self._run_agent.turn_limit if more is None else before + more
        if limit is not None:
            self._agent.set_budget(attrs.evolve(self._agent.budget or Budget(), turns=limit))
            self._turn_words = ("--max-turns", str(limit - before))
        return attrs.evolve(self._run_agent, turn_limit=limit)

    async def show(self, write_line: Callable[[str], Awaitable[None]]) -> None:
        """Print the actions of the agent until it is closed; a later call continues from there.

        Args:
            write_line: Prints a line.

        Cancellation: a line may be printed in part.
        """
        await self._has_begun.wait()
        # Shows only actions of an agent that can be resumed.
        await self.crew.wait_first_checkpoint()
        while self._headings:  # each heading is shown once, even if this is called again
            await write_line(self._headings.pop(0))
        async for event in self._events:
            for line in narrate(event.kind, event.data):
                await write_line(line.text)

    async def wait(self) -> None:
        """Wait until the agent has ended for good.

        Cancellation: the agent keeps running.
        """
        # The agent continues after each turn, so it never pauses.
        (self._result,) = await self.crew.wait()

    async def stop(self, grace_seconds: float) -> None:
        """Stop the agent and make a final checkpoint; do nothing if it has ended.

        Args:
            grace_seconds: Seconds between TERM and KILL.

        Cancellation: the agent is stopped anyway.
        """
        (result,) = await self.crew.stop(grace_seconds=grace_seconds)
        if result.state != "new":
            note(_describe_end(result))
        if grace_seconds:
            await self.crew.settle()

    def suggest_resume(self) -> str | None:
        """Return a line with the command that continues the run; None if no archive can."""
        driver = find_driver(self._agent.driver)
        if self.crew.latest is None or not driver.archives_conversation:
            return None
        archive = shorten_path(self.crew.latest.path)
        words = [*self.resume_words, *self._turn_words, "--resume", archive]
        return f"with its agent:  {quote_words(words)}"

    def require_success(self) -> None:
        """Raise an error if the agent has failed.

        Raises:
            AgentError: The agent has failed; the message has the reason.
        """
        if self._result is None or self._result.state != "failed":
            return
        if self._agent.failure is not None:
            raise self._agent.failure
        raise AgentExitedError(self._result.reason, agent=self._result.name)


def _require_new(run_dir: Path, directory: AgentDir, name: str) -> None:
    """Refuse an agent that has joined a world before, when the world starts over. Blocks.

    Raises:
        ClawbloxError: The agent has joined before; if it was saved, the hint has the command that
            continues.
    """
    if not (directory.path / SESSION_FILE).exists():
        return
    shown = shorten_path(run_dir)
    if find_checkpoint(run_dir) is None:
        saved, advice = "neither it nor its world was saved yet", "both start over with"
    else:
        words = quote_words(("--resume", shorten_path(run_dir)))
        saved, advice = "this world starts over", f"both continue with {words}; else give"
    raise ClawbloxError(
        f"The agent {name} has acted in '{shown}' before, and {saved}",
        hint=f"{advice} another --run-dir, or another --agent-name",
    )


def _in_words_of_options(error: ConfigError) -> ConfigError:
    """Return an error about the agent's arguments in the words of the command line."""
    argument, *members = (error.key or "").split(".")
    if argument not in _OPTIONS:
        return error
    key = ".".join((_OPTIONS[argument], *members))
    hint = _HINTS["binary"] if argument == "binary" else error.hint or _HINTS.get(argument)
    return error.but(key=key, hint=hint)


def _describe(agent: StartedAgent, options: AgentRunOptions, run_dir: Path) -> Iterator[str]:
    directory = AgentDir(agent.agent_dir)
    place = quote_words([path_word(agent.agent_dir)])
    version = f" {printable(agent.version)}" if agent.version else ""
    yield f"Agent {agent.name} ({options.agent}{version}) is at work"
    yield f"  directory:    {shorten_path(agent.agent_dir)}"
    yield f"  log:          {shorten_path(directory.log_file)}"
    yield f"  events:       {shorten_path(directory.events_file)}"
    if options.checkpoint_every:
        every = format_seconds(options.checkpoint_every)
        yield f"  checkpoints:  {shorten_path(run_dir / CHECKPOINTS_DIR)}, every {every}"
    yield f"  message:      clawblox agent send {place} TEXT"
    yield f"  stop:         clawblox agent stop {place}"
    yield ""


def _describe_end(result: AgentResult) -> str:
    turns = count_words(result.usage.turns, "turn")
    tokens = f"{format_count(result.usage.tokens) or '0'} tokens"
    used = turns if result.usage.is_unreported else f"{turns}, {tokens}"
    return f"Agent {result.name}: {printable(result.reason)} ({used})"


def _report_checkpoint(outcome: SavedCheckpoint | Exception) -> None:
    if isinstance(outcome, Exception):
        note(f"No checkpoint: {printable(str(outcome))}")
    else:
        cut = ", in the middle of a turn" if outcome.mid_turn else ""
        note(f"Checkpoint: {shorten_path(outcome.path)}{cut}")
