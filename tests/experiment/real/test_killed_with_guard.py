"""An orchestrator and its guard are killed together: a resume ends the leftover processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.protocol import INSTANCE_ENV
from tests.experiment.real.trials import Trial
from tests.support.orchestrators import kill_with_guard
from tests.support.processes import command_line, marked_processes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.needs("curl")

DEAF_TOOL = "RUN trap '' TERM; sleep 600"


def read_cookies(pids: set[int]) -> set[str]:
    entries = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in pids]
    prefix = f"{INSTANCE_ENV}=".encode()
    return {
        entry.removeprefix(prefix).decode()
        for entries_of_one in entries
        for entry in entries_of_one
        if entry.startswith(prefix)
    }


@pytest.mark.thorough
def test_a_resume_ends_the_world_and_the_agents_of_the_killed_attempt(tmp_path: Path) -> None:
    saves = {"every": 0.4, "idle_quiet": 0.0, "idle_wait": 0.0}
    trial = Trial.make(tmp_path, generations=1, checkpoint=saves).with_prompt(DEAF_TOOL)
    program = trial.start()
    wait_until(lambda: any(line.type == "checkpoint" for line in trial.lines), what="a checkpoint")
    wait_until(
        lambda: any("sleep 600" in command_line(pid) for pid in marked_processes()), what="a tool"
    )
    with program:
        kill_with_guard(program)
    left = marked_processes()
    before = read_cookies(left)
    assert len(before) == 3  # the world and two agents
    trial.close(1)
    with trial.start() as again:
        (interrupted,) = wait_until(
            lambda: [line for line in trial.lines if line.type == "interrupted"], what="its end"
        )
        assert not [pid for cookie in before for pid in marked_processes(cookie)]
        again.communicate()
    assert again.returncode == 0
    trial.wait_for_silence()
    assert not list(trial.root.glob("exp/**/alive-twice"))
    assert interrupted.attempt == trial.attempts("r1", 1)[0].attempt_id
