"""The state from which a run and its agent continue, and their earlier options.

``run --resume`` names a run by its directory, or by ``checkpoint.json`` with the name of its latest
checkpoint. Archives and snapshots name no run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.agents.layout import AGENTS_DIR
from clawblox.agents.status import read_agents
from clawblox.agents.usage import read_usage
from clawblox.checkpoint import read_metadata
from clawblox.cli.experiment_dirs import refuse_experiment
from clawblox.config.options import StartOptions
from clawblox.errors import ClawbloxError, UsageError
from clawblox.printable import quote_words
from clawblox.rundir.interrupted import InterruptedRun, read_interruption
from clawblox.rundir.paths import records_journal, resolve_run_dir
from clawblox.rundir.records import InstanceRecord, has_records
from clawblox.rundir.snapshot_files import snapshot_places
from clawblox.team.pointer import CHECKPOINTS_DIR, POINTER_NAME, read_pointer
from clawblox.team.record import RunAgent, read_team
from clawblox.team.resume import TeamResume, find_own_instance, find_record
from clawblox.views.formatting import count_words, shorten_path, suggest
from clawblox.world.recorded_worlds import find_forger

_OF_ONE_START: Final = (
    *("command_file", "env", "log_file", "name", "tmux_session"),
    *("record_dir", "reseed", "resume", "run_dir"),
)
"""Options of the earlier start that a resumed run does not inherit."""


@attrs.frozen(kw_only=True)
class ResumeSource:
    """The state that a run continues from.

    Attributes:
        path: The archive or snapshot.
        run_dir: The run directory; None if it is unknown.
        record: The record of the run's instance; None if there is none.
        agent: The run's agent; None if the run had no agent of ``clawblox run``.
    """

    path: Path
    run_dir: Path | None
    record: InstanceRecord | None
    agent: RunAgent | None


def world_options(record: InstanceRecord | None) -> Mapping[str, Any]:
    """Return the recorded options of a world's start, by name; empty without a record."""
    if record is None:
        return {}
    names = attrs.fields_dict(StartOptions).keys() - set(_OF_ONE_START)
    recorded = {key: value for key, value in record.options.items() if key in names}
    return {**recorded, "name": record.name}


def find_resume_source(given: str, world_dir: Path) -> ResumeSource | None:
    """Return the state of the run that ``--resume`` names. Blocks.

    Args:
        given: The value of the option.
        world_dir: The world directory; like the path of a snapshot, a relative path may start here.

    Returns:
        The state; None if the option does not name a run, but perhaps an archive or a snapshot.

    Raises:
        ClawbloxError: The run has no save, or the save is gone.
        ConfigError: The value is not a path.
        UsageError: The path is the directory of an experiment; or a ``checkpoint.json`` whose run
            another user or an agent may have written.
    """
    places = snapshot_places(given, world_dir, "resume")
    for place in places:
        if place.is_dir():
            refuse_experiment(place)
            return _find_in_run(resolve_run_dir(place))
        if place.name == POINTER_NAME and place.is_file() and read_pointer(place.parent):
            return _find_by_pointer(place)
    if all(place.name == POINTER_NAME and not place.exists() for place in places):
        raise _nothing_saved(places[-1].parent.parent)
    return None


def _nothing_saved(run_dir: Path) -> ClawbloxError:
    """Return the error for a run that has saved neither its agent nor its world yet."""
    return ClawbloxError(
        f"Nothing in '{shorten_path(run_dir)}' was saved yet: there is no checkpoint of its world "
        "and its agent",
        hint="clawblox run --agent makes the first one when the agent has joined, unless "
        "--checkpoint-every is 0; without a checkpoint, both start over in another run directory",
    )


def _find_by_pointer(pointer: Path) -> ResumeSource:
    archive = read_pointer(pointer.parent)
    assert archive is not None
    if not archive.is_file():
        raise ClawbloxError(
            f"The checkpoint that '{shorten_path(pointer)}' names is gone: {shorten_path(archive)}"
        )
    if pointer.parent.name != CHECKPOINTS_DIR:
        return ResumeSource(path=archive, run_dir=None, record=None, agent=None)
    run_dir = resolve_run_dir(pointer.parent.parent)
    if not has_records(run_dir):
        return ResumeSource(path=archive, run_dir=run_dir, record=None, agent=None)
    problem = find_forger(
        run_dir, records_journal(run_dir), run_dir / CHECKPOINTS_DIR / POINTER_NAME
    )
    if problem is not None:
        raise UsageError(
            f"--resume: the run of '{shorten_path(pointer)}' names a world and an agent to start, "
            f"but {problem}",
            hint=f"if the run is yours, name it: --resume {shorten_path(run_dir)}",
        )
    record, agent = find_record(run_dir), read_run_agent(run_dir)
    return ResumeSource(path=archive, run_dir=run_dir, record=record, agent=agent)


def _find_in_run(run_dir: Path) -> ResumeSource:
    agent, record, path = read_run_agent(run_dir), find_record(run_dir), find_checkpoint(run_dir)
    if path is None and agent is not None:
        raise _nothing_saved(run_dir)
    if path is None and record is None:
        raise ClawbloxError(
            f"--resume: must be a run with one instance, an archive or a snapshot, not "
            f"'{shorten_path(run_dir)}'",
            hint=f"several instances continue with {suggest('resume', run_dir)}",
        )
    if path is None:
        assert record is not None
        (interrupted,) = read_interruption([record], {}).instances
        if interrupted.last_save is None:
            raise ClawbloxError(
                f"Nothing in '{shorten_path(run_dir)}' was saved yet: {record.name} has no save",
                hint=f"{suggest('resume', run_dir)} starts it from the start of its run",
            )
        path = interrupted.last_save.path
    return ResumeSource(path=path, run_dir=run_dir, record=record, agent=agent)


def find_checkpoint(run_dir: Path) -> Path | None:
    """Return the latest checkpoint of a run with an agent; None if none was made. Blocks.

    Raises:
        ClawbloxError: The recorded checkpoint no longer exists.
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


# -- the agent -----------------------------------------------------------------------------------


def read_run_agent(run_dir: Path) -> RunAgent | None:
    """Return the agent of ``clawblox run`` in a run directory; None if it had none. Blocks.

    Raises:
        ClawbloxError: The agent's record cannot be read; or a Python program started the agents.
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
    """Refuse an agent that has used all its allowed turns. Blocks.

    Args:
        run_dir: The run directory.
        agent: Its agent.

    Raises:
        ClawbloxError: No turn is left; the hint has the way to allow more.
        AgentError: The record of the agent's usage cannot be read.
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


def find_team_resume(run_dir: Path, interruption: InterruptedRun) -> TeamResume | None:
    """Return the agent to restore with its instance, and the checkpoint of both. Blocks.

    Args:
        run_dir: The run directory, resolved.
        interruption: The interrupted instances.

    Returns:
        The agent and the checkpoint; None if the run has no agent of ``clawblox run``, or its
        instance is not resumed.

    Raises:
        ClawbloxError: Neither was saved, or the save is gone; or the agent has used all its allowed
            turns.
    """
    instance = find_own_instance(run_dir, interruption)
    if instance is None:
        return None
    source, record = _find_in_run(run_dir), read_team(run_dir)
    if source.agent is None or record is None:
        return None
    require_turns_left(run_dir, source.agent)
    return TeamResume.find(run_dir, source.path, instance, interruption, record)


def suggest_agent(interruption: InterruptedRun, run_dir: Path) -> Iterator[str]:
    """Yield the command line that restores the agent of a run, if possible. Blocks."""
    if (team := read_team(run_dir)) is not None:
        if team.command_line is not None:
            yield suggest("resume", run_dir)
        return
    archive, agents = find_checkpoint(run_dir), read_agents(run_dir)
    worlds = {record.world_dir for record in interruption.records}
    if archive is not None and len(agents) == len(worlds) == 1:
        (agent,), (world_dir,) = agents, worlds
        state = read_metadata(archive)["agents"].get(agent.name, {})
        if state.get("session_format") is not None:  # the archive contains the agent's conversation
            words = ["clawblox", "run", shorten_path(Path(world_dir)), "--agent", agent.driver]
            words += ["--agent-name", agent.name, "--resume", shorten_path(archive)]
            yield quote_words(words)
