"""The cookies of instances that no orchestrator owns: their processes are orphans. It blocks."""

from __future__ import annotations

from pathlib import Path

from clawblox.errors import ManifestError
from clawblox.rundir.records import InstanceRecord, former_run_dir, read_record, read_records
from clawblox.rundir.status import is_owned


def left_instances(run_dir: Path) -> dict[str, str]:
    """Return the cookies of the instances that no orchestrator owns, by name.

    Detached instances that run are left out, and so are those of another run, of which this run
    directory is a copy.

    Args:
        run_dir: The run directory.

    Raises:
        ManifestError: A later version of clawblox wrote a record.
    """
    return {
        record.name: record.cookie
        for record in read_records(run_dir)
        if not (
            is_owned(run_dir, record)
            or (record.is_detached and record.is_alive)
            or _is_copied(run_dir, record)
        )
    }


def _is_copied(run_dir: Path, record: InstanceRecord) -> bool:
    """Return whether the run directory in which an instance ran is still where it was."""
    place = former_run_dir(record)
    try:
        original = read_record(place, record.name)
    except ManifestError:
        return False
    if original is None or original.cookie != record.cookie:
        return False
    return not place.samefile(run_dir)
