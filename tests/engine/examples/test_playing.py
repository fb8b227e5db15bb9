"""The examples can be played by following their documents."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawblox.engine.runner import Backend
from clawblox.engine.settings import read_settings, read_skill
from clawblox.luau import run_deep
from tests.engine.examples import builder, racer
from tests.engine.torture import ROOT, Plan, Run, agent_id

Choose = Callable[[Any], tuple[str, Any] | None]

EVERY = 6
"""Ticks between two actions of an agent: ten actions per second."""


def play(directory: Path, ticks: int, choosers: dict[str, Choose], until: Callable[[Any], Any]):
    """Let agents play; return their final observations, and the lines of the world."""

    def run() -> tuple[dict[str, Any], list[str]]:
        plan = Plan()
        for name in choosers:
            plan.join(0, name)
        run = Run(read_settings(directory), plan, Backend.SQLITE).start()
        run.step()
        seen: dict[str, Any] = {}
        for tick in range(ticks):
            if tick % EVERY == 0:
                seen = {name: run.world.observe(agent_id(name)) for name in choosers}
                if all(map(until, seen.values())):
                    break
                for name, choose in choosers.items():
                    action = choose(seen[name])
                    if action is not None:
                        run.world.act(agent_id(name), *action)
            run.step()
        assert run.world.failure is None, run.lines
        run.close()
        return seen, run.lines

    return run_deep(run)


def folder(seen: Any, name: str) -> dict[str, Any]:
    """Return the attributes of a folder in an observation."""
    found = [each for each in seen["world"]["entities"] if each["name"] == name]
    return found[0]["attributes"] if found else {}


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / "workshop", tmp_path / "workshop"))


@pytest.mark.thorough
def test_a_racer_reaches_the_finish():
    seen, lines = play(
        ROOT / "examples" / "platform_race",
        40 * 60,
        {"Ada": racer.choose},
        lambda seen: seen["player"]["attributes"]["Finished"],
    )
    racer_sees = seen["Ada"]
    attributes = racer_sees["player"]["attributes"]
    assert attributes["Checkpoint"] == 5
    assert attributes["Deaths"] == 0
    assert attributes["Coins"] == 6
    assert 10 < attributes["RaceTime"] < 30
    assert folder(racer_sees, "Race")["BestPlayer"] == "Ada"
    assert lines[-1] == f"out [Lua] Ada finished after {attributes['RaceTime']} s"


def test_falling_racer_returns_to_the_last_checkpoint():
    fallen: list[Any] = []

    def choose(seen: Any) -> tuple[str, Any] | None:
        if not fallen and seen["player"]["attributes"]["Checkpoint"] == 2:
            fallen.append(seen["player"]["position"])
            return "MoveTo", {"position": [52, 0, 40]}
        return None if fallen else racer.choose(seen)

    seen, _ = play(
        ROOT / "examples" / "platform_race",
        20 * 60,
        {"Ada": choose},
        lambda seen: seen["player"]["attributes"]["Deaths"],
    )
    attributes = seen["Ada"]["player"]["attributes"]
    assert attributes["Deaths"] == 1
    assert attributes["LastDeath"] == "lava"
    assert attributes["Checkpoint"] == 2
    x, y, z = seen["Ada"]["player"]["position"]
    assert abs(x - 52) < 1
    assert y > 12
    assert abs(z) < 1


@pytest.mark.thorough
def test_builder_leads_the_ranking_even_in_the_next_world(workshop: Path):
    seen, lines = play(
        workshop,
        30 * 60,
        {"Ada": builder.Builder().choose},
        lambda seen: folder(seen, "Leaderboard"),
    )
    attributes = seen["Ada"]["player"]["attributes"]
    assert attributes["Message"] == "placed Brick"
    assert attributes["Points"] == builder.POINTS
    assert folder(seen["Ada"], "Building") == {"Blocks": 4}
    assert folder(seen["Ada"], "Leaderboard") == {"Place1": f"Ada: {builder.POINTS}"}
    blocks = [each for each in seen["Ada"]["world"]["entities"] if each["name"] in builder.PLACES]
    assert {each["name"]: each["position"] for each in blocks} == {
        name: [float(number) for number in place] for name, place in builder.PLACES.items()
    }
    assert not [line for line in lines if line.startswith("err")]
    later, _ = play(workshop, 60, {"Bo": lambda _: None}, lambda seen: folder(seen, "Leaderboard"))
    assert folder(later["Bo"], "Leaderboard") == {"Place1": f"Ada: {builder.POINTS}"}


def test_documents_of_the_examples_list_every_action():
    for name in ("platform_race", "workshop"):
        directory = ROOT / "examples" / name
        document = read_skill(read_settings(directory))
        main = (directory / "main.lua").read_text()
        actions = [
            line.split("actions.")[1] for line in main.splitlines() if "function actions." in line
        ]
        assert len(actions) > 3
        for action in actions:
            assert f"`{action.partition('(')[0]}`" in document
        assert "snapshot" not in document.lower()
