"""The worlds of ``examples`` meet every requirement, and their restores are exact."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clawblox.conformance import check_world

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]

EXAMPLES = Path(__file__).parents[2] / "examples"
GRADES = {
    "marbles": "exact",
    "mujoco_carts": "exact",
    "platform_race": "exact_in_simulated_time",
    "workshop": "exact_in_simulated_time",
}


def test_every_example_with_a_world_is_checked() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/world.toml")} == GRADES.keys()


async def require_conformance(directory: Path, grade: str) -> None:
    report = await check_world(directory, seed=3)
    assert report.having("failed") == ()
    # On a busy machine, inputs may never land together.
    could_not_run = {result.id for result in report.having("could_not_run")}
    assert could_not_run <= {"restore.landings", "restore.pending"}
    assert report.verdict.grade in (grade, "exact_as_far_as_seen" if could_not_run else grade)


@pytest.mark.parametrize("name", GRADES)
async def test_an_example_conforms(name: str) -> None:
    await require_conformance(EXAMPLES / name, GRADES[name])


async def test_marbles_also_conforms_in_real_time(tmp_path: Path) -> None:
    directory = tmp_path / "marbles"
    shutil.copytree(EXAMPLES / "marbles", directory)
    path = directory / "world.toml"
    command = 'command = ["{python}", "world.py"]'
    text = path.read_text()
    assert command in text
    path.write_text(text.replace(command, command[:-1] + ', "--clock", "realtime"]'))
    await require_conformance(directory, "exact_in_simulated_time")
