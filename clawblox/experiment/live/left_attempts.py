"""Ends worlds and agents that killed orchestrators have left running in an experiment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from clawblox.agents.status import left_agents
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ClawbloxError
from clawblox.experiment import layout
from clawblox.rundir.interrupted import left_instances
from clawblox.supervision.orphans import end_orphans, living_cookies


async def end_left(directory: Path) -> None:
    """End the worlds and agents of attempts whose orchestrator was killed with its guard.

    Args:
        directory: The directory of the experiment.

    Raises:
        ClawbloxError: Some are still running, so a new attempt must not start.
        OSError: The processes cannot be examined.

    Cancellation: some of them may have ended.
    """
    left = await run_blocking(_find_left, directory)
    for cookie, reason in (await end_orphans(left)).items():
        message = f"an attempt of this experiment has not ended: in {left[cookie]} {reason}"
        raise ClawbloxError(message, hint="end these processes first")


def _find_left(directory: Path) -> dict[str, Path]:
    """Return the cookies of processes without an orchestrator, with their runs."""
    living = living_cookies()
    if not living:
        return {}
    cookies = {
        cookie: run_dir
        for run_dir in run_dirs(directory)
        for cookie in (*left_instances(run_dir).values(), *left_agents(run_dir))
    }
    return {cookie: cookies[cookie] for cookie in living & cookies.keys()}


def run_dirs(directory: Path) -> Iterator[Path]:
    """Yield the run directories of an experiment, including those of the public scripts. Blocks.

    Args:
        directory: The directory of the experiment; links below it are not followed.
    """
    for chain in (directory, *_directories_in(directory / layout.CHAINS_DIR)):
        yield from _directories_in(layout.runs_dir(chain))


def _directories_in(place: Path) -> list[Path]:
    """Return the directories in a directory, without links; empty if it is missing or a link."""
    if place.is_symlink():
        return []
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []
