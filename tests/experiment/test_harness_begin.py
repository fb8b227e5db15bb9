"""Experiments that the public generation scripts began, continued over fakes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawblox.errors import ConfigError
from clawblox.experiment.experiment import Experiment
from clawblox.experiment.harness_begin import HarnessArchive, begin_from_harness
from clawblox.experiment.harness_import import ResumePoint, read_chain
from clawblox.experiment.journal import read_lines
from clawblox.experiment.plan import AgentSpec, Plan
from tests.experiment import harness
from tests.experiment.fakes import FakeWorkshop
from tests.simulated_clock import SimulatedClock
from tests.support import make_world


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory in which the public script has completed two generations."""
    directory = tmp_path / "exp"
    harness.begin(directory)
    harness.complete(directory, 1)
    harness.complete(directory, 2)
    return directory


def make_plan(directory: Path, **changes: Any) -> Plan:
    world = directory.parent / "world"
    world = make_world(directory.parent, name="world") if not world.exists() else world
    settings: dict[str, Any] = {
        "name": "exp",
        "layout": "flat",
        "run_prefix": "exp",
        "generations": 3,
        "duration": 3600.0,
        "limits": {"min_free": None},
    }
    return Plan(world, [AgentSpec("claude", name="Eko")], **{**settings, **changes})


def make_archive(directory: Path, generation: int) -> HarnessArchive:
    """Return an archive that the script made before it was interrupted."""
    path = directory / "runs" / f"exp-g{generation:03d}" / "checkpoints" / "gen-t000900.ckpt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"an archive")
    point = ResumePoint(generation=generation, elapsed_s=900, agents=("Eko-rexp-g003-w0-a0",))
    return HarnessArchive(path=path, point=point)


async def run_async(directory: Path, workshop: FakeWorkshop, plan: Plan) -> list[tuple[int, str]]:
    experiment = Experiment(
        plan,
        dir=directory,
        _clock=workshop.clock,
        _workshop=workshop,
    )

    async def tick() -> None:
        while True:
            await anyio.sleep(0)
            await workshop.clock.jump()

    async with experiment as exp, anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await exp.run()
        tasks.cancel_scope.cancel()
        return [(row.generation, row.status) for row in exp.results().rows()]


def run(directory: Path, workshop: FakeWorkshop, plan: Plan) -> list[tuple[int, str]]:
    return anyio.run(run_async, directory, workshop, plan)


def test_the_next_generation_inherits_from_the_last_of_the_table(directory: Path) -> None:
    plan, chain = make_plan(directory), read_chain(directory, agents=1)
    begin_from_harness(directory, plan, chain=chain, archive=None)
    workshop = FakeWorkshop(SimulatedClock())
    rows = run(directory, workshop, plan)
    assert rows == [(1, "imported"), (2, "imported"), (3, "committed")]
    assert [attempt.order.inherited for attempt in workshop.attempts] == ["exp-g002"]
    with (directory / "generation_chain.csv").open() as table:
        assert [row["run_id"] for row in csv.DictReader(table)] == ["exp-g001", "exp-g002"]


def test_an_archive_continues_its_generation(directory: Path) -> None:
    plan, chain = make_plan(directory), read_chain(directory, agents=1)
    archive = make_archive(directory, 3)
    begin_from_harness(directory, plan, chain=chain, archive=archive)
    workshop = FakeWorkshop(SimulatedClock())
    workshop.archives.add(("r1", "exp-g003", archive.path.name))
    assert (run(directory, workshop, plan))[-1] == (3, "committed")
    (attempt,) = workshop.attempts
    assert attempt.order.origin is not None
    assert attempt.order.origin.file == archive.path.name
    assert attempt.order.elapsed_s == 900.0
    assert attempt.order.run_id.startswith("exp-g003-r")


def test_a_begin_that_was_killed_is_continued(directory: Path) -> None:
    plan, chain = make_plan(directory), read_chain(directory, agents=1)
    archive = make_archive(directory, 3)
    begin_from_harness(directory, plan, chain=chain, archive=archive)
    journal = directory / "journal.jsonl"
    complete = journal.read_bytes()
    lines = complete.splitlines(keepends=True)
    for count in range(len(lines)):
        journal.write_bytes(b"".join(lines[:count]))
        begin_from_harness(directory, plan, chain=chain, archive=archive)
        kinds = [line.type for line in read_lines(directory)]
        assert kinds == [
            "experiment.begun",
            "imported",
            "imported",
            "opened",
            "checkpoint",
            "interrupted",
        ]


def test_a_half_done_run_is_set_aside(directory: Path) -> None:
    half = directory / "runs" / "exp-g003" / "agents"
    half.mkdir(parents=True)
    chain = read_chain(directory, agents=1)
    begin_from_harness(directory, make_plan(directory), chain=chain, archive=None)
    (moved,) = (directory / "runs").glob("exp-g003*")
    assert moved.name.startswith("exp-g003.failed-")


def test_an_archive_of_another_directory_is_refused(directory: Path, tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "other", 3)
    with pytest.raises(ConfigError, match="must be an archive in checkpoints of a run below"):
        begin_from_harness(directory, make_plan(directory), chain=None, archive=archive)


def test_an_archive_of_a_complete_generation_is_refused(directory: Path) -> None:
    chain = read_chain(directory, agents=1)
    archive = make_archive(directory, 2)
    with pytest.raises(ConfigError, match="generation 2 is complete"):
        begin_from_harness(directory, make_plan(directory), chain=chain, archive=archive)
