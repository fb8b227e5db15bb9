"""The checkpoint or save, and the options, of a run that ``run --resume`` names.

A run is named by its directory, or by ``checkpoint.json`` with the name of its latest checkpoint.
Archives and snapshots name no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.cli.experiment_dirs import refuse_experiment
from clawblox.cli.running.run_agents import (
    find_checkpoint,
    read_run_agent,
    require_turns_left,
)
from clawblox.config.options import StartOptions
from clawblox.errors import ClawbloxError, UsageError
from clawblox.rundir.interrupted import Interruption, read_interruption
from clawblox.rundir.paths import records_journal, resolve_run_dir
from clawblox.rundir.records import InstanceRecord, has_records
from clawblox.rundir.snapshot_files import snapshot_places
from clawblox.team.pointer import CHECKPOINTS_DIR, POINTER_NAME, read_pointer
from clawblox.team.record import RunAgent, read_team
from clawblox.team.resume import TeamResume, find_own_instance, find_record
from clawblox.views.formatting import shorten_path, suggest
from clawblox.world.recorded_worlds import find_forger

_OF_ONE_START: Final = (
    *("command_file", "env", "log_file", "name", "tmux_session"),
    *("record_dir", "reseed", "resume", "run_dir"),
)
"""Options that belong to the start of the old run, or to the state that is restored."""


@attrs.frozen(kw_only=True)
class ResumeSource:
    """The state that a run continues from.

    Attributes:
        path: The archive or snapshot.
        run_dir: The run directory; None if it is not known.
        record: The record of its instance; None if there is none.
        agent: Its agent; None if ``clawblox run`` had none there.
    """

    path: Path
    run_dir: Path | None
    record: InstanceRecord | None
    agent: RunAgent | None

    @property
    def world_options(self) -> Mapping[str, Any]:
        """The options that the world was started with, by the names of ``StartOptions``."""
        if self.record is None:
            return {}
        names = attrs.fields_dict(StartOptions).keys() - set(_OF_ONE_START)
        recorded = {key: value for key, value in self.record.options.items() if key in names}
        return {**recorded, "name": self.record.name}


def find_resume_source(given: str, world_dir: Path) -> ResumeSource | None:
    """Return the state of the run that ``--resume`` names. Blocks.

    Args:
        given: The value of the option.
        world_dir: One of the places of a relative path, as for a snapshot.

    Returns:
        None if it names no run, but perhaps an archive or a snapshot.

    Raises:
        ClawbloxError: Nothing of the run was saved, or the save is gone.
        ConfigError: It is not a path.
        UsageError: It is the directory of an experiment; or a ``checkpoint.json`` whose run another
            user or an agent may have written.
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
    """Return the error of a run of whose agent and world nothing was saved yet."""
    return ClawbloxError(
        f"Nothing of '{shorten_path(run_dir)}' was saved yet: there is no checkpoint of its world "
        "and its agent",
        hint="clawblox run --agent makes the first one when the agent has joined, unless "
        "--checkpoint-every is 0; without one, both start over in another run directory",
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
        if interrupted.save is None:
            raise ClawbloxError(
                f"Nothing of '{shorten_path(run_dir)}' was saved yet: {record.name} has no save",
                hint=f"{suggest('resume', run_dir)} continues as its run began",
            )
        path = interrupted.save.path
    return ResumeSource(path=path, run_dir=run_dir, record=record, agent=agent)


@attrs.frozen(kw_only=True)
class AgentResume:
    """An agent that is brought back with the instance in which it acts.

    Attributes:
        team: The instance, and the checkpoint that both continue from.
        source: The options of the run.
        agent: The agent.
    """

    team: TeamResume
    source: ResumeSource
    agent: RunAgent


def find_agent_resume(run_dir: Path, interruption: Interruption) -> AgentResume | None:
    """Return the agent that is brought back with interrupted instances. Blocks.

    Args:
        run_dir: The run directory, resolved.
        interruption: The interrupted instances.

    Returns:
        None if the run has no agent of ``clawblox run``, or its instance is not resumed.

    Raises:
        ClawbloxError: Nothing of both was saved, or the save is gone; or the agent has had all
            turns that it was allowed.
    """
    instance = find_own_instance(run_dir, interruption)
    if instance is None:
        return None
    source = _find_in_run(run_dir)
    record = read_team(run_dir)
    if source.agent is None or record is None:
        return None
    require_turns_left(run_dir, source.agent)
    options = attrs.evolve(source.agent.options, max_turns=None)
    return AgentResume(
        team=TeamResume.find(run_dir, source.path, instance, interruption, record),
        source=source,
        agent=attrs.evolve(source.agent, options=options),
    )
