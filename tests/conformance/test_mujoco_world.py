"""A MuJoCo world with observable derived arrays, restored in exact and inexact ways."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from clawblox.conformance import Report, check_world

pytest.importorskip("mujoco")
pytestmark = pytest.mark.anyio

WORLD = Path(__file__).parent.parent / "worlds" / "mujoco_derived" / "world.py"


async def check(parent: Path, restore: str, clock: str) -> Report:
    directory = parent / "world"
    directory.mkdir()
    shutil.copy(WORLD, directory)
    command = f'["env", "RESTORE={restore}", "{{python}}", "world.py", "--clock", "{clock}"]'
    (directory / "world.toml").write_text(f'name = "box"\n[run]\ncommand = {command}\n')
    return await check_world(directory, ["restore.trace", "restore.landings"], seed=7)


def trace_status(report: Report) -> str:
    return next(result.status for result in report.checks if result.id == "restore.trace")


@pytest.mark.thorough
async def test_unsaved_derived_arrays_fail_the_check(tmp_path: Path) -> None:
    report = await check(tmp_path, "integration", "lockstep")
    assert report.verdict.grade == "not_exact"
    trace = report.checks[0]
    assert trace.status == "failed"
    assert trace.path in ("body.box", "body.acceleration")


@pytest.mark.thorough
async def test_restore_that_derives_arrays_again_fails_the_check(tmp_path: Path) -> None:
    assert trace_status(await check(tmp_path, "forward", "lockstep")) == "failed"


@pytest.mark.thorough
@pytest.mark.parametrize("restore", ["arrays", "every_step"])
async def test_saved_arrays_and_arrays_derived_after_every_step_are_exact(
    tmp_path: Path, restore: str
) -> None:
    report = await check(tmp_path, restore, "lockstep")
    assert trace_status(report) == "passed", report.checks[0]


@pytest.mark.thorough
@pytest.mark.parametrize("restore", ["integration", "arrays", "every_step"])
async def test_only_integrated_state_is_detected_at_500_hz_in_real_time(
    tmp_path: Path, restore: str
) -> None:
    report = await check(tmp_path, restore, "realtime")
    assert trace_status(report) == "passed", report.checks
