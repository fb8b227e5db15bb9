"""Recovery by the next orchestrator after one was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox import World, read_manifest
from tests.rundir.support import records_on_disk
from tests.support.processes import is_alive
from tests.support.waiting import wait_until
from tests.support.worlds import make_world

ROOT = Path(__file__).parents[2]


def orchestrate(directory: Path, run_dir: Path, *statements: str) -> subprocess.Popen[str]:
    """Run a script that starts an instance named ``first`` and prints its pid."""
    lines = [
        "from clawblox import World",
        f"world = World(dir={str(directory)!r})",
        f"started = world.start(run_dir={str(run_dir)!r}, name='first')",
        "world.record_run(id='r001', status='running')",
        "print(started.pid, flush=True)",
        *statements,
    ]
    return subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def kill(orchestrator: subprocess.Popen[str], world_pid: int) -> None:
    orchestrator.send_signal(signal.SIGKILL)
    orchestrator.wait()
    wait_until(lambda: not is_alive(world_pid), what="the guard ends the world")


def read_pid(orchestrator: subprocess.Popen[str]) -> int:
    assert orchestrator.stdout is not None
    return int(orchestrator.stdout.readline())


@pytest.mark.thorough
def test_a_run_of_a_killed_orchestrator_is_marked_interrupted(tmp_path: Path) -> None:
    directory, run_dir = make_world(tmp_path), tmp_path / "run"
    with orchestrate(directory, run_dir, "input()") as orchestrator:
        kill(orchestrator, read_pid(orchestrator))
    assert records_on_disk(run_dir)["first"]["state"] == "ready"
    assert read_manifest(run_dir).run["status"] == "running"
    with World(dir=directory) as world:
        world.start(run_dir=run_dir)
        assert read_manifest(run_dir).run == {"id": "r001", "status": "interrupted"}
        record = records_on_disk(run_dir)["first"]
        assert record["state"] == "interrupted"
        assert record["ended_at"].endswith("Z")


@pytest.mark.thorough
def test_a_run_that_was_labelled_at_its_end_keeps_its_label(tmp_path: Path) -> None:
    directory, run_dir = make_world(tmp_path), tmp_path / "run"
    statements = ["world.record_run(status='complete')", "print('labelled', flush=True)", "input()"]
    with orchestrate(directory, run_dir, *statements) as orchestrator:
        pid = read_pid(orchestrator)
        assert orchestrator.stdout is not None
        assert orchestrator.stdout.readline() == "labelled\n"
        kill(orchestrator, pid)
    with World(dir=directory) as world:
        world.start(run_dir=run_dir)
        assert read_manifest(run_dir).run["status"] == "complete"


@pytest.mark.thorough
def test_the_next_save_removes_the_remnants_of_a_killed_save(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--snapshot", "hang-in-body", "--after-bytes", "40")
    run_dir = tmp_path / "run"
    checkpoints = run_dir / "checkpoints"
    with orchestrate(directory, run_dir, "world.save()") as orchestrator:
        pid = read_pid(orchestrator)
        wait_until(lambda: list(checkpoints.glob(".*.partial")), what="the save begins")
        kill(orchestrator, pid)
    assert len(list(checkpoints.glob(".*.partial"))) == 1
    with World(dir=make_world(tmp_path, name="sound")) as world:
        world.start(run_dir=run_dir)
        saved = world.save()
        assert list(checkpoints.iterdir()) == [saved.path]
