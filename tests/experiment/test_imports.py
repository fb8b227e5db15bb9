"""An experiment continues a directory that the public generation scripts began, and the reverse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clawblox import save_checkpoint
from clawblox.concurrency.threads import run_blocking
from clawblox.errors import ConfigError
from clawblox.experiment.journal import read_lines
from clawblox.experiment.plan import Plan
from clawblox.experiment.record import read_experiment
from tests.experiment import harness
from tests.experiment.test_experiment import Scene, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_generations_of_the_scripts_are_taken_over_and_continued(scene: Scene) -> None:
    harness.begin(scene.directory)
    for generation in (1, 2):
        harness.complete(scene.directory, generation, run_id=f"old-g{generation:03}")
    before = (scene.directory / "generation_chain.csv").read_text().splitlines()
    outcome = await run(scene, scene.plan(generations=3, layout="flat", run_prefix="old"))
    assert outcome.status == "done"
    (attempt,) = scene.workshop.attempts
    assert attempt.order.generation == 3
    assert attempt.order.run_id == "old-g003"
    assert attempt.order.inherited == "old-g002"
    rows = read_experiment(scene.directory).results().rows()
    assert [row.status for row in rows] == ["imported", "imported", "committed"]
    after = (scene.directory / "generation_chain.csv").read_text().splitlines()
    assert len(after) == len(before)  # the fakes have no agents, so no row of the third


async def test_generations_that_the_scripts_add_later_are_taken_over_too(scene: Scene) -> None:
    harness.begin(scene.directory)
    harness.complete(scene.directory, 1, run_id="old-g001")
    plan = scene.plan(generations=1, layout="flat", run_prefix="old")
    assert (await run(scene, plan)).status == "done"
    harness.complete(scene.directory, 2, run_id="old-g002")
    assert (await run(scene, plan.but(generations=3))).status == "done"
    assert [attempt.order.generation for attempt in scene.workshop.attempts] == [3]


async def test_an_empty_table_of_the_scripts_is_continued_from_the_beginning(scene: Scene) -> None:
    harness.begin(scene.directory)
    assert (await run(scene, scene.plan(generations=1, layout="flat"))).status == "done"


async def test_a_damaged_table_is_refused_and_left_as_it_is(scene: Scene) -> None:
    harness.begin(scene.directory)
    table = scene.directory / "generation_chain.csv"
    table.write_text(table.read_text() + "nonsense\n")
    before = table.read_bytes()
    with pytest.raises(ConfigError, match=r"generation_chain\.csv"):
        await run(scene, scene.plan(layout="flat"))
    assert table.read_bytes() == before


# -- archives -----------------------------------------------------------------------------------


def make_archive(place: Path, generation: int) -> Path:
    """Make an archive as the scripts do, with one agent."""
    agent = place.parent / f"Eko-rold-g{generation:03}-w0-a0"
    (agent / "workspace").mkdir(parents=True)
    (agent / "workspace" / "notes.md").write_text("notes")
    snapshot = place.parent / "world.json"
    snapshot.write_text("{}")
    return save_checkpoint(
        place,
        world_snapshot=snapshot,
        agents={agent.name: agent},
        backend="claude",
        workspace_only=True,
        metadata={
            "generation": generation,
            "elapsed_seconds": 900,
            "run_id": f"old-g{generation:03}",
            "agents_per_world": 1,
        },
    )


def own_archive(scene: Scene, generation: int) -> Path:
    place = scene.directory / "runs" / f"old-g{generation:03}" / "checkpoints"
    place.mkdir(parents=True)
    return make_archive(place / "gen-t000900.ckpt", generation)


def flat_plan(scene: Scene) -> Plan:
    return scene.plan(generations=3, layout="flat", run_prefix="old")


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_an_archive_continues_its_generation_with_the_rest_of_the_time(
    scene: Scene, tmp_path: Path, is_elsewhere: bool
) -> None:
    harness.begin(scene.directory)
    for generation in (1, 2):
        harness.complete(scene.directory, generation, run_id=f"old-g{generation:03}")
    (tmp_path / "elsewhere").mkdir()
    archive = await run_blocking(own_archive, scene, 3)
    if is_elsewhere:
        archive = Path(shutil.move(archive, tmp_path / "elsewhere"))
        shutil.rmtree(scene.directory / "runs" / "old-g003")
    scene.workshop.archives.add(("r1", "old-g003", archive.name))
    outcome = await run(scene, flat_plan(scene), resume_from=archive)
    assert outcome.status == "done"
    (attempt,) = scene.workshop.attempts
    assert attempt.order.origin is not None
    assert attempt.order.origin.file == archive.name
    assert attempt.order.elapsed_s == 900.0
    assert attempt.order.run_id.startswith("old-g003-r")
    kept = scene.directory / "runs" / "old-g003" / "checkpoints" / archive.name
    assert kept.is_file()


async def test_an_import_that_was_killed_between_two_lines_is_completed(scene: Scene) -> None:
    harness.begin(scene.directory)
    harness.complete(scene.directory, 1, run_id="old-g001")
    archive = await run_blocking(own_archive, scene, 2)
    async with scene.experiment(flat_plan(scene), resume_from=archive):
        pass
    journal = scene.directory / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    kinds = ["experiment.begun", "imported", "opened", "checkpoint", "interrupted"]
    assert [line.type for line in read_lines(scene.directory)] == kinds
    for count in range(1, len(lines) + 1):
        journal.write_bytes(b"".join(lines[:count]))
        async with scene.experiment(flat_plan(scene), resume_from=archive):
            pass
        assert [line.type for line in read_lines(scene.directory)] == kinds


async def test_an_archive_of_a_complete_generation_is_refused(scene: Scene) -> None:
    harness.begin(scene.directory)
    harness.complete(scene.directory, 1, run_id="old-g001")
    archive = await run_blocking(make_archive, scene.directory / "gen.ckpt", 1)
    with pytest.raises(ConfigError, match="not of generation 1"):
        async with scene.experiment(flat_plan(scene), resume_from=archive):
            pass


async def test_a_run_that_an_interrupted_script_left_half_done_is_set_aside(scene: Scene) -> None:
    harness.begin(scene.directory)
    harness.complete(scene.directory, 1, run_id="old-g001")
    (scene.directory / "runs" / "old-g002" / "agents").mkdir(parents=True)
    async with scene.experiment(flat_plan(scene)):
        (moved,) = (scene.directory / "runs").glob("old-g002*")
        assert moved.name.startswith("old-g002.failed-")
