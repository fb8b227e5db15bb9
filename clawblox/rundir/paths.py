"""Paths of the files of a run directory, and the canonical path of a run directory."""

from __future__ import annotations

import errno
import functools
import os
from pathlib import Path
from typing import Final

from clawblox.config.arguments import check_path
from clawblox.errors import ConfigError
from clawblox.system.files import make_private_dir

STATE_DIR_NAME: Final = ".clawblox"
"""The directory of clawblox's own files in a run directory, or in a world directory."""

DATASTORE_DIR_NAME: Final = "datastore"
"""Directory for the rows of an instance's data stores, among its files."""

SESSION_FILE: Final = "world_session.txt"
"""The file in an agent's directory that records its session in the world."""

ANSWER_FILE: Final = "world_join.json"
"""The file in an agent's directory with the world's answer when it joined."""


@functools.lru_cache(maxsize=256)
def state_dir(run_dir: Path) -> Path:
    """Return the directory of clawblox's own files in a run directory."""
    return run_dir / STATE_DIR_NAME


@functools.lru_cache(maxsize=256)
def records_dir(run_dir: Path) -> Path:
    """Return the directory of the records and name locks of a run directory."""
    return run_dir / STATE_DIR_NAME / "instances"


@functools.lru_cache(maxsize=256)
def records_journal(run_dir: Path) -> Path:
    """Return the file of the instance records of a run directory."""
    return records_dir(run_dir) / "records.jsonl"


def make_stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return a value that identifies the version of a file."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def file_stamp(path: Path) -> tuple[int, ...] | None:
    """Return the current stamp of a file; None if it cannot be inspected. Blocks."""
    try:
        return make_stamp(path.stat())
    except OSError:
        return None


def name_lock(run_dir: Path, name: str) -> Path:
    """Return the lock file of an instance's name in a run directory."""
    return records_dir(run_dir) / f"{name}.lock"


def run_lock(run_dir: Path) -> Path:
    """Return the lock file of the orchestrator that runs many instances in a directory."""
    return run_dir / STATE_DIR_NAME / "run.lock"


def resolve_run_dir(path: str | Path) -> Path:
    """Return the canonical path of a run directory. Blocks.

    Locks, sockets and writers use this path, so changing a symbolic link does not move the run.

    Raises:
        ConfigError: A record cannot contain this path.
    """
    return check_path(os.path.realpath(check_path(path, "run_dir")), "run_dir")


def run_dir_candidates(instance_dir: Path) -> tuple[Path, ...]:
    """Return the possible run directories of an instance, given the directory of its manifest.

    The manifest of one of many instances is in ``worlds/<name>``, which may be below ``.clawblox``.
    """
    return (instance_dir, *instance_dir.parents[:3])


def make_run_dir(run_dir: Path) -> Path:
    """Create a run directory if it is missing, with the directory for its records. Blocks.

    Raises:
        ConfigError: The directory cannot be created, or is not writable.
    """
    try:
        records = make_private_dir(state_dir(run_dir))
        if not os.access(records, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(records))
    except OSError as error:
        raise ConfigError(
            f"the run directory cannot be used: {error.strerror}",
            path=Path(error.filename) if error.filename else None,
            key="run_dir",
            value=str(run_dir),
            hint="choose another run_dir=, in a place that can be written",
        ) from error
    return run_dir


def files_dir(world_dir: Path, instance_dir: Path) -> Path:
    """Return the directory for the files of an instance.

    A world directory is a source tree, so the files in it go below ``.clawblox``.
    """
    return state_dir(instance_dir) if instance_dir == world_dir else instance_dir
