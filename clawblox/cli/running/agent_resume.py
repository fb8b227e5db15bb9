"""Brings the agent of an interrupted ``clawblox run`` back beside its world, in its run directory.

World and agent continue from one moment: that of the latest checkpoint. Where the agent did more
after it, its directory is set aside, and the one of the checkpoint takes its place.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import attrs

from clawblox.agents.layout import AgentDir
from clawblox.checkpoint import load_checkpoint, read_metadata
from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.cli.running.resume_sources import ResumeSource, find_resume_source
from clawblox.cli.running.run_agents import (
    AGENTS_DIR,
    RunAgent,
    find_agent_dir,
    holds_conversation,
    require_turns_left,
    write_run_agent,
)
from clawblox.errors import ClawbloxError
from clawblox.rundir.interrupted import Interrupted, Interruption
from clawblox.rundir.paths import state_dir
from clawblox.system.clock import utc_now
from clawblox.system.files import make_private_dir
from clawblox.views.formatting import shorten_path

_SET_ASIDE: Final = "set-aside"


@attrs.frozen(kw_only=True)
class AgentResume:
    """An agent that comes back with the instance in which it acts.

    Attributes:
        run_dir: The run directory, resolved.
        source: What both continue from.
        agent: The agent.
        found: The instances that continue; that of the agent from the checkpoint.
        name: Name of its instance.
    """

    run_dir: Path
    source: ResumeSource
    agent: RunAgent
    found: Interruption
    name: str

    @property
    def directory(self) -> AgentDir:
        """The agent's directory."""
        return find_agent_dir(self.run_dir, self.agent.options)

    def restore(self) -> Path | None:
        """Have the agent's directory as the checkpoint has it. Blocks.

        Of an agent whose conversation no archive holds, the directory stays as it is.

        Returns:
            Where the directory was put that it had; None if it stays.

        Raises:
            ClawbloxError: The checkpoint cannot be loaded.
            OSError: A directory cannot be moved; nothing has changed.
        """
        archive, name = self.source.path, self.agent.options.agent_name
        if self.agent.settled == archive.name or not holds_conversation(archive, name):
            return None
        make_private_dir(state_dir(self.run_dir))
        scratch = Path(tempfile.mkdtemp(prefix="loading-", dir=state_dir(self.run_dir)))
        try:
            loaded = load_checkpoint(archive, scratch)["agents"][name]
            aside = self._exchange(loaded)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        assert self.source.agent is not None
        write_run_agent(self.run_dir, attrs.evolve(self.source.agent, settled=archive.name))
        return aside

    def _exchange(self, loaded: Path) -> Path | None:
        place = self.directory.path
        if not place.exists():
            make_private_dir(place.parent)
            loaded.rename(place)
            return None
        home = state_dir(self.run_dir) / _SET_ASIDE
        make_private_dir(home)
        aside = home / f"{place.name}-{utc_now():%Y%m%dT%H%M%S%fZ}"
        place.rename(aside)
        try:
            loaded.rename(place)
        except OSError:
            aside.rename(place)
            raise
        return aside


def find_agent_resume(run_dir: Path, found: Interruption) -> AgentResume | None:
    """Return the agent that comes back with the instances that continue. Blocks.

    Args:
        run_dir: The run directory, resolved.
        found: The instances that continue.

    Returns:
        None if the run has no agent of ``clawblox run``, or its instance does not continue.

    Raises:
        ClawbloxError: Nothing of both was saved, or what was saved is gone; or the agent has had
            all turns that it was allowed.
    """
    own = [one for one in found.instances if Path(one.record.instance_dir) == run_dir]
    if len(own) != 1 or not (run_dir / AGENTS_DIR).is_dir():
        return None
    source = find_resume_source(os.fspath(run_dir), run_dir)
    if source is None or source.agent is None:
        return None
    require_turns_left(run_dir, source.agent)
    (instance,) = own
    return AgentResume(
        run_dir=run_dir,
        source=source,
        agent=attrs.evolve(
            source.agent, options=attrs.evolve(source.agent.options, max_turns=None)
        ),
        found=attrs.evolve(
            found,
            instances=tuple(
                _from_checkpoint(one, source.path) if one is instance else one
                for one in found.instances
            ),
        ),
        name=instance.record.name,
    )


def _from_checkpoint(instance: Interrupted, archive: Path) -> Interrupted:
    """Have an instance continue from the save that a checkpoint holds."""
    digest = read_metadata(archive)["files"][SNAPSHOT_NAME]["sha256"]
    digests = [save.sha256 for save in instance.saves]
    if digest not in digests:
        raise ClawbloxError(
            f"The save of {instance.record.name} that belongs to {shorten_path(archive)} is gone",
            hint=f"clawblox run --resume {shorten_path(archive)} with --agent and its options "
            "continues from the one in it",
        )
    return attrs.evolve(
        instance, saves=instance.saves[: digests.index(digest) + 1], reason=None, problem=None
    )
