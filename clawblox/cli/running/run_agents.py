"""How the agent of ``clawblox run --agent`` continues: from which checkpoint, by which command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clawblox.agents.layout import AGENTS_DIR
from clawblox.agents.status import read_agents
from clawblox.agents.usage import read_usage
from clawblox.checkpoint import read_metadata
from clawblox.errors import ClawbloxError
from clawblox.printable import quote_words
from clawblox.rundir.interrupted import Interruption
from clawblox.team.pointer import CHECKPOINTS_DIR, read_pointer
from clawblox.team.record import RunAgent, read_team
from clawblox.views.formatting import count_words, shorten_path, suggest


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
    if (team := read_team(run_dir)) is not None:
        if team.command_line is not None:
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


def read_run_agent(run_dir: Path) -> RunAgent | None:
    """Return the agent of ``clawblox run`` in a run directory; None if it had none. Blocks.

    Raises:
        ClawbloxError: Its record cannot be read; or the agents are those of Python.
    """
    team = read_team(run_dir)
    if team is not None and team.command_line is None:
        names = ", ".join(agent.name for agent in team.agents)
        raise ClawbloxError(
            f"The agents of '{shorten_path(run_dir)}' were started by Python: {names}",
            hint="clawblox.AsyncTeam.resume(RUN_DIR) continues them with their options",
        )
    return None if team is None else team.command_line


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
    name = agent.options.agent_name
    used = read_usage(run_dir / AGENTS_DIR / name).turns
    if used >= agent.turn_limit:
        words = quote_words(("clawblox", "run", "--resume", shorten_path(run_dir)))
        raise ClawbloxError(
            f"The agent {name} has had its {count_words(used, 'turn')}",
            hint=f"to allow it 20 more: {words} --max-turns 20",
        )
