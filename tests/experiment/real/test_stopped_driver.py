"""A driver is stopped while another takes over its experiment, or its file system hangs."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.experiment.real import trials
from tests.experiment.real.trials import Trial
from tests.rundir.test_driver_lease_experiments import drivers
from tests.support.waiting import HANG_S, wait_until

ELSEWHERE = """
from clawblox.rundir import driver_lease
driver_lease.LEASE_S = 2.0
driver_lease.boot_id = lambda: "node1"
"""

HANGING = """
import os, sys, threading

def hang(write):
    def write_or_hang(fd, *others):
        is_there = os.readlink(f"/proc/self/fd/{fd}").startswith(sys.argv[1])
        if is_there and os.path.exists(sys.argv[1] + "/hangs"):
            threading.Event().wait()
        return write(fd, *others)
    return write_or_hang

for name in ("write", "pwrite", "fsync", "fdatasync"):
    setattr(os, name, hang(getattr(os, name)))
"""
"""Makes every write below the directory of the trial hang from some moment on, as on NFS."""


@pytest.mark.thorough
@pytest.mark.needs("curl")
def test_driver_that_was_replaced_while_paused_ends_its_worlds_and_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "PROGRAM", ELSEWHERE + trials.PROGRAM)
    trial = Trial.make(tmp_path)
    program = trial.start()
    wait_until(lambda: any(line.type == "checkpoint" for line in trial.lines))
    program.send_signal(signal.SIGSTOP)
    with drivers(tmp_path / "exp", "node2") as [other]:
        assert other.ask("take").startswith("taken ")
        before = trial.lines
        program.send_signal(signal.SIGCONT)
        program.communicate()
        assert program.returncode == 1
        assert trial.lines == before
        assert other.ask("leave") == "left"
    trial.wait_for_silence()
    assert [*(tmp_path / "exp").glob("journal.lost-*.jsonl")]


@pytest.mark.thorough
@pytest.mark.needs("curl")
def test_a_driver_whose_file_system_hangs_is_killed_with_its_worlds_and_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "PROGRAM", HANGING + ELSEWHERE + trials.PROGRAM)
    trial = Trial.make(tmp_path)
    program = trial.start()
    try:
        wait_until(lambda: any(line.type == "checkpoint" for line in trial.lines))
        (tmp_path / "hangs").touch()
        program.wait(HANG_S)
        assert program.returncode == -signal.SIGKILL
    finally:
        trial.kill(program)
