"""The environment of an instance's processes, and its command file."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import attrs
import pytest

from clawblox.config.world_toml import WorldConfig, read_world_config
from clawblox.instance.environment import child_environment, render_command_file, world_environment
from clawblox.instance.launch import Launch
from tests.instance.test_launch import planned, planned_many
from tests.support.worlds import make_world

MANIFEST = Path("/run/.clawblox/manifest.json")


@pytest.fixture
def config(tmp_path: Path) -> WorldConfig:
    return read_world_config(make_world(tmp_path, toml_extra="reseed = true"))


OUTER = {
    "WORLD_HOST": "0.0.0.0",
    "WORLD_PORT": "1",
    "WORLD_BASE_PATH": "/outer",
    "WORLD_RECORD": "1",
    "WORLD_RECORD_DIR": "/outer",
    "WORLD_RESUME_PATH": "/outer.json",
    "WORLD_RESEED": "9",
    "WORLD_DATASTORE_PATH": "/outer.db",
    "WORLD_OPERATOR_TOKEN": "outer",
    "WORLD_SPECTATOR_TOKEN": "outer",
    "CLAWBLOX_MANIFEST_PATH": "/outer",
    "CLAWBLOX_BIN": "/outer",
    "CLAWBLOX_INSTANCE": "outer",
    "LISTEN_FDS": "1",
    "LISTEN_PID": str(os.getpid()),
    "LISTEN_FDNAMES": "outer",
}
"""The environment of a process that is itself a world."""

WITHOUT_A_VALUE = {
    *("WORLD_RECORD_DIR", "WORLD_RESUME_PATH"),
    *("LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"),
}


def environment_of(launch: Launch) -> dict[str, str]:
    return child_environment(launch, world_environment(launch, "w000", 20001), "c00c1e", "0.t")


def test_world_inside_a_run_writes_to_the_outer_run(config: WorldConfig) -> None:
    rows = "/outer/datastore/w000.db"
    outer = {"CLAWBLOX_LEASE": "0.t", "WORLD_PORT": "20001", "WORLD_DATASTORE_PATH": rows}
    outer["CLAWBLOX_MANIFEST_PATH"] = "/outer/manifest.json"
    launch = attrs.evolve(planned(config, run_dir="/run", port=20001), inherited=outer)
    world = world_environment(launch, "w000", 20001)
    assert (world.datastore_path, world.manifest_path) == (Path(rows), Path("/outer/manifest.json"))
    elsewhere = world_environment(launch, "w000", 20002)
    assert (elsewhere.datastore_path, elsewhere.manifest_path) == (None, MANIFEST)


def test_instance_has_its_own_rows_unless_its_port_is_given(config: WorldConfig) -> None:
    (one,) = planned_many(config, 1)
    own = one.instance_dir / "datastore" / "w000.db"
    assert environment_of(one)["WORLD_DATASTORE_PATH"] == str(own)
    without = attrs.evolve(one, options=attrs.evolve(one.options, datastore="none"))
    for other in (without, planned(config, port=20001)):
        assert "WORLD_DATASTORE_PATH" not in environment_of(other)


def test_variables_of_an_outer_world_are_not_inherited(
    config: WorldConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in OUTER.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTHER", "kept")
    env = environment_of(planned(config, run_dir="/run"))
    assert env["OTHER"] == "kept"
    assert env.keys() & OUTER.keys() == OUTER.keys() - WITHOUT_A_VALUE
    assert (env["WORLD_HOST"], env["WORLD_PORT"]) == ("127.0.0.1", "20001")
    assert (env["WORLD_RECORD"], env["CLAWBLOX_INSTANCE"]) == ("0", "c00c1e")
    assert env["WORLD_RESEED"] != OUTER["WORLD_RESEED"]
    assert env["CLAWBLOX_MANIFEST_PATH"] == str(MANIFEST)
    assert "outer" not in {env["WORLD_OPERATOR_TOKEN"], env["WORLD_SPECTATOR_TOKEN"]}
    assert "/outer" not in env["CLAWBLOX_BIN"]


def test_the_callers_variables_override_the_variables_of_this_process(
    config: WorldConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C")
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    launch = planned(config, env={"LANG": "de_DE", "WORLD_OPERATOR_TOKEN": "mine"})
    env = environment_of(launch)
    assert (env["LANG"], env["WORLD_OPERATOR_TOKEN"]) == ("de_DE", "mine")
    assert env["PYTHONUNBUFFERED"] == "1"
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    assert environment_of(planned(config))["PYTHONUNBUFFERED"] == ""


def test_seed_of_a_fork_is_in_its_environment_and_script(
    config: WorldConfig, tmp_path: Path
) -> None:
    (tmp_path / "counter" / "parent.json").touch()
    launch = planned_many(config, 2, resume="parent.json", reseed=2**64 - 2)[1]
    world = world_environment(launch, "w000", 20001)
    assert child_environment(launch, world, "c", "0.t")["WORLD_RESEED"] == str(2**64 - 1)
    script = render_command_file(launch, world)
    assert f"WORLD_RESEED={2**64 - 1}; export WORLD_RESEED" in script
    assert str(config.dir / "parent.json") in script


def test_every_instance_has_its_own_tokens(config: WorldConfig) -> None:
    tokens = [
        token
        for launch in planned_many(config, 3)
        for token in world_environment(launch, "w000", 20001).secrets().values()
    ]
    assert len(set(tokens)) == 6
    assert all(re.fullmatch(r"[\w-]{43}", token) for token in tokens)


def test_rerun_script_contains_no_socket_and_no_secret(config: WorldConfig) -> None:
    launch = planned(config, env={"API_KEY": "hush", "DB_PASSWD": "quiet", "PLAIN": "it's so"})
    world = world_environment(launch, "w000", 20001)
    script = render_command_file(launch, world)
    assert "LISTEN_" not in script
    for secret in ("hush", "quiet", *world.secrets().values()):
        assert secret not in script
    text = script.replace("exec ", 'printf %s "$PLAIN$WORLD_PORT" #')
    shown = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert shown.stdout == "it's so20001"
