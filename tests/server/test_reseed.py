"""Worlds that take another seed: they part ways from there, and each of them repeatably."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import clawblox.cli
from clawblox.server import Simulation
from tests.recording.files import read_all
from tests.server.conftest import EXAMPLES, LaunchedWorld
from tests.server.test_examples import JSON, make_simulation

STARTER = Path(clawblox.cli.__file__).with_name("starter")
WALK = ["east"] * 7 + ["north", "west", "west", "west", "west", "west", "west", "north"] * 4


def play(world: LaunchedWorld, session: str) -> dict[str, Any]:
    """Do what needs chance: take an agent in, and walk over flowers. Return the state."""
    world.ask("POST", "/join?name=Newcomer")
    headers = {"X-Session": session, **JSON}
    for data in WALK if b"# Meadow" in world.ask("GET", "/api.md").body else []:
        body = json.dumps({"type": "Walk", "data": data}).encode()
        assert world.ask("POST", "/input", headers=headers, body=body).status == 200
    return world.snapshot().json()["state"]


@pytest.mark.thorough
@pytest.mark.parametrize("directory", [EXAMPLES / "marbles", STARTER], ids=lambda path: path.name)
def test_a_seed_decides_how_a_resumed_world_continues(launch, tmp_path, directory):
    program = directory / "world.py"
    declared = tomllib.loads((directory / "world.toml").read_text())["run"]
    assert (declared["reseed"], declared["listen"]) == (True, "inherit")
    original = launch(program)
    session = original.ask("POST", "/join?name=Rocky").json()["session"]
    saved = tmp_path / "snapshot.json"
    saved.write_bytes(original.snapshot().body)

    def resume(seed: str) -> LaunchedWorld:
        return launch(program, env={"WORLD_RESUME_PATH": str(saved), "WORLD_RESEED": seed})

    reseeded = resume("7")
    state, old = reseeded.snapshot().json(), json.loads(saved.read_bytes())
    assert state.pop("state") | {"random": None} == old.pop("state") | {"random": None}
    assert (state.pop("seed"), old.pop("seed")) == (7, None)
    assert state == old  # everything but chance is as it was, sessions included

    exact = play(original, session)
    first, again, other = (play(w, session) for w in (reseeded, resume("7"), resume("8")))
    assert first == again
    assert first != other
    assert exact not in (first, other)
    assert play(resume(""), session) == exact


@pytest.mark.parametrize(
    ("directory", "placed"),
    [(EXAMPLES / "marbles", "discs"), (STARTER, "flowers")],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_seed_decides_how_a_fresh_world_begins(launch, directory, placed):
    plain, first, again, other = (
        launch(directory / "world.py", *flags).snapshot().json()
        for flags in ([], ["--reseed", "7"], ["--reseed", "7"], ["--reseed", "8"])
    )
    assert first["state"] == again["state"]
    places = [str(document["state"][placed]) for document in (plain, first, other)]
    assert len({*places}) == 3
    assert [document["seed"] for document in (plain, first, other)] == [None, 7, 8]
    assert first["time"] == 0


def test_a_restored_world_keeps_the_recorded_seed_until_it_gets_another(launch, tmp_path):
    program = STARTER / "world.py"
    saved = tmp_path / "snapshot.json"
    saved.write_bytes(launch(program, "--reseed", "7").snapshot().body)
    kept = launch(program, "--resume", str(saved)).snapshot().json()
    assert kept["seed"] == 7
    reseeded = launch(program, "--resume", str(saved), "--reseed", "8").snapshot().json()
    assert reseeded["seed"] == 8
    assert reseeded["state"]["flowers"] == kept["state"]["flowers"]


def test_a_recording_holds_the_seed(launch, tmp_path):
    env = {"WORLD_RECORD": "1", "WORLD_RECORD_DIR": str(tmp_path), "WORLD_RESEED": "7"}
    assert launch(EXAMPLES / "marbles" / "world.py", env=env).port
    (recording,) = tmp_path.glob("*.jsonl.zst")
    assert read_all(recording)[0]["reseed"] == 7


@pytest.mark.parametrize("name", ["marbles", "mujoco_carts"])
def test_an_example_declares_reseed_if_it_supports_it(name):
    config = tomllib.loads((EXAMPLES / name / "world.toml").read_text())["run"]
    can = type(make_simulation(name)).reseed is not Simulation.reseed
    assert config.get("reseed", False) is can
    assert config["listen"] == "inherit"
