"""Fresh engine worlds differ, and the recorded seed repeats each world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox import World
from clawblox.rundir.manifest import read_manifest
from clawblox.rundir.status import read_run
from tests.support.waiting import wait_until
from tests.support.worlds import ask

MAIN = """
local maze = Instance.new("Folder")
maze.Name = "Maze"
maze:SetAttribute("door", math.random(1, 1e9))
maze:SetAttribute("spawn", Random.new():NextNumber())
maze:SetAttribute("guid", game:GetService("HttpService"):GenerateGUID(false))
maze.Parent = workspace
"""


@pytest.fixture
def world_dir(tmp_path) -> Path:
    directory = tmp_path / "maze"
    directory.mkdir()
    (directory / "world.toml").write_text('name = "maze"\n')
    (directory / "main.lua").write_text(MAIN)
    return directory


def look(port: int) -> tuple[Any, ...]:
    """Return the randomly generated maze of a world."""
    headers = {"X-Session": ask(port, "POST", "/join?name=Rocky").json()["session"]}
    seen = ask(port, "GET", "/observe", headers=headers).json()
    (maze,) = (one for one in seen["world"]["entities"] if one["name"] == "Maze")
    found = maze["attributes"]
    return found["door"], found["spawn"], found["guid"]


@pytest.mark.thorough
def test_fresh_worlds_differ_and_their_recorded_seed_repeats_them(world_dir, tmp_path):
    run = tmp_path / "run"
    with World(dir=world_dir, run_dir=run) as world:
        batch = world.start_many(2)
        mazes = [look(one.port) for one in batch]
        assert all(first != second for first, second in zip(*mazes, strict=True))
        seeds = [one.seed for one in batch]
        assert len({*seeds} - {None}) == 2
        manifests = [read_manifest(one.instance_dir) for one in batch]
        assert [manifest.run["seed"] for manifest in manifests] == seeds
        assert [status.seed for status in read_run(run).instances] == seeds
        saved = world.save(instance="w001")
        document = json.loads(saved.path.read_bytes())
        assert document["seed"] == seeds[1]

        for path in ("/health", "/api.md", "/observe", "/spectate", "/chat/messages"):
            assert str(seeds[1]).encode() not in ask(batch["w001"].port, "GET", path).body

        again = world.start(run_dir=tmp_path / "again", reseed=seeds[1])
        assert look(again.port) == mazes[1]
        assert read_manifest(again.instance_dir).run["seed"] == seeds[1]

        (fork,) = world.fork(saved)
        assert look(fork.port) == mazes[1]
        assert (fork.seed, read_manifest(fork.instance_dir).run.get("seed")) == (None, None)


@pytest.mark.thorough
def test_seed_of_many_fresh_worlds_gives_each_its_own_seed(world_dir, tmp_path):
    with World(dir=world_dir) as world:
        batch = world.start_many(2, run_dir=tmp_path / "run", reseed=7)
        assert [one.seed for one in batch] == [7, 8]
        first, second = (look(one.port) for one in batch)
        assert first != second


@pytest.mark.thorough
def test_a_restart_without_a_save_repeats_the_world(world_dir, tmp_path):
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run")
        maze = look(started.port)
        restarted = world.restart(started.name)
        assert look(restarted.port) == maze
        assert restarted.seed == started.seed


@pytest.mark.thorough
def test_watched_world_that_restarts_fresh_keeps_its_seed(world_dir, tmp_path):
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run", watch=True)
        maze = look(started.port)
        (world_dir / "main.lua").write_text(MAIN + "print('changed')\n")
        wait_until(lambda: started.log_file.read_text().count("Spectator frontend") == 2)
        assert look(started.port) == maze
