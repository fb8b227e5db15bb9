"""Runs a script as a world, for small tests, and the worlds in ``worlds``."""

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
    """Return a copy of a test world, including the module for its reports."""
    copy = directory / name
    shutil.copytree(HOME / name, copy)
    scripts = copy / "scripts" / "ServerScriptService"
    scripts.mkdir(parents=True, exist_ok=True)
    shutil.copy(HOME / "Check.module.lua", scripts)
    return copy


def read_plan(directory: Path) -> Plan:
    """Return the plan for the agents of a world, from its ``play.json``."""
    return Plan(read_json(directory / "play.json", []))


def read_json(path: Path, default: Any) -> Any:
    """Return the contents of a JSON file, or the default if it is missing."""
    return json.loads(path.read_text()) if path.is_file() else default


def report(run: Run) -> dict[str, Any]:
    """Return the attributes that contain the report of a world."""
    folder = run.world._parts.model.workspace.find_child("Report")
    assert folder is not None, "\n".join(run.lines)
    return folder.attributes


def play(
    directory: Path, main: str, ticks: int = 0, plan: Plan | None = None, **settings: Any
) -> Run:
    """Run a main script for some ticks.

    Args:
        directory: Directory for the script.
        main: The script.
        ticks: Number of ticks to run.
        plan: Actions of agents.
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
    """Return the lines that scripts have printed."""
    return [line.removeprefix("out [Lua] ") for line in run.lines if line.startswith("out [Lua] ")]


def say(directory: Path, main: str, ticks: int = 0, plan: Plan | None = None) -> list[str]:
    """Run a main script that must not fail; return its printed lines."""
    run = play(directory, main, ticks, plan)
    assert run.world.failure is None, run.lines
    assert run.world._parts.scheduler.errors.count == 0, run.lines
    return printed(run)
