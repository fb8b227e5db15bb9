"""An experiment continues a directory that the public generation scripts began, and the reverse."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.errors import ConfigError
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
