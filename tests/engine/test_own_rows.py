"""Rows of data stores belong to an instance, and a save contains the rows at its tick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawblox import World, read_manifest
from clawblox.errors import WorldStartError
from clawblox.results import StartedWorld
from clawblox.snapshot.rows import rows_beside
from tests.engine.datastore.postgres_server import postgres_server
from tests.support.sockets import free_port
from tests.support.waiting import wait_until
from tests.support.worlds import ask

MAIN = """
local store = game:GetService("DataStoreService"):GetDataStore("scores")
local board = Instance.new("Folder")
board.Name = "Board"
board:SetAttribute("kind", "board")
board.Parent = workspace
local function read()
    local value = store:GetAsync("best")
    board:SetAttribute("best", if value == nil then "none" else tostring(value))
end
game:GetService("AgentInputService").InputReceived:Connect(function(player, action, data)
    board:SetAttribute("best", nil)
    if action == "Write" then store:SetAsync("best", data.value) end
    read()
end)
"""


@pytest.fixture
def world_dir(tmp_path) -> Path:
    directory = tmp_path / "scores"
    directory.mkdir()
    (directory / "world.toml").write_text('name = "scores"\n')
    (directory / "main.lua").write_text(MAIN)
    return directory


def send(world: StartedWorld, action: str, data: Any = None) -> str:
    """Send an input and return the best score that the world reads from its data store."""
    joined = ask(world.port, "POST", "/join?name=Rocky").json()
    headers = {"X-Session": joined["session"], "Content-Type": "application/json"}
    body = json.dumps({"type": action, "data": data}).encode()
    assert ask(world.port, "POST", "/input", headers=headers, body=body).status == 200

    def look() -> str | None:
        seen = ask(world.port, "GET", "/observe", headers=headers).json()
        (board,) = (one for one in seen["world"]["entities"] if one["name"] == "Board")
        found: str | None = board["attributes"].get("best")
        return found

    best = wait_until(look, what="the score is read")
    ask(world.port, "POST", "/leave", headers=headers)
    return best


def write(world: StartedWorld, value: int) -> None:
    assert send(world, "Write", {"value": value}) == str(value)


@pytest.mark.thorough
def test_fork_starts_with_the_rows_of_its_save_and_diverges(world_dir, tmp_path):
    with World(dir=world_dir, run_dir=tmp_path / "run") as world:
        (origin,) = world.start_many(1)
        write(origin, 42)
        saved = world.save()
        write(origin, 43)
        first, second = world.fork(saved, 2)
        assert [send(fork, "Read") for fork in (first, second)] == ["42", "42"]
        write(first, 7)
        assert [send(one, "Read") for one in (origin, first, second)] == ["43", "7", "42"]
    assert not [*(world_dir / ".clawblox").glob("*.db*")]
    (entry,) = read_manifest(origin.instance_dir).checkpoints
    assert entry["rows_sha256"] == saved["rows_sha256"]
    assert entry["rows_size_bytes"] == rows_beside(saved.path).stat().st_size
    names = {one.name for one in saved.path.parent.iterdir()}
    assert names == {saved.path.name, f"{saved.path.name}.rows.db"}


@pytest.mark.thorough
def test_instance_keeps_its_rows_on_another_port_but_others_do_not_get_them(world_dir, tmp_path):
    with World(dir=world_dir, run_dir=tmp_path / "run") as world:
        first, second = world.start_many(2)
        write(first, 42)
        assert send(second, "Read") == "none"
        world.stop_all()
        (again,) = world.start_many([{"name": first.name}])
        assert send(again, "Read") == "42"
        lone = world.start(run_dir=tmp_path / "lone")
        assert send(lone, "Read") == "none"


@pytest.mark.thorough
def test_restart_restores_the_saved_rows_unless_it_is_fresh(world_dir, tmp_path):
    with World(dir=world_dir, run_dir=tmp_path / "run") as world:
        (started,) = world.start_many(1)
        empty = world.save()
        write(started, 42)
        world.save()
        write(started, 43)
        assert send(world.restart(started.name, fresh=True), "Read") == "43"
        assert send(world.restart(started.name, save=False), "Read") == "42"
        (fork,) = world.fork(empty)
        assert send(fork, "Read") == "none"


@pytest.mark.thorough
def test_an_archive_carries_the_rows(world_dir, tmp_path):
    with World(dir=world_dir, run_dir=tmp_path / "run") as world:
        (started,) = world.start_many(1)
        write(started, 42)
        archive = world.checkpoint(tmp_path / "state.ckpt")
        write(started, 43)
        loaded = world.start(run_dir=tmp_path / "loaded", resume=archive, port=free_port())
        assert send(loaded, "Read") == "42"
        (forked,) = world.fork(archive, run_dir=tmp_path / "forked")
        assert send(forked, "Read") == "42"


@pytest.mark.thorough
def test_start_on_a_given_port_uses_the_rows_of_that_port(world_dir, tmp_path):
    port = free_port()
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run", port=port)
        write(started, 42)
        saved = world.save()
        assert "rows_sha256" not in saved
        assert not rows_beside(saved.path).exists()
        world.stop()
        resumed = world.start(run_dir=tmp_path / "other", port=port, resume=saved)
        assert send(resumed, "Read") == "42"
    assert (world_dir / ".clawblox" / f"local-{port}.db").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("damage", ["changed", "missing", "a link"])
def test_rows_that_differ_from_the_saved_rows_are_refused(world_dir, tmp_path, damage):
    with World(dir=world_dir, run_dir=tmp_path / "run") as world:
        (started,) = world.start_many(1)
        write(started, 42)
        saved = world.save()
        rows = rows_beside(saved.path)
        content = rows.read_bytes()
        rows.unlink()
        if damage == "changed":
            rows.write_bytes(content + b"more")
        elif damage == "a link":
            (tmp_path / "elsewhere").write_bytes(content)
            rows.symlink_to(tmp_path / "elsewhere")
        batch = world.fork(saved)
        (error,) = batch.failed.values()
        assert isinstance(error, WorldStartError)
        assert str(rows) in str(error)
        restarted = world.restart(started.name, save=False)
        assert restarted.resume_path is None  # that save is invalid


@pytest.mark.thorough
def test_removing_old_autosaves_removes_their_rows(world_dir, tmp_path):
    with World(dir=world_dir, run_dir=tmp_path / "run") as world:
        (started,) = world.start_many(1)
        write(started, 42)
        place = started.instance_dir / "checkpoints"
        world.autosave(every=0.05, keep=1)
        made: set[str] = set()

        def has_saved_three_times() -> bool:
            made.update(one.name for one in place.glob("*.json"))
            return len(made) > 2

        wait_until(has_saved_three_times, what="three autosaves")
    snapshots = [*place.glob("*.json")]
    assert len(snapshots) <= 2
    assert {one.name for one in place.glob("*.rows.db")} == {
        f"{one.name}.rows.db" for one in snapshots
    }


@pytest.mark.thorough
def test_fork_with_rows_in_postgres_shares_them_and_emits_an_event(world_dir, tmp_path):
    with postgres_server() as server, World(dir=world_dir, run_dir=tmp_path / "run") as world:
        postgres: Any = {"datastore": "postgres", "env": {"DATABASE_URL": server.url}}
        (origin,) = world.start_many(1, **postgres)
        write(origin, 42)
        saved = world.save()
        assert "rows_sha256" not in saved
        with world.events() as events:
            (fork,) = world.fork(saved, **postgres)
            event = next(event for event in events if event.kind == "rows_shared")
        assert (event.subject, event.data["path"]) == (fork.name, saved.path)
        write(fork, 43)
        assert send(origin, "Read") == "43"
