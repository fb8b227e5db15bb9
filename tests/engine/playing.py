"""Runs a script as a world, for tests of one thing each, and the worlds of ``worlds``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from clawblox.engine.settings import EngineSettings
from clawblox.luau import run_deep
from tests.engine.torture import Plan, Run

HOME = Path(__file__).parent / "worlds"
WORLDS = sorted(path.parent.name for path in HOME.glob("*/world.toml"))
"""The worlds that check the engine."""


def copy_world(name: str, directory: Path) -> Path:
    """Return a copy of a world of the tests, with the module that it reports with."""
    copy = directory / name
    shutil.copytree(HOME / name, copy)
    scripts = copy / "scripts" / "ServerScriptService"
    scripts.mkdir(parents=True, exist_ok=True)
    shutil.copy(HOME / "Check.module.lua", scripts)
    return copy


def read_plan(directory: Path) -> Plan:
    """Return what the agents of a world do, from its ``play.json``."""
    return Plan(read_json(directory / "play.json", []))


def read_json(path: Path, default: Any) -> Any:
    """Return what a JSON file holds, the default if it is missing."""
    return json.loads(path.read_text()) if path.is_file() else default


def report(run: Run) -> dict[str, Any]:
    """Return the attributes with which a world reports."""
    folder = run.world._parts.model.workspace.find_child("Report")
    assert folder is not None, "\n".join(run.lines)
    return folder.attributes


def play(
    directory: Path, main: str, ticks: int = 0, plan: Plan | None = None, **settings: Any
) -> Run:
    """Run a main script for some ticks.

    Args:
        directory: Where to put the script.
        main: The script.
        ticks: How many ticks to run.
        plan: What agents do.
        settings: Settings that differ from the defaults.
    """
    (directory / "main.lua").write_text(main)

    def run() -> Run:
        made = Run(EngineSettings(directory=directory, **settings), plan or Plan())
        try:
            made.start()
        except Exception:
            if made.world.failure is None:
                raise
        for _ in range(ticks):
            made.step()
        return made

    return run_deep(run)


def printed(run: Run) -> list[str]:
    """Return what scripts have printed."""
    return [line.removeprefix("out [Lua] ") for line in run.lines if line.startswith("out [Lua] ")]


def say(directory: Path, main: str, ticks: int = 0, plan: Plan | None = None) -> list[str]:
    """Run a main script that must not fail; return what it prints."""
    run = play(directory, main, ticks, plan)
    assert run.world.failure is None, run.lines
    assert run.world._parts.scheduler.errors.count == 0, run.lines
    return printed(run)
