"""Helpers for tests of agents."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clawblox.agents.layout import AgentDir
from clawblox.agents.status import AgentRecord, StatusWriter
from clawblox.agents.values import Usage

USAGE = Usage(input_tokens=1200, cached_tokens=40_000, output_tokens=2300, cost_usd=0.42, turns=3)


def write_status(directory: Path, **members: Any) -> AgentRecord:
    """Write the status of a working agent, with this process as its orchestrator."""
    record = AgentRecord(
        **{
            "name": directory.name,
            "driver": "claude",
            "state": "working",
            "session_id": "5b5c1e86-6c7c-4f0e-9d6c-0c58bfc5a0f1",
            "turn": 4,
            "usage": USAGE,
            **members,
        }
    )
    (directory / "runtime").mkdir(parents=True, exist_ok=True)
    StatusWriter(AgentDir(directory)).write(record)
    return record


@contextmanager
def another_process() -> Iterator[dict[str, int]]:
    """Run a process; yield the fields of a record that name it as the orchestrator."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            yield {"orchestrator_pid": process.pid}
        finally:
            process.kill()
