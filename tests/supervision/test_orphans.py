"""Orphans are ended; processes of a running orchestrator, or of another run, are left alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from clawblox import World
from clawblox.rundir.interrupted import left_instances
from clawblox.rundir.paths import name_lock
from clawblox.rundir.records import InstanceRecord, read_record
from clawblox.supervision.orphans import end_orphans, living_cookies
from tests.support.orchestrators import STAY, Orchestrator, kill_with_guard, orchestrator
from tests.support.processes import is_alive
from tests.support.worlds import make_world


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def program(tmp_path: Path, run: Path) -> Iterator[Orchestrator]:
    with orchestrator(STAY, make_world(tmp_path), run) as program:
        program.hear()
        yield program


def find_record(run: Path) -> InstanceRecord:
    record = read_record(run, "w000")
    assert record is not None
    return record


@pytest.mark.thorough
def test_processes_of_a_running_orchestrator_are_left_alone(
    program: Orchestrator, run: Path, tmp_path: Path
) -> None:
    record = find_record(run)
    assert left_instances(run) == {}
    name_lock(run, "w000").unlink()  # the guard is still alive
    assert left_instances(run) == {"w000": record.cookie}
    reason = f"pid {program.pid} runs its processes"
    with World(tmp_path / "counter") as world:
        world.start(run_dir=tmp_path / "own")  # also an orchestrator, which spawned the other
        assert anyio.run(end_orphans, [record.cookie, ""]) == {record.cookie: reason}
        batch = world.resume_all(run)
    assert reason in str(batch.failed["w000"])
    assert is_alive(record.pid)


def test_orphans_are_ended_by_cookie_but_not_through_a_copied_run(
    program: Orchestrator, run: Path, tmp_path: Path
) -> None:
    record = find_record(run)
    kill_with_guard(program.process)
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("*.sock"))
    assert left_instances(copy) == {}
    moved = run.rename(tmp_path / "moved")
    assert left_instances(moved) == {"w000": record.cookie}
    assert is_alive(record.pid)
    assert record.cookie in living_cookies()
    assert anyio.run(end_orphans, [record.cookie]) == {}
    assert not is_alive(record.pid)
