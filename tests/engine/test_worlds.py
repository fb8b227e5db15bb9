"""Plays the worlds of ``tests/engine/worlds``, which check the engine in Luau."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawblox.engine.datastore.settings import Backend
from clawblox.engine.settings import read_settings
from clawblox.luau import run_deep
from tests.engine.playing import WORLDS, copy_world, read_plan, report
from tests.engine.torture import Run

MAX_TICKS = 3000


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_finds_no_failure(name: str, tmp_path: Path) -> None:
    directory = copy_world(name, tmp_path)

    def play() -> Run:
        run = Run(read_settings(directory), read_plan(directory), Backend.SQLITE)
        run.start()
        while run.world.halted_error is None and run.world.tick < MAX_TICKS:
            run.step()
            if report(run)["Done"]:
                break
        run.close()
        return run

    run = run_deep(play)
    said = "\n".join(run.lines)
    assert run.world.halted_error is None, said
    found = report(run)
    assert found["Failures"] == "", found["Failures"]
    assert found["Done"], f"not done after {MAX_TICKS} ticks\n{said}"
    assert found["Checks"] > 0
