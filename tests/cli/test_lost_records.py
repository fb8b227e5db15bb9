"""Commands on run directories that were moved or lost their records during a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Start, assert_nothing_runs, read_instances
from tests.rundir.support import records_on_disk
from tests.support.processes import is_alive


def find_journal(run_dir: Path) -> Path:
    return run_dir / ".clawblox" / "instances" / "records.jsonl"


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_run_whose_records_were_lost_is_saved_and_stopped(
    up: Start, call: Start, run_dir: Path, how: str
) -> None:
    command = up("--restart", "fresh")
    for words in (["save", str(run_dir)], ["stop", str(run_dir)]):
        if how == "emptied":
            find_journal(run_dir).write_bytes(b"")
        else:
            find_journal(run_dir).unlink()
        asked = call(*words)
        assert asked.wait() == 0, asked.err
        assert all(f"w00{number}" in asked.out for number in range(3))
    assert command.wait() == 0
    assert_nothing_runs()
    assert {one["stopped_on_purpose"] for one in records_on_disk(run_dir).values()} == {True}


@pytest.mark.thorough
def test_unrestorable_records_are_an_error_that_names_the_orchestrator(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up()
    pids = [one["pid"] for one in read_instances(run_dir).values()]
    find_journal(run_dir).unlink()
    find_journal(run_dir).mkdir()
    asked = call("stop", str(run_dir))
    assert asked.wait() == 1
    assert asked.err.startswith(f"Error: The records of '{run_dir}' are gone, and an orchestrator")
    assert f"pid {command.process.pid} (" in asked.err
    assert str(find_journal(run_dir)) in asked.err
    assert all(map(is_alive, pids))
    assert command.interrupt() == 130
    assert "resume:" not in command.out
    assert_nothing_runs()


@pytest.mark.thorough
def test_moved_run_directory_can_be_stopped_at_its_new_place(
    up: Start, call: Start, run_dir: Path
) -> None:
    command = up("--restart", "fresh")
    moved = run_dir.rename(run_dir.with_name("moved"))
    asked = call("stop", str(moved))
    assert asked.wait() == 0
    assert asked.out.count("stopped in") == 3
    assert command.wait() == 0
    assert_nothing_runs()
    for record in records_on_disk(moved).values():
        assert (record["state"], record["stopped_on_purpose"]) == ("exited", True)
    manifest = json.loads((moved / ".clawblox" / "manifest.json").read_text())
    assert len(manifest["instances"]) == 3


def test_resume_is_not_suggested_for_a_moved_run_directory(up: Start, run_dir: Path) -> None:
    command = up()
    run_dir.rename(run_dir.with_name("moved"))
    run_dir.touch()  # otherwise the records would be restored a second later
    assert command.interrupt() == 130
    assert command.out.count("stopped: exit status 0") == 3
    assert "resume:" not in command.out


@pytest.mark.thorough
def test_resume_is_suggested_for_a_run_ended_by_ctrl_c(up: Start, run_dir: Path) -> None:
    command = up()
    assert command.interrupt() == 130
    assert "resume:" in command.out
