"""A driver that was stopped while another one took over its experiment, and is continued."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.experiment.history.test_drivers import drivers
from tests.experiment.real import trials
from tests.experiment.real.trials import Trial
from tests.support import wait_until

ELSEWHERE = """
from clawblox.rundir import driver_lease
driver_lease.LEASE_S = 2.0
driver_lease.boot_id = lambda: "node1"
"""


@pytest.mark.needs("curl")
def test_a_continued_driver_ends_its_worlds_and_agents_after_another_took_over(
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
