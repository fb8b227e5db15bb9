"""The record of the agent of ``clawblox run --agent``, so that the agent can continue.

The file ``.clawblox/agent.json`` has the options of the agent, and whether the latest checkpoint
has all of its work. It has no values of variables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import read_agents
from clawblox.agents.usage import Ledger
from clawblox.checkpoint import read_metadata
from clawblox.cli.options import AgentRunOptions
from clawblox.cli.running.run_dirs import AGENTS_DIR
from clawblox.config.options import take_options
from clawblox.errors import ClawbloxError, ConfigError
from clawblox.experiment.runs.pointer import read_pointer
from clawblox.foreign_values import parse_json
from clawblox.printable import quote_words
from clawblox.rundir.interrupted import Interruption
from clawblox.rundir.paths import state_dir
from clawblox.system.files import make_private_dir, publish_bytes
from clawblox.system.regular_files import read_regular
from clawblox.views.formatting import count_words, shorten_path, suggest

CHECKPOINTS_DIR: Final = "checkpoints"
_FILE: Final = "agent.json"
_SCHEMA_VERSION: Final = 1
_MAX_BYTES: Final = 1 << 20


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
    record = {**attrs.asdict(agent), "options": options, "schema_version": _SCHEMA_VERSION}
    make_private_dir(state_dir(run_dir))
    publish_bytes(state_dir(run_dir) / _FILE, json.dumps(record, indent=2).encode() + b"\n")


def read_run_agent(run_dir: Path) -> RunAgent | None:
    """Return the agent of a run; None if ``clawblox run`` had no agent there. Blocks.

    Raises:
        ClawbloxError: Its record cannot be read.
    """
    path = state_dir(run_dir) / _FILE
    try:
        record = parse_json(read_regular(path, max_bytes=_MAX_BYTES))
        if not isinstance(record, dict) or record.get("schema_version") != _SCHEMA_VERSION:
            raise ValueError("it is of another version of clawblox")
        options = take_options(AgentRunOptions, dict(record["options"]))
        return take_options(RunAgent, {**record, "options": options})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, ConfigError) as error:
        raise ClawbloxError(
            f"The agent of '{shorten_path(run_dir)}' cannot be read from {path}: {error}",
            hint="clawblox run --resume FILE.ckpt --agent … continues without it",
        ) from error


def find_checkpoint(run_dir: Path) -> Path | None:
    """Return the latest checkpoint of a run with an agent; None if none was made. Blocks.

    Raises:
        ClawbloxError: It is gone.
    """
    directory = run_dir / CHECKPOINTS_DIR
    archive = read_pointer(directory)
    if archive is not None and not archive.is_file():
        raise ClawbloxError(
            f"The latest checkpoint of '{shorten_path(run_dir)}' is gone: {shorten_path(archive)}",
            hint=f"put it back, or give an older one from '{shorten_path(directory)}' to"
            " clawblox run --resume",
        )
    return archive


def suggest_agent(interruption: Interruption, run_dir: Path) -> Iterator[str]:
    """Yield the command line that restores the agent of a run, if there is one. Blocks."""
    if read_run_agent(run_dir) is not None:
        yield suggest("resume", run_dir)
        return
    archive, agents = find_checkpoint(run_dir), read_agents(run_dir)
    worlds = {record.world_dir for record in interruption.records}
    if archive is not None and len(agents) == len(worlds) == 1:
        (agent,), (world_dir,) = agents, worlds
        state = read_metadata(archive)["agents"].get(agent.name, {})
        if state.get("session_format") is not None:  # the archive has its conversation
            words = ["clawblox", "run", shorten_path(Path(world_dir)), "--agent", agent.driver]
            words += ["--agent-name", agent.name, "--resume", shorten_path(archive)]
            yield quote_words(words)


def require_turns_left(run_dir: Path, agent: RunAgent) -> None:
    """Refuse an agent that has had all turns that a person allowed it. Blocks.

    Args:
        run_dir: The run directory.
        agent: Its agent.

    Raises:
        ClawbloxError: None is left; the hint names how to allow more.
        AgentError: The record of its usage cannot be read.
    """
    if agent.turn_limit is None:
        return
    used = Ledger.load(find_agent_dir(run_dir, agent.options).usage_file).usage.turns
    if used >= agent.turn_limit:
        words = quote_words(("clawblox", "run", "--resume", shorten_path(run_dir)))
        raise ClawbloxError(
            f"The agent {agent.options.agent_name} has had its {count_words(used, 'turn')}",
            hint=f"to allow it 20 more: {words} --max-turns 20",
        )


def _with_absolute_paths(options: AgentRunOptions) -> AgentRunOptions:
    changes: dict[str, Any] = {}
    if options.prompt.startswith("@"):
        changes["prompt"] = f"@{Path(options.prompt[1:]).absolute()}"
    if options.system_prompt is not None:
        changes["system_prompt"] = str(Path(options.system_prompt).absolute())
    return attrs.evolve(options, **changes)
