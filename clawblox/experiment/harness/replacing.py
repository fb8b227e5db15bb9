"""Renames the directory of an experiment, so that another experiment can take its place."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import anyio

from clawblox.concurrency.threads import run_blocking, run_interruptible
from clawblox.errors import ClawbloxError, RunLockedError
from clawblox.experiment.layout import format_stamp
from clawblox.experiment.live.left_attempts import end_left, run_dirs
from clawblox.experiment.plan.naming import numbered
from clawblox.rundir.claims import describe_holder, find_owner
from clawblox.rundir.driver_lease import DriverLease
from clawblox.rundir.experiments import experiment_lock, find_experiment_owner
from clawblox.system.clock import utc_now
from clawblox.system.files import fsync_directory, make_private_dir, rename_new
from clawblox.system.locks import lock_file, unlock_file


async def set_experiment_aside(directory: Path) -> Path | None:
    """Rename the directory of an experiment to ``<name>.replaced-<time>``; nothing is deleted.

    Remaining worlds and agents of a killed orchestrator are ended.

    Args:
        directory: The directory, of this package or of the public generation scripts.

    Returns:
        Its new path; None if it does not exist.

    Raises:
        RunLockedError: Another process runs the experiment, or a run in it.
        ClawbloxError: The path is not a directory, or cannot be renamed.

    Cancellation: the directory is either renamed or unchanged.
    """
    if not await run_blocking(os.path.lexists, directory):
        return None
    place, lease = directory, DriverLease(directory)
    lock = await run_blocking(_lock, directory)
    try:
        await run_interruptible(lease.take, lease.interrupt)
        await run_blocking(lease.release)
        await run_blocking(_require_idle, directory)
        await end_left(directory)
        place = await run_blocking(_rename, directory)
    finally:
        with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
            await run_blocking(unlock_file, experiment_lock(place), lock)
    return place


def _lock(directory: Path) -> int:
    path = experiment_lock(directory)
    try:
        make_private_dir(path.parent)
        lock = lock_file(path)
    except OSError as error:
        raise _unusable(directory, error) from error
    if lock is None:
        raise _locked(directory, find_experiment_owner(directory))
    return lock


def _require_idle(directory: Path) -> None:
    """Refuse an experiment in which a process, such as a public script, runs worlds."""
    for run_dir in run_dirs(directory):
        if (owner := find_owner(run_dir)) not in (None, os.getpid()):
            raise _locked(run_dir, owner)


def _rename(directory: Path) -> Path:
    try:
        for name in numbered(f"{directory.name}.replaced-{format_stamp(utc_now())}"):
            place = directory.with_name(name)
            try:
                rename_new(directory, place)
            except FileExistsError:
                continue
            fsync_directory(directory.parent)
            return place
    except OSError as error:
        raise _unusable(directory, error) from error
    raise AssertionError("unreachable: the names do not end")


def _locked(directory: Path, owner: int | None) -> RunLockedError:
    return RunLockedError(
        f"{describe_holder(owner)} runs {directory}",
        pid=owner,
        hint="stop it first, or choose another name for the new experiment",
    )


def _unusable(directory: Path, error: OSError) -> ClawbloxError:
    reason = os.strerror(error.errno or errno.EIO)
    return ClawbloxError(f"{directory} cannot be renamed: {reason}")
