"""``clawblox wait``: waits for the end of instances of another process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from clawblox.cli.commands.wait import _describe, _exit_status
from clawblox.results import ProcessExit
from clawblox.rundir.presence import EndedInstance
from clawblox.rundir.status import InstanceState
from tests.cli.conftest import Start, assert_nothing_runs, read_instances
from tests.support.waiting import wait_until
from tests.support.worlds import ask, make_world


@pytest.mark.thorough
def test_wait_prints_each_end_and_exits_with_the_first_failure_by_name(
    up: Start, start: Start, call: Start, run_dir: Path
) -> None:
    orchestrator = up()
    command = start("wait", str(run_dir))
    instances = read_instances(run_dir)
    ask(instances["w002"]["port"], "POST", "/__die?status=9")
    command.wait_for("w002: exit status 9\n")
    assert command.process.poll() is None
    os.kill(instances["w001"]["pid"], signal.SIGKILL)
    command.wait_for("w001: killed by SIGKILL")
    ask(instances["w000"]["port"], "POST", "/__die?status=0")
    assert command.wait() == 128 + signal.SIGKILL
    assert command.out.splitlines()[-1] == "w000: exit status 0"
    assert command.err == ""
    assert orchestrator.wait() == 1
    again = call("wait", str(run_dir), "w002", "w000")
    assert (again.wait(), again.out) == (9, "w000: exit status 0\nw002: exit status 9\n")
    quiet = call("wait", "--quiet", "--timeout", "0", str(run_dir), "w000")
    assert (quiet.wait(), quiet.out, quiet.err) == (0, "", "")


@pytest.mark.thorough
def test_wait_ignores_restarts_and_ctrl_c_does_not_affect_the_run(
    start: Start, call: Start, tmp_path: Path, run_dir: Path
) -> None:
    world = make_world(tmp_path)
    orchestrator = start("up", str(world), "--run-dir", str(run_dir), "--restart", "fresh")
    orchestrator.wait_for("1 instance ready after")
    command = start("wait", str(run_dir), "w000")
    ask(read_instances(run_dir)["w000"]["port"], "POST", "/__die?status=9")
    wait_until(lambda: orchestrator.out.count("w000 ready at") == 2, what="it is back")
    late = call("wait", str(run_dir), "--timeout", "0.6")
    assert late.wait() == 124
    assert (late.out, late.err) == ("", "Gave up after 0.6s; not ended: w000\n")
    assert command.process.poll() is None
    assert command.interrupt() == 130
    assert read_instances(run_dir)["w000"]["state"] == "ready"
    last = start("wait", str(run_dir))
    assert call("stop", str(run_dir)).wait() == 0
    assert last.wait() == 128 + signal.SIGTERM or last.out == "w000: exit status 0\n"
    assert orchestrator.wait() == 0
    assert_nothing_runs()


@pytest.mark.thorough
def test_wrong_usage_of_wait_is_explained(call: Start, tmp_path: Path) -> None:
    assert call("wait", str(tmp_path / "nowhere")).wait() == 1
    (tmp_path / "empty").mkdir()
    assert "Nothing has run in" in call("wait", str(tmp_path / "empty")).err
    for value in ("-1", "nan", "soon"):
        command = call("wait", "--timeout", value)
        assert command.wait() == 2
        assert "Invalid value for '--timeout'" in command.err


@pytest.mark.parametrize(
    ("state", "exit_", "status", "text"),
    [
        ("exited", ProcessExit(status=0), 0, "exit status 0"),
        ("exited", ProcessExit(status=3), 3, "exit status 3"),
        ("exited", ProcessExit(signal="SIGTERM"), 143, "killed by SIGTERM"),
        ("exited", ProcessExit(signal="signal 40"), 168, "killed by signal 40"),
        ("exited", None, 1, "exit status unknown"),
        ("failed", ProcessExit(status=0), 1, "failed: exit status 0"),
        ("failed", ProcessExit(status=4), 4, "failed: exit status 4"),
        ("halted", ProcessExit(status=0), 1, r"halted: no\x1b[2J room"),
        ("interrupted", None, 1, "interrupted: it ended without an orchestrator"),
    ],
)
def test_every_end_has_a_status_and_a_text(
    state: InstanceState, exit_: ProcessExit | None, status: int, text: str
) -> None:
    end = EndedInstance("w000", state, exit_, "no\x1b[2J room" if state == "halted" else None)
    assert (_exit_status(end), _describe(end)) == (status, text)
