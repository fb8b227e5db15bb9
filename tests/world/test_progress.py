"""``progress=True``: a line on standard error in a terminal, and silence elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import make_world

SCRIPT = """
import sys
from clawblox import World
with World(sys.argv[1], run_dir=sys.argv[2]) as world:
    world.start_many(3, progress=True).raise_if_failed()
    world.save_all(progress=True).raise_if_failed()
    world.stop_all(progress=True).raise_if_failed()
"""

GOES_ON = """
import contextlib, sys
from clawblox import World
with contextlib.suppress(ZeroDivisionError), World(sys.argv[1], run_dir=sys.argv[2]) as world:
    world.start_many(1)
    world.fork(world.save(), 3, progress=True).raise_if_failed()
    1 / 0
with World(sys.argv[1], run_dir=sys.argv[2]) as world:
    world.resume_all(progress=True).raise_if_failed()
"""


def run_script(tmp_path: Path, stderr: int, script: str = SCRIPT) -> None:
    # Slow to start and to save, for what is quick needs no line.
    directory = make_world(tmp_path, "--slow-boot=0.5", "--slow-stop=0.5")
    subprocess.run(
        [sys.executable, "-c", script, str(directory), str(tmp_path / "run")],
        stderr=stderr,
        check=True,
        timeout=60,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )


def shown_in_terminal(tmp_path: Path, script: str) -> str:
    """Return what a script writes to a terminal on standard error."""
    master, slave = os.openpty()
    try:
        run_script(tmp_path, slave, script)
        return os.read(master, 1 << 16).decode()
    finally:
        os.close(master)
        os.close(slave)


def test_a_terminal_shows_how_far_it_is(tmp_path: Path) -> None:
    written = shown_in_terminal(tmp_path, SCRIPT)
    assert "Starting" in written
    assert "Stopping" in written
    assert "3/3" in written


def test_forks_and_resumes_are_shown_too(tmp_path: Path) -> None:
    written = shown_in_terminal(tmp_path, GOES_ON)
    forked, resumed = written.split("Resuming", 1)
    assert "Starting" in forked
    assert "3/3" in forked
    assert "4/4" in resumed


def test_elsewhere_nothing_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        run_script(tmp_path, stderr.fileno())
    assert log.read_bytes() == b""
