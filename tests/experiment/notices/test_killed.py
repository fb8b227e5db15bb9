"""An orchestrator process is really killed around a notice, which is sent once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox.experiment.history.journal import read_lines
from tests.experiment.fakes import FakeBackend, FakedExperiment
from tests.support.simulated_clock import SimulatedClock

pytestmark = pytest.mark.anyio

CHILD = """
import os, signal, sys
from pathlib import Path
import anyio
from clawblox.experiment.notices import notifier
from tests.experiment.notices.test_notifier import Told, run

async def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

root, moment = Path(sys.argv[1]), sys.argv[2]
scene = Told(root)
if moment == "before":
    notifier.Notifier._deliver = die
else:
    text = scene.program.read_text()
    scene.program.write_text(text + "kill -9 $PPID\\n")
anyio.run(run, scene, scene.plan())
"""


@pytest.mark.parametrize(
    ("moment", "before", "after"),
    [("before", 0, 1), pytest.param("within", 1, 1, marks=pytest.mark.thorough)],
)
async def test_a_notice_is_sent_once_if_its_process_is_killed_around_it(
    tmp_path: Path, moment: str, before: int, after: int
) -> None:
    words = [sys.executable, "-c", CHILD, str(tmp_path), moment]
    child = subprocess.run(words, cwd=Path(__file__).parents[3], capture_output=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    told, directory = tmp_path / "told", tmp_path / "exp"
    assert len(told.read_text().splitlines() if told.exists() else []) == before
    assert [line.type for line in read_lines(directory)][-1] == (
        "hook.called" if before else "session.ended"
    )
    clock = SimulatedClock()
    for _ in range(2):
        async with FakedExperiment(clock, FakeBackend(clock), None, dir=directory):
            pass
        lines = told.read_text().splitlines()
        assert [json.loads(line)["event"] for line in lines] == ["done"] * after
