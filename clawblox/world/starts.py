"""The starts of one batch: their records and manifest entries beforehand, and their outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import anyio
import msgspec

from clawblox.concurrency.progress import Advance
from clawblox.concurrency.threads import run_blocking
from clawblox.instance.instance import Instance
from clawblox.instance.launch import Launch
from clawblox.rundir.claims import claimed_names
from clawblox.rundir.find_runs import add_run
from clawblox.rundir.leftovers import close_interrupted, remove_leftovers, settle_unlisted_saves
from clawblox.rundir.manifest import Update
from clawblox.rundir.manifest_updates import (
    instances_update,
    reopened_update,
    restart_update,
    run_update,
)
from clawblox.rundir.manifest_writer import ManifestWriters
from clawblox.rundir.paths import records_dir
from clawblox.rundir.records import read_running, write_records
from clawblox.system.files import make_private_dir
from clawblox.telemetry.own_log import OwnLog
from clawblox.world.handle import InstanceHandle

_log = OwnLog(__name__)


class Leftovers:
    """Clears run directories before instances are started there.

    Args:
        writers: The writers of the manifests.
    """

    def __init__(self, writers: ManifestWriters) -> None:
        self._writers = writers
        self._cleared: set[Path] = set()

    def clear(self, run_dir: Path) -> None:
        """Mark the runs of killed orchestrators as interrupted, and remove their files. Blocks.

        The directory is added to the index of the user's runs.

        Args:
            run_dir: The run directory.

        Raises:
            OSError: A record cannot be written.
            ManifestError: A manifest cannot be written.
        """
        self.close_runs(run_dir)
        if run_dir not in self._cleared:
            self._cleared.add(run_dir)
            remove_leftovers(run_dir)
            settle_unlisted_saves(run_dir)
            add_run(run_dir)

    def close_runs(self, run_dir: Path, *, without: Collection[str] = ()) -> None:
        """Mark the runs of killed orchestrators as interrupted; see :meth:`clear`. Blocks.

        Args:
            run_dir: The run directory.
            without: Names of instances whose runs continue.
        """
        for directory in close_interrupted(run_dir, without=without):
            self._writers.apply(directory, run_update(status="interrupted"))


class Starts:
    """Counts the finished starts of a batch.

    Args:
        count: Number of starts in the batch.
        stop_all: Whether the first failure aborts the batch.
        advance: Called for each finished start.

    Attributes:
        is_decided: Set when every start has finished, or the batch is aborted.
        failed: Names of the instances that failed, in the order of the failures.
    """

    def __init__(self, count: int, *, stop_all: bool, advance: Advance) -> None:
        self.is_decided = anyio.Event()
        self.failed: list[str] = []
        self._left = count
        self._noted: set[InstanceHandle] = set()
        self._stop_all = stop_all
        self._advance = advance
        if not count:
            self.is_decided.set()

    def note(self, instance: InstanceHandle) -> None:
        """Count a start that succeeded or failed; a later failure is only noted."""
        is_new = instance not in self._noted
        self._noted.add(instance)
        try:
            self._left -= is_new
            has_failed = instance.started is None
            if has_failed and instance.name not in self.failed:
                self.failed.append(instance.name)
            if is_new:
                self._advance(has_failed)
        finally:
            if not self._left or self.is_aborted:
                self.is_decided.set()

    @property
    def is_aborted(self) -> bool:
        """True if a failure has aborted the batch."""
        return self._stop_all and bool(self.failed)


@asynccontextmanager
async def planned(run_dir: Path, instances: Sequence[Instance]) -> AsyncIterator[None]:
    """Record that the starts of instances are planned, so that a resume finds them.

    If another process holds the name of an instance, its record stays unchanged; the start will
    fail.

    Args:
        run_dir: The run directory of the instances.
        instances: The instances, which are started after the block.

    Cancellation: as after an exception in the block, the starts are not planned; a resume can start
    the instances.
    """
    try:
        await run_blocking(_note_planned, run_dir, instances)
        yield
    except BaseException:
        with anyio.CancelScope(shield=True):
            await run_blocking(_withdraw, instances)
        raise


def _note_planned(run_dir: Path, instances: Iterable[Instance]) -> None:
    held = claimed_names(run_dir) | {record.name for record in read_running(run_dir)}
    free = [instance for instance in instances if instance.name not in held]
    try:
        make_private_dir(records_dir(run_dir))
        write_records(run_dir, *(instance.make_record("planned") for instance in free))
    except OSError as error:
        _log.warning("planned starts not recorded", error=str(error))
        return
    for instance in free:
        instance.is_planned = True


def _withdraw(instances: Iterable[Instance]) -> None:
    try:
        for instance in instances:
            if instance.is_planned:
                instance.write_record("interrupted")
    except OSError as error:
        _log.warning("planned starts not withdrawn", error=str(error))


def forked_snapshots(launches: Iterable[Launch]) -> set[Path]:
    """Return the snapshots that new runs start from, without those of restarts."""
    return {
        launch.resume_path
        for launch in launches
        if launch.past is None and launch.resume_path is not None
    }


def list_members(launches: Mapping[str, Launch]) -> Update:
    """Return the entries of a run directory's manifest for instances with their own manifests."""
    members = {name: launch for name, launch in launches.items() if launch.index is not None}
    return instances_update(
        {name: launch.instance_dir for name, launch in members.items()},
        {name: launch.options.labels for name, launch in members.items()},
    )


def lone_update(launch: Launch) -> Update:
    """Return the manifest update for the start of a lone instance; its caller labels the run.

    Even an empty update creates the manifest. The seed and the script errors of an earlier start
    are removed.
    """
    lineage = {} if launch.archive is None else launch.lineage
    update = run_update(labels=launch.options.labels, **lineage)
    own = {"seed": launch.options.reseed, "script_errors": None}
    return msgspec.structs.replace(update, run={**update.run, **own})


def continued_update(launch: Launch) -> Update:
    """Return the manifest update for the start of an instance that continues its run."""
    past = launch.past
    assert past is not None, "it has a run"
    run = reopened_update()
    if not past.is_labelled:
        run = begun_update(launch.begun, past.run_id, past.started_at)
    if not past.number:
        return run
    restart = restart_update(
        number=past.number,
        at=past.at,
        exit=past.exit,
        resume_from=launch.resume_path,
        parent_sha256=launch.parent_sha256,
        run_id=past.run_id,
        by=past.by,
        seed=launch.options.reseed,
    )
    return msgspec.structs.replace(restart, run={**run.run, **restart.run})


def begun_update(launch: Launch, run_id: str, begun_at: datetime | str) -> Update:
    """Return the manifest update for the start of an instance with a new run.

    Args:
        launch: The start.
        run_id: Id of the run.
        begun_at: Start of the run.
    """
    return run_update(
        id=run_id,
        index=launch.index,
        status="running",
        started_at=begun_at,
        labels=launch.options.labels,
        seed=launch.options.reseed,
        **launch.lineage,
    )
