"""What the tests of supervision share: a kill, what the disk says then, what a program told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from anyio.to_thread import run_sync

from clawblox.rundir.status import InstanceStatus, read_run
from tests.support.orchestrators import Orchestrator

LIFE = ["restarting", "started", "ready"]
"""What tells that an instance is back."""


async def now(run: Path, name: str = "w000") -> InstanceStatus:
    """Return what the disk says of an instance."""
    (status,) = (await run_sync(read_run, run, [name])).instances
    return status


async def kill(run: Path, name: str = "w000") -> int:
    """Kill the process that an instance has now; return it."""
    pid = (await now(run, name)).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def told_by(program: Orchestrator) -> str:
    """Return the next line that a program says on purpose; its log goes the same way."""
    while not (line := program.hear()).startswith("told:"):
        pass
    return line.removeprefix("told:").strip()
