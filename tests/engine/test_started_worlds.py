"""Engine worlds in separate processes, started by `World` and the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from clawblox import Agent, ScriptErrors, World, read_manifest
from clawblox.engine.script_watch import CHANGED_ENV, strip_flags
from clawblox.errors import ConfigError, WorldStartError
from clawblox.extras import install_command
from clawblox.instance import launch
from clawblox.rundir.status import read_run
from tests.support.sockets import free_port
from tests.support.waiting import HANG_S, wait_until
from tests.support.websockets import WebSocketClient
from tests.support.worlds import ask

MAIN = """
local count = Instance.new("Folder")
count.Name = "Count"
count:SetAttribute("joined", 0)
count.Parent = workspace
game:GetService("Players").PlayerAdded:Connect(function(player)
    count:SetAttribute("joined", count:GetAttribute("joined") + 1)
    if player.Name == "Jonah" then error("no room on the ship") end
end)
"""


@pytest.fixture
def world_dir(tmp_path) -> Path:
    directory = tmp_path / "counting"
    directory.mkdir()
    (directory / "world.toml").write_text('name = "counting"\ngame_type = "lua"\n')
    (directory / "main.lua").write_text(MAIN)
    (directory / "math.py").write_text("raise SystemExit('a file of the world was imported')")
    return directory


def test_an_engine_world_starts_saves_resumes_and_forks_without_a_command(world_dir, tmp_path):
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run", record=True, datastore="none")
        assert started.command[1:4] == ["-P", "-m", "clawblox.engine"]
        assert started.command[-2:] == ["--datastore", "none"]
        assert started.start_command == ["clawblox", "run", str(world_dir)]
        assert (started.delegated, started.run_command) == (False, None)
        access = world.connect(agent="Rocky")
        saved = world.save()
        world.stop(grace_seconds=5)
        resumed = world.start(run_dir=tmp_path / "run", resume=saved, reseed=7)
        headers = access["headers"]
        seen = ask(resumed.port, "GET", "/observe", headers=headers).json()
        assert seen.keys() == {
            *("tick", "game_status", "player", "other_players"),
            *("world", "events", "recent_events"),
        }
        counts = [entity for entity in seen["world"]["entities"] if entity["name"] == "Count"]
        assert [count["attributes"] for count in counts] == [{"joined": 1}]
        [forked] = world.fork(saved, run_dir=tmp_path / "forks")
        again = ask(forked.port, "POST", "/join", headers=headers).json()
        assert again["agent_id"] == access["agent_id"]
        log = started.log_file.read_text()
        assert "Starting counting (max 8 players)\nScript: main.lua\n" in log
        assert f"Spectator frontend: http://127.0.0.1:{started.port}/\n" in log
    refuses_a_snapshot_of_other_scripts(world_dir, saved.path)


@pytest.mark.thorough
def test_agent_can_request_the_map_with_the_gravity_of_the_world(world_dir, tmp_path):
    (world_dir / "world.toml").write_text('name = "counting"\n[physics]\ngravity = 30\n')
    main = (
        'local wall = Instance.new("Part") wall:AddTag("Static") '
        'wall:SetAttribute("Gravity", workspace.Gravity) wall.Parent = workspace\n'
    )
    (world_dir / "main.lua").write_text(main)
    with World(dir=world_dir) as world:
        world.start(run_dir=tmp_path / "run", datastore="none")
        agent = Agent(agent="claude", name="Rocky", dir=tmp_path / "Rocky")
        access = world.connect(agent=agent)
        port = int(access["base_url"].rpartition(":")[2])
        (wall,) = ask(port, "GET", "/map").json()["entities"]
        assert wall["attributes"] == {"Gravity": 30}
        assert ask(port, "GET", "/spectate").status == 403
        assert ask(port, "GET", "/health").status == 403
        agent.close()


@pytest.mark.thorough
def test_slow_world_is_reported_only_to_its_operator(world_dir, tmp_path):
    (world_dir / "world.toml").write_text(
        'name = "counting"\n[run.liveness]\nperiod = 0.2\ntimeout = 20\n'
    )
    busy = "game:GetService('RunService').Heartbeat:Connect(function() for _ = 1, 4e6 do end end)"
    (world_dir / "main.lua").write_text(busy)
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run", datastore="none")
        wait_until(lambda: "w000" in world.tick_rates, HANG_S, "the rate is measured")
        rate = world.tick_rates["w000"]
        assert rate.nominal_hz == 60.0
        assert rate.achieved_hz > 0
        assert rate.tick_cost_s > 0
        assert rate.share < 0.9
        assert ask(started.port, "GET", "/health").json() == {"status": "ok"}


@pytest.mark.thorough
def test_script_errors_reach_the_operator_and_are_counted_across_a_restore(world_dir, tmp_path):
    run = tmp_path / "run"
    text = "Failed to fire PlayerAdded: main.lua:8: no room on the ship"
    with World(dir=world_dir) as world:
        started = world.start(run_dir=run, datastore="none")
        access = world.connect(agent="Jonah")
        assert ask(started.port, "GET", "/health").json() == {"status": "ok"}
        seen = ask(started.port, "GET", "/observe", headers=access["headers"])
        assert seen.status == 200
        assert b"no room" not in seen.body
        saved = world.save()
        world.stop()
        assert read_errors(run) == ScriptErrors(1, text)
        world.start(run_dir=run, resume=saved, datastore="none")
        world.stop()
        assert read_errors(run) == ScriptErrors(1, text)
        started = world.start(run_dir=run, resume=saved, datastore="none")
        ask(started.port, "POST", "/join?name=Jonah")
        world.stop()
        assert read_errors(run) == ScriptErrors(2, text)


def read_errors(run: Path) -> ScriptErrors:
    """Return the errors of the only instance, after comparing them with the manifest."""
    (status,) = read_run(run).instances
    assert read_manifest(run).run["script_errors"] == attrs.asdict(status.script_errors)
    return status.script_errors


def refuses_a_snapshot_of_other_scripts(world_dir: Path, saved: Path) -> None:
    """Check that one line names the program and the change, and that no port is opened."""
    (world_dir / "main.lua").write_text(MAIN + "print(1)\n")
    command = [sys.executable, "-m", "clawblox.engine", str(world_dir), "--port", "0"]
    refused = subprocess.run(
        [*command, "--resume", str(saved)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert refused.returncode == 65
    start = f"python -m clawblox.engine: refusing the snapshot {saved}: its scene_hash is "
    assert refused.stderr.startswith(start)
    assert refused.stderr.endswith(": the world's files or rules have changed since it was saved\n")


@pytest.mark.thorough
def test_halted_engine_world_still_answers_requests(world_dir, tmp_path):
    toml = world_dir / "world.toml"
    toml.write_text(toml.read_text() + '[scripts]\non_error = "halt"\n')
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run")
        answer = ask(started.port, "POST", "/join?name=Jonah")
        assert answer.status == 503
        text = answer.body.decode()
        assert text.startswith("Game halted: Failed to fire PlayerAdded: ")
        assert text.endswith("no room on the ship. See logs for full stack trace: logs/w000.log")
        assert ask(started.port, "GET", "/renderer/manifest").status == 200
        log = started.log_file.read_text()
        assert "[Lua Error] Failed to fire PlayerAdded: " in log
        assert "[Halted] Instance stopped due to Lua error." in log


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)]
)
def test_the_program_stops_on_a_signal_and_spectators_see_the_world(world_dir, number, tmp_path):
    port = free_port()
    log_file = tmp_path / "log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "clawblox.engine", "counting", "--port", str(port)],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: "Server running" in log_file.read_text(), what="the world serves")
        with WebSocketClient(port, "/spectate/ws") as socket:
            states = socket.states()
            assert next(states)["game_status"] == "playing"
            assert next(states)["tick"] < next(states)["tick"]
        os.kill(process.pid, number)
        assert process.wait(HANG_S) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log_file.read_text()


@pytest.mark.thorough
def test_a_world_without_rows_runs_from_a_directory_that_cannot_be_written(world_dir, tmp_path):
    (world_dir / ".clawblox").write_text("a file where a directory would be made")
    before = sorted(world_dir.rglob("*"))
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run", datastore="none")
        assert ask(started.port, "POST", "/join?name=Rocky").status == 200
        world.start(run_dir=tmp_path / "second", resume=world.save(), datastore="none")
        world.stop_all()
    assert sorted(world_dir.rglob("*")) == before
    with World(dir=world_dir) as world, pytest.raises(WorldStartError, match=r"\.clawblox"):
        world.start(run_dir=tmp_path / "third")


def test_start_without_the_engine_extra_names_the_extra(world_dir, monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "find_missing", lambda _extra: ("rapier3d",))
    with World(dir=world_dir) as world, pytest.raises(ConfigError) as caught:
        world.start(run_dir=tmp_path / "run")
    assert install_command("engine") in str(caught.value)


def test_manual_start_without_the_extra_names_it_in_a_single_line(world_dir):
    code = (
        "import runpy, sys; sys.modules |= {'numpy': None, 'starlette': None}; "
        "runpy.run_module('clawblox.engine', run_name='__main__')"
    )
    refused = subprocess.run(
        [sys.executable, "-c", code, str(world_dir)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        f"python -m clawblox.engine: not installed: numpy, starlette; {install_command('engine')}\n"
    )


@pytest.mark.parametrize("option", [{"datastore": "none"}, {"watch": True}])
def test_engine_options_are_refused_for_other_worlds(tmp_path, option):
    (tmp_path / "world.toml").write_text('name = "w"\nrun.command = ["true"]\n')
    with World(dir=tmp_path) as world, pytest.raises(ConfigError, match="only for worlds of the"):
        world.start(**option)


def test_an_unknown_backend_of_data_stores_is_refused(world_dir):
    with (
        World(dir=world_dir) as world,
        pytest.raises(ConfigError, match="sqlite, postgres or none"),
    ):
        world.start(datastore="mysql")  # type: ignore[arg-type]


def wait_for_start(log_file: Path, number: int) -> None:
    """Wait until a watched world serves for the given time."""
    wait_until(
        lambda: log_file.read_text().count("Spectator frontend") == number,
        what=f"start {number} of the world",
    )


@pytest.mark.thorough
def test_watch_keeps_the_state_unless_scripts_change(world_dir, tmp_path):
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run", watch=True)
        access = world.connect(agent="Rocky")
        (world_dir / "API.md").write_text("# How to count")
        wait_for_start(started.log_file, 2)
        answer = ask(started.port, "GET", "/observe", headers=access["headers"])
        assert answer.json()["player"]["id"] == access["agent_id"]
        assert ask(started.port, "GET", "/api.md").body == b"# How to count"
        world.save()  # the token is the same
        (world_dir / "world.toml").write_text('name = ""')
        refusal = "[Watch] world.toml changed, but the world continues unchanged: "
        wait_until(lambda: refusal in started.log_file.read_text())
        (world_dir / "world.toml").write_text('name = "counting"')
        (world_dir / "main.lua").write_text(MAIN.replace("joined", "came"))
        wait_for_start(started.log_file, 3)
        answer = ask(started.port, "GET", "/observe", headers=access["headers"])
        assert (answer.status, answer.body) == (401, b"Invalid session")
        log = started.log_file.read_text()
    assert "[Watch] API.md changed: the world continues where it was\n" in log
    assert "main.lua changed: the world starts over, because its state belongs to" in log


@pytest.mark.thorough
def test_watch_refuses_an_invalid_script_and_waits_for_a_change_after_a_failure(
    world_dir, tmp_path
):
    def wait_for(text: str) -> None:
        wait_until(lambda: text in started.log_file.read_text(), what=text)

    (world_dir / "scripts" / "Workspace").mkdir(parents=True)
    with World(dir=world_dir) as world:
        started = world.start(run_dir=tmp_path / "run", watch=True, datastore="none")
        access = world.connect(agent="Rocky")
        (world_dir / "scripts" / "Workspace" / "m.module.lua").write_text("return 1\nlocal = 2")
        place = "scripts/Workspace/m.module.lua"
        wait_for(f"[Watch] {place} changed, but the world continues unchanged: {place}:2: ")
        wait_for("[Watch] >     2 | local = 2\n")
        assert ask(started.port, "GET", "/observe", headers=access["headers"]).status == 200
        (world_dir / "scripts" / "Workspace" / "m.module.lua").unlink()
        (world_dir / "main.lua").write_text("local x = nil\nx.y = 1\n")
        both = f"[Watch] main.lua, {place} changed"
        wait_for(f"{both}: the world starts over, because its state belongs to")
        wait_for("[Lua Error] Failed to load script: main.lua:2: ")
        wait_for(f"{both}, and the world halted as it loaded: it waits for the next change")
        wait_for_start(started.log_file, 2)
        assert ask(started.port, "GET", "/health").status == 503
        (world_dir / "main.lua").write_text(MAIN)
        wait_for("[Watch] main.lua changed: the world starts over, because it had halted")
        wait_for_start(started.log_file, 3)
        assert ask(started.port, "POST", "/join?name=Rocky").status == 200


@pytest.mark.thorough
def test_refused_restart_after_a_change_names_the_file(world_dir):
    (world_dir / "world.toml").write_text('name = ""')
    refused = subprocess.run(
        [sys.executable, "-m", "clawblox.engine", str(world_dir)],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        env={**os.environ, CHANGED_ENV: "world.toml"},
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "python -m clawblox.engine: cannot load the world after world.toml changed: "
    )


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (
            ["python", "-m", "x", "--resume", "a", "--port", "1"],
            ["python", "-m", "x", "--port", "1"],
        ),
        (["x", "--resume=a", "--reseed=1", "--record"], ["x", "--record"]),
        (["x", "--resume"], ["x"]),
    ],
)
def test_restart_omits_the_flags_for_the_first_start(command, kept):
    assert strip_flags(command, ("--resume", "--reseed")) == kept
