"""Resumes a team in its own run directory, from one checkpoint of the world and its agents.

World and agents continue from the same moment. The current directory of an agent is set aside, and
the directory in the checkpoint takes its place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import msgspec

from clawblox.checkpoint import read_metadata
from clawblox.checkpoint.load.load import load
from clawblox.checkpoint.names import SNAPSHOT_NAME
from clawblox.checkpoint.options import LoadOptions
from clawblox.concurrency.progress import Report
from clawblox.errors import ClawbloxError
from clawblox.rundir.interrupted import Interrupted, InterruptedRun
from clawblox.rundir.paths import state_dir
from clawblox.rundir.records import InstanceRecord, read_records
from clawblox.system.clock import utc_now
from clawblox.system.files import make_private_dir
from clawblox.system.scratch import temporary_directory
from clawblox.team.record import TeamRecord

_SET_ASIDE: Final = "set-aside"


def find_own_instance(run_dir: Path, found: InterruptedRun) -> str | None:
    """Return the interrupted instance that is alone in its run directory, where agents can act.

    Args:
        run_dir: The run directory, resolved.
        found: The interrupted instances.

    Returns:
        Its name, or None.
    """
    homes = {one.record.name: Path(one.record.instance_dir) for one in found.instances}
    own = [name for name, home in homes.items() if home == run_dir]
    return own[0] if len(own) == 1 else None


def find_record(run_dir: Path) -> InstanceRecord | None:
    """Return the record of a run's only instance; None if there are several. Blocks."""
    records = read_records(run_dir)
    own = [record for record in records if Path(record.instance_dir) == run_dir] or records
    return own[0] if len(own) == 1 else None


@attrs.frozen(kw_only=True)
class TeamResume:
    """An interrupted instance and its agents, with the checkpoint from which they continue.

    Attributes:
        run_dir: The run directory, resolved.
        archive: The checkpoint.
        instance: Name of the instance.
        found: The interrupted instances; this instance continues from the checkpoint.
        record: The record of the agents.
    """

    run_dir: Path
    archive: Path
    instance: str
    found: InterruptedRun
    record: TeamRecord

    @classmethod
    def find(
        cls, run_dir: Path, archive: Path, instance: str, found: InterruptedRun, record: TeamRecord
    ) -> TeamResume:
        """Prepare to continue an interrupted instance from a checkpoint. Blocks.

        Args:
            run_dir: The run directory, resolved.
            archive: The checkpoint.
            instance: Name of the interrupted instance.
            found: The interrupted instances.
            record: The record of the agents.

        Raises:
            CheckpointError: The archive cannot be read.
            ClawbloxError: The save in the checkpoint is no longer in the run directory.
        """
        digest = read_metadata(archive)["files"][SNAPSHOT_NAME]["sha256"]
        instances = tuple(
            _truncate_saves(other, digest, archive) if other.record.name == instance else other
            for other in found.instances
        )
        found = msgspec.structs.replace(found, instances=instances)
        return cls(run_dir=run_dir, archive=archive, instance=instance, found=found, record=record)

    def restore(self, report: Report | None = None) -> dict[str, Path | None]:
        """Replace the directories of agents by those in the checkpoint, if they have changed.

        A directory is left unchanged if the checkpoint has no conversation of its agent. Blocks.

        Args:
            report: Called with bytes done and bytes in all; None for no calls.

        Returns:
            The new path of each replaced directory, by agent name; None if there was no directory.

        Raises:
            CheckpointError: The checkpoint cannot be loaded.
            OSError: A directory cannot be moved; it is still at its old path.
        """
        if self.record.settled == self.archive.name:
            return {}
        states = read_metadata(self.archive)["agents"]
        places = {agent.name: agent.dir for agent in self.record.agents}
        chosen = [name for name in places if (states.get(name) or {}).get("session_format")]
        if not chosen:
            return {}
        make_private_dir(state_dir(self.run_dir))
        with temporary_directory("loading-", parent=state_dir(self.run_dir)) as scratch:
            options = LoadOptions(path=self.archive, run_dir=scratch, progress=report or False)
            loaded = load(options, final_dir=self.run_dir, is_in_place=True).result["agents"]
            replaced = {name: self._exchange(loaded[name], places[name]) for name in chosen}
        attrs.evolve(self.record, settled=self.archive.name).write(self.run_dir)
        return replaced

    def _exchange(self, loaded: Path, place: Path) -> Path | None:
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


def _truncate_saves(instance: Interrupted, digest: str, archive: Path) -> Interrupted:
    """Return the instance with its saves up to the one with a digest."""
    digests = [save.sha256 for save in instance.saves]
    if digest not in digests:
        raise ClawbloxError(
            f"The save of {instance.record.name} that belongs to {archive.name} is gone",
            hint=f"clawblox run can continue from the save in the archive itself, {archive}",
        )
    saves = instance.saves[: digests.index(digest) + 1]
    return msgspec.structs.replace(instance, saves=saves, reason=None, problem=None)
