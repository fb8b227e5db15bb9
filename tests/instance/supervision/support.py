"""Shared code of the tests of supervision: kills, recorded states, lines of programs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from anyio.to_thread import run_sync

from clawblox.rundir.status import InstanceStatus, read_run
from tests.support.orchestrators import Orchestrator

LIFE = ["restarting", "started", "ready"]
"""The events of a restart."""


async def now(run: Path, name: str = "w000") -> InstanceStatus:
    """Return the recorded state of an instance."""
    (status,) = (await run_sync(read_run, run, [name])).instances
    return status


async def kill(run: Path, name: str = "w000") -> int:
    """Kill the current process of an instance; return the process."""
    pid = (await now(run, name)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def told_by(program: Orchestrator) -> str:
    """Return the next intended line of a program, skipping log lines on the same stream."""
    while not (line := program.hear()).startswith("told:"):
        pass
    return line.removeprefix("told:").strip()
