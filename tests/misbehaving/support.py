"""Support for the tests of the misbehaving world."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.waiting import HANG_S
from tests.support.worlds import RunningWorld, world_command


def run_world(directory: Path, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a world that ends by itself."""
    return subprocess.run(
        world_command(*flags),
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANG_S,
    )


def add(world: RunningWorld, session: dict[str, str], number: int) -> Any:
    body = json.dumps({"type": "add", "data": number}).encode()
    return world.ask("POST", "/input", body=body, headers=session).json()
