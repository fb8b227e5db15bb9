"""Brings the agent of an interrupted ``clawblox run`` back with its world, in its run directory."""

from __future__ import annotations

import os
from pathlib import Path

import attrs

from clawblox.cli.running.resume_sources import ResumeSource, find_resume_source
from clawblox.cli.running.run_agents import (
    RunAgent,
    find_agent_dir,
    require_turns_left,
    write_run_agent,
)
from clawblox.cli.running.run_dirs import AGENTS_DIR
from clawblox.experiment.run_resume import RunResume
from clawblox.rundir.interrupted import Interruption


@attrs.frozen(kw_only=True)
class AgentResume:
    """An agent that is brought back with the instance in which it acts.

    Attributes:
        run: The instance, and the checkpoint that both continue from.
        source: The options of the run.
        agent: The agent.
    """

    run: RunResume
    source: ResumeSource
    agent: RunAgent

    def restore(self) -> Path | None:
        """Replace the agent's directory by that in the checkpoint, if it has changed. Blocks.

        Returns:
            Where the old directory is now; None if it stays.

        Raises:
            ClawbloxError: The checkpoint cannot be loaded.
            OSError: A directory cannot be moved; nothing has changed.
        """
        archive, name = self.run.archive.name, self.agent.options.agent_name
        if self.agent.settled == archive:
            return None
        directory = find_agent_dir(self.run.run_dir, self.agent.options).path
        restored = self.run.restore({name: directory})
        if name not in restored:
            return None
        assert self.source.agent is not None
        write_run_agent(self.run.run_dir, attrs.evolve(self.source.agent, settled=archive))
        return restored[name]


def find_agent_resume(run_dir: Path, found: Interruption) -> AgentResume | None:
    """Return the agent that is brought back with interrupted instances. Blocks.

    Args:
        run_dir: The run directory, resolved.
        found: The interrupted instances.

    Returns:
        None if the run has no agent of ``clawblox run``, or its instance is not resumed.

    Raises:
        ClawbloxError: Nothing of both was saved, or the save is gone; or the agent has had all
            turns that it was allowed.
    """
    own = [
        interrupted.record.name
        for interrupted in found.instances
        if Path(interrupted.record.instance_dir) == run_dir
    ]
    if len(own) != 1 or not (run_dir / AGENTS_DIR).is_dir():
        return None
    source = find_resume_source(os.fspath(run_dir), run_dir)
    if source is None or source.agent is None:
        return None
    require_turns_left(run_dir, source.agent)
    options = attrs.evolve(source.agent.options, max_turns=None)
    return AgentResume(
        run=RunResume.find(run_dir, source.path, own[0], found),
        source=source,
        agent=attrs.evolve(source.agent, options=options),
    )
