"""Run directories that were moved: where the files of their records are now.

Records hold absolute paths. Where an instance's directory is not in the run directory that has its
record, the paths of the record below the old run directory are below the new one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import attrs

from clawblox.errors import UsageError
from clawblox.rundir.paths import STATE_DIR_NAME
from clawblox.rundir.records import InstanceRecord, read_records, replace_record

_MEMBERS: Final = "worlds"
_PATHS: Final = ("instance_dir", "command_file", "log_file", "resume_path", "first_resume_path")


def relocated(run_dir: Path, record: InstanceRecord) -> InstanceRecord:
    """Return a record with its paths in the run directory that it lies in. Blocks.

    Args:
        run_dir: The run directory, resolved.
        record: A record of it.

    Raises:
        UsageError: The run directory was moved without the directory of this instance.
    """
    home = Path(record.instance_dir)
    if home.is_relative_to(run_dir):
        return record
    former = _former_run_dir(record, home)
    if not (run_dir / home.relative_to(former)).is_dir():
        raise UsageError(
            f"{run_dir} was moved: instance {record.name!r} ran in {home}",
            hint="move that directory too, or fork from the snapshots in it",
        )

    def moved(path: object) -> Any:  # noqa: ANN401 - an option may be of any type
        if not isinstance(path, str) or not Path(path).is_relative_to(former):
            return path
        return str(run_dir / Path(path).relative_to(former))

    paths = {name: moved(getattr(record, name)) for name in _PATHS}
    if not Path(record.world_dir).is_dir():
        paths["world_dir"] = moved(record.world_dir)
    options = {name: moved(value) for name, value in record.options.items()}
    return attrs.evolve(record, **paths, options=options)


def adopt_moved(run_dir: Path) -> None:
    """Write the records of a moved run directory with their new paths. Blocks.

    Call it where no orchestrator of the run lives.

    Args:
        run_dir: The run directory, resolved.

    Raises:
        UsageError: The run directory was moved without the directory of one of its instances.
        OSError: A record cannot be written.
    """
    for record in read_records(run_dir):
        here = relocated(run_dir, record)
        if here is not record:
            replace_record(run_dir, here)


def _former_run_dir(record: InstanceRecord, home: Path) -> Path:
    """Return the run directory of a record as it was; one of many has ``worlds/<name>`` in it."""
    if home.name != record.name or home.parent.name != _MEMBERS:
        return home
    base = home.parent.parent
    return base.parent if base.name == STATE_DIR_NAME else base
