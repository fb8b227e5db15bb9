"""The environment of a started world, and the command file that reproduces it."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawblox import AsyncWorld
from tests.support.running import manifest_of
from tests.support.sockets import free_port, is_listening
from tests.support.starting import dumped, read_json
from tests.support.waiting import HANG_S, wait_until
from tests.support.worlds import ask, make_world

pytestmark = pytest.mark.anyio


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
        *("CLAWBLOX_LEASE", "WORLD_DATASTORE_PATH", "WORLD_FILES_SHA256"),
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


async def test_variables_that_do_not_apply_are_unset_even_if_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = ("WORLD_RECORD_DIR", "WORLD_RESUME_PATH")
    foreign = (
        *absent,
        "WORLD_BASE_PATH",
        "WORLD_PORT",
        "WORLD_OPERATOR_TOKEN",
        "CLAWBLOX_INSTANCE",
        "WORLD_RECORD",
    )
    for name in foreign:
        monkeypatch.setenv(name, "/of/an/outer/world")
    monkeypatch.setenv("COLOUR", "inherited")
    async with dumped(tmp_path) as (started, dump):
        env = dump["env"]
    assert not set(absent) & env.keys()
    assert env["WORLD_BASE_PATH"] == ""
    assert env["WORLD_PORT"] == str(started.port)
    assert env["WORLD_RECORD"] == "0"
    assert "/of/an/outer/world" not in env.values()
    assert env["COLOUR"] == "inherited"


async def test_every_instance_has_its_own_tokens_and_mark(tmp_path: Path) -> None:
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
    """Open a file as standard input and as an inheritable descriptor."""
    before = os.dup(0)
    with path.open("w") as file:
        os.set_inheritable(file.fileno(), True)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


async def test_process_has_its_own_session_and_inherits_no_descriptors(tmp_path: Path) -> None:
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
    """Run a command file like a user would, with an almost empty environment."""
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
        process.wait(HANG_S)


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
        assert process.pid == second["pid"]  # without a shell in between
    same = ("WORLD_HOST", "WORLD_PORT", "WORLD_BASE_PATH", "WORLD_RECORD", "COLOUR")
    assert {key: second["env"][key] for key in same} == {key: first["env"][key] for key in same}
    assert second["cwd"] == first["cwd"]
    assert second["env"]["WORLD_OPERATOR_TOKEN"] != first["env"]["WORLD_OPERATOR_TOKEN"]
    assert len(second["env"]["WORLD_OPERATOR_TOKEN"]) >= 32
    assert "API_KEY" not in second["env"]


@pytest.mark.thorough
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


@pytest.mark.thorough
async def test_command_file_and_snapshot_are_not_needed_after_the_start(
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
