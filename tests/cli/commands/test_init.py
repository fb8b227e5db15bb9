"""``clawblox init``: a starter world that plays and resumes exactly."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

import clawblox.cli
from clawblox.cli.commands import init
from clawblox.luau import VM
from tests.cli.conftest import Command, Start, only_run
from tests.support.sockets import free_port
from tests.support.worlds import ask

MOVES = ["north", "east", "east", "north", "west", "south"]


@pytest.fixture
def env() -> dict[str, str]:
    """Return an environment in which ``python`` may be any interpreter, or none."""
    return {"PATH": "/usr/bin:/bin", "WORLD_OPERATOR_TOKEN": "s3cret"}


def play(port: int, session: str) -> list[bytes]:
    headers = {"X-Session": session, "Content-Type": "application/json"}
    bodies = [json.dumps({"type": "Walk", "data": move}).encode() for move in MOVES * 4]
    answers = [ask(port, "POST", "/input", headers=headers, body=body) for body in bodies]
    assert {answer.status for answer in answers} == {200}
    return [answer.body for answer in answers]


@pytest.mark.thorough
def test_the_starter_world_plays_and_resumes_exactly(
    call: Start, start: Start, tmp_path: Path, env: dict[str, str]
) -> None:
    call("init", "worlds/panda", cwd=tmp_path)
    world = tmp_path / "worlds" / "panda"

    def run(*words: str) -> tuple[Command, int]:
        port = free_port()
        command = start("run", str(world), "--port", str(port), *words, env=env)
        command.wait_for("World 'panda' is ready at")
        return command, port

    command, port = run("--reseed", "7")
    session = ask(port, "POST", "/join?name=Rocky").json()["session"]
    play(port, session)
    saved = ask(port, "GET", "/snapshot", headers={"X-Operator-Token": "s3cret"}).body
    (world / "saved.json").write_bytes(saved)
    first = play(port, session)
    assert json.loads(first[-1])["picked"] > 0
    assert command.interrupt() == 130

    command, port = run("--resume", "saved.json")
    assert play(port, session) == first
    assert command.interrupt() == 130


@pytest.mark.thorough
def test_the_starter_world_refuses_impossible_moves(
    call: Start, start: Start, tmp_path: Path, env: dict[str, str]
) -> None:
    call("init", cwd=tmp_path)
    port = free_port()
    start("run", str(tmp_path / "my-world"), "--port", str(port), env=env).wait_for("is ready at")
    session = ask(port, "POST", "/join?name=Rocky").json()["session"]
    headers = {"X-Session": session, "Content-Type": "application/json"}
    for data in ("up", ["north"], {"x": 1}, None, 7):
        body = json.dumps({"type": "Walk", "data": data}).encode()
        assert ask(port, "POST", "/input", headers=headers, body=body).status == 400


@pytest.mark.thorough
def test_an_error_in_the_starter_world_ends_it_with_its_reason(
    call: Start, start: Start, tmp_path: Path, env: dict[str, str]
) -> None:
    call("init", cwd=tmp_path)
    world, port = tmp_path / "my-world", free_port()
    config = (world / "world.toml").read_text()
    assert tomllib.loads(config)["run"]["liveness"] == {"path": "/health"}
    (world / "world.toml").write_text(
        config.replace('path = "/health"', 'path = "/health"\nperiod = 0.05')
    )
    code = (world / "world.py").read_text()
    (world / "world.py").write_text(code.replace('me["picked"],', 'me["pocked"],'))
    command = start("run", str(world), "--port", str(port), env=env)
    command.wait_for("is ready at")
    session = ask(port, "POST", "/join?name=Rocky").json()["session"]
    seen = ask(port, "GET", "/observe", headers={"X-Session": session})
    assert (seen.status, seen.body[:29]) == (503, b"Game halted: KeyError: 'pocked'"[:29])
    assert command.wait() == 1
    assert command.err.startswith("Error: w000: World 'my-world' halted: KeyError: 'pocked'\n")
    assert "| KeyError: 'pocked'" in command.err
    run_dir = str(only_run(Path.cwd()))
    table = call("ps", run_dir).out.splitlines()
    assert "halted: KeyError: 'pocked'" in table[1]
    (shown,) = json.loads(call("ps", run_dir, "--json").out)
    assert (shown["state"], shown["halt"]) == ("halted", "KeyError: 'pocked'")


def test_a_name_that_needs_quotes_names_the_world(call: Start, tmp_path: Path) -> None:
    name = 'big "red" \\ 🐼'
    command = call("init", name, cwd=tmp_path)
    assert tomllib.loads((tmp_path / name / "world.toml").read_text())["name"] == name
    assert command.out.endswith(f"Run it: clawblox run '{name}'\n")


def test_init_refuses_a_directory_that_is_not_empty(call: Start, tmp_path: Path) -> None:
    (tmp_path / "world").mkdir()
    assert call("init", "world", cwd=tmp_path).wait() == 0
    (tmp_path / "world" / "world.py").write_text("mine")
    again = call("init", "world", cwd=tmp_path)
    assert again.wait() == 1
    assert again.err == "Error: NAME: must be a new or an empty directory, not 'world'\n"
    assert (tmp_path / "world" / "world.py").read_text() == "mine"


def test_a_name_with_dots_is_resolved_before_anything_is_written(
    call: Start, tmp_path: Path
) -> None:
    (tmp_path / "world.py").write_text("mine")
    refused = call("init", "new/..", cwd=tmp_path)
    assert refused.wait() == 1
    assert refused.err == "Error: NAME: must be a new or an empty directory, not 'new/..'\n"
    (tmp_path / "empty").mkdir()
    written = call("init", "new/../../empty", cwd=tmp_path / "empty")
    assert written.out.endswith("\nRun it: clawblox run .\n")
    assert tomllib.loads((tmp_path / "empty" / "world.toml").read_text())["name"] == "empty"
    assert (tmp_path / "world.py").read_text() == "mine"
    assert not (tmp_path / "new").exists()


def test_init_does_not_replace_a_file_that_appears_concurrently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "world" / "world.py"

    def appear(_name: str, **_options: bool) -> dict[str, bytes]:
        mine.parent.mkdir()
        mine.write_text("mine")
        return {"world.py": b"ours"}

    monkeypatch.setattr(init, "_starter_files", appear)
    with pytest.raises(FileExistsError):
        init.command.main([str(mine.parent)], standalone_mode=False)
    assert mine.read_text() == "mine"


def test_name_that_is_not_utf8_is_refused_before_files_are_written(
    call: Start, tmp_path: Path
) -> None:
    refused = call("init", os.fsdecode(b"a\xff"), cwd=tmp_path)
    assert refused.wait() == 1
    assert refused.err == "Error: NAME: must be text in UTF-8, not 'a\\udcff'\n"
    assert not (tmp_path / os.fsdecode(b"a\xff")).exists()


def test_the_suggested_command_works_for_every_directory_name(call: Start, tmp_path: Path) -> None:
    written = call("init", "--", "-x y", cwd=tmp_path)
    assert written.out.endswith("\nRun it: clawblox run -- '-x y'\n")


def test_an_engine_world_has_the_files_that_its_world_toml_names(
    call: Start, tmp_path: Path
) -> None:
    written = call("init", "--engine", 'worlds/"isle"', cwd=tmp_path)
    world = tmp_path / "worlds" / '"isle"'
    config = tomllib.loads((world / "world.toml").read_text())
    assert config["name"] == '"isle"'
    assert config["renderer"]["name"] == "Coin Island"
    named = [config["scripts"]["main"], config["scripts"]["skill"]]
    named.append(f"renderer/{config['renderer']['entry']}")
    files = {str(path.relative_to(world)) for path in world.rglob("*") if path.is_file()}
    assert files == {"world.toml", ".gitignore", *named}
    assert (world / "assets").is_dir()
    ignored = (world / ".gitignore").read_text().split()
    assert ignored == [".clawblox/", ".clawblox.log"]
    assert written.out.count("Wrote ") == len(files)
    assert written.out.endswith("\nRun it: clawblox run 'worlds/\"isle\"'\n")


def test_the_script_of_an_engine_world_compiles() -> None:
    starter = Path(clawblox.cli.__file__).with_name("starter") / "engine"
    VM().load((starter / "main.lua").read_text(), "main")
