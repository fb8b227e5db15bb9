"""The scripts of the public description, with a world written only from this description."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawblox import (
    Agent,
    AsyncWorld,
    ClawbloxError,
    World,
    WorldStartError,
    load_checkpoint,
    save_checkpoint,
)
from clawblox.agents.prompts import AUTO_CONTINUE
from tests.agents.standins import install, misbehave, told
from tests.support.crowd import past, until
from tests.support.plain import copy_plain_world, read_players
from tests.support.running import Bot, manifest_of
from tests.support.sockets import free_port
from tests.support.waiting import HANG_S, wait_until

ENVIRONMENT = (
    *("WORLD_HOST", "WORLD_PORT", "WORLD_BASE_PATH", "WORLD_RECORD", "WORLD_RECORD_DIR"),
    *("WORLD_RESUME_PATH", "WORLD_OPERATOR_TOKEN", "CLAWBLOX_BIN"),
)
KEY = {"CLAUDE_CODE_OAUTH_TOKEN": "not-a-token"}


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worlds").mkdir()
    copy_plain_world(tmp_path / "worlds")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def world() -> Iterator[World]:
    world = World(dir="worlds/plain")
    yield world
    world.close()


def call(url: str, route: str, session: str = "", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{route}", data, {"X-Session": session})
    with urllib.request.urlopen(request, timeout=HANG_S) as answer:
        return json.load(answer)


def act(url: str, session: str, kind: str, data: Any = None) -> Any:
    return call(url, "/input", session, {"type": kind, "data": data})


def test_everything_in_the_toml_is_known_before_the_start(world: World) -> None:
    assert world.config["run"]["command"] == world.run_command == ["bash", "./run-stack.sh"]
    assert (world.name, world.description) == ("plain", "Agents walk on a floor and talk.")
    assert (world.scripts, world.run) == ({"skill": "API.md"}, world.config["run"])
    assert (world.renderer, world.runtime) == ({}, {})
    assert Path(world.api_doc_path).name == "API.md"
    assert world.api["session_header"] == "X-Session"
    assert world.start_command == ["bash", "./run-stack.sh"]
    assert set(ENVIRONMENT) <= {*world.start_env, "WORLD_BASE_PATH"}


def test_a_start_returns_its_details_and_records(world: World, port: int, tmp_path: Path) -> None:
    started = world.start(port=port, record=True, record_dir="runs/r001/recordings")
    assert (world.url, world.port) == (started.url, port)
    assert (world.command_file, world.log_file) == (started.command_file, started.log_file)
    assert started.delegated
    assert started.run_command == started.start_command == ["bash", "./run-stack.sh"]
    assert started.command == ["bash", "./run-stack.sh"]
    assert f"the floor is at {started.url}" in started.log_file.read_text()
    env = started.env
    assert (env["WORLD_PORT"], env["WORLD_RECORD"]) == (str(port), "1")
    assert env["WORLD_RECORD_DIR"] == str(tmp_path / "runs" / "r001" / "recordings")
    access = world.connect(agent="Builder")
    act(started.url, access["session"], "Wait")
    (line,) = (tmp_path / "runs/r001/recordings/inputs.jsonl").read_text().splitlines()
    assert json.loads(line)["input"]["type"] == "Wait"


def test_an_agent_gets_plain_data_for_its_prompt(world: World, port: int, tmp_path: Path) -> None:
    world.start(port=port, record=True, record_dir="runs/r001/recordings")
    agent = Bot("Builder", tmp_path / "runs" / "r001" / "agents" / "Builder")
    api_access = world.connect(agent=agent)
    api_path = world.api_path(path="/api.md", access=api_access)
    with urllib.request.urlopen(api_path, timeout=HANG_S) as answer:
        text = answer.read().decode()
    assert "MoveTo" in text
    assert "snapshot" not in text
    assert json.loads(json.dumps(api_access)) == api_access
    assert call(api_access["base_url"], "/observe", api_access["session"])["tick"] == 0


@pytest.mark.needs("curl")
def test_an_agent_joins_acts_and_observes_with_curl(world: World, port: int) -> None:
    started = world.start(port=port, run_dir="runs/r001")
    script = f"""
    set -e
    curl -sf -X POST "{started.url}/join?name=Builder" > join.json
    session=$(sed 's/.*"session": "\\([^"]*\\)".*/\\1/' join.json)
    curl -sf -X POST "{started.url}/input" \\
      -H "X-Session: $session" \\
      -H "Content-Type: application/json" \\
      -d '{{"type":"MoveTo","data":{{"position":[0,4,12]}}}}' > input.json
    curl -sf "{started.url}/observe" -H "X-Session: $session" > observe.json
    """
    subprocess.run(["bash", "-c", script], check=True, timeout=HANG_S)
    joined, acted, seen = (
        json.loads(Path(f"{name}.json").read_text()) for name in ("join", "input", "observe")
    )
    assert seen == acted
    assert seen["player"]["agent_id"] == joined["agent_id"]
    fields = "tick game_status player other_players world events recent_events"
    assert list(seen) == fields.split()


@pytest.mark.thorough
def test_a_resumed_instance_is_indistinguishable_from_the_saved_instance(
    world: World, port: int, tmp_path: Path
) -> None:
    run_dir = tmp_path / "runs" / "r001"
    first = world.start(port=port, run_dir=run_dir)
    agent = Bot("Builder", run_dir / "agents" / "Builder")
    access = world.connect(agent=agent)
    session = access["session"]
    act(first.url, session, "Speak", {"text": "hello"})
    act(first.url, session, "MoveTo", {"position": [7, 0, 5]})
    ckpt = world.save(dir=run_dir / "checkpoints")
    (entry,) = manifest_of(run_dir)["checkpoints"]
    assert (entry["format"], entry["time"]) == ("plain-world-v1", 0.2)
    before = [call(first.url, "/observe", session), act(first.url, session, "Wait")]
    world.stop()
    again = world.start(port=port, resume=ckpt["path"], run_dir=run_dir)
    assert [call(again.url, "/observe", session), act(again.url, session, "Wait")] == before
    assert world.connect(agent=agent) == access
    assert read_players(world.save().path) == ["Builder"]


@pytest.mark.thorough
def test_a_checkpoint_script_resumes_world_and_agent(
    world: World, port: int, tmp_path: Path
) -> None:
    run_dir, new_run_dir = tmp_path / "runs" / "r001", tmp_path / "runs" / "r002"
    agent_dir = run_dir / "agents" / "Builder"
    (agent_dir / "workspace").mkdir(parents=True)
    misbehave(agent_dir / "workspace", turn_s=0.01)
    options: dict[str, Any] = {"binary": install(tmp_path / "bin", "claude"), "sandbox": False}
    world.start(port=port, run_dir=run_dir)
    agent = Agent(agent="claude", name="Builder", dir=agent_dir, **options)
    access = world.connect(agent=agent)
    agent.start(initial_prompt="Begin", system_prompt="Be curious.", env=KEY)
    act(access["internal_base_url"], access["session"], "Speak", {"text": "I am here"})
    agent.stop(grace_seconds=1)

    snap = world.save(dir=run_dir / "checkpoints")
    ckpt = save_checkpoint(
        run_dir / "checkpoints" / "gen001-t000900.ckpt",
        world_snapshot=snap["path"],
        agents={agent.name: agent_dir},
        backend="claude",
        metadata={"generation": 1, "elapsed_seconds": 900},
    )
    agent.close()
    world.stop()
    with zipfile.ZipFile(ckpt) as archive:
        names = archive.namelist()
        metadata = json.loads(archive.read("metadata.json"))
    assert names[0] == "metadata.json"
    assert "world.snapshot" in names
    assert metadata["generation"] == 1
    assert {"schema_version", "created_at", "session_format", "agents"} <= set(metadata)

    name = agent.name
    loaded = load_checkpoint(ckpt, new_run_dir)
    world.start(port=port, resume=loaded["world_snapshot"], run_dir=new_run_dir)
    agent = Agent(agent="claude", name=name, dir=loaded["agents"][name], **options)
    resumed = world.connect(agent=agent)
    assert resumed == {**access, "base_url": resumed["base_url"]}
    agent.send(prompt=AUTO_CONTINUE, env=KEY)
    (transcript,) = (loaded["agents"][name] / "session" / "projects").glob("*/*.jsonl")
    wait_until(lambda: told(transcript)[-1] == AUTO_CONTINUE)
    assert told(transcript)[0] == "Begin"
    seen = call(resumed["internal_base_url"], "/observe", resumed["session"])
    assert [event["text"] for event in seen["recent_events"]] == ["I am here"]
    agent.close()
    assert read_players(world.save().path) == ["Builder"]


def test_a_client_continues_in_a_fork_as_the_same_player(world: World, tmp_path: Path) -> None:
    world.start(run_dir=tmp_path / "runs" / "r001")
    client = world.join("Builder")
    client.act("MoveTo", {"position": [2, 0, 0]})
    (fork,) = world.fork(world.save(), run_dir=tmp_path / "runs" / "forks")
    twin = client.on(fork.name)
    assert twin.act("Wait")["player"] == client.act("Wait")["player"]
    assert twin.access["agent_id"] == client.access["agent_id"]
    assert read_players(world.save(instance=fork.name).path) == ["Builder"]


@pytest.mark.anyio
async def test_a_crashed_world_is_restored_with_its_players(tmp_path: Path) -> None:
    agent = Bot("Builder", tmp_path / "agents" / "Builder")
    async with AsyncWorld("worlds/plain") as world, world.events() as events:
        started = await world.start(run_dir="runs/r001", restart="checkpoint")
        access = await world.connect(agent=agent)
        saved = await world.save()
        await past(events)
        os.kill(started.pid, signal.SIGKILL)
        await until(events, "ready", ["w000"])
        assert await world.connect(agent=agent) == access
        assert read_players((await world.save()).path) == read_players(saved.path) == ["Builder"]


def test_labelling_a_run_changes_only_the_manifest(world: World, port: int, tmp_path: Path) -> None:
    started = world.start(port=port, record=True, record_dir="runs/r003/recordings")
    world.record_run(
        id="pyramid-r003",
        index=3,
        status="complete",
        started_at="2026-06-22T18:59:25Z",
        ended_at="2026-06-22T19:59:25Z",
        resume_from=tmp_path / "previous.json",
    )
    run = manifest_of(tmp_path / "runs" / "r003")["run"]
    assert (run["id"], run["index"], run["status"]) == ("pyramid-r003", 3, "complete")
    assert call(started.url, "/join?name=Builder", body={})["session"]


def test_only_the_operator_gets_snapshots(world: World, port: int) -> None:
    started = world.start(port=port, run_dir="runs/r001")
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(started.url, "/snapshot")
    assert refused.value.code == 401
    refused.value.close()
    assert read_players(world.save().path) == []


def test_a_failed_start_names_directory_command_log_and_port(
    world: World, port: int, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text('{"format": "plain-world-v1", "scene_hash": "another"}')
    with pytest.raises(WorldStartError) as caught:
        world.start(port=port, resume=foreign, run_dir="runs/r001")
    text = str(caught.value)
    assert "is not a snapshot of this floor" in text
    assert str(tmp_path / "worlds" / "plain") in text
    assert str(tmp_path / "runs" / "r001" / "logs") in text
    assert str(tmp_path / "runs" / "r001" / "runtime") in text
    assert str(port) in text


@pytest.mark.thorough
def test_a_lost_session_is_an_error_in_a_world_without_a_leave_route(
    world: World, tmp_path: Path
) -> None:
    agent = Bot("Builder", tmp_path / "agents" / "Builder")
    world.start(run_dir="runs/r001")
    world.connect(agent=agent)
    world.stop()
    world.start(run_dir="runs/r002")
    with pytest.raises(ClawbloxError, match="may have a second player of this name"):
        world.connect(agent=agent)
