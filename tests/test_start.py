"""Starting one world: arguments, facts, environment, files, sidecars, readiness, names."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
import stat
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from clawblox import (
    AsyncWorld,
    ConfigError,
    RunLockedError,
    StartedWorld,
    UsageError,
    WorldCommandError,
    WorldError,
    WorldEvent,
    WorldExitedBeforeReady,
)
from tests.support import (
    Answer,
    all_processes,
    ask,
    command_line,
    descendants,
    free_port,
    is_alive,
    is_listening,
    make_world,
    marked_processes,
    wait_until,
    wait_until_async,
    world_command,
)

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
"""What takes longer than this hangs; nothing here measures time."""

SEED_FIELDS = {
    *("url", "port", "command", "start_command", "delegated"),
    *("run_command", "env", "command_file", "log_file"),
}
ON_BOTH_LOOPS = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


def world_that_runs(parent: Path, *command: str, name: str = "counter") -> Path:
    """Write a world directory whose command is given in full."""
    directory = parent / name
    directory.mkdir()
    text = f"name = {json.dumps(name)}\n[run]\ncommand = {json.dumps(command)}\n"
    (directory / "world.toml").write_text(text)
    return directory


def add(started: StartedWorld, session: Mapping[str, str], number: int) -> Any:
    """Act on a counter world; return what the agent observes then."""
    path = started.url.removeprefix(f"http://127.0.0.1:{started.port}")
    body = json.dumps({"type": "add", "data": number}).encode()
    return ask(started.port, "POST", f"{path}/input", body=body, headers=session).json()


def api_doc(started: StartedWorld) -> Answer:
    return ask(started.port, "GET", "/api.md")


def manifest_of(run_dir: Path) -> Any:
    return json.loads((run_dir / ".clawblox" / "manifest.json").read_text())


async def read_json(path: Path) -> Any:
    """Return what a process writes to a file, as soon as it is there."""
    await wait_until_async(path.exists, what=f"{path} is written")
    return json.loads(path.read_text())


async def read_line(path: Path) -> str:
    """Return the first line of a log as soon as it is there."""
    return (await wait_until_async(lambda: path.read_text().splitlines()))[0]


@contextlib.asynccontextmanager
async def dumped(tmp_path: Path, **arguments: Any) -> AsyncIterator[tuple[StartedWorld, Any]]:
    """Start a world that tells what it got; yield the started world and what it told."""
    directory = make_world(tmp_path, "--dump", str(tmp_path / "dump.json"))
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(**{"run_dir": tmp_path / "run", **arguments})
        yield started, await read_json(tmp_path / "dump.json")


# ------------------------------------------------------------------------------ arguments


@ON_BOTH_LOOPS
async def test_a_world_goes_from_start_to_resume_on_either_event_loop(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        first = await world.start(run_dir=tmp_path / "run")
        access = await world.connect("Rocky")
        add(first, access["headers"], 7)
        saved = await world.save()
        await world.stop()
        second = await world.start(run_dir=tmp_path / "run", resume=saved["path"])
        assert add(second, access["headers"], 1)["counter"] == 8


async def test_without_arguments_the_run_is_in_the_world_directory_below_one_hidden_name(
    tmp_path: Path,
) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as world:
        started = await world.start()
        assert api_doc(started).status == 200
        assert started.run_dir == directory
        assert {path.name for path in directory.iterdir()} == {"world.toml", ".clawblox"}
        assert manifest_of(directory)["schema_version"] == 1


@pytest.mark.parametrize("port", [None, 0])
async def test_a_port_that_is_not_given_is_leased_below_the_ephemeral_range(
    tmp_path: Path, port: int | None
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = [await world.start(port=port, run_dir=tmp_path / "run") for _ in range(2)]
        assert len({one.port for one in started}) == 2
        assert all(1024 <= one.port < 32768 and is_listening(one.port) for one in started)


async def test_a_given_port_is_the_one_that_serves(tmp_path: Path) -> None:
    port = free_port()
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(port=port)
        assert started.port == world.port == port
        assert started.url == world.url == f"http://127.0.0.1:{port}"
        assert is_listening(port)


@pytest.mark.parametrize(
    ("host", "address"),
    [("0.0.0.0", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]")],
)
async def test_the_world_binds_the_host_and_is_called_at_a_literal_address(
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


async def test_a_record_dir_without_record_only_says_where_the_run_is(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(record_dir=tmp_path / "run" / "recordings")
        assert started.run_dir == tmp_path / "run"
        assert started.record_dir is None
        assert not (tmp_path / "run" / "recordings").exists()


async def test_a_run_dir_wins_over_the_place_of_the_recordings(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(
            record=True, record_dir=tmp_path / "elsewhere", run_dir=tmp_path / "run"
        )
        assert started.run_dir == tmp_path / "run"
        assert started.record_dir == tmp_path / "elsewhere"


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


async def test_a_relative_snapshot_is_not_looked_for_in_the_working_directory(
    tmp_path: Path,
) -> None:
    os.chdir(tmp_path)
    (tmp_path / "here.json").write_text("{}")
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError, match="taken from the world directory") as caught:
            await world.start(resume="here.json", run_dir=tmp_path / "run")
    assert caught.value.key == "resume"
    assert not (tmp_path / "run").exists()


async def test_the_name_is_the_one_that_was_given_and_names_its_files(tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(name="left.2", run_dir=run)
        assert started.name == "left.2"
        assert world.instances == ("left.2",)
        assert started.command_file == run / "runtime" / "left.2.sh"
        assert started.log_file == run / "logs" / "left.2.log"
        assert stat.S_IMODE(started.log_file.stat().st_mode) == 0o600


async def test_a_name_that_is_not_given_is_the_first_free_one(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for name in ("w000", "w001"):
            assert (await world.start(run_dir=tmp_path / "run")).name == name
        await world.stop(instance="w000")
        assert (await world.start(run_dir=tmp_path / "run")).name == "w000"
        assert world.instances == ("w001", "w000")


async def test_command_file_and_log_file_go_where_the_caller_says(tmp_path: Path) -> None:
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


async def test_a_log_that_exists_is_appended_to(tmp_path: Path) -> None:
    log_file = tmp_path / "world.log"
    log_file.write_text("the run before\n")
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        await world.start(log_file=log_file, run_dir=tmp_path / "run")
        async with world.logs() as lines:
            texts = [line.text async for line in lines]
    assert log_file.read_text().startswith("the run before\ncounter world, process ")
    assert "the run before" not in texts


async def test_further_variables_reach_the_world(tmp_path: Path) -> None:
    env = {"COLOUR": "deep blue", "EMPTY": "", "HOME": "/elsewhere"}
    async with dumped(tmp_path, env=env) as (started, dump):
        assert {key: dump["env"][key] for key in env} == env
        assert {key: started.env[key] for key in env} == env


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"port": -1}, "port"),
        ({"port": 65536}, "port"),
        ({"health_timeout": 0}, "health_timeout"),
        ({"health_timeout": float("nan")}, "health_timeout"),
        ({"port_wait": -1}, "port_wait"),
        ({"name": ""}, "name"),
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
    ],
)
async def test_a_wrong_argument_is_named_and_nothing_is_started(
    tmp_path: Path, arguments: dict[str, Any], key: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        with pytest.raises(ConfigError) as caught:
            await world.start(**{"run_dir": tmp_path / "run", **arguments})
    assert caught.value.key == key
    assert f"key: {key}" in str(caught.value)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------- StartedWorld


async def test_the_started_world_says_everything_of_the_instance(tmp_path: Path) -> None:
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
    assert started.env == {
        "COLOUR": "blue",
        "WORLD_HOST": "127.0.0.1",
        "WORLD_PORT": str(started.port),
        "WORLD_RECORD": "0",
        "WORLD_OPERATOR_TOKEN": "***",
        "WORLD_SPECTATOR_TOKEN": "***",
        "CLAWBLOX_MANIFEST_PATH": f"{tmp_path}/run/.clawblox/manifest.json",
        "CLAWBLOX_BIN": started.env["CLAWBLOX_BIN"],
    }
    assert started.ready_s > 0


async def test_the_started_world_cannot_be_changed(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            started.port = 1  # type: ignore[misc]
        started.command.append("changed")
        assert "changed" not in world.start_command


# ------------------------------------------------------------------ the environment contract


async def test_the_world_gets_the_contract_and_only_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    os.chdir(tmp_path)
    snapshot = tmp_path / "s.json"
    snapshot.write_text(
        '{"scene_hash": "scene-plain", "counter": 1, "ticks": 2, "sessions": [], "chat": []}'
    )
    async with dumped(
        tmp_path, record=True, record_dir="run/rec", run_dir="run", resume=snapshot, base_path="x"
    ) as (started, dump):
        env = dump["env"]
    assert {key for key in env if key.startswith(("WORLD_", "CLAWBLOX_"))} == {
        *("WORLD_HOST", "WORLD_PORT", "WORLD_BASE_PATH", "WORLD_RECORD", "WORLD_RECORD_DIR"),
        *("WORLD_RESUME_PATH", "WORLD_OPERATOR_TOKEN", "WORLD_SPECTATOR_TOKEN"),
        *("CLAWBLOX_BIN", "CLAWBLOX_MANIFEST_PATH", "CLAWBLOX_INSTANCE", "CLAWBLOX_HOME"),
    }
    assert env["WORLD_HOST"] == "127.0.0.1"
    assert env["WORLD_PORT"] == str(started.port)
    assert env["WORLD_BASE_PATH"] == "/x"
    assert env["WORLD_RECORD"] == "1"
    assert env["WORLD_RECORD_DIR"] == f"{tmp_path}/run/rec"
    assert env["WORLD_RESUME_PATH"] == str(snapshot)
    assert env["CLAWBLOX_MANIFEST_PATH"] == f"{tmp_path}/run/.clawblox/manifest.json"
    assert env["PYTHONUNBUFFERED"] == "1"
    assert os.access(env["CLAWBLOX_BIN"], os.X_OK)
    assert len({env["WORLD_OPERATOR_TOKEN"], env["WORLD_SPECTATOR_TOKEN"]}) == 2


async def test_what_does_not_apply_is_unset_even_where_the_orchestrator_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = ("WORLD_BASE_PATH", "WORLD_RECORD_DIR", "WORLD_RESUME_PATH")
    foreign = (*absent, "WORLD_PORT", "WORLD_OPERATOR_TOKEN", "CLAWBLOX_INSTANCE", "WORLD_RECORD")
    for name in foreign:
        monkeypatch.setenv(name, "/of/an/outer/world")
    monkeypatch.setenv("COLOUR", "inherited")
    async with dumped(tmp_path) as (started, dump):
        env = dump["env"]
    assert not set(absent) & env.keys()
    assert env["WORLD_PORT"] == str(started.port)
    assert env["WORLD_RECORD"] == "0"
    assert "/of/an/outer/world" not in env.values()
    assert env["COLOUR"] == "inherited"


async def test_every_instance_has_tokens_and_a_mark_of_its_own(tmp_path: Path) -> None:
    seen = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        async with dumped(tmp_path / place) as (_, dump):
            seen.append(dump["env"])
    for name in ("WORLD_OPERATOR_TOKEN", "WORLD_SPECTATOR_TOKEN", "CLAWBLOX_INSTANCE"):
        first, second = (env[name] for env in seen)
        assert first != second
        assert len(first) >= 32


@contextlib.contextmanager
def held_open(path: Path) -> Iterator[None]:
    """Hold a file as standard input and as a descriptor that children would inherit."""
    before = os.dup(0)
    with path.open("w") as file:
        os.set_inheritable(file.fileno(), True)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


async def test_the_process_is_alone_in_its_session_with_nothing_of_ours(tmp_path: Path) -> None:
    with held_open(tmp_path / "held"):
        async with dumped(tmp_path) as (started, dump):
            assert dump["pid"] == dump["sid"] == dump["pgid"] == started.pid
            assert dump["cwd"] == str(tmp_path / "counter")
            assert dump["fds"] == {
                "0": "/dev/null",
                "1": str(started.log_file),
                "2": str(started.log_file),
            }
            assert dump["ignored_signals"] == ["SIGPIPE", "SIGXFSZ"]  # python's own


# --------------------------------------------------------------------------- command_file


@contextlib.contextmanager
def rerun(command_file: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command file by hand, as somebody does with an almost empty environment."""
    process = subprocess.Popen(
        [command_file],
        env={"PATH": os.defpath, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


async def test_the_command_file_is_private_executable_and_without_a_token(tmp_path: Path) -> None:
    async with dumped(tmp_path) as (started, dump):
        text = started.command_file.read_text()
        mode = stat.S_IMODE(started.command_file.stat().st_mode)
    assert mode == 0o700
    for name in ("WORLD_OPERATOR_TOKEN", "WORLD_SPECTATOR_TOKEN", "CLAWBLOX_INSTANCE"):
        assert dump["env"][name] not in text


async def test_the_command_file_reruns_the_world_by_hand(tmp_path: Path) -> None:
    env = {"COLOUR": 'it\'s "deep" $blue\n`really`', "API_KEY": "hidden"}
    async with dumped(tmp_path, env=env, base_path="x") as (started, first):
        pass
    (tmp_path / "dump.json").unlink()
    assert started.env["API_KEY"] == "hidden"
    assert "hidden" not in repr(started)
    assert "hidden" not in started.command_file.read_text()
    with rerun(started.command_file) as process:
        wait_until(lambda: is_listening(started.port), what="the world listens again")
        second = await read_json(tmp_path / "dump.json")
        assert ask(started.port, "GET", "/x/api.md").status == 200
        assert process.pid == second["pid"]  # nothing stands in between
    same = ("WORLD_HOST", "WORLD_PORT", "WORLD_BASE_PATH", "WORLD_RECORD", "COLOUR")
    assert {key: second["env"][key] for key in same} == {key: first["env"][key] for key in same}
    assert second["cwd"] == first["cwd"]
    assert second["env"]["WORLD_OPERATOR_TOKEN"] != first["env"]["WORLD_OPERATOR_TOKEN"]
    assert len(second["env"]["WORLD_OPERATOR_TOKEN"]) >= 32
    assert "API_KEY" not in second["env"]


async def test_the_command_file_reruns_on_another_port_and_with_a_given_token(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run")
    port = free_port()
    with rerun(started.command_file, WORLD_PORT=str(port), WORLD_OPERATOR_TOKEN="by-hand"):
        wait_until(lambda: is_listening(port), what="the world listens on the other port")
        headers = {"X-Operator-Token": "by-hand"}
        assert ask(port, "GET", "/snapshot", headers=headers).status == 200
        assert not is_listening(started.port)


async def test_nothing_needs_the_command_file_or_the_snapshot_after_the_start(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        first = await world.start(run_dir=tmp_path / "run")
        first.command_file.unlink()
        saved = await world.save()
        await world.stop()
        second = await world.start(run_dir=tmp_path / "run", resume=saved["path"])
        second.command_file.unlink()
        saved["path"].unlink()
        await world.connect("Rocky")
        again = await world.save()
        assert (await world.stop()).rung == "terminated"
        assert again["path"].exists()
    entries = [entry["path"] for entry in manifest_of(tmp_path / "run")["checkpoints"]]
    assert entries == [f"checkpoints/{one['path'].name}" for one in (saved, again)]


# ----------------------------------------------------------------------- logs and sidecars


async def test_the_log_grows_while_the_world_runs(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--say-ready", "0")) as world:
        started = await world.start(run_dir=tmp_path / "run")
        await wait_until_async(lambda: "READY to serve" in started.log_file.read_text())
        assert is_alive(started.pid)


async def test_sidecars_have_the_same_environment_and_logs_of_their_own(tmp_path: Path) -> None:
    sidecars = {
        "frontend": ["--dump", str(tmp_path / "frontend.json")],
        "feed": ["--dump", str(tmp_path / "feed.json"), "--say-ready", "0"],
    }
    directory = make_world(tmp_path, "--dump", str(tmp_path / "world.json"), sidecars=sidecars)
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(run_dir=tmp_path / "run")
        own = await read_json(tmp_path / "world.json")
        for name in sidecars:
            log_file = started.log_file.with_name(f"w000-{name}.log")
            sidecar = await read_json(tmp_path / f"{name}.json")
            assert sidecar["env"] == own["env"]
            assert sidecar["cwd"] == own["cwd"]
            assert sidecar["sid"] == sidecar["pid"] != own["sid"]
            assert sidecar["fds"]["1"] == sidecar["fds"]["2"] == str(log_file)
            assert f"counter world, process {sidecar['pid']}" in await read_line(log_file)
        assert started.log_file.read_text().count("counter world") == 1
        pids = {started.pid, *marked_processes(own["env"]["CLAWBLOX_INSTANCE"])}
        assert len(pids) == 3
        await world.stop()
        assert not any(is_alive(pid) for pid in pids)


async def test_a_sidecar_that_ends_is_an_event_and_the_world_goes_on(tmp_path: Path) -> None:
    directory = make_world(tmp_path, sidecars={"feed": ["--exit-at-once", "4"]})
    async with AsyncWorld(dir=directory) as world:
        async with world.events() as events:
            started = await world.start(run_dir=tmp_path / "run")
            with anyio.fail_after(DEADLINE_S):
                event = await next_event(events, "sidecar_exited")
        assert event.detail["sidecar"] == "feed"
        assert event.detail["exit"].status == 4
        assert api_doc(started).status == 200


async def test_a_sidecar_that_cannot_be_executed_fails_the_start(tmp_path: Path) -> None:
    directory = make_world(tmp_path, "--pid-file", str(tmp_path / "pid"))
    text = '[[run.sidecar]]\nname = "feed"\ncommand = ["./no-such-program"]\n'
    with (directory / "world.toml").open("a") as file:
        file.write(text)
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(WorldCommandError, match=r"'\./no-such-program'"):
            await world.start(run_dir=tmp_path / "run")
        assert world.instances == ()
        assert not marked_processes()


# ------------------------------------------------------------------------------ readiness


async def test_readiness_can_be_another_path(tmp_path: Path) -> None:
    directory = make_world(
        tmp_path, "--health", toml_extra='[run.ready]\npath = "/health"\ninterval = 0.01'
    )
    async with AsyncWorld(dir=directory) as world:
        started = await world.start(run_dir=tmp_path / "run", base_path="/x")
        assert ask(started.port, "GET", "/x/health").status == 200
        assert ask(started.port, "GET", "/x/api.md").status == 404


@pytest.mark.parametrize("pattern", ["READY to serve", "^READY to \\\\w+$", "(?i)ready TO"])
async def test_readiness_can_be_a_line_of_the_log(tmp_path: Path, pattern: str) -> None:
    directory = make_world(
        tmp_path, "--say-ready", "0.1", toml_extra=f'[run.ready]\nlog = "{pattern}"'
    )
    async with AsyncWorld(dir=directory) as world:
        with anyio.fail_after(DEADLINE_S):
            started = await world.start(run_dir=tmp_path / "run")
        assert "READY to serve\n" in started.log_file.read_text()


async def test_an_older_line_of_the_log_does_not_make_a_world_ready(tmp_path: Path) -> None:
    log_file = tmp_path / "world.log"
    log_file.write_text("READY to serve\n")
    directory = make_world(
        tmp_path, "--say-ready", "0.1", toml_extra='[run.ready]\nlog = "READY to serve"'
    )
    async with AsyncWorld(dir=directory) as world:
        await world.start(log_file=log_file, run_dir=tmp_path / "run")
        assert log_file.read_text().count("READY to serve") == 2


async def test_a_world_that_is_busy_at_first_is_waited_for(tmp_path: Path) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, "--unavailable", "0.2")) as world:
        started = await world.start(run_dir=tmp_path / "run")
        assert api_doc(started).status == 200


@pytest.mark.parametrize("wrapper", ["child", "nohup"])
async def test_a_wrapper_may_stand_between_the_command_and_the_world(
    tmp_path: Path, wrapper: str
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path, wrapper=wrapper)) as world:
        started = await world.start(run_dir=tmp_path / "run")
        assert len(descendants(started.pid)) == 1
        await world.stop()
        assert not is_listening(started.port)


# ------------------------------------------------------------------------------- several


async def test_instances_of_one_world_run_side_by_side(tmp_path: Path) -> None:
    started: dict[str, StartedWorld] = {}

    async def start(name: str) -> None:
        started[name] = await world.start(name=name, run_dir=tmp_path / "run")

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            for name in ("a", "b", "c"):
                tasks.start_soon(start, name)
        assert set(world.instances) == set(started) == {"a", "b", "c"}
        for number, (name, one) in enumerate(started.items()):
            access = await world.connect("Rocky", instance=name)
            assert add(one, access["headers"], number)["counter"] == number
        await world.stop(instance="b")
        assert set(world.instances) == {"a", "c"}
        assert not is_listening(started["b"].port)
        assert all(api_doc(started[name]).status == 200 for name in ("a", "c"))
        with pytest.raises(UsageError, match="no instance was named"):
            await world.stop()


async def test_concurrent_starts_without_a_name_never_share_one(tmp_path: Path) -> None:
    started: list[StartedWorld] = []

    async def start(run_dir: str) -> None:
        started.append(await world.start(run_dir=tmp_path / run_dir))

    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        async with anyio.create_task_group() as tasks:
            for run_dir in ("r1", "r1", "r2", "r2"):
                tasks.start_soon(start, run_dir)
        assert set(world.instances) == {one.name for one in started}
        assert len(world.instances) == 4
        for one in started:
            await world.stop(instance=one.name)
            assert not is_alive(one.pid)


async def test_several_worlds_of_one_directory_run_at_once(tmp_path: Path) -> None:
    directory = make_world(tmp_path)
    async with AsyncWorld(dir=directory) as left, AsyncWorld(dir=directory) as right:
        first, second = await left.start(), await right.start()
        assert {first.name, second.name} == {"w000", "w001"}
        assert first.port != second.port
        await left.stop()
        assert api_doc(second).status == 200
        assert (await right.save())["instance"] == second.name


async def test_stop_then_start_takes_the_same_port_at_once(tmp_path: Path) -> None:
    port = free_port()
    pids = []
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        for _ in range(3):
            started = await world.start(port=port, run_dir=tmp_path / "run")
            await world.connect("Rocky")
            pids.append(started.pid)
            await world.stop(grace_seconds=1)
    assert len(set(pids)) == 3


# ----------------------------------------------------------------------- detach and attach


def run_orchestrator(program: str, *arguments: str) -> str:
    """Run an async program as an orchestrator of its own; return what it printed."""
    text = (
        "import sys, anyio\n"
        "from clawblox import AsyncWorld\n"
        "async def main():\n"
        + "".join(f"    {line}\n" for line in program.strip().splitlines())
        + "anyio.run(main)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert done.returncode == 0
    return done.stdout


DETACH = """
async with AsyncWorld(dir=sys.argv[1]) as world:
    started = await world.start(run_dir=sys.argv[2], detach=True)
    print(started.pid)
"""


async def test_a_detached_instance_outlives_its_orchestrator_and_can_be_attached(
    tmp_path: Path,
) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    pid = int(run_orchestrator(DETACH, str(directory), str(run)))
    assert is_alive(pid)
    async with AsyncWorld.attach(run) as world:
        assert world.instances == ("w000",)
        assert world.dir == directory
        assert world.url == f"http://127.0.0.1:{world.port}"
        assert (await world.connect("Rocky"))["agent_id"] == "agent-1"
        assert (await world.save())["path"].is_file()
        async with world.logs() as lines:
            assert (await anext(lines)).text == f"counter world, process {pid}"
    assert is_alive(pid)
    async with AsyncWorld.attach(run) as world:
        port = world.port
        assert (await world.stop()).rung == "terminated"
        assert not is_alive(pid)
        assert port is not None
        assert not is_listening(port)
    with pytest.raises(UsageError, match="0 worlds"):
        AsyncWorld.attach(run)


async def test_an_instance_that_was_detached_here_can_be_attached_and_ended_here(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(run_dir=tmp_path / "run", detach=True)
    assert is_alive(started.pid)
    async with AsyncWorld.attach(tmp_path / "run") as world:
        await world.stop()
    assert started.pid not in all_processes()  # not even a zombie


async def test_an_attached_world_that_dies_is_an_event(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pid = int(run_orchestrator(DETACH, str(make_world(tmp_path)), str(run)))
    async with AsyncWorld.attach(run) as world, world.events() as events:
        assert world.port is not None
        ask(world.port, "POST", "/__die?status=3")
        with anyio.fail_after(DEADLINE_S):
            await next_event(events, "exited")
        assert not is_alive(pid)


async def test_a_detached_instance_keeps_its_name(tmp_path: Path) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    pid = int(run_orchestrator(DETACH, str(directory), str(run)))
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(RunLockedError, match=f"pid {pid} "):
            await world.start(name="w000", run_dir=run)
        assert (await world.start(run_dir=run)).name == "w001"
    async with AsyncWorld.attach(run) as world:
        await world.stop()


# ------------------------------------------------------------------------ two orchestrators

HOLD = """
async with AsyncWorld(dir=sys.argv[1]) as world:
    started = await world.start(run_dir=sys.argv[2], name="one")
    print(started.port, flush=True)
    await anyio.to_thread.run_sync(sys.stdin.read)
"""


@contextlib.contextmanager
def other_orchestrator(directory: Path, run: Path) -> Iterator[tuple[int, int]]:
    """Hold the name ``one`` of a run from another process; yield its pid and the port."""
    body = "".join(f"    {line}\n" for line in HOLD.strip().splitlines())
    text = (
        "import sys, anyio, anyio.to_thread\nfrom clawblox import AsyncWorld\n"
        f"async def main():\n{body}anyio.run(main)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text, str(directory), str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.communicate()
    assert process.returncode == 0


async def test_a_name_that_another_orchestrator_holds_is_refused_and_names_it(
    tmp_path: Path,
) -> None:
    directory, run = make_world(tmp_path), tmp_path / "run"
    with other_orchestrator(directory, run) as (pid, port):
        async with AsyncWorld(dir=directory) as world:
            with pytest.raises(RunLockedError) as caught:
                await world.start(name="one", run_dir=run)
            assert (await world.start(run_dir=run)).name == "w000"
            assert (await world.start(name="one", run_dir=tmp_path / "other")).name == "one"
        assert caught.value.pid == pid
        assert f"pid {pid} ({sys.executable}" in str(caught.value)
        assert ask(port, "GET", "/api.md").status == 200
    async with AsyncWorld(dir=directory) as world:
        assert (await world.start(name="one", run_dir=run)).name == "one"


async def test_a_name_in_use_here_is_refused_and_the_running_instance_stays(
    tmp_path: Path,
) -> None:
    async with AsyncWorld(dir=make_world(tmp_path)) as world:
        started = await world.start(name="one", run_dir=tmp_path / "run")
        for run_dir in ("run", "other"):
            with pytest.raises(UsageError, match="has an instance 'one' already"):
                await world.start(name="one", run_dir=tmp_path / run_dir)
        assert world.instances == ("one",)
        assert api_doc(started).status == 200
        assert (await world.stop()).rung == "terminated"
        assert not is_alive(started.pid)


# -------------------------------------------------------------------------------- lost port

GATE = """
echo "$WORLD_PORT" > port.part && mv port.part port
until [ -e go ]; do sleep 0.01; done
exec "$@"
"""


def gated_world(parent: Path, *flags: str) -> Path:
    """Return a world that writes down its port and runs when the file ``go`` is there."""
    return world_that_runs(parent, "bash", "-c", GATE, "gate", *world_command(*flags))


async def test_a_leased_port_that_a_stranger_took_is_replaced_by_another(tmp_path: Path) -> None:
    directory = gated_world(tmp_path)
    started: list[StartedWorld] = []

    async def start() -> None:
        started.append(await world.start(run_dir=tmp_path / "run"))

    with socket.socket() as stranger, anyio.fail_after(DEADLINE_S):
        async with AsyncWorld(dir=directory) as world, world.events() as events:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(start)
                lost = await read_json(directory / "port")
                stranger.bind(("127.0.0.1", lost))
                stranger.listen()
                (directory / "go").touch()
            assert started[0].port != lost
            assert api_doc(started[0]).status == 200
            ports = [(await next_event(events, "started")).detail["port"] for _ in range(2)]
            assert ports == [lost, started[0].port]
            assert (await world.save())["format"] == "counter-v1"


async def test_a_given_port_that_a_stranger_took_is_not_replaced(tmp_path: Path) -> None:
    directory, port = gated_world(tmp_path), free_port()
    failures: list[WorldError] = []

    async def start() -> None:
        with pytest.raises(WorldExitedBeforeReady) as caught:
            await world.start(port=port, run_dir=tmp_path / "run")
        failures.append(caught.value)

    with socket.socket() as stranger, anyio.fail_after(DEADLINE_S):
        async with AsyncWorld(dir=directory) as world, anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await read_json(directory / "port")
            stranger.bind(("127.0.0.1", port))
            stranger.listen()
            (directory / "go").touch()
    assert "Address already in use" in "\n".join(failures[0].log_lines)


# ----------------------------------------------------------------------------------- token

CANARY = "canary-2f6c0b9e4d7a4a53"


async def next_event(events: Any, kind: str) -> WorldEvent:
    """Return the next event of a kind."""
    async for event in events:
        if event.kind == kind:
            return event  # type: ignore[no-any-return]
    raise AssertionError(f"no event {kind!r}")


def shown(value: object) -> str:
    """Return all that somebody could see of a value, an error's traceback included."""
    texts = [repr(value), str(value), repr(getattr(value, "__dict__", ""))]
    if isinstance(value, BaseException):
        texts += [*traceback.format_exception(value), repr(pickle.dumps(value))]
    return "\n".join(texts)


async def failures_of(calls: Sequence[Callable[[], Any]]) -> list[str]:
    """Make calls that fail; return what is shown of each error."""
    seen = []
    for call in calls:
        with pytest.raises(WorldError) as caught:
            await call()
        seen.append(shown(caught.value))
    return seen


async def test_the_operator_token_is_seen_nowhere_but_in_the_worlds_own_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory, run = make_world(tmp_path, "--tell-token"), tmp_path / "run"
    seen = []
    async with AsyncWorld(dir=directory) as world, world.events() as events:
        started = await world.start(run_dir=run, env={"WORLD_OPERATOR_TOKEN": CANARY})
        assert CANARY in started.log_file.read_text()
        processes = {os.getpid(), *descendants(os.getpid()), *marked_processes()}
        seen += [command_line(pid) for pid in processes]
        seen += [shown(value) for value in (started, await world.connect("Rocky"))]
        seen += [shown(await world.save())]
        ask(started.port, "POST", "/__set?snapshot=status-500&join=status-500")
        seen += await failures_of([world.save, lambda: world.connect("Bullwinkle")])
        ask(started.port, "POST", "/__die?status=3")
        await next_event(events, "exited")
        dead = await failures_of([world.save, lambda: world.connect("Natasha")])
        assert all("my token is ***" in text for text in dead)
        seen += [*dead, shown(await world.stop())]
    failing = world_that_runs(
        tmp_path, *world_command("--tell-token", "--exit-at-once=1"), name="x"
    )
    async with AsyncWorld(dir=failing) as world:
        env = {"WORLD_OPERATOR_TOKEN": CANARY}
        seen += await failures_of([lambda: world.start(run_dir=run, env=env)])
        assert "my token is ***" in seen[-1]
    seen += [shown(event) async for event in events]
    seen += [
        path.read_text() for path in run.rglob("*") if path.is_file() and path.suffix != ".log"
    ]
    seen += capfd.readouterr()
    assert len(seen) > 15
    assert not [text for text in seen if CANARY in text]
