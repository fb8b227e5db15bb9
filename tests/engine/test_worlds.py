"""Plays the worlds of ``tests/engine/worlds``, which check the engine in Luau.

A world may have ``play.json``, the actions of its agents; ``seen.json``, rows ``[tick, path,
value]`` of expected observations and spectator states; and ``lines.json``, its expected lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.runner import Backend
from clawblox.engine.settings import read_settings
from clawblox.luau import run_deep
from tests.engine.playing import WORLDS, copy_world, read_json, read_plan, report
from tests.engine.torture import Run, agent_id
from tests.support.sampling import sampled

MAX_TICKS = 3000


@pytest.mark.parametrize("name", sampled(WORLDS, every=2))
def test_test_world_reports_no_failures(name: str, tmp_path: Path) -> None:
    directory = copy_world(name, tmp_path)
    rows = read_json(directory / "seen.json", [])
    found: list[Any] = []

    def play() -> Run:
        run = Run(read_settings(directory), read_plan(directory), Backend.SQLITE).start()
        while run.world.failure is None and run.world.tick < MAX_TICKS:
            found.extend(look(run, path) for tick, path, _ in rows if tick == run.world.tick)
            run.step()
            if report(run)["Done"]:
                break
        run.close()
        return run

    run = run_deep(play)
    said = "\n".join(run.lines)
    assert run.world.failure is None, said
    reported = report(run)
    assert reported["Failures"] == "", reported["Failures"]
    assert reported["Done"], f"not done after {MAX_TICKS} ticks\n{said}"
    assert reported["Checks"] > 0
    paths = [path for _, path, _ in rows]
    assert dict(enumerate(zip(paths, found, strict=True))) == {
        at: (path, value) for at, (_, path, value) in enumerate(rows)
    }
    assert run.lines == read_json(directory / "lines.json", run.lines)


def look(run: Run, path: str) -> Any:
    """Return the value at a path in a record; ``*`` selects each member of a list."""
    return follow({**run.record(), "hears": hears(run)}, path.split("."))


def hears(run: Run) -> dict[str, list[str] | None]:
    names = {agent_id(name): name for name in run.names}
    heard = {name: run.world.audience(ident) for ident, name in names.items()}
    return {name: each and [names[ident] for ident in each] for name, each in heard.items()}


def follow(value: Any, path: list[str]) -> Any:
    for at, name in enumerate(path):
        if name == "*":
            return [follow(member, path[at + 1 :]) for member in value]
        value = value[int(name) if isinstance(value, list) else name]
    return value
