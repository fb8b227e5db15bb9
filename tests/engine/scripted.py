"""Runs a script as a world, for tests of one thing each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawblox.engine.settings import EngineSettings
from clawblox.luau import run_deep
from tests.engine.torture import Plan, Run


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
            if made.world.halted_error is None:
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
    assert run.world.halted_error is None, run.lines
    return printed(run)
