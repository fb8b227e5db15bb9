"""The Python of a world: the interpreter that runs clawblox, regardless of how it was started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from clawblox import (
    AsyncWorld,
    SnapshotRefusedError,
    WorldCommandError,
    WorldError,
    WorldExitedBeforeReadyError,
)
from tests.support.starting import dumped, read_json, world_that_runs
from tests.support.waiting import wait_until_async
from tests.support.worlds import world_command

pytestmark = pytest.mark.anyio

HERE = str(Path(sys.executable).parent)
ACTIVATED = ("VIRTUAL_ENV", "CONDA_PREFIX")


@pytest.fixture(autouse=True)
def _as_from_cron(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment of a program started without an activated environment."""
    for name in ACTIVATED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def fake_program(directory: Path, name: str) -> Path:
    """Write a program that prints its own path and ends."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text('#!/bin/sh\necho "found $0"\nexit 3\n')
    program.chmod(0o755)
    return program


# -------------------------------------------------------------------------------------- PATH


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/bin:/bin", f"{HERE}:/usr/bin:/bin"),
        (f"{HERE}:/bin", f"{HERE}:/bin"),
        (f"/bin:{HERE}", f"{HERE}:/bin:{HERE}"),
        (None, f"{HERE}:{os.defpath}"),
    ],
)
async def test_path_starts_with_this_interpreter_without_an_activated_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None, expected: str
) -> None:
    if path is None:
        monkeypatch.delenv("PATH")
    else:
        monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("VIRTUAL_ENV", "")
    async with dumped(tmp_path) as (_, dump):
        assert dump["env"]["PATH"] == expected


@pytest.mark.parametrize("variable", ACTIVATED)
async def test_an_activated_environment_leaves_the_path_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/somewhere")
    async with dumped(tmp_path) as (_, dump):
        assert dump["env"]["PATH"] == "/usr/bin:/bin"


async def test_environment_activated_by_the_caller_counts(tmp_path: Path) -> None:
    async with dumped(tmp_path, env={"VIRTUAL_ENV": "/somewhere"}) as (_, dump):
        assert dump["env"]["PATH"] == "/usr/bin:/bin"


async def test_a_given_path_takes_precedence_and_is_searched(
    tmp_path: Path,
) -> None:
    program = fake_program(tmp_path / "bin", "python")
    path = f"{program.parent}:/usr/bin:/bin"
    async with AsyncWorld(dir=world_that_runs(tmp_path, "python", "x.py")) as world:
        with pytest.raises(WorldExitedBeforeReadyError) as caught:
            await world.start(run_dir=tmp_path / "run", env={"PATH": path})
    assert caught.value.log_lines == (f"found {program}",)
    assert caught.value.command_file is not None
    script = caught.value.command_file.read_text()
    assert f"PATH={path}; export PATH" in script
    assert "VIRTUAL_ENV" not in script


@pytest.mark.parametrize("listen", ["bind", "inherit"])  # with a shell in between
async def test_command_is_searched_in_the_same_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listen: str
) -> None:
    fake_program(tmp_path / "bin", "python")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    code = "import sys; print(sys.executable); sys.exit(4)"
    directory = world_that_runs(tmp_path, "python", "-c", code)
    with (directory / "world.toml").open("a") as file:
        file.write(f'listen = "{listen}"\n')
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(WorldExitedBeforeReadyError) as caught:
            await world.start(run_dir=tmp_path / "run")
    assert caught.value.exit is not None
    assert caught.value.exit.status == 4
    (line,) = caught.value.log_lines
    assert Path(line).parent == Path(HERE)


# ---------------------------------------------------------------------------------- {python}


def world_on_python(parent: Path, *flags: str) -> tuple[Path, list[str]]:
    """Write a world whose command and sidecar name ``{python}``; return it and its command."""
    *_, isolated, no_site, script = world_command()
    command = ["{python}", isolated, no_site, script, *flags]
    directory = world_that_runs(parent, *command)
    with (directory / "world.toml").open("a") as file:
        words = ", ".join(f'"{word}"' for word in (*command[:4], "--sidecar", "--dump"))
        side = parent / "side.json"
        file.write(f'[[run.sidecar]]\nname = "side"\ncommand = [{words}, "{side}"]\n')
    return directory, command


async def test_python_placeholder_is_replaced_in_command_sidecar_and_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere/else")
    directory, template = world_on_python(tmp_path, "--dump", str(tmp_path / "dump.json"))
    async with AsyncWorld(dir=directory) as world:
        assert world.start_command == world.run_command == template
        started = await world.start(run_dir=tmp_path / "run")
        argv = Path(f"/proc/{started.pid}/cmdline").read_bytes().split(b"\0")[:-1]
        assert [os.fsdecode(word) for word in argv] == started.command
        await wait_until_async((tmp_path / "side.json").exists, what="the sidecar runs")
    assert started.command == [sys.executable, *template[1:]]
    assert started.start_command == started.run_command == template
    last = started.command_file.read_text().splitlines()[-1]
    assert shlex.split(last) == ["exec", *started.command]


async def test_python_placeholder_is_replaced_only_as_a_whole_word(tmp_path: Path) -> None:
    directory = world_that_runs(tmp_path, "/bin/echo", "{python}", "{python}3", "x{python}")
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(WorldExitedBeforeReadyError) as caught:
            await world.start(run_dir=tmp_path / "run")
    assert caught.value.log_lines == (f"{sys.executable} {{python}}3 x{{python}}",)


# ------------------------------------------------------------------------------ command file


@pytest.mark.parametrize("env", [{}, {"PATH": "/usr/bin:/bin"}], ids=["bare", "cron"])
async def test_command_file_finds_this_interpreter_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/somewhere")
    async with dumped(tmp_path) as (started, _):
        pass
    dump = tmp_path / "dump.json"
    dump.unlink()
    with subprocess.Popen(["/bin/sh", started.command_file], env=env) as process:
        try:
            again = await read_json(dump)
        finally:
            process.kill()
    assert again["env"]["PATH"].split(":")[0] == HERE


@pytest.mark.thorough
async def test_the_command_file_leaves_the_path_of_an_activated_environment_alone(
    tmp_path: Path,
) -> None:
    async with dumped(tmp_path) as (started, _):
        pass
    dump = tmp_path / "dump.json"
    dump.unlink()
    env = {"PATH": "/usr/bin:/bin", "CONDA_PREFIX": "/somewhere"}
    with subprocess.Popen(["/bin/sh", started.command_file], env=env) as process:
        try:
            again = await read_json(dump)
        finally:
            process.kill()
    assert again["env"]["PATH"] == "/usr/bin:/bin"


# ------------------------------------------------------------------------------------ errors


async def failed_start(directory: Path, tmp_path: Path, **arguments: object) -> WorldError:
    async with AsyncWorld(dir=directory) as world:
        with pytest.raises(WorldError) as caught:
            await world.start(run_dir=tmp_path / "run", **arguments)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("program", ["python", "python3.99", "/nowhere/bin/python3"])
async def test_missing_python_error_names_this_interpreter(tmp_path: Path, program: str) -> None:
    directory = world_that_runs(tmp_path, program, "world.py")
    error = await failed_start(directory, tmp_path, env={"PATH": "/nowhere"})
    assert isinstance(error, WorldCommandError)
    assert f"cannot execute '{program}'" in error.message
    assert f"clawblox runs on {sys.executable}" in (error.hint or "")
    assert "{python}" in (error.hint or "")


async def test_missing_other_program_has_no_hint_about_python(
    tmp_path: Path,
) -> None:
    error = await failed_start(world_that_runs(tmp_path, "no-such-program"), tmp_path)
    assert error.hint is None


def write_snapshot(directory: Path) -> Path:
    path = directory / "s.json"
    path.write_text("{}")
    return path


@pytest.mark.parametrize(
    "words", [["-c", "import clawblox.server"], ["-m", "clawblox.server"], ["-m", "clawblox"]]
)
@pytest.mark.parametrize("is_resumed", [False, True])
async def test_error_of_a_world_without_clawblox_names_this_interpreter(
    tmp_path: Path, words: list[str], is_resumed: bool
) -> None:
    directory = world_that_runs(tmp_path, sys.executable, "-I", "-S", *words)
    resume = write_snapshot(tmp_path) if is_resumed else None
    error = await failed_start(directory, tmp_path, resume=resume)
    assert isinstance(error, WorldExitedBeforeReadyError)
    assert isinstance(error, SnapshotRefusedError) == is_resumed
    assert "No module named" in error.log_lines[-1]
    assert f"clawblox runs on {sys.executable}" in (error.hint or "")


async def test_missing_module_with_a_similar_name_has_no_hint(tmp_path: Path) -> None:
    code = "raise ModuleNotFoundError(\"No module named 'clawbloxes'\")"
    directory = world_that_runs(tmp_path, "{python}", "-c", code)
    error = await failed_start(directory, tmp_path)
    assert error.hint is None
