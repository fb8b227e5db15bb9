"""Help texts, the version, the guide."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from clawblox import __version__
from clawblox.cli import main
from tests.cli.conftest import Start

GUIDE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
COMMANDS = main.list_commands(click.Context(main))


def find(name: str) -> click.Command:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command


def options_of(name: str) -> list[click.Option]:
    """Return the options of a command that are for people."""
    options = [param for param in find(name).params if isinstance(param, click.Option)]
    return [option for option in options if not option.hidden]


@pytest.mark.parametrize("words", [(), *((name,) for name in COMMANDS)])
def test_every_help_fits_the_screen_and_shows_examples(call: Start, words: tuple[str, ...]) -> None:
    command = call(*words, "--help", env={"COLUMNS": "80"})
    assert command.wait() == 0
    assert command.err == ""
    assert max(map(len, command.out.splitlines())) <= 80
    assert f"  clawblox {' '.join(words)}".rstrip() in command.out.partition("Examples:")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    ends = (".", "]")
    assert [one.name for one in options_of(name) if not (one.help or "").endswith(ends)] == []


@pytest.mark.parametrize("name", ["run", "up", "fork"])
def test_every_option_is_in_a_section(name: str) -> None:
    context = click.Context(find(name), info_name=name)
    _, _, last = find(name).get_help(context).partition("\nOther:\n")
    assert last.split("\n\n")[0].split() == ["--help", "Show", "this", "message", "and", "exit."]


def test_the_overview_lists_every_command_in_a_section(call: Start) -> None:
    out = call("--help").out
    assert [line.split()[0] for line in out.splitlines() if line[2:6].strip() in COMMANDS] == (
        COMMANDS
    )


def test_the_version_is_printed(call: Start) -> None:
    assert call("--version").out == f"clawblox {__version__}\n"


def test_an_unknown_command_is_a_usage_error(call: Start) -> None:
    command = call("fly")
    assert command.wait() == 2
    assert "Error: No such command 'fly'." in command.err


@pytest.mark.parametrize("name", COMMANDS)
def test_the_guide_names_every_command_option_and_variable(name: str) -> None:
    _, _, rest = GUIDE.partition(f"\n## clawblox {name}\n")
    section = rest.partition("\n## ")[0]
    for option in options_of(name):
        for flag in (*option.opts, *option.secondary_opts):
            assert f"`{flag}" in section
        assert not option.envvar or f"`{option.envvar}`" in section
