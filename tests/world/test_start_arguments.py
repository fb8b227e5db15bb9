"""The arguments of a start, and the resulting started world."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from clawblox import AsyncWorld, ConfigError, StartedWorld, World
from tests.support.processes import command_line
from tests.support.running import manifest_of
from tests.support.sockets import free_port, is_listening
from tests.support.starting import add, api_doc, dumped
from tests.support.worlds import ask, make_world, world_command

pytestmark = pytest.mark.anyio

SEED_FIELDS = {
    *("url", "port", "command", "start_command", "delegated"),
    *("run_command", "env", "command_file", "log_file"),
}
ON_BOTH_LOOPS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


# ------------------------------------------------------------------------------ arguments


@pytest.mark.thorough
@ON_BOTH_LOOPS
async def test_a_world_is_started_and_resumed_on_either_event_loop(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        first = await world.start(run_dir=tmp_path / "run")
        access = await world.connect("Rocky")
        add(first, access["headers"], 7)
        saved = await world.save()
        await world.stop()
        second = await world.start(run_dir=tmp_path / "run", resume=saved["path"])
        assert add(second, access["headers"], 1)["counter"] == 8


async def test_by_default_the_run_is_in_a_hidden_folder_of_the_world_directory(
    tmp_path: Path,
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        started = await world.start()
        assert api_doc(started).status == 200
        assert started.run_dir == directory
        assert {path.name for path in directory.iterdir()} == {"world.toml", ".clawblox"}
        assert manifest_of(directory)["schema_version"] == 1


@pytest.mark.thorough
@pytest.mark.parametrize("port", [None, 0])
async def test_a_leased_port_is_below_the_ephemeral_range(tmp_path: Path, port: int | None) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = [await world.start(port=port, run_dir=tmp_path / "run") for _ in range(2)]
        assert len({one.port for one in started}) == 2
        assert all(1024 <= one.port < 32768 and is_listening(one.port) for one in started)


async def test_a_world_serves_on_the_given_port(tmp_path: Path) -> None:
    port = free_port()
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(port=port)
        assert started.port == world.port == port
        assert started.url == world.url == f"http://127.0.0.1:{port}"
        assert is_listening(port)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]")],
)
async def test_the_world_binds_the_host_and_its_url_has_a_literal_address(
    tmp_path: Path, host: str, address: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(host=host, run_dir=tmp_path / "run")
        assert started.url == f"http://{address}:{started.port}"
        assert started.host == started.env["WORLD_HOST"] == host
        access = await world.connect("Rocky")
        assert access["base_url"] == started.url
        assert (await world.save())["format"] == "counter-v1"


@pytest.mark.parametrize("base_path", ["/a/b", "a/b/", "//a//b//"])
async def test_every_route_is_below_the_base_path(tmp_path: Path, base_path: str) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(base_path=base_path, run_dir=tmp_path / "run")
        assert started.env["WORLD_BASE_PATH"] == "/a/b"
        assert started.url == f"http://127.0.0.1:{started.port}/a/b"
        access = await world.connect("Rocky")
        assert world.api_path(access=access) == f"{started.url}/api.md"
        assert (await world.save())["time"] == 0.0
        await world.leave(access)


async def test_recordings_go_to_the_run_directory(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(record=True, run_dir=tmp_path / "run")
        access = await world.connect("Rocky")
        add(started, access["headers"], 1)
    assert started.record_dir == tmp_path / "run" / "recordings"
    assert (started.record_dir / "counter.jsonl").read_text() == '{"type": "add", "data": 1}\n'


async def test_the_parent_of_the_recordings_is_the_run_directory(tmp_path: Path) -> None:
    os.chdir(tmp_path)
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(record=True, record_dir="runs/r001/recordings")
        assert started.run_dir == tmp_path / "runs" / "r001"
        assert started.env["WORLD_RECORD_DIR"] == f"{tmp_path}/runs/r001/recordings"
        assert Path(started.env["CLAWBLOX_MANIFEST_PATH"]).parent.parent == started.run_dir
        assert manifest_of(started.run_dir)["schema_version"] == 1


def test_a_later_start_goes_to_the_run_directory_of_the_first_unless_it_names_one(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "runs" / "r001", tmp_path / "runs" / "r002"
    with World(dir=make_world(tmp_path)) as world:
        started = world.start(record=True, record_dir=first / "recordings")
        saved = world.save(dir=first / "checkpoints")
        world.stop()
        resumed = world.start(resume=saved["path"])
        beside = world.start(record=True)
        other = world.start(run_dir=second)
        recorded = world.start(record=True, record_dir=tmp_path / "runs" / "r003" / "recordings")
        last = world.start()
        world.stop_all()
    alive = [started, resumed, beside, other, recorded, last]
    assert [each.run_dir.name for each in alive] == ["r001"] * 3 + ["r002", "r003", "r001"]
    assert beside.record_dir == first / "recordings"
    assert not (tmp_path / "counter" / ".clawblox").exists()


async def test_a_start_after_a_batch_goes_to_the_run_directory_of_the_batch(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start_many(1, run_dir=tmp_path / "run")
        assert (await world.start()).run_dir == tmp_path / "run"


async def test_a_record_dir_without_record_only_sets_the_run_directory(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(record_dir=tmp_path / "run" / "recordings")
        assert started.run_dir == tmp_path / "run"
        assert started.record_dir is None
        assert not (tmp_path / "run" / "recordings").exists()


async def test_run_dir_takes_precedence_over_the_parent_of_record_dir(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(
            record=True, record_dir=tmp_path / "elsewhere", run_dir=tmp_path / "run"
        )
        assert started.run_dir == tmp_path / "run"
        assert started.record_dir == tmp_path / "elsewhere"


@pytest.mark.thorough
@pytest.mark.parametrize("is_relative", [False, True])
async def test_a_snapshot_is_resumed_from_its_absolute_path_or_the_world_directory(
    tmp_path: Path, is_relative: bool
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        first = await world.start(run_dir=tmp_path / "run")
        access = await world.connect("Rocky")
        add(first, access["headers"], 5)
        saved = await world.save(dir=directory / "saves")
        await world.stop()
        relative = f"saves/{saved['path'].name}"
        second = await world.start(
            run_dir=tmp_path / "run", resume=relative if is_relative else saved["path"]
        )
        assert second.resume_path == saved["path"]
        assert second.env["WORLD_RESUME_PATH"] == str(saved["path"])
        assert add(second, access["headers"], 1) == {
            "agent_id": "agent-1",
            "time": 1.0,
            "counter": 6,
        }


async def test_a_given_name_is_used_for_the_instance_and_its_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(name="left.2", run_dir=run)
        assert started.name == "left.2"
        assert world.instances == ("left.2",)
        assert started.command_file == run / "runtime" / "left.2.sh"
        assert started.log_file == run / "logs" / "left.2.log"
        assert stat.S_IMODE(started.log_file.stat().st_mode) == 0o600


async def test_an_unnamed_instance_takes_the_first_free_name(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for name in ("w000", "w001"):
            assert (await world.start(run_dir=tmp_path / "run")).name == name
        await world.stop(instance="w000")
        assert (await world.start(run_dir=tmp_path / "run")).name == "w000"
        assert world.instances == ("w001", "w000")


async def test_command_file_and_log_file_go_to_the_given_paths(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(
            command_file=files / "start.sh", log_file=files / "world.log", run_dir=tmp_path / "run"
        )
        assert started.command_file == world.command_file == files / "start.sh"
        assert started.log_file == world.log_file == files / "world.log"
        assert f"Spectator frontend: {started.url}/" in started.log_file.read_text()
        assert {path.name for path in files.iterdir()} == {"start.sh", "world.log"}


async def test_an_existing_log_is_appended_to(tmp_path: Path) -> None:
    log_file = tmp_path / "world.log"
    log_file.write_text("the run before\n")
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(log_file=log_file, run_dir=tmp_path / "run")
        async with world.logs() as lines:
            texts = [line.text async for line in lines]
    assert log_file.read_text().startswith("the run before\ncounter world, process ")
    assert "the run before" not in texts


async def test_additional_variables_reach_the_world(tmp_path: Path) -> None:
    env = {"COLOUR": "deep blue", "EMPTY": "", "HOME": "/elsewhere"}
    async with dumped(tmp_path, env=env) as (started, dump):
        assert {key: dump["env"][key] for key in env} == env
        assert {key: started.env[key] for key in env} == env


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"port": -1}, "port"),
        ({"port": 65536}, "port"),
        ({"port": True}, "port"),
        ({"host": ""}, "host"),
        ({"base_path": "/a b"}, "base_path"),
        ({"health_timeout": 0}, "health_timeout"),
        ({"health_timeout": float("nan")}, "health_timeout"),
        ({"port_wait": -1}, "port_wait"),
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"name": "../escape"}, "name"),
        ({"name": ".hidden"}, "name"),
        ({"resume": "no-such.json"}, "resume"),
        ({"resume": ""}, "resume"),
        ({"command_file": "no-such-directory/start.sh"}, "command_file"),
        ({"log_file": "no-such-directory/world.log"}, "log_file"),
        ({"env": {"WORLD_PORT": "1"}}, "env.WORLD_PORT"),
        ({"env": {"CLAWBLOX_MANIFEST_PATH": "/m"}}, "env.CLAWBLOX_MANIFEST_PATH"),
        ({"env": {"A=B": "1"}}, "env.A=B"),
        ({"env": {"A": "1\0"}}, "env.A"),
        ({"env": {"A": 1}}, "env.A"),
        ({"env": ["A=1"]}, "env"),
    ],
)
async def test_the_error_names_an_invalid_argument_before_a_start(
    tmp_path: Path, arguments: dict[str, Any], key: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError) as caught:
            await world.start(**{"run_dir": tmp_path / "run", **arguments})
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key}: ")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------- StartedWorld


async def test_a_start_returns_all_facts_of_the_instance(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    world = AsyncWorld(dir=directory)
    assert (world.url, world.port, world.command_file, world.log_file) == (None,) * 4
    async with world:
        started = await world.start(run_dir=tmp_path / "run", env={"COLOUR": "blue"})
        assert command_line(started.pid) == " ".join(started.command)
        assert world.url == started.url
        assert world.command_file == started.command_file
        assert world.log_file == started.log_file
    assert {field.name for field in attrs.fields(StartedWorld)} >= SEED_FIELDS
    assert started.command == started.start_command == started.run_command == world_command()
    assert started.delegated
    assert started.env.masked() == {
        "COLOUR": "blue",
        "WORLD_HOST": "127.0.0.1",
        "WORLD_PORT": str(started.port),
        "WORLD_BASE_PATH": "",
        "WORLD_RECORD": "0",
        "WORLD_OPERATOR_TOKEN": "***",
        "WORLD_SPECTATOR_TOKEN": "***",
        "WORLD_DATASTORE_PATH": f"{tmp_path}/run/datastore/w000.db",
        "CLAWBLOX_MANIFEST_PATH": f"{tmp_path}/run/.clawblox/manifest.json",
        "CLAWBLOX_BIN": started.env["CLAWBLOX_BIN"],
    }
    assert len(started.env["WORLD_OPERATOR_TOKEN"]) > 40
    assert started.env["WORLD_OPERATOR_TOKEN"] not in json.dumps(attrs.asdict(started), default=str)
    assert started.ready_s > 0


async def test_the_script_that_holds_a_started_world_can_ask_for_its_snapshot(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        headers = {"X-Operator-Token": started.env["WORLD_OPERATOR_TOKEN"]}
        assert ask(started.port, "GET", "/snapshot", headers=headers).status == 200


@pytest.mark.parametrize(("record", "warns"), [(False, True), (True, False)])
async def test_record_dir_without_record_warns(record: bool, warns: bool, tmp_path: Path) -> None:
    with capture_logs() as captured:
        async with AsyncWorld(dir=make_world(tmp_path)) as world:
            await world.start(record=record, record_dir=tmp_path / "run" / "recordings")
    said = [entry["event"] for entry in captured if entry["log_level"] == "warning"]
    assert (said == ["record_dir has no effect without record"]) == warns


async def test_api_path_adds_the_leading_slash(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run", base_path="w")
        access = await world.connect("Red")
        expected = f"{started.url}/api.md"
        assert world.api_path(access=access) == expected
        assert world.api_path(path="api.md", access=access) == expected
        assert world.api_path(path="/api.md", access=access) == expected


async def test_the_started_world_is_immutable(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            started.port = 1  # type: ignore[misc]
        started.command.append("changed")
        assert "changed" not in world.start_command
