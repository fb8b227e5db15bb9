"""The second signal ends a command even if one of its threads never ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import marked_processes
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import make_world

_STUCK = """
import sys, threading
from clawblox.cli import main
from clawblox.cli.running import runner
from clawblox.telemetry import log_watch

runner._LAST_RESORT_S = 0.2

def hang(*arguments):
    print("stuck", flush=True)
    threading.Event().wait()

log_watch._look_at = hang
main(sys.argv[1:])
"""


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["run", "up"])
def test_second_signal_ends_a_command_with_a_stuck_thread(tmp_path: Path, command: str) -> None:
    words = [command, str(make_world(tmp_path)), "--run-dir", str(tmp_path / "run")]
    words += ["--port", "0"] if command == "run" else []
    with subprocess.Popen(
        [sys.executable, "-c", _STUCK, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        _read_until(process, "stuck")
        process.terminate()
        _read_until(process, "Stopping")
        process.terminate()
        rest = process.stdout.read()
        assert process.wait(HANG_S) == 128 + 15
    assert rest.endswith("Error: a part of this process did not end; killed\n")
    assert "Traceback" not in rest
    wait_until(lambda: not marked_processes(), what="the guard ends the world")


def _read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended without {text!r}")
