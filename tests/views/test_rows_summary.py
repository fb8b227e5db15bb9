"""The summary of a run: its end, its saves, and the commands to continue."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from clawblox.results import ProcessExit
from clawblox.rundir.status import InstanceStatus
from clawblox.system.clock import format_utc, utc_now
from clawblox.views.rows import summarise
from tests.views.test_board import status

RUN = Path("/r")
WELL, DIED = ProcessExit(status=0), ProcessExit(signal="SIGKILL")


def saved(name: str, seconds_ago: int, sim_time: float | None, **fields: object) -> InstanceStatus:
    at = format_utc(utc_now() - timedelta(seconds=seconds_ago))
    return status(name, "exited", exit=WELL, pid=None, saved_at=at, sim_time=sim_time, **fields)


def test_summary_counts_every_kind_of_end_with_problems_first() -> None:
    statuses = [
        status("w0", "exited", exit=WELL),
        status("w1", "exited", exit=WELL),
        status("w2", "failed"),  # stopped during its start
        status("w3", "exited", exit=DIED),
        status("w4", "failed", exit=ProcessExit(status=4)),
        status("w5", "interrupted"),
        status("w6", "halted", halt="no room"),
    ]
    first, *others = summarise(RUN, statuses, stopped={"w1", "w2"})
    ends = "1 exited SIGKILL, 1 failed 4, 1 interrupted, 1 halted, 1 exited 0, 2 stopped"
    assert first == f"7 instances: {ends}."
    assert others == ["resume:  clawblox resume /r", "logs:    clawblox logs /r w3"]


def test_the_last_saves_are_described_by_age_and_simulation_time() -> None:
    statuses = [saved("w0", 12, 931.0), saved("w1", 190, 1042.5), status("w2", "exited", exit=WELL)]
    told = summarise(RUN, statuses)[1]
    assert told.startswith("Last saves: 2 of 3, 12s to 3m1")
    assert told.endswith(" old, sim time 931.0 to 1042.5.")
    (_, told) = summarise(RUN, [saved("w0", 3600, None)])
    assert told == "Last saves: 1 of 1, 1h00m old."


@pytest.mark.parametrize(
    ("may_resume", "stopped", "exit_", "resumes"),
    [
        (True, {"w0"}, WELL, True),  # stopped by Ctrl-C
        (True, {"w0"}, DIED, True),  # killed by a second Ctrl-C
        (False, {"w0"}, WELL, False),  # stopped by clawblox stop
        (False, {"w0"}, DIED, False),
        (False, set(), WELL, False),  # finished
        (True, set(), WELL, False),
        (False, set(), DIED, True),
    ],
)
def test_summary_suggests_a_possible_resume(
    may_resume: bool, stopped: set[str], exit_: ProcessExit, resumes: bool
) -> None:
    found = [status("w0", "exited", exit=exit_)]
    lines = summarise(RUN, found, stopped=stopped, may_resume=may_resume)
    assert ("resume:  clawblox resume /r" in lines) == resumes
    assert ("logs:    clawblox logs /r w0" in lines) == (exit_ == DIED and not stopped)


def test_a_log_that_the_error_names_is_not_named_twice() -> None:
    found = [status("w0", "failed")]
    assert summarise(RUN, found, names_logs=False) == [
        "1 instance: 1 failed.",
        "resume:  clawblox resume /r",
    ]


def test_an_empty_run_has_an_empty_summary() -> None:
    assert summarise(RUN, []) == []
