"""Worlds with their own viewer, ``[replay] command``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

VIEWER = r"""
import subprocess, sys, time

what = sys.argv[1]
if what in ("stay", "leave"):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    print("started 2" if what == "stay" else "left", flush=True)
    if what == "stay":
        time.sleep(600)
else:
    print(*sys.argv[1:], "\x1b[2J", sep="\n")
    sys.exit(3)
"""


def world_with_viewer(parent: Path, *arguments: str) -> Path:
    """Write a world whose viewer prints its arguments, or keeps running with a child process."""
    directory = parent / "world"
    directory.mkdir()
    (directory / "viewer.py").write_text(VIEWER)
    command = json.dumps([sys.executable, "viewer.py", *arguments])
    (directory / "world.toml").write_text(f'name = "w"\n[replay]\ncommand = {command}\n')
    return directory
