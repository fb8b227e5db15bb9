"""The record of a run's agents, by which they can continue.

The file ``.clawblox/agent.json`` has the options of the agents, and whether the latest checkpoint
has all of their work, but no values of variables. Version 1 has one agent with the options of
``clawblox run --agent``; version 2 has any number of agents with the options of Python.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import attrs
import msgspec

from clawblox.agents.layout import AGENTS_DIR
from clawblox.agents.options import AgentOptions
from clawblox.agents.usage import Budget
from clawblox.config.arguments import (
    ANY_SECONDS,
    OPTIONAL_AMOUNT,
    OPTIONAL_COUNT,
    OPTIONAL_SIZE,
    check_read_path,
    checked,
    mismatch,
)
from clawblox.config.options import build_options
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.rundir.paths import state_dir
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.record_file import LaterVersionError, RecordFormat

_FILE: Final = "agent.json"
_FORMAT: Final = RecordFormat(
    kind="the record of an agent", decoder=msgspec.json.Decoder(dict[str, Any]), version=2
)


class Texts(NamedTuple):
    """The texts by which an agent starts a conversation.

    Attributes:
        prompt: First message, which follows the address of its world.
        system_prompt: System prompt; None means the default.
    """

    prompt: str = "Begin"
    system_prompt: str | None = None


def _check_prompt(value: str, key: str) -> None:
    if value in ("", "@"):  # as from an unset shell variable
        raise mismatch(key, "a text, or '@' and a file", value)


@attrs.frozen(kw_only=True)
class AgentRunOptions:
    """An agent that acts in the world of ``clawblox run``.

    Attributes:
        agent: Name of its driver; None runs the world alone.
        agent_name: Its name.
        agent_command: The program of the ``acp`` and ``command`` drivers.
        model: Model to use; None leaves the choice to the program.
        prompt: Its first message, after the address of its world: a text, or ``@`` and a file.
        system_prompt: File with its system prompt; None means the default.
        sandbox: Whether its program runs in a sandbox.
        strict_sandbox: Whether it runs in a sandbox, and weaker levels of sandboxing are refused.
        max_turns: Turns after which it is stopped; None sets no limit.
        max_tokens: Tokens after which it is stopped; None sets no limit.
        max_usd: Cost after which it is stopped, in US dollars; None sets no limit.
        max_minutes: Minutes after which it is stopped; None sets no limit.
        checkpoint_every: Seconds from one checkpoint to the next; 0 makes none.
        min_free: Free disk space below which checkpoints are skipped: bytes, or text with a unit;
            None for no limit.

    Raises:
        ConfigError: A value is wrong; names the option and the value.
    """

    agent: str | None = None
    agent_name: str = "Eko"
    agent_command: str | None = None
    model: str | None = None
    prompt: str = attrs.field(default="Begin", validator=checked(_check_prompt))
    system_prompt: str | None = attrs.field(
        default=None, validator=checked(check_read_path, optional=True)
    )
    sandbox: bool = False
    strict_sandbox: bool = False
    max_turns: int | None = attrs.field(default=None, validator=OPTIONAL_COUNT)
    max_tokens: int | None = attrs.field(default=None, validator=OPTIONAL_COUNT)
    max_usd: float | None = attrs.field(default=None, validator=OPTIONAL_AMOUNT)
    max_minutes: float | None = attrs.field(default=None, validator=OPTIONAL_AMOUNT)
    checkpoint_every: float = attrs.field(default=900.0, validator=ANY_SECONDS)
    min_free: str | None = attrs.field(default=None, validator=OPTIONAL_SIZE)


@attrs.frozen(kw_only=True)
class RunAgent:
    """The agent of ``clawblox run``.

    Attributes:
        options: Its options; paths in them are absolute.
        tmux: tmux session of its window, or None.
        turn_limit: Turns after which it is stopped, over all its starts; None sets no limit.
    """

    options: AgentRunOptions
    tmux: str | None = None
    turn_limit: int | None = None

    def record(self, run_dir: Path, *, settled: str | None = None) -> TeamRecord:
        """Return the record of the run with this agent.

        Args:
            run_dir: The run directory, absolute.
            settled: Name of the checkpoint with all of its work, or None.

        Raises:
            ConfigError: An option is wrong, by the name of an argument of ``AsyncAgent``.
        """
        options = self.options
        agent = AgentOptions(
            agent=str(options.agent),
            name=options.agent_name,
            dir=run_dir / AGENTS_DIR / options.agent_name,
            model=options.model,
            tmux=self.tmux,
            sandbox="strict" if options.strict_sandbox else options.sandbox,
            budget=Budget(
                tokens=options.max_tokens,
                usd=options.max_usd,
                minutes=options.max_minutes,
                turns=self.turn_limit,
            ),
            command=_parse_command(options.agent_command),
        )
        return TeamRecord(
            agents=(agent,),
            checkpoint_every=options.checkpoint_every,
            min_free=options.min_free,
            settled=settled,
            command_line=self,
        )

    def _as_table(self) -> dict[str, Any]:
        options, changes = self.options, {}
        if options.prompt.startswith("@"):
            changes["prompt"] = f"@{Path(options.prompt[1:]).absolute()}"
        if options.system_prompt is not None:
            changes["system_prompt"] = str(Path(options.system_prompt).absolute())
        return {**attrs.asdict(self), "options": {**attrs.asdict(options), **changes}}


@attrs.frozen(kw_only=True)
class TeamRecord:
    """The agents of a run.

    Attributes:
        agents: Their options, in their order.
        texts: The texts by which each starts; empty if ``command_line`` has them.
        checkpoint_every: Seconds from one checkpoint to the next; 0 makes none at an interval.
        min_free: Free disk space below which checkpoints are skipped: bytes, or text with a unit;
            None for no limit.
        settled: Name of the checkpoint with all of their work, once they have ended; else None.
        command_line: The agent with the options of the command line; None for agents from Python.
    """

    agents: tuple[AgentOptions, ...]
    texts: tuple[Texts, ...] = ()
    checkpoint_every: float
    min_free: int | str | None = None
    settled: str | None = None
    command_line: RunAgent | None = None

    def find(self, name: str) -> AgentOptions | None:
        """Return the options of the agent with this name, or None."""
        return next((agent for agent in self.agents if agent.name == name), None)

    def read_texts(self) -> Sequence[Texts]:
        """Return the texts by which each agent starts, reading files if necessary. Blocks.

        Raises:
            ConfigError: A file cannot be read.
        """
        if self.command_line is None:
            return self.texts
        prompt, file = self.command_line.options.prompt, self.command_line.options.system_prompt
        if prompt.startswith("@"):
            prompt = _read_file(prompt[1:], "prompt")
        return (Texts(prompt, None if file is None else _read_file(file, "system_prompt")),)

    def write(self, run_dir: Path) -> None:
        """Replace the record of a run directory. Blocks.

        Raises:
            OSError: The record could not be written; the previous record remains.
        """
        if self.command_line is not None:
            table = {**self.command_line._as_table(), "settled": self.settled, "schema_version": 1}
        else:
            agents = [
                {**attrs.asdict(agent, filter=_is_recorded), **texts._asdict()}
                for agent, texts in zip(self.agents, self.texts, strict=True)
            ]
            table = {**attrs.asdict(self), "agents": agents, "schema_version": 2}
            del table["texts"], table["command_line"]
        make_private_dir(state_dir(run_dir))
        data = json.dumps(table, indent=2, default=str).encode() + b"\n"
        publish_bytes(state_dir(run_dir) / _FILE, data)


def read_team(run_dir: Path) -> TeamRecord | None:
    """Return the record of a run's agents, or None. Blocks.

    Raises:
        ClawbloxError: The record cannot be read.
    """
    path = state_dir(run_dir) / _FILE
    try:
        table = _FORMAT.read(path)
        return None if table is None else _parse(run_dir, table)
    except (ValueError, LookupError, TypeError, AttributeError, ConfigError) as error:
        later = error.hint if isinstance(error, LaterVersionError) else None
        raise ClawbloxError(
            f"The agent of '{run_dir}' cannot be read from {path}: {error}",
            hint=later or "resume a checkpoint file of the run: it needs no record",
        ) from error


def _is_recorded(field: attrs.Attribute[Any], _: object) -> bool:
    return field.name != "dir"  # the run directory may be moved


def _parse(run_dir: Path, table: dict[str, Any]) -> TeamRecord:
    if table.get("schema_version", 1) == 1:
        options = build_options(AgentRunOptions, dict(table["options"]))
        agent = build_options(RunAgent, {**table, "options": options})
        return agent.record(run_dir, settled=table.get("settled"))
    agents = [
        build_options(
            AgentOptions,
            {
                **agent,
                "dir": run_dir / AGENTS_DIR / agent["name"],
                "budget": agent["budget"] and build_options(Budget, agent["budget"]),
            },
        )
        for agent in table["agents"]
    ]
    texts = [Texts(agent["prompt"], agent["system_prompt"]) for agent in table["agents"]]
    return build_options(TeamRecord, {**table, "agents": tuple(agents), "texts": tuple(texts)})


def _parse_command(text: str | None) -> Mapping[str, Any] | Sequence[str] | None:
    """Return the words of a command line, or the table of a JSON object."""
    if text is None:
        return None
    try:
        return dict(json.loads(text)) if text.lstrip().startswith("{") else shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"it cannot be read: {error}", key="command", value=text) from error


def _read_file(name: str, key: str) -> str:
    try:
        return Path(name).read_text()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        message = f"the file cannot be read: {reason}"
        raise ConfigError(message, key=key, value=name) from error
