"""The agent of ``clawblox run --agent``: its options, and its record, by which it can continue.

The file ``.clawblox/agent.json`` has the options of the agent, and whether the latest checkpoint
has all of its work. It has no values of variables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

from clawblox.agents.layout import AGENTS_DIR, AgentDir
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
    kind="the record of an agent", decoder=msgspec.json.Decoder(dict[str, Any])
)


def _check_prompt(value: str, key: str) -> None:
    if value in ("", "@"):  # as from a shell variable that is not set
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
        strict_sandbox: Whether it runs in a sandbox, and a weaker level of that is refused.
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
    """The agent of a run.

    Attributes:
        options: Its options; paths in them are absolute.
        tmux: tmux session of its window; None for none.
        turn_limit: Turns after which it is stopped, over all its starts; None sets no limit.
        settled: Name of the checkpoint with all of its work, once it has ended; else None.
    """

    options: AgentRunOptions
    tmux: str | None = None
    turn_limit: int | None = None
    settled: str | None = None


def find_agent_dir(run_dir: Path, options: AgentRunOptions) -> AgentDir:
    """Return the directory of the agent of a run."""
    return AgentDir(run_dir / AGENTS_DIR / options.agent_name)


def write_run_agent(run_dir: Path, agent: RunAgent) -> None:
    """Record the agent of a run, in place of the previous record. Blocks.

    Raises:
        OSError: The record could not be written; the previous record remains.
    """
    options = attrs.asdict(_with_absolute_paths(agent.options))
    record = {**attrs.asdict(agent), "options": options, "schema_version": 1}
    make_private_dir(state_dir(run_dir))
    publish_bytes(state_dir(run_dir) / _FILE, json.dumps(record, indent=2).encode() + b"\n")


def read_run_agent(run_dir: Path) -> RunAgent | None:
    """Return the agent of a run; None if ``clawblox run`` had no agent there. Blocks.

    Raises:
        ClawbloxError: Its record cannot be read.
    """
    path = state_dir(run_dir) / _FILE
    try:
        if (record := _FORMAT.read(path)) is None:
            return None
        options = build_options(AgentRunOptions, dict(record["options"]))
        return build_options(RunAgent, {**record, "options": options})
    except (ValueError, LookupError, TypeError, ConfigError) as error:
        later = error.hint if isinstance(error, LaterVersionError) else None
        raise ClawbloxError(
            f"The agent of '{run_dir}' cannot be read from {path}: {error}",
            hint=later or "resume a checkpoint file of the run: it needs no record",
        ) from error


def _with_absolute_paths(options: AgentRunOptions) -> AgentRunOptions:
    changes: dict[str, Any] = {}
    if options.prompt.startswith("@"):
        changes["prompt"] = f"@{Path(options.prompt[1:]).absolute()}"
    if options.system_prompt is not None:
        changes["system_prompt"] = str(Path(options.system_prompt).absolute())
    return attrs.evolve(options, **changes)
