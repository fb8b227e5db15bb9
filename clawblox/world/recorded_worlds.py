"""Finds the world that made a recording, if only the caller can have written its record.

A recording is data that may come from anyone, but its world is a program. So a record is used only
if no other user or agent can have placed it, and a world only if no agent can have placed it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from clawblox.agents.status import find_agent_around
from clawblox.errors import UsageError
from clawblox.rundir.experiments import find_experiment_part
from clawblox.rundir.paths import records_journal
from clawblox.rundir.recordings import FoundRecording, find_record
from clawblox.system.regular_files import find_outsider

_HINT: Final = "a world is a program: read it, then give its directory with world_dir="


def find_recorded_world(recording: FoundRecording, run_dir: Path | None) -> Path:
    """Return the directory of the world that made a recording. Blocks.

    Args:
        recording: The recording.
        run_dir: The run directory whose manifests list it; None if none does.

    Returns:
        The directory, absolute.

    Raises:
        ManifestError: A later version of clawblox wrote the records.
        UsageError: The directory is unknown or missing, or another user or an agent may have chosen
            it.
    """
    record = None if run_dir is None else find_record(run_dir, recording)
    if run_dir is None or record is None or not Path(record.world_dir).is_absolute():
        place = "no run directory above it" if run_dir is None else f"no record in {run_dir}"
        raise UsageError(
            f"it is not known which world made {recording.path}: {place} lists it", hint=_HINT
        )
    home, world = Path(os.path.realpath(run_dir)), Path(os.path.realpath(record.world_dir))
    manifest = () if recording.manifest is None else (recording.manifest,)
    believed = (records_journal(home), *manifest, recording.path.parent)
    if (problem := find_forger(home, *believed)) is not None:
        raise UsageError(
            f"it is not known which world made {recording.path}: its record in {run_dir} is not "
            f"trusted, because {problem}",
            hint=_HINT,
        )
    agent, part = find_agent_around(world), find_experiment_part(home)
    results = home if part is None else part.experiment
    if agent is not None or world.is_relative_to(results):
        own = "the run directory" if part is None else "the directory of the experiment"
        place = own if agent is None else f"the files of the agent in {agent}"
        raise UsageError(
            f"the world of {recording.path} must be given: the one that ran, {world}, is in "
            f"{place}, where an agent may have put it",
            hint=_HINT,
        )
    if not world.is_dir():
        raise UsageError(
            f"the world that made {recording.path} is gone: {world} is not a directory",
            hint="if it was moved, give its directory with world_dir=",
        )
    return Path(record.world_dir)


def find_forger(run_dir: Path, *believed: Path) -> str | None:
    """Return how another user or an agent may have written files of a run, or None. Blocks.

    Args:
        run_dir: The run directory, resolved.
        *believed: The files to trust, or their directories. Paths outside of the run directory are
            ignored, because a file in the run directory names them.
    """
    if (agent := find_agent_around(run_dir)) is not None:
        return f"the agent in {agent} can write it"
    places = [Path(os.path.normpath(path)) for path in believed]
    inside = (place.relative_to(run_dir) for place in places if place.is_relative_to(run_dir))
    problems = (find_outsider(run_dir, str(path)) for path in inside)
    return next(filter(None, problems), None)
