"""The agent that acts in the world of ``clawblox run``, from its check to its end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self

import anyio
import attrs

from clawblox.agents.async_agent import AsyncAgent
from clawblox.agents.events import AgentEventStream
from clawblox.agents.layout import AgentDir
from clawblox.agents.narration import narrate
from clawblox.agents.usage import Budget, Ledger
from clawblox.agents.values import AgentResult, StartedAgent
from clawblox.cli.running.run_agents import CHECKPOINTS_DIR, find_checkpoint
from clawblox.cli.terminal.output import note
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import AgentExitedError, ClawbloxError, ConfigError
from clawblox.printable import printable, quote_words
from clawblox.results import SavedCheckpoint, StartedWorld
from clawblox.rundir.paths import resolve_run_dir
from clawblox.team.live_run import LiveRun
from clawblox.team.record import (
    AgentRunOptions,
    RunAgent,
    find_agent_dir,
    write_run_agent,
)
from clawblox.views.formatting import (
    count_words,
    format_count,
    format_seconds,
    path_word,
    shorten_path,
)
from clawblox.world.access import SESSION_FILE
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
_OPENING: Final = (
    "You act in a world through its HTTP API. Its documentation is at {api}: read it first, "
    "for example with curl."
)


class Companion:
    """An agent in a world, and the checkpoints of both.

    Use it as an async context manager inside the block of the world; leaving it stops the agent.

    Args:
        world: The world.
        run_dir: The run directory.
        agent: The agent.
        is_fresh: Whether the world starts over, so that the agent must be new as well.

    Attributes:
        live: The agent in the world while both run.
        resume_words: The command line that continues world and agent, without ``--resume``.

    Raises:
        ConfigError: An option is wrong, or a file cannot be read.
        ClawbloxError: The world starts over, and the agent has joined it before.
    """

    def __init__(
        self, world: AsyncWorld, run_dir: Path, agent: RunAgent, *, is_fresh: bool
    ) -> None:
        self._world = world
        self._run_dir = resolve_run_dir(run_dir)
        self._run_agent = agent
        self._options = options = agent.options
        self._directory = find_agent_dir(run_dir, options)
        if is_fresh:
            _require_new(run_dir, self._directory, options)
        self.resume_words: Sequence[str] = ()
        prompt, system = options.prompt, options.system_prompt
        self._prompt = _read_file(prompt[1:], "prompt") if prompt.startswith("@") else prompt
        self._system_prompt = None if system is None else _read_file(system, "system_prompt")
        try:
            self._agent = AsyncAgent(
                agent=str(options.agent),
                name=options.agent_name,
                dir=self._directory.path,
                model=options.model,
                tmux=agent.tmux,
                sandbox="strict" if options.strict_sandbox else options.sandbox,
                budget=Budget(
                    tokens=options.max_tokens, usd=options.max_usd, minutes=options.max_minutes
                ),
                command=_parse_command(options.agent_command),
            )
        except ConfigError as error:
            raise _in_words_of_options(error) from error
        self.live = LiveRun(world, [self._agent], on_checkpoint=_report_checkpoint)
        self._turn_words: tuple[str, ...] = ()
        self._stack = AsyncExitStack()
        self._has_begun = anyio.Event()
        self._headings: list[str] = []
        self._events: AgentEventStream
        self._result: AgentResult | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.live)
        self._events = await self._stack.enter_async_context(self._agent.events())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def begin(self, started: StartedWorld) -> None:
        """Connect the agent to its world, and start it; an agent from an archive continues.

        Raises:
            ClawbloxError: It could not be connected or started.

        Cancellation: nothing of the agent is left running.
        """
        await self._limit_turns()
        access = await self.live.connect(self._agent, started)
        await run_blocking(write_run_agent, self._run_dir, self._run_agent)
        opening = _OPENING.format(api=self._world.api_path(access=access))
        agent = await self.live.begin(
            self._agent,
            initial_prompt=f"{opening}\n\n{self._prompt}",
            system_prompt=self._system_prompt,
        )
        self._headings = [*_describe(agent, self._options, started.run_dir)]
        if self._options.checkpoint_every:
            self.live.start_checkpoints(
                started,
                dir=started.run_dir / CHECKPOINTS_DIR,
                every=self._options.checkpoint_every,
                min_free=self._options.min_free,
            )
        self._has_begun.set()

    async def _limit_turns(self) -> None:
        """Set the limit of turns that a person allows from now on, or allowed before."""
        ledger = await run_blocking(Ledger.load, self._directory.usage_file)
        before, more = ledger.usage.turns, self._options.max_turns
        limit = self._run_agent.turn_limit if more is None else before + more
        self._run_agent = attrs.evolve(self._run_agent, turn_limit=limit, settled=None)
        if limit is not None:
            budget = attrs.evolve(self._agent.budget or Budget(), turns=limit)
            self._agent.set_budget(budget)
            self._turn_words = ("--max-turns", str(limit - before))

    async def show(self, write_line: Callable[[str], Awaitable[None]]) -> None:
        """Print the actions of the agent until it is closed; another call prints the later ones.

        Args:
            write_line: Prints a line.

        Cancellation: a line may be printed in part.
        """
        await self._has_begun.wait()
        await self.live.wait_first_checkpoint()  # a resume can return to everything that is shown
        while self._headings:  # each is shown once, however often this is called
            await write_line(self._headings.pop(0))
        async for event in self._events:
            for line in narrate(event.kind, event.data):
                await write_line(line.text)

    async def wait(self) -> None:
        """Wait until the agent has ended for good.

        Cancellation: the agent keeps running.
        """
        (self._result,) = await self.live.wait()  # it continues after each turn, so never pauses

    async def stop(self, grace_seconds: float) -> None:
        """Stop the agent and make a checkpoint of its end; does nothing if it has ended.

        Args:
            grace_seconds: Seconds between TERM and KILL.

        Cancellation: it is stopped all the same.
        """
        (result,) = await self.live.stop(grace_seconds=grace_seconds)
        if result.state != "new":
            note(_describe_end(result))
        if not grace_seconds or (saved := await self.live.save_end()) is None:
            return
        settled = attrs.evolve(self._run_agent, settled=saved.path.name)
        try:
            await run_blocking(write_run_agent, self._run_dir, settled)
        except OSError as error:
            _report_checkpoint(error)

    def suggest_resume(self) -> str | None:
        """Return the line with the command that continues; None without a checkpoint."""
        if self.live.latest is None:
            return None
        archive = shorten_path(self.live.latest.path)
        words = [*self.resume_words, *self._turn_words, "--resume", archive]
        return f"with its agent:  {quote_words(words)}"

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


def _require_new(run_dir: Path, directory: AgentDir, options: AgentRunOptions) -> None:
    """Refuse an agent that has joined a world before, where its world starts over. Blocks.

    Raises:
        ClawbloxError: It has; the hint names how to continue with it, if it was saved.
    """
    if not (directory.path / SESSION_FILE).exists():
        return
    shown = shorten_path(run_dir)
    if find_checkpoint(run_dir) is None:
        saved, advice = "nothing of it and its world was saved yet", "both start over with"
    else:
        words = quote_words(("--resume", shorten_path(run_dir)))
        saved, advice = "this world starts over", f"both continue with {words}; else give"
    raise ClawbloxError(
        f"The agent {options.agent_name} has acted in '{shown}' before, and {saved}",
        hint=f"{advice} another --run-dir, or another --agent-name",
    )


def _parse_command(text: str | None) -> Mapping[str, Any] | Sequence[str] | None:
    """Return the words of a command line, or the table of a JSON object."""
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
    hint = _HINTS["binary"] if argument == "binary" else error.hint or _HINTS.get(argument)
    return error.but(key=key, hint=hint)


def _read_file(name: str, key: str) -> str:
    try:
        return Path(name).read_text()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        message = f"the file cannot be read: {reason}"
        raise ConfigError(message, key=key, value=name) from error


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
    yield f"  to tell it:   clawblox agent send {place} TEXT"
    yield f"  to stop it:   clawblox agent stop {place}"
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
