"""A start fails with the place in the source if the scripts of the world do not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clawblox import World, WorldStartError
from tests.support.waiting import HANG_S

SCRIPTS = {
    "a main script with an error": (
        {"main.lua": "local x = nil\nx.y = 1\nprint(1)\n"},
        "main.lua:2: attempt to index nil with 'y'",
        [">     2 | x.y = 1", "      1 | local x = nil", "      3 | print(1)"],
    ),
    "a main script that does not compile": (
        {"main.lua": "local x = nil\nlocal = 1\nprint(1)\n"},
        "main.lua:2: ",
        [">     2 | local = 1", "      1 | local x = nil", "      3 | print(1)"],
    ),
    "a script of the tree with an error": (
        {"main.lua": "", "scripts/Workspace/a.lua": "print(1)\nerror('no')\n"},
        "scripts/Workspace/a.lua:2: no",
        [">     2 | error('no')", "      1 | print(1)"],
    ),
    "a script of the tree that does not compile": (
        {"main.lua": "", "scripts/Workspace/a.lua": "print(1)\nend\n"},
        "scripts/Workspace/a.lua:2: ",
        [">     2 | end", "      1 | print(1)"],
    ),
    "a module that does not compile": (
        {"main.lua": "require(workspace.m)", "scripts/Workspace/m.module.lua": "print(1)\nend\n"},
        "scripts/Workspace/m.lua:2: ".replace("m.lua", "m.module.lua"),
        [">     2 | end", "      1 | print(1)"],
    ),
}


def write_world(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "world.toml").write_text('name = "broken"\n')
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


@pytest.mark.parametrize(
    "script",
    [
        script if at == 0 else pytest.param(script, marks=pytest.mark.thorough)
        for at, script in enumerate(SCRIPTS)
    ],
)
def test_a_world_whose_scripts_do_not_load_does_not_start(script, tmp_path):
    files, place, quoted = SCRIPTS[script]
    directory = write_world(tmp_path / "broken", files)
    with World(dir=directory) as world, pytest.raises(WorldStartError) as caught:
        world.start(run_dir=tmp_path / "run", datastore="none")
    text = str(caught.value)
    assert place in text
    assert [line for line in quoted if line not in text] == []


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clawblox", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("command", [("run", "--port", "0"), ("up", "-n", "2")], ids=["run", "up"])
def test_the_command_line_fails_and_quotes_the_script(command, tmp_path):
    files, place, quoted = SCRIPTS["a main script with an error"]
    directory = write_world(tmp_path / "broken", files)
    ended = run_command(*command, str(directory), "--run-dir", str(tmp_path / "run"))
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert place in said
    assert [line for line in quoted if line not in said] == []
    assert " is ready at " not in said


@pytest.mark.thorough
def test_invalid_module_is_ignored_unless_required(tmp_path):
    files = {"main.lua": "print(1)", "scripts/Workspace/m.module.lua": "end"}
    directory = write_world(tmp_path / "sound", files)
    with World(dir=directory) as world:
        assert world.start(run_dir=tmp_path / "run", datastore="none").name == "w000"
