"""Unusable paths and counts on the command line."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tests.cli.conftest import Start
from tests.support.all_commands import every_command
from tests.support.worlds import make_world

IS_PATH = re.compile(r"FILE|DIR|WORLD|SOURCE")


PATHS = [
    pytest.param(command, param, id=f"{name} {param.name}")
    for name, command in every_command()
    for param in command.params
    if IS_PATH.search(param.metavar or param.type.name.upper())
    or (name, param.name) == ("init", "name")
]


def test_the_paths_of_the_commands_are_found() -> None:
    assert len(PATHS) > 20


@pytest.mark.parametrize(("command", "param"), PATHS)
def test_an_empty_path_is_refused_for_every_parameter(
    command: click.Command, param: click.Parameter
) -> None:
    args = [
        "" if one is param else "x" for one in command.params if isinstance(one, click.Argument)
    ]
    args += [param.opts[0], ""] if isinstance(param, click.Option) else []
    with pytest.raises(click.BadParameter, match=r"must be .*, not ''") as refusal:
        command.make_context(str(command.name), args)
    assert refusal.value.param is param


def test_a_prompt_from_a_file_without_a_name_is_refused() -> None:
    command = dict(every_command())["run"]
    with pytest.raises(click.BadParameter, match=r"^must be a text, or '@' and a file, not '@?'$"):
        command.make_context("run", ["x", "--prompt", "@"])


@pytest.mark.thorough
@pytest.mark.parametrize("words", [("run", "--port", "0"), ("up",), ("up", "--detach")])
@pytest.mark.parametrize("place", ["file", "/proc/x"])
def test_an_unusable_run_directory_is_named_in_a_few_lines(
    call: Start, tmp_path: Path, words: tuple[str, ...], place: str
) -> None:
    (tmp_path / "file").touch()
    command = call(*words, str(make_world(tmp_path)), "--run-dir", place, cwd=tmp_path)
    assert command.wait() == 2
    error = command.err[command.err.index("Error: ") :]
    assert error.startswith("Error: --run-dir: the run directory cannot be used: ")
    assert place in error
    assert len(error.splitlines()) < 8


@pytest.mark.parametrize("words", [("up",), ("fork", "run", "w000")])
def test_more_instances_than_ports_are_refused_immediately(
    call: Start, words: tuple[str, ...]
) -> None:
    command = call(*words, "-n", "100000")
    assert command.wait() == 2
    assert "1 to 12000, not 100000" in command.err
